/* Tasks of one space, started by one outside. Each tells where a variable of its lies, and
 * reads others' through that. Some end badly. With the argument "own server", the space's
 * server is killed, too; with "daemon", the daemon. */
#include "say.h"
#include <signal.h>

enum { TASKS = 4, ADDRESS = 1, READ, ANSWER, END, GONE };

static int variable;

/* Reports its PID and the address of its variable; then executes orders. */
static int child(int parent, const char *role)
{
	long pid = getpid(), server = getppid(), address = (long)&variable;
	int from, tag, id;

	variable = pvm_mytid();
	pvm_initsend(PvmDataRaw);
	pvm_pklong(&pid, 1, 1);
	pvm_pklong(&server, 1, 1);
	pvm_pklong(&address, 1, 1);
	pvm_send(parent, ADDRESS);
	if (!strcmp(role, "orphan")) {
		/* Until the daemon has ended, and nothing reads the output. */
		signal(SIGPIPE, SIG_IGN);
		int last = pvm_recv(-1, 99);
		FILE *file = fopen("orphans", "a");
		fprintf(file, "%s\n", code(last));
		fclose(file);
		return 0;
	}
	for (;;) {
		if ((id = pvm_recv(-1, -1)) < 0)
			return 1;
		pvm_bufinfo(id, NULL, &tag, &from);
		if (tag == END) {
			int how;
			pvm_upkint(&how, 1, 1);
			if (how == SIGSEGV)
				*(volatile int *)16 = 0;
			if (how == SIGABRT)
				abort();
			exit(how);
		}
		pvm_upklong(&address, 1, 1);
		tell(from, ANSWER, *(volatile int *)address);
	}
}

static int tids[TASKS];
static long pids[TASKS], servers[TASKS], addresses[TASKS];

static void start(int n, int *at, char *role)
{
	spawn(n, at, role);
	for (int i = 0; i < n; i++) {
		pvm_recv(at[i], ADDRESS);
		pvm_upklong(&pids[at - tids + i], 1, 1);
		pvm_upklong(&servers[at - tids + i], 1, 1);
		pvm_upklong(&addresses[at - tids + i], 1, 1);
	}
	pvm_notify(PvmTaskExit, GONE, n, at);
}

/* Returns the number of live tasks that can read another's variable. */
static int readers(void)
{
	int right = 0;

	for (int i = 0; i < TASKS; i++)
		for (int j = 0; j < TASKS; j++)
			if (tids[i] && tids[j] && i != j) {
				pvm_initsend(PvmDataRaw);
				pvm_pklong(&addresses[j], 1, 1);
				pvm_send(tids[i], READ);
				right += hear(tids[i], ANSWER) == tids[j];
			}
	return right;
}

/* Returns the task whose end is reported now. */
static int gone(void)
{
	int tid = hear(-1, GONE);

	for (int i = 0; i < TASKS; i++)
		if (tids[i] == tid) {
			tids[i] = 0;
			return i;
		}
	return -1;
}

int main(int argc, char **argv)
{
	int parent = enroll();

	if (parent > 0)
		return child(parent, argv[argc - 1]);
	if (argc > 1 && !strcmp(argv[1], "daemon")) {
		start(TASKS, tids, "orphan");
		say("waiting");
		say("recv %s", code(pvm_recv(-1, 99)));
		return 0;
	}
	start(TASKS, tids, "");
	say("a server of their own: %s", yes(servers[0] == servers[3] && servers[0] != getppid()));
	say("read right: %d", readers());
	tell(tids[0], END, SIGSEGV);
	say("ended: %d", gone());
	tell(tids[1], END, SIGABRT);
	say("ended: %d", gone());
	say("read right: %d", readers());
	start(2, tids, "");
	say("read right: %d", readers());
	pvm_kill(tids[2]);
	say("ended: %d", gone());
	tell(tids[3], END, 3);
	say("ended: %d", gone());
	start(2, tids + 2, "");
	say("read right: %d", readers());
	if (argc > 1) {
		int sum = 0;
		say("%s: %s", argv[1], yes(kill(servers[0], SIGKILL) == 0));
		for (int i = 0; i < TASKS; i++)
			sum += gone();
		say("ended: %d", sum);
		start(TASKS, tids, "");
		say("read right: %d", readers());
	}
	pvm_exit();
	return 0;
}
