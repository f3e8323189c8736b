/* Hosts that are added, used, deleted and lost; notices of them. The hosts are addresses of
 * the loopback network. */
#include "say.h"

#include <signal.h>

static char *first = "127.0.0.2", *second = "127.0.0.3", *third = "127.0.0.4";

static int child(int parent, const char *role)
{
	if (!strcmp(role, "where"))
		tell(parent, 1, pvm_tidtohost(pvm_mytid()));
	if (!strcmp(role, "daemon's pid"))
		tell(parent, 2, getppid());
	if (!strcmp(role, "echo"))
		for (;;)
			tell(parent, 4, hear(parent, 3) + 1);
	pause();
	return 0;
}

/* The hosts, in the order of their names. */
static void list(void)
{
	struct pvmhostinfo *hosts;
	int n, narch, i, k;
	static const char *names[] = { "127.0.0.2", "127.0.0.3", "127.0.0.4" };

	pvm_config(&n, &narch, &hosts);
	say("%d hosts, %d architectures", n, narch);
	for (k = 0; k < 3; k++)
		for (i = 0; i < n; i++)
			if (!strcmp(hosts[i].hi_name, names[k]))
				say("  %s %s %d", hosts[i].hi_name, hosts[i].hi_arch,
				    hosts[i].hi_speed);
}

static int tid_of(const char *name)
{
	struct pvmhostinfo *hosts;
	int n, i;

	pvm_config(&n, NULL, &hosts);
	for (i = 0; i < n; i++)
		if (!strcmp(hosts[i].hi_name, name))
			return hosts[i].hi_tid;
	return -1;
}

static const char *which(int tid)
{
	static int known[3];
	int i;

	/* Tids of hosts that have gone are remembered. */
	if (tid_of(first) > 0)
		known[0] = tid_of(first);
	if (tid_of(second) > 0)
		known[1] = tid_of(second);
	if (tid_of(third) > 0)
		known[2] = tid_of(third);
	for (i = 0; i < 3; i++)
		if (known[i] == tid)
			return i == 0 ? first : i == 1 ? second : third;
	return "another";
}

static int task(char *role, char *host)
{
	char *argv[] = { role, NULL };
	int tid = -1, n;

	n = pvm_spawn(program_invocation_short_name, argv, PvmTaskHost, host, 1, &tid);
	if (n != 1)
		say("spawn on %s: %s", host, code(tid));
	return tid;
}

static void adds(void)
{
	char *names[] = { second, first, "no.such.host.invalid", second, "" }, *none = third;
	int infos[5] = { 9, 9, 9, 9, 9 }, n;

	say("notify of new hosts %s", code(pvm_notify(PvmHostAdd, 20, -1, NULL)));
	n = pvm_addhosts(names, 3, infos);
	say("added %d: %s, %s, %s", n, code(infos[0]), code(infos[1]), code(infos[2]));
	n = pvm_addhosts(names, 1, infos);
	say("added %d: %s", n, code(infos[0]));
	say("without infos %s", code(pvm_addhosts(&none, 1, NULL)));
	say("none %s", code(pvm_addhosts(names, 0, infos)));
	say("-1 %s", code(pvm_addhosts(names, -1, infos)));
	list();
	say("mstat %s %s %s", code(pvm_mstat(first)), code(pvm_mstat(second)),
	    code(pvm_mstat(third)));
	while ((n = within(300, -1, 20)) > 0) {
		int count, tids[4], i;

		pvm_upkint(&count, 1, 1);
		n = pvm_upkint(tids, count, 1);
		say("notice of %d new: %s", count, code(n));
		for (i = 0; i < count && i < 4; i++)
			say("  %s", which(tids[i]));
	}
}

static void spawns(void)
{
	char *argv[] = { "where", NULL };
	int tids[6], n, i, host, counts[3] = { 0 };

	n = pvm_spawn(program_invocation_short_name, argv, 0, NULL, 6, tids);
	say("spawned %d", n);
	for (i = 0; i < n; i++) {
		host = hear(tids[i], 1);
		counts[0] += host == tid_of(first);
		counts[1] += host == tid_of(second);
		counts[2] += host == tid_of(third);
		pvm_kill(tids[i]);
	}
	say("on each %d %d %d", counts[0], counts[1], counts[2]);
	n = pvm_spawn(program_invocation_short_name, argv, PvmTaskHost, second, 2, tids);
	for (i = 0; i < n; i++) {
		host = hear(tids[i], 1);
		say("on %s", which(host));
		pvm_kill(tids[i]);
	}
	n = pvm_spawn(program_invocation_short_name, argv, PvmTaskHost | PvmHostCompl, ".", 4,
		      tids);
	counts[0] = 0;
	for (i = 0; i < n; i++) {
		counts[0] += hear(tids[i], 1) == tid_of(first);
		pvm_kill(tids[i]);
	}
	say("elsewhere %d, here %d", n, counts[0]);
}

