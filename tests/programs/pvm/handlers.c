/* Message handlers: which messages they get, when, and how they are removed. */
#include "say.h"

static int calls, last_tag, last_int, from, inside, ids[5];

static int handle(int bufid)
{
	int n = -1;

	calls++;
	pvm_bufinfo(bufid, NULL, &last_tag, &from);
	inside = pvm_getrbuf() == bufid;
	pvm_upkint(&n, 1, 1);
	last_int = n;
	return 0;
}

/* A handler that sends. */
static int answer(int bufid)
{
	int tid;

	pvm_bufinfo(bufid, NULL, NULL, &tid);
	tell(tid, 50, 500);
	return 0;
}

/* A handler that removes itself. */
static int once(int bufid)
{
	(void)bufid;
	calls += 100;
	return pvm_delmhf(ids[3]);
}

static int child(int parent)
{
	int request, n, round;

	for (round = 0;; round++) {
		request = hear(parent, 1);
		if (request == 0)
			break;
		for (n = 0; n < request % 10; n++)
			tell(parent, request / 10, 100 * round + n);
		tell(parent, 2, 0);
		if (request / 10 == 60)
			tell(parent, 3, hear(parent, 50));
	}
	return pvm_exit();
}

/* Lets the child send `n` messages of `tag`; handlers have seen them when this returns. */
static void let(int tid, int tag, int n)
{
	tell(tid, 1, 10 * tag + n);
	hear(tid, 2);
}

int main(void)
{
	int parent = enroll(), me, tid, ctx;

	if (parent > 0)
		return child(parent);
	me = pvm_mytid();
	spawn(1, &tid, "child");
	ids[0] = pvm_addmhf(tid, 10, 0, handle);
	say("added %s", yes(ids[0] >= 0));
	let(tid, 10, 3);
	say("handled %d, tag %d, int %d, from the child %s, active inside %s", calls, last_tag,
	    last_int, yes(from == tid), yes(inside));
	say("nothing is left %s", yes(pvm_nrecv(-1, 10) == 0));
	let(tid, 11, 2);
	say("other tags are not handled %d", calls);
	say("but come %s", yes(pvm_nrecv(-1, 11) > 0 && pvm_nrecv(-1, 11) > 0));

	ids[1] = pvm_addmhf(-1, 12, 0, handle);
	ids[2] = pvm_addmhf(tid, -1, 0, handle);
	say("any source %s", code(ids[1] >= 0 ? 0 : ids[1]));
	say("any tag overlaps %s", code(ids[2] >= 0 ? 0 : ids[2]));
	say("the same again %s", code(pvm_addmhf(tid, 10, 0, handle)));
	calls = 0;
	let(tid, 12, 2);
	say("handled %d, tag %d", calls, last_tag);
	tell(me, 12, 77);
	while (calls < 3)
		pvm_nrecv(-1, 99);
	say("from itself %s, int %d", yes(from == me), last_int);
	say("no handler %s", code(pvm_delmhf(9999)));
	say("no handler %s", code(pvm_delmhf(-1)));
	say("removed %s", code(pvm_delmhf(ids[1])));
	say("removed twice %s", code(pvm_delmhf(ids[1])));
	if (ids[2] >= 0)
		pvm_delmhf(ids[2]);

	calls = 0;
	ids[3] = pvm_addmhf(tid, 14, 0, once);
	let(tid, 14, 2);
	say("removed itself: calls %d", calls);
	say("one came as a message %s", yes(pvm_nrecv(-1, 14) > 0));

	ids[4] = pvm_addmhf(tid, 60, 0, answer);
	tell(tid, 1, 601);
	say("the handler sent %d", hear(tid, 3));
	hear(tid, 2);

	/* Handlers of a context. */
	calls = 0;
	ctx = pvm_newcontext();
	say("of another context %s", code(pvm_addmhf(tid, 10, ctx, handle) >= 0 ? 0 : -1));
	let(tid, 10, 1);
	say("calls %d", calls);
	/* A message that is there already is not handled. */
	calls = 0;
	let(tid, 20, 1);
	say("a late handler %s", yes(pvm_addmhf(tid, 20, 0, handle) >= 0));
	say("calls %d, and the message %s", calls, yes(pvm_nrecv(tid, 20) > 0));
	tell(tid, 1, 0);
	return pvm_exit();
}
