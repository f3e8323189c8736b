/* A hoster: a task that starts daemons in the first daemon's place. */
#include "say.h"

#include <pvmproto.h>

static void answer(int parent, int refuse)
{
	struct pvmminfo info;
	int daemon, nhosts, tid, wid, i;
	char options[300], login[300], command[3000], line[4000], text[5000];
	FILE *out;

	pvm_bufinfo(pvm_getrbuf(), NULL, NULL, &daemon);
	pvm_getminfo(pvm_getrbuf(), &info);
	wid = info.wid;
	pvm_upkint(&nhosts, 1, 1);
	pvm_initsend(PvmDataDefault);
	pvm_pkint(&nhosts, 1, 1);
	for (i = 0; i < nhosts; i++) {
		pvm_upkint(&tid, 1, 1);
		pvm_upkstr(options);
		pvm_upkstr(login);
		pvm_upkstr(command);
		/* A command for Windows, and the VMID. */
		pvm_upkstr(text);
		pvm_upkstr(text);
		strcpy(line, "PvmCantStart");
		if (!refuse) {
			/* The command is the daemon's affair: one program and its arguments. */
			snprintf(text, sizeof text, "$PVM_RSH %s '%s'", login, command);
			out = popen(text, "r");
			if (fgets(line, sizeof line, out))
				line[strcspn(line, "\n")] = 0;
			/* It goes on in the background; closing would wait for it. */
		}
		pvm_pkint(&tid, 1, 1);
		pvm_pkstr(line);
	}
	pvm_getminfo(pvm_getsbuf(), &info);
	info.wid = wid;
	pvm_setminfo(pvm_getsbuf(), &info);
	pvm_send(daemon, SM_STHOSTACK);
	snprintf(text, sizeof text, "%d hosts, options [%s], host %s, wait ID %s", nhosts, options,
		 login, yes(wid != 0));
	pvm_initsend(PvmDataDefault);
	pvm_pkstr(text);
	pvm_send(parent, 9);
}

int main(void)
{
	int parent = enroll(), tid, info, i, n;
	char *hosts[] = { "127.0.0.3", "127.0.0.4" }, text[5000];

	if (parent > 0) {
		pvm_setopt(PvmResvTids, 1);
		tell(parent, 1, pvm_reg_hoster());
		for (i = 0; i < 2; i++) {
			pvm_recv(-1, SM_STHOST);
			answer(parent, i == 1);
		}
		hear(parent, 2);
		return pvm_exit();
	}
	spawn(1, &tid, "hoster");
	say("registered %s", code(hear(tid, 1)));
	say("a second one %s", code(pvm_reg_hoster()));
	for (i = 0; i < 2; i++) {
		n = pvm_addhosts(&hosts[i], 1, &info);
		say("added %d: %s", n, code(info));
		pvm_recv(tid, 9);
		pvm_upkstr(text);
		say("hoster: %s", text);
	}
	say("mstat %s %s", code(pvm_mstat(hosts[0])), code(pvm_mstat(hosts[1])));
	pvm_notify(PvmTaskExit, 6, 1, &tid);
	tell(tid, 2, 0);
	hear(-1, 6);
	/* The daemon starts daemons itself again. */
	n = pvm_addhosts(&hosts[1], 1, &info);
	say("added %d: %s", n, code(info));
	say("mstat %s %s", code(pvm_mstat(hosts[0])), code(pvm_mstat(hosts[1])));
	return pvm_exit();
}
