/* A tasker: a task that starts tasks in the daemon's place. */
#include "say.h"

#include <signal.h>
#include <sys/wait.h>

#include <pvmproto.h>

static int parent;

/* Tells the parent a line. */
static void report(const char *text)
{
	pvm_initsend(PvmDataDefault);
	pvm_pkstr((char *)text);
	pvm_send(parent, 9);
}

static void reported(void)
{
	char text[200] = "";

	pvm_recv(-1, 9);
	pvm_upkstr(text);
	say("tasker: %s", text);
}

static void ended(int daemon, int tid, int status)
{
	int zeros[4] = { 0 };

	pvm_initsend(PvmDataDefault);
	pvm_pkint(&tid, 1, 1);
	pvm_pkint(&status, 1, 1);
	pvm_pkint(zeros, 4, 1);
	pvm_send(daemon, SM_TASKX);
}

/* Handles a request of the daemon, once. */
static void start(int daemon, int refuse)
{
	int tid, flags, argc, nenv, i, epid = 0, status;
	char path[500], *argv[10], *variable, text[1000];
	pid_t pid;

	pvm_upkint(&tid, 1, 1);
	pvm_upkint(&flags, 1, 1);
	pvm_upkstr(path);
	pvm_upkint(&argc, 1, 1);
	for (i = 0; i < argc && i < 9; i++) {
		argv[i] = malloc(200);
		pvm_upkstr(argv[i]);
	}
	argv[i] = NULL;
	pvm_upkint(&nenv, 1, 1);
	for (i = 0; i < nenv; i++) {
		variable = malloc(5000);
		pvm_upkstr(variable);
		epid += !strncmp(variable, "PVMEPID=", 8);
		putenv(variable);
	}
	snprintf(text, sizeof text, "flags %d, %s path, program %s, argc %d, [%s], %s cookie",
		 flags, path[0] == '/' ? "absolute" : "relative",
		 strrchr(path, '/') ? strrchr(path, '/') + 1 : path, argc,
		 argc > 1 ? argv[1] : "", epid == 1 ? "one" : "no");
	report(text);
	if (refuse) {
		ended(daemon, tid, 0x100);
		return;
	}
	pid = fork();
	if (!pid) {
		execv(path, argv);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	snprintf(text, sizeof text, "it has ended with %d", WEXITSTATUS(status));
	report(text);
	ended(daemon, tid, status);
}

static int tasker(void)
{
	int i, daemon;

	pvm_setopt(PvmResvTids, 1);
	tell(parent, 1, pvm_reg_tasker());
	for (i = 0; i < 2; i++) {
		if (pvm_recv(-1, SM_STTASK) <= 0)
			report("no message");
		pvm_bufinfo(pvm_getrbuf(), NULL, NULL, &daemon);
		start(daemon, i == 1);
	}
	hear(parent, 2);
	return pvm_exit();
}

int main(int argc, char **argv)
{
	char *work[] = { "work", "argument", NULL };
	int tid, tasker_tid, n;

	parent = enroll();
	if (argc > 1 && !strcmp(argv[1], "tasker"))
		return tasker();
	if (argc > 1) {
		tell(parent, 3, argc);
		hear(parent, 4);
		pvm_exit();
		return 7;
	}
	spawn(1, &tasker_tid, "tasker");
	say("registered %s", code(hear(tasker_tid, 1)));
	say("a second one %s", code(pvm_reg_tasker()));
	n = pvm_spawn(program_invocation_short_name, work, PvmTaskTrace, NULL, 1, &tid);
	say("spawned %d", n);
	reported();
	say("it runs %d", hear(tid, 3));
	say("its daemon says %s", code(pvm_pstat(tid)));
	pvm_notify(PvmTaskExit, 5, 1, &tid);
	tell(tid, 4, 0);
	reported();
	say("its end is noticed %s", yes(hear(-1, 5) == tid));
	n = pvm_spawn(program_invocation_short_name, work, 0, NULL, 1, &tid);
	say("spawned %d", n);
	reported();
	pvm_notify(PvmTaskExit, 5, 1, &tid);
	say("it does not live %s", yes(hear(-1, 5) == tid));
	pvm_notify(PvmTaskExit, 6, 1, &tasker_tid);
	tell(tasker_tid, 2, 0);
	hear(-1, 6);
	/* The daemon starts tasks itself again. */
	n = pvm_spawn(program_invocation_short_name, work, 0, NULL, 1, &tid);
	say("spawned %d", n);
	say("it runs %d", hear(tid, 3));
	pvm_kill(tid);
	return pvm_exit();
}
