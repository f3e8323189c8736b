/* Spawning: flags, errors, arguments, environment, parents and siblings; the end of tasks;
 * leaving and coming back. */
#include "say.h"

#include <signal.h>

static char *self;

/* Spawns with these arguments. Prints the result, and the first slot's code. */
static void try(const char *what, char *file, int flags, char *where, int n)
{
	int tids[8] = { -77, -77, -77, -77, -77, -77, -77, -77 }, result, i;

	result = pvm_spawn(file, NULL, flags, where, n, tids);
	say("%s: %s %d, slots %s %s", what, code(result), result > 0 ? result : 0, code(tids[0]),
	    code(tids[1]));
	for (i = 0; i < result; i++)
		if (tids[i] > 0)
			pvm_kill(tids[i]);
}

static int child(int argc, char **argv)
{
	int parent = pvm_parent(), *tids, n, i, me = pvm_mytid(), place = -1;
	char *variable;

	if (parent <= 0) {
		/* Nobody to answer to: a mailbox then. */
		pvm_initsend(PvmDataDefault);
		pvm_pkint(&parent, 1, 1);
		pvm_putinfo("orphan", pvm_getsbuf(), PvmMboxDefault);
		pause();
	}
	if (!strcmp(argv[1], "arguments")) {
		pvm_initsend(PvmDataDefault);
		pvm_pkint(&argc, 1, 1);
		for (i = 1; i < argc; i++)
			pvm_pkstr(argv[i]);
		variable = getenv("EXPORTED");
		pvm_pkstr(variable ? variable : "-");
		variable = getenv("NOT_EXPORTED");
		pvm_pkstr(variable ? variable : "-");
		variable = getenv("PVM_EXPORT");
		pvm_pkstr(variable ? variable : "-");
		pvm_send(parent, 1);
	} else if (!strcmp(argv[1], "siblings")) {
		n = pvm_siblings(&tids);
		for (i = 0; i < n; i++)
			if (tids[i] == me)
				place = i;
		pvm_initsend(PvmDataDefault);
		pvm_pkint(&n, 1, 1);
		pvm_pkint(&place, 1, 1);
		pvm_send(parent, 2);
	} else if (!strcmp(argv[1], "signal")) {
		signal(SIGUSR1, SIG_IGN);
		tell(parent, 3, 0);
		hear(parent, 4);
		tell(parent, 3, 1);
		pause();
	} else if (!strcmp(argv[1], "quiet")) {
		_exit(7);
	}
	pause();
	return 0;
}

static void arguments(void)
{
	char *argv[] = { "arguments", "two words", "", "'quoted' \"$HOME\" \\", NULL }, text[100];
	int tid, n, i;

	setenv("EXPORTED", "yes it is", 1);
	setenv("NOT_EXPORTED", "no", 1);
	say("export %s", code(pvm_export("EXPORTED")));
	say("export again %s", code(pvm_export("EXPORTED")));
	say("PVM_EXPORT is %s", getenv("PVM_EXPORT"));
	say("spawn %d", pvm_spawn(self, argv, PvmTaskDefault, NULL, 1, &tid));
	pvm_recv(tid, 1);
	pvm_upkint(&n, 1, 1);
	say("arguments %d", n);
	for (i = 1; i < n; i++) {
		pvm_upkstr(text);
		say("[%s]", text);
	}
	for (i = 0; i < 3; i++) {
		pvm_upkstr(text);
		say("variable [%s]", text);
	}
	pvm_kill(tid);
	say("export another %s", code(pvm_export("OTHER")));
	say("PVM_EXPORT is %s", getenv("PVM_EXPORT"));
	say("unexport %s", code(pvm_unexport("EXPORTED")));
	say("PVM_EXPORT is %s", getenv("PVM_EXPORT"));
	say("unexport unknown %s", code(pvm_unexport("UNKNOWN")));
	say("unexport %s", code(pvm_unexport("OTHER")));
	say("PVM_EXPORT is %s", getenv("PVM_EXPORT") ? getenv("PVM_EXPORT") : "unset");
}

