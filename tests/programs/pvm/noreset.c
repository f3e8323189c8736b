/* The console's `reset` ends all tasks but those that do not want it. */
#include "say.h"

static void child(int parent, const char *role)
{
	if (!strcmp(role, "stays"))
		pvm_setopt(PvmNoReset, 1);
	tell(parent, 1, pvm_getopt(PvmNoReset));
	for (;;)
		tell(parent, 3, hear(parent, 2) + 1);
}

static int exists(char *name)
{
	return pvm_recvinfo(name, 0, PvmMboxDefault) > 0;
}

int main(int argc, char **argv)
{
	int parent = enroll(), stays, goes, n, *tids;
	FILE *console;

	if (parent > 0)
		child(parent, argv[argc - 1]);
	say("before %d", pvm_setopt(PvmNoReset, 1));
	spawn(1, &stays, "stays");
	spawn(1, &goes, "goes");
	say("options %d", hear(stays, 1));
	say("options %d", hear(goes, 1));
	say("noresets %s", code(pvm_getnoresets(&tids, &n)));
	say("%d of them", n);
	pvm_initsend(PvmDataDefault);
	pvm_putinfo("mine", pvm_getsbuf(), PvmMboxDefault);
	pvm_putinfo("permanent", pvm_getsbuf(), PvmMboxPersistent);
	pvm_notify(PvmTaskExit, 5, 1, &goes);
	pvm_notify(PvmTaskExit, 6, 1, &stays);
	console = popen(getenv("PVM_CONSOLE"), "w");
	fprintf(console, "reset\nquit\n");
	fflush(console);
	say("one has ended %s", yes(within(5000, -1, 5) > 0));
	tell(stays, 2, 41);
	say("the other lives %d", hear(stays, 3));
	pclose(console);
	say("mailboxes %s %s", yes(exists("mine")), yes(exists("permanent")));
	pvm_kill(stays);
	return pvm_exit();
}
