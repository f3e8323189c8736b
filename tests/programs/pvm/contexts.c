/* Contexts: new, current, freed; messages of other contexts are not seen. */
#include "say.h"

static int child(int parent)
{
	int ctx = hear(parent, 1);

	tell(parent, 2, pvm_getcontext());
	say("%d", pvm_setcontext(ctx));
	tell(parent, 3, 33);
	pvm_setcontext(PvmBaseContext);
	tell(parent, 3, 34);
	return pvm_exit();
}

int main(void)
{
	int parent = enroll(), me, tid, a, b, i, first, tids[1];
	struct pvmminfo info;

	if (parent > 0)
		return child(parent);
	me = pvm_mytid();
	say("context %d", pvm_getcontext());
	a = pvm_newcontext();
	b = pvm_newcontext();
	say("new ones differ %s %s", yes(a > 0 && b > 0), yes(a != b));
	say("current still %d", pvm_getcontext());
	say("before %d", pvm_setcontext(a));
	say("current is a %s", yes(pvm_getcontext() == a));
	tell(me, 1, 10);
	say("before is a %s", yes(pvm_setcontext(b) == a));
	say("not seen in b %s", yes(within(50, -1, -1) == 0));
	tell(me, 1, 20);
	say("b's %d", hear(-1, -1));
	pvm_setcontext(a);
	say("a's %d", hear(me, 1));
	pvm_getminfo(pvm_getrbuf(), &info);
	say("its context is a %s", yes(info.ctx == a));

	/* A child does not inherit the context, messages between go by context. */
	pvm_setcontext(PvmBaseContext);
	spawn(1, tids, "child");
	tid = tids[0];
	tell(tid, 1, a);
	say("child's context %d", hear(tid, 2));
	pvm_setcontext(a);
	say("from context a %d", hear(tid, 3));
	pvm_setcontext(PvmBaseContext);
	say("from the base context %d", hear(tid, 3));

	say("setcontext of -1: %s", code(pvm_setcontext(-1)));
	say("setcontext of an unknown: %s", code(pvm_setcontext(9999)));
	say("current %d", pvm_getcontext());
	pvm_setcontext(PvmBaseContext);
	say("freecontext of -1: %s", code(pvm_freecontext(-1)));
	say("freecontext of 0: %s", code(pvm_freecontext(0)));
	say("freecontext of an unknown: %s", code(pvm_freecontext(9998)));
	pvm_setcontext(a);
	say("freecontext of the current: %s", code(pvm_freecontext(a)));
	say("current is a %s", yes(pvm_getcontext() == a));
	pvm_setcontext(PvmBaseContext);
	say("freecontext of b: %s", code(pvm_freecontext(b)));
	say("freecontext of b again: %s", code(pvm_freecontext(b)));
	first = pvm_newcontext();
	for (i = 0; i < 100; i++)
		if (pvm_newcontext() <= 0)
			break;
	say("a hundred more %d %s", i, yes(first > 0));
	return pvm_exit();
}