static void wrong(void)
{
	char *host, long_name[2000];
	struct pvmhostinfo *hosts;
	int nhost;

	pvm_config(&nhost, NULL, &hosts);
	host = hosts[0].hi_name;
	try("no such program", "no-such-program", 0, NULL, 2);
	try("not a program", "/etc/passwd", 0, NULL, 1);
	try("a directory", "/etc", 0, NULL, 1);
	try("absolute", "/bin/true", 0, NULL, 1);
	try("empty", "", 0, NULL, 1);
	try("none of them", "/bin/true", 0, NULL, 0);
	try("-1 of them", "/bin/true", 0, NULL, -1);
	try("this host", "/bin/true", PvmTaskHost, host, 2);
	try("host .", "/bin/true", PvmTaskHost, ".", 1);
	try("no such host", "/bin/true", PvmTaskHost, "no.such.host", 1);
	try("empty host", "/bin/true", PvmTaskHost, "", 1);
	try("this architecture", "/bin/true", PvmTaskArch, "LINUX64", 2);
	try("other architecture", "/bin/true", PvmTaskArch, "VAX", 1);
	try("all but this host", "/bin/true", PvmTaskHost | PvmHostCompl, host, 1);
	try("all but .", "/bin/true", PvmTaskHost | PvmHostCompl, ".", 1);
	try("all but another", "/bin/true", PvmTaskHost | PvmHostCompl, "no.such.host", 1);
	try("all but this architecture", "/bin/true", PvmTaskArch | PvmHostCompl, "LINUX64", 1);
	try("all but another architecture", "/bin/true", PvmTaskArch | PvmHostCompl, "VAX", 1);
	try("where without flag", "/bin/true", 0, host, 1);
	try("unknown flags", "/bin/true", 4096, NULL, 1);
	try("front", "/bin/true", PvmMppFront, NULL, 1);
	memset(long_name, 'x', sizeof long_name - 1);
	long_name[sizeof long_name - 1] = 0;
	try("a long name", long_name, 0, NULL, 1);
	say("without tids %s", code(pvm_spawn("/bin/true", NULL, 0, NULL, 1, NULL)));
}

static void family(void)
{
	char *argv[] = { "siblings", NULL };
	int tids[3], n, place, i, sum = 0, *siblings, info;

	say("parent %s", code(pvm_parent()));
	n = pvm_siblings(&siblings);
	say("siblings %s", n == 1 ? "1" : code(n));
	say("spawn %d", pvm_spawn(self, argv, 0, NULL, 3, tids));
	for (i = 0; i < 3; i++) {
		pvm_recv(tids[i], 2);
		pvm_upkint(&n, 1, 1);
		pvm_upkint(&place, 1, 1);
		say("child %d is %d of %d", i, place, n);
	}
	for (i = 0; i < 3; i++)
		sum += pvm_kill(tids[i]) == 0;
	say("killed %d", sum);
	say("spawn without parent %d", pvm_spawn(self, argv, PvmNoSpawnParent, NULL, 1, tids));
	info = pvm_recvinfo("orphan", 0, PvmMboxWaitForInfo);
	pvm_setrbuf(info);
	pvm_upkint(&info, 1, 1);
	say("its parent %s", code(info));
	pvm_kill(tids[0]);
}

