/* Messages keep their order when the route changes; routes that open and close are noticed. */
#include "say.h"

enum { ROUNDS = 300 };

/* Echoes how many came in order, then waits for the order to end. */
static int counts(int parent)
{
	int i, n, good = 0, kind;

	for (i = 0; i < ROUNDS; i++) {
		pvm_recv(parent, 1);
		pvm_upkint(&n, 1, 1);
		good += n == i;
	}
	tell(parent, 2, good);
	kind = hear(parent, 3);
	if (kind == 1)
		pvm_exit();
	else if (kind == 2)
		_exit(0);
	else
		abort();
	/* Left, but alive. */
	sleep(60);
	return 0;
}

static void numbered(int tid)
{
	static char large[20000];
	int i;

	for (i = 0; i < ROUNDS; i++) {
		if (i % 10 == 0)
			pvm_setopt(PvmRoute, i % 20 ? PvmDontRoute : PvmRouteDirect);
		pvm_initsend(i % 3 ? PvmDataRaw : PvmDataDefault);
		pvm_pkint(&i, 1, 1);
		pvm_pkbyte(large, i % 7 ? i : (int)sizeof large, 1);
		pvm_send(tid, 1);
	}
	say("in order %d", hear(tid, 2));
}

static int tids[3];

/* The notices of `tag` that have come, by child. */
static void noticed(const char *what, int tag, int count)
{
	int seen[4] = { 0 }, tid, i;

	while (count-- > 0 && within(2000, -1, tag) > 0) {
		pvm_upkint(&tid, 1, 1);
		for (i = 0; i < 3 && tids[i] != tid; i++)
			;
		seen[i]++;
	}
	say("%s: %d %d %d %d", what, seen[0], seen[1], seen[2], seen[3]);
}

int main(void)
{
	int parent = enroll(), i;

	if (parent > 0)
		return counts(parent);
	say("route %d", pvm_getopt(PvmRoute));
	spawn(3, tids, "counts");
	say("notify of routes that open %s", code(pvm_notify(PvmRouteAdd, 11, -1, NULL)));
	say("notify of routes that close %s", code(pvm_notify(PvmRouteDelete, 12, 3, tids)));
	noticed("no route yet", 12, 3);
	for (i = 0; i < 3; i++)
		numbered(tids[i]);
	noticed("routes open", 11, 3);
	say("notify of routes that close %s", code(pvm_notify(PvmRouteDelete, 12, 3, tids)));
	say("none has closed %s", yes(within(50, -1, 12) == 0));
	tell(tids[0], 3, 1);
	noticed("one has left", 12, 1);
	tell(tids[1], 3, 2);
	noticed("one has ended", 12, 1);
	tell(tids[2], 3, 3);
	noticed("one is aborted", 12, 1);
	say("nothing more %s", code(pvm_nrecv(-1, -1)));
	return pvm_exit();
}