/* Messages of all sizes to the other host. */
static void talks(void)
{
	static char large[100000], back[100000];
	int tid = task("echo", second), n;
	struct pvmtaskinfo *tasks;

	tell(tid, 3, 41);
	say("echo %d", hear(tid, 4));
	say("pstat %s", code(pvm_pstat(tid)));
	n = pvm_tasks(tid, &n, &tasks);
	say("tasks %s, on %s", code(n), which(tasks[0].ti_host));
	/* Those of before may not have ended yet. */
	for (int i = 0; i < 500; i++) {
		pvm_tasks(tid_of(second), &n, &tasks);
		if (n == 1)
			break;
		usleep(10000);
	}
	say("tasks there %d", n);
	for (n = 0; n < (int)sizeof large; n++)
		large[n] = (char)(n * 3);
	(void)back;
	n = 1;
	pvm_initsend(PvmDataRaw);
	pvm_pkint(&n, 1, 1);
	pvm_pkbyte(large, sizeof large, 1);
	pvm_send(tid, 3);
	say("echo of a large one %d", hear(tid, 4));
	pvm_setopt(PvmRoute, PvmRouteDirect);
	tell(tid, 3, 42);
	say("echo on a direct route %d", hear(tid, 4));
	pvm_setopt(PvmRoute, PvmAllowDirect);
	pvm_notify(PvmTaskExit, 5, 1, &tid);
	say("kill %s", code(pvm_kill(tid)));
	say("it has ended %s", yes(hear(-1, 5) == tid));
}

/* A host is deleted, and its tasks with it. */
static void deletes(void)
{
	char *names[] = { second, "no.such.host", second };
	int infos[3] = { 9, 9, 9 }, host = tid_of(second), tid, n;

	which(host);
	tid = task("", second);
	say("notify of the host %s", code(pvm_notify(PvmHostDelete, 30, 1, &host)));
	pvm_notify(PvmTaskExit, 31, 1, &tid);
	n = pvm_delhosts(names, 2, infos);
	say("deleted %d: %s, %s", n, code(infos[0]), code(infos[1]));
	n = hear(-1, 30);
	say("notice of %s", n == host ? second : "another");
	say("its task has ended %s", yes(hear(-1, 31) == tid));
	n = pvm_delhosts(names, 1, infos);
	say("deleted again %d: %s", n, code(infos[0]));
	n = pvm_delhosts(&first, 1, infos);
	say("the first %s: %s", code(n), code(infos[0]));
	say("none %s", code(pvm_delhosts(names, 0, infos)));
	say("its old tid %s", code(pvm_tidtohost(tid) == host ? 0 : -1));
	say("pstat of its task %s", code(pvm_pstat(tid)));
	say("spawn on it %s", code(pvm_spawn("x", NULL, PvmTaskHost, second, 1, &n)));
	say("  %s", code(n));
	list();
}

/* A daemon is ended from outside. */
static void loses(void)
{
	int host, tid, other, pid;

	while (pvm_mstat(third) != PvmOk)
		pvm_addhosts(&third, 1, &tid);
	host = tid_of(third);
	tid = task("daemon's pid", third);
	pid = hear(tid, 2);
	pvm_notify(PvmHostDelete, 40, 1, &host);
	pvm_notify(PvmTaskExit, 41, 1, &tid);
	kill(pid, SIGTERM);
	/* It says good-bye. */
	other = hear(-1, 40);
	say("the host that is lost %s", yes(other == host));
	say("its task %s", yes(hear(-1, 41) == tid));
	say("mstat %s", code(pvm_mstat(third)));
	list();
}

int main(int argc, char **argv)
{
	int parent = enroll();

	if (parent > 0)
		return child(parent, argv[argc - 1]);
	list();
	adds();
	spawns();
	talks();
	deletes();
	loses();
	return pvm_exit();
}
