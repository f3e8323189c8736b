/* A resource manager: a task that answers other tasks' requests about the virtual machine.
 * It makes hosts and tasks up, so that one sees whose the answers are. */
#include "say.h"

#include <pvmproto.h>

static int parent, wid_of_request, sender;

static void begin(void)
{
	pvm_initsend(PvmDataDefault);
}

static void reply(int tag)
{
	struct pvmminfo info;

	pvm_getminfo(pvm_getsbuf(), &info);
	info.wid = wid_of_request;
	pvm_setminfo(pvm_getsbuf(), &info);
	pvm_send(sender, tag);
}

static void number(int n)
{
	pvm_pkint(&n, 1, 1);
}

static void told(const char *what)
{
	pvm_initsend(PvmDataDefault);
	pvm_pkstr((char *)what);
	pvm_send(sender, 9);
}

static int manager(void)
{
	struct pvmhostinfo *host = NULL;
	struct pvmminfo info;
	int tag, a, b, c, d, i, bufid;
	char text[1000], name[400], where[400];

	pvm_setopt(PvmResvTids, 1);
	tell(parent, 1, pvm_reg_rm(&host));
	snprintf(text, sizeof text, "first host %s %s %d", host ? host->hi_name : "?",
		 host ? host->hi_arch : "?", host ? host->hi_speed : 0);
	sender = parent;
	told(text);
	for (;;) {
		bufid = pvm_recv(-1, -1);
		if (bufid < 0)
			continue;
		pvm_bufinfo(bufid, NULL, &tag, &sender);
		pvm_getminfo(bufid, &info);
		wid_of_request = info.wid;
		if (tag == 2)
			break;
		begin();
		switch (tag) {
		case SM_CONFIG:
			number(2);
			number(1);
			for (i = 1; i <= 2; i++) {
				number(i << 18);
				pvm_pkstr(i == 1 ? "made.up" : "also.made.up");
				pvm_pkstr("ABACUS");
				number(i * 11);
				number(0);
			}
			reply(tag);
			break;
		case SM_TASK:
			pvm_upkint(&a, 1, 1);
			number(0);
			number(0x40777);
			number(0x40776);
			number(0x80040000);
			number(4);
			pvm_pkstr(a ? "of one" : "of all");
			number(12345);
			reply(tag);
			break;
		case SM_SPAWN:
			pvm_upkstr(name);
			pvm_upkint(&a, 1, 1);
			pvm_upkstr(where);
			pvm_upkint(&b, 1, 1);
			pvm_upkint(&c, 1, 1);
			snprintf(text, sizeof text, "spawn %s flags %d where [%s] count %d argc %d", name, a,
				 where, b, c);
			number(b);
			for (i = 0; i < b; i++)
				number(i ? PvmOutOfRes : 0x40771);
			reply(tag);
			told(text);
			break;
		case SM_ADDHOST:
			pvm_upkint(&a, 1, 1);
			pvm_upkstr(name);
			snprintf(text, sizeof text, "add %d, first %s", a, name);
			number(a);
			number(1);
			for (i = 0; i < a; i++) {
				number(i ? PvmCantStart : 7 << 18);
				pvm_pkstr(i ? "" : name);
				pvm_pkstr(i ? "" : "ABACUS");
				number(1);
				number(0);
			}
			reply(tag);
			told(text);
			break;
		case SM_DELHOST:
			pvm_upkint(&a, 1, 1);
			pvm_upkstr(name);
			snprintf(text, sizeof text, "delete %d, first %s", a, name);
			number(a);
			for (i = 0; i < a; i++)
				number(i ? PvmNoHost : PvmOk);
			reply(tag);
			told(text);
			break;
		case SM_NOTIFY:
			pvm_upkint(&a, 1, 1);
			pvm_upkint(&b, 1, 1);
			pvm_upkint(&c, 1, 1);
			d = -1;
			pvm_upkint(&d, 1, 1);
			snprintf(text, sizeof text, "notify kind %d context %d tag %d count %d", a, b, c, d);
			told(text);
			break;
		case SM_SCHED:
			number(PvmAlready);
			reply(tag);
			break;
		case SM_TASKX:
			break;
		default:
			snprintf(text, sizeof text, "tag %d", tag);
			told(text);
		}
	}
	return pvm_exit();
}

static void reported(void)
{
	char text[400] = "";

	if (within(3000, -1, 9) <= 0) {
		say("manager: nothing");
		return;
	}
	pvm_upkstr(text);
	say("manager: %s", text);
}

int main(void)
{
	struct pvmhostinfo *hosts;
	struct pvmtaskinfo *tasks;
	int n, i, narch, tids[3] = { 0 }, manager_tid, infos[2];
	char *names[] = { "some.host", "other.host" };

	parent = enroll();
	if (parent > 0)
		return manager();
#ifdef ELSEWHERE
	names[0] = ELSEWHERE;
	say("added %d", pvm_addhosts(names, 1, infos));
	names[0] = "some.host";
	pvm_spawn(program_invocation_short_name, (char *[]){ "manager", NULL }, PvmTaskHost, ELSEWHERE,
		  1, &manager_tid);
#else
	spawn(1, &manager_tid, "manager");
#endif
	say("registered %s", code(hear(manager_tid, 1)));
	reported();
	/* A task that enrolls from now on asks the manager. */
	pvm_exit();
	pvm_mytid();
	pvm_initsend(PvmDataDefault);
	say("config %s", code(pvm_config(&n, &narch, &hosts)));
	say("%d hosts %d architectures", n, narch);
	for (i = 0; i < n; i++)
		say("  %d %s %s %d", hosts[i].hi_tid >> 18, hosts[i].hi_name, hosts[i].hi_arch,
		    hosts[i].hi_speed);
	n = pvm_tasks(0, &i, &tasks);
	say("tasks %s: %d, %x %x %x %d %s %d", code(n), i, (unsigned)tasks[0].ti_tid,
	    (unsigned)tasks[0].ti_ptid, (unsigned)tasks[0].ti_host, tasks[0].ti_flag,
	    tasks[0].ti_a_out, tasks[0].ti_pid);
	n = pvm_spawn("program", NULL, PvmTaskArch, "VAX", 2, tids);
	say("spawn %d: %x %s", n, (unsigned)tids[0], code(tids[1]));
	reported();
	n = pvm_addhosts(names, 2, infos);
	say("addhosts %d: %d %s", n, infos[0] >> 18, code(infos[1]));
	reported();
	n = pvm_delhosts(names, 2, infos);
	say("delhosts %d: %s %s", n, code(infos[0]), code(infos[1]));
	reported();
	say("notify %s", code(pvm_notify(PvmTaskExit, 55, 1, &manager_tid)));
	reported();
	say("mstat is the daemon's affair %s", code(pvm_mstat("made.up")));
	tell(manager_tid, 2, 0);
	while (pvm_pstat(manager_tid) == PvmOk)
		usleep(1000);
	return pvm_exit();
}
