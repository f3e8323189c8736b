/* Notices of tasks that end, and invalid requests for notices. hosts.c has those of hosts,
 * routes.c those of routes. */
#include "say.h"

#include <signal.h>

static int child(int parent)
{
	switch (hear(parent, 1)) {
	case 0: return pvm_exit();
	case 1: _exit(3);
	case 2: abort();
	case 3: kill(getpid(), SIGKILL); break;
	case 4: return 0; /* without pvm_exit */
	}
	return 0;
}

/* Drains notices of `tag`; how many came for each child. */
static void seen(const char *what, int tag, const int *tids, int count)
{
	int got[6] = { 0 }, tid, i, bytes, from, more;

	while (count-- > 0 && within(3000, -1, tag) > 0) {
		pvm_bufinfo(pvm_getrbuf(), &bytes, NULL, &from);
		pvm_upkint(&tid, 1, 1);
		for (i = 0; i < 5 && tids[i] != tid; i++)
			;
		got[i]++;
		more = pvm_upkint(&tid, 1, 1);
		if (bytes != 4 || more != PvmNoData)
			say("%d bytes, then %s", bytes, code(more));
	}
	say("%s: %d %d %d %d %d, others %d; more %s", what, got[0], got[1], got[2], got[3],
	    got[4], got[5], yes(within(50, -1, tag) > 0));
}

int main(void)
{
	int parent = enroll(), tids[5], i, some[2], me, nobody = NOBODY, nowhere = NOWHERE;

	if (parent > 0)
		return child(parent);
	me = pvm_mytid();
	spawn(5, tids, "child");
	say("notify %s", code(pvm_notify(PvmTaskExit, 10, 5, tids)));
	say("notify of one again %s", code(pvm_notify(PvmTaskExit, 11, 1, tids)));
	say("and with the same tag %s", code(pvm_notify(PvmTaskExit, 10, 1, tids)));
	say("nothing yet %s", yes(pvm_nrecv(-1, -1) == 0));
	for (i = 0; i < 5; i++)
		tell(tids[i], 1, i);
	seen("all have ended", 10, tids, 6);
	seen("one again", 11, tids, 1);
	say("of who has ended %s", code(pvm_notify(PvmTaskExit, 12, 2, tids)));
	seen("at once", 12, tids, 2);
	say("of nobody %s", code(pvm_notify(PvmTaskExit, 13, 1, &nobody)));
	seen("at once", 13, tids, 1);

	spawn(2, tids, "child");
	some[0] = tids[0];
	some[1] = tids[0];
	say("of one twice %s", code(pvm_notify(PvmTaskExit, 14, 2, some)));
	say("cancelled %s", code(pvm_notify(PvmTaskExit | PvmNotifyCancel, 14, 1, some)));
	seen("what comes then", 14, tids, 2);
	pvm_kill(tids[0]);
	seen("when it is killed", 14, tids, 2);
	say("cancelled without notice %s",
	    code(pvm_notify(PvmTaskExit | PvmNotifyCancel, 99, 1, &tids[1])));
	seen("nothing", 99, tids, 1);
	pvm_kill(tids[1]);

	say("of me %s", code(pvm_notify(PvmTaskExit, 15, 1, &me)));
	say("of no kind %s", code(pvm_notify(0, 15, 1, tids)));
	say("of no kind %s", code(pvm_notify(6, 15, 1, tids)));
	say("of no kind %s", code(pvm_notify(-1, 15, 1, tids)));
	say("with tag -1 %s", code(pvm_notify(PvmTaskExit, -1, 1, tids)));
	say("of no tasks %s", code(pvm_notify(PvmTaskExit, 15, 0, tids)));
	say("of -1 tasks %s", code(pvm_notify(PvmTaskExit, 15, -1, tids)));
	some[0] = -1;
	say("of tid -1 %s", code(pvm_notify(PvmTaskExit, 15, 1, some)));
	some[0] = 0;
	say("of tid 0 %s", code(pvm_notify(PvmTaskExit, 15, 1, some)));
	some[0] = pvm_tidtohost(me);
	say("of a daemon %s", code(pvm_notify(PvmTaskExit, 15, 1, some)));
	say("of an unknown host %s", code(pvm_notify(PvmHostDelete, 16, 1, &nowhere)));
	i = within(500, -1, 16);
	say("comes at once %s", yes(i > 0));
	return pvm_exit();
}