/* Lists the tasks, except those that are just ending. */
static void ends(void)
{
	char *argv[] = { "signal", NULL }, *quiet[] = { "quiet", NULL };
	int tids[2], n, i, found = 0, tid;
	struct pvmtaskinfo *tasks;

	pvm_spawn(self, argv, 0, NULL, 2, tids);
	hear(tids[0], 3);
	hear(tids[1], 3);
	say("pstat %s", code(pvm_pstat(tids[0])));
	say("pstat of me %s", code(pvm_pstat(pvm_mytid())));
	say("pstat of nobody %s", code(pvm_pstat(NOBODY)));
	say("pstat of 0 %s", code(pvm_pstat(0)));
	say("pstat of -1 %s", code(pvm_pstat(-1)));
	say("pstat elsewhere %s", code(pvm_pstat(0x00fc0001)));
	say("tasks of one %s", code(pvm_tasks(tids[0], &n, &tasks)));
	say("%d: parent me %s, program %s, host %s, pid %s, flag %d", n,
	    yes(tasks[0].ti_ptid == pvm_mytid()), tasks[0].ti_a_out,
	    yes(tasks[0].ti_host == pvm_tidtohost(tids[0])), yes(tasks[0].ti_pid > 1),
	    tasks[0].ti_flag);
	pvm_tasks(0, &n, &tasks);
	for (i = 0; i < n; i++)
		found += tasks[i].ti_tid == tids[0] || tasks[i].ti_tid == tids[1] ||
			 tasks[i].ti_tid == pvm_mytid();
	say("found %d", found);
	pvm_tasks(pvm_mytid(), &n, &tasks);
	say("me: %d, parent %d, program [%s], pid %s", n, tasks[0].ti_ptid, tasks[0].ti_a_out,
	    yes(tasks[0].ti_pid == getpid()));
	say("tasks of nobody %s", code(pvm_tasks(NOBODY, &n, &tasks)));
	say("tasks of -1 %s", code(pvm_tasks(-1, &n, &tasks)));
	say("tasks of nowhere %s", code(pvm_tasks(NOWHERE, &n, &tasks)));

	pvm_notify(PvmTaskExit, 5, 2, tids);
	say("a signal that is ignored %s", code(pvm_sendsig(tids[0], SIGUSR1)));
	tell(tids[0], 4, 0);
	say("it lives %d", hear(tids[0], 3));
	say("signal 0 %s", code(pvm_sendsig(tids[0], 0)));
	say("signal 999 %s", code(pvm_sendsig(tids[0], 999)));
	say("signal -1 %s", code(pvm_sendsig(tids[0], -1)));
	say("to nobody %s", code(pvm_sendsig(NOBODY, SIGTERM)));
	say("to -1 %s", code(pvm_sendsig(-1, SIGTERM)));
	say("to a daemon %s", code(pvm_sendsig(pvm_tidtohost(tids[0]), SIGTERM)));
	say("a signal that ends it %s", code(pvm_sendsig(tids[0], SIGKILL)));
	tid = hear(-1, 5);
	say("it has ended %s", yes(tid == tids[0]));
	say("kill %s", code(pvm_kill(tids[1])));
	tid = hear(-1, 5);
	say("it has ended %s", yes(tid == tids[1]));
	say("kill again %s", code(pvm_kill(tids[1])));
	say("kill -1 %s", code(pvm_kill(-1)));
	say("kill 0 %s", code(pvm_kill(0)));
	say("pstat %s", code(pvm_pstat(tids[1])));
	pvm_spawn(self, quiet, 0, NULL, 1, tids);
	pvm_notify(PvmTaskExit, 6, 1, tids);
	say("one that never was a task %s", yes(hear(-1, 6) == tids[0]));
}

static void again(void)
{
	int before = pvm_mytid(), n;
	struct pvmtaskinfo *tasks;

	say("exit %s", code(pvm_exit()));
	say("exit again %s", code(pvm_exit()));
	n = pvm_mytid();
	say("a task anew %s", yes(n > 0));
	say("with another tid %s", yes(n != before));
	say("parent %s", code(pvm_parent()));
	say("the old one %s", code(pvm_pstat(before)));
	pvm_tasks(n, &n, &tasks);
	say("listed %d", n);
	tell(pvm_mytid(), 9, 5);
	say("messages come %d", hear(-1, 9));
	tell(pvm_mytid(), 9, 6);
	pvm_exit();
	say("what had come has gone %s", code(pvm_nrecv(-1, 9)));
	say("send to the old tid %s", code(tell(before, 1, 1)));
}

int main(int argc, char **argv)
{
	self = program_invocation_short_name;
	enroll();
	if (argc > 1)
		return child(argc, argv);
	arguments();
	wrong();
	family();
	ends();
	again();
	return pvm_exit();
}
