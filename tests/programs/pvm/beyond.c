/* Calls at which stock PVM 3.4.6 crashes, waits for ever, or takes three minutes. */
#include "say.h"

#include <pvmproto.h>
#include <signal.h>

static int child(int parent, const char *role)
{
	static char text[4096];
	int i;

	if (!strcmp(role, "unpacks")) {
		pvm_recv(parent, 1);
		for (i = 0; i < 60; i++)
			pvm_upkbyte(text + 60 * i, 60, 1);
		for (i = 0; i < 3600 && text[i] == (char)i; i++)
			;
		tell(parent, 2, i);
	}
	if (!strcmp(role, "manager")) {
		tell(parent, 2, pvm_reg_rm(NULL));
		pvm_setopt(PvmResvTids, 1);
		pvm_recv(-1, SM_CONFIG);
		exit(0);
	}
	if (!strcmp(role, "daemon's pid"))
		tell(parent, 2, getppid());
	/* Until it is killed, or its daemon is. */
	pvm_recv(parent, 99);
	return 0;
}

/* Many pieces in place: it crashes. */
static void pieces(void)
{
	static char text[3600];
	int tid, i;

	for (i = 0; i < 3600; i++)
		text[i] = (char)i;
	spawn(1, &tid, "unpacks");
	pvm_initsend(PvmDataInPlace);
	for (i = 0; i < 60; i++)
		pvm_pkbyte(text + 60 * i, 60, 1);
	say("send in 60 places %s", code(pvm_send(tid, 1)));
	say("good bytes %d", hear(tid, 2));
	pvm_kill(tid);
}

/* A null pointer where there must be none: it crashes. */
static void nulls(void)
{
	int tid, n, sbuf = pvm_initsend(PvmDataDefault), me = pvm_mytid();

#define SAY(call) say("%s: %s", #call, code(call))
	SAY(pvm_spawn(NULL, NULL, 0, NULL, 1, &tid));
	SAY(pvm_notify(PvmTaskExit, 15, 1, NULL));
	SAY(pvm_notify(PvmHostDelete, 15, 1, NULL));
	SAY(pvm_getfds(NULL));
	SAY(pvm_getminfo(sbuf, NULL));
	SAY(pvm_setminfo(sbuf, NULL));
	SAY(pvm_bufinfo(sbuf, NULL, NULL, NULL));
	SAY(pvm_pkint(NULL, 0, 1));
	SAY(pvm_pkstr(NULL));
	SAY(pvm_packf(NULL));
	SAY(pvm_mcast(NULL, 1, 1));
	SAY(pvm_siblings(NULL));
	SAY(pvm_config(NULL, NULL, NULL));
	SAY(pvm_tasks(me, NULL, NULL));
	SAY(pvm_getmboxinfo("*", NULL, NULL));
	SAY(pvm_getmboxinfo(NULL, &n, NULL));
	SAY(pvm_lookup("none", 0, NULL));
	SAY(pvm_hostsync(pvm_tidtohost(me), NULL, NULL));
	SAY(pvm_addhosts(NULL, 1, NULL));
	SAY(pvm_delhosts(NULL, 1, NULL));
	SAY(pvm_export(NULL));
	SAY(pvm_unexport(NULL));
	SAY(pvm_getnoresets(NULL, NULL));
	SAY(pvm_gettmask(PvmTaskSelf, NULL));
	SAY(pvm_settmask(PvmTaskSelf, NULL));
	SAY(pvm_tickle(1, NULL, NULL, NULL));
	SAY(pvm_addmhf(-1, 1, 0, NULL));
	SAY(pvm_getinst(NULL, me));
	SAY(pvm_gsize(NULL));
	SAY(pvm_gettid(NULL, 0));
	SAY(pvm_barrier(NULL, 1));
	SAY(pvm_bcast(NULL, 1));
	SAY(pvm_lvgroup(NULL));
	SAY(pvm_freezegroup(NULL, 1));
	SAY(pvm_reduce(NULL, NULL, 1, PVM_INT, 1, NULL, 0));
}

/* A daemon that is killed. */
static void lost_host(void)
{
	char *argv[] = { "daemon's pid", NULL }, *host = "127.0.0.3";
	int info, tid, pid;

	say("added %d", pvm_addhosts(&host, 1, &info));
	pvm_spawn(program_invocation_short_name, argv, PvmTaskHost, host, 1, &tid);
	pid = hear(tid, 2);
	pvm_notify(PvmHostDelete, 40, 1, &info);
	pvm_notify(PvmTaskExit, 41, 1, &tid);
	kill(pid, SIGKILL);
	say("the host is lost %s", yes(hear(-1, 40) == info));
	say("its task, too %s", yes(hear(-1, 41) == tid));
	say("mstat %s", code(pvm_mstat(host)));
	say("and the rest goes on %s", code(pvm_mstat("127.0.0.2")));
}

/* A resource manager that ends instead of an answer: it waits for ever. */
static void manager(void)
{
	int tid, hosts = 0;

	spawn(1, &tid, "manager");
	say("registered %s", code(hear(tid, 2)));
	/* A task that enrolls from now on asks the manager. */
	pvm_exit();
	pvm_mytid();
	say("config %s", code(pvm_config(&hosts, NULL, NULL)));
	say("of %d host", hosts);
	say("again %s", code(pvm_config(&hosts, NULL, NULL)));
}

int main(int argc, char **argv)
{
	int parent = enroll();

	if (parent > 0)
		return child(parent, argv[argc - 1]);
	pieces();
	/* It waits for an answer that the daemon does not give. */
	say("put without buffer %s", code(pvm_putinfo("x", 9999, 0)));
	nulls();
	manager();
	lost_host();
	return pvm_exit();
}
