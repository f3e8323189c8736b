/* Options and their limits, errors and their texts, and small questions. */
#include "say.h"

#include <fcntl.h>
#include <poll.h>

static int child(int parent, const char *role)
{
	static const int which[] = { PvmRoute, PvmFragSize, PvmAutoErr, PvmTraceTid, PvmTraceCode,
				     PvmShowTids, PvmSelfTraceTid, PvmSelfTraceCode,
				     PvmSelfTraceBuffer, PvmSelfTraceOptions, PvmNoReset };
	int values[11], i;

	if (!strcmp(role, "late")) {
		usleep(200000);
		tell(parent, 3, 3);
	}
	for (i = 0; i < 11; i++)
		values[i] = pvm_getopt(which[i]);
	pvm_initsend(PvmDataDefault);
	pvm_pkint(values, 11, 1);
	pvm_send(parent, 1);
	return pvm_exit();
}

static void all(void)
{
	int option, me = pvm_mytid(), value;
	static const int tries[] = { -2, -1, 0, 1, 2, 3, 4, 100, 4096, 1 << 30 };
	size_t i;

	for (option = 0; option <= 26; option++) {
		char line[500] = "", one[60];

		value = pvm_getopt(option);
		/* These would end the task, print a lot, or send to a missing task. */
		for (i = 0; i < sizeof tries / sizeof *tries; i++) {
			int before, now;

			if (option == PvmAutoErr || option == PvmDebugMask)
				break;
			if ((option == PvmSelfOutputTid || option == PvmSelfTraceTid) && tries[i])
				continue;
			before = pvm_setopt(option, tries[i]);
			now = pvm_getopt(option);
			snprintf(one, sizeof one, ", %d: %s %d", tries[i],
				 before < 0 ? code(before) : "", now);
			strcat(line, one);
		}
		say("option %d is %s%s", option, value < 0 ? code(value) : "", line);
		if (value >= 0)
			pvm_setopt(option, value);
	}
	for (i = 0; i < 4; i++) {
		option = (int[]){ PvmOutputTid, PvmTraceTid, PvmSelfOutputTid, PvmSelfTraceTid }[i];
		value = pvm_setopt(option, me);
		say("option %d for me %s, then %s", option, code(value),
		    yes(pvm_getopt(option) == me));
		pvm_setopt(option, 0);
	}
	say("autoerr before %d", pvm_setopt(PvmAutoErr, 1));
	say("autoerr -1 %s", code(pvm_setopt(PvmAutoErr, -1)));
	say("autoerr 4 %s", code(pvm_setopt(PvmAutoErr, 4)));
	pvm_setopt(PvmAutoErr, 0);
	say("debug mask %d", pvm_setopt(PvmDebugMask, 0));
}

static void inherited(void)
{
	int tid, values[11], i;

	pvm_setopt(PvmRoute, PvmDontRoute);
	pvm_setopt(PvmFragSize, 8192);
	spawn(1, &tid, "child");
	pvm_recv(tid, 1);
	pvm_upkint(values, 11, 1);
	for (i = 0; i < 11; i++)
		say("the child's %d", values[i]);
}

/* Every error by its text, as pvm_perror prints it. */
static void texts(void)
{
	int n, copy = dup(2), out[2];
	char text[300], *end;
	ssize_t length;

	for (n = 0; n < 11; n++) {
		/* Errors that are easily had. */
		switch (n) {
		case 0: pvm_send(-1, 1); break;
		case 1: pvm_recvinfo("unknown", 0, 0); break;
		case 2: pvm_freebuf(9999); break;
		case 3: pvm_parent(); break;
		case 4: pvm_pstat(NOBODY); break;
		case 5: pvm_mstat("no.such.host"); break;
		case 6: pvm_gsize(""); break;
		case 7: pvm_gsize("unknown"); break;
		case 8: pvm_setsbuf(0); pvm_pkint(&n, 1, 1); break;
		case 9: pvm_initsend(0); pvm_setrbuf(0); pvm_upkint(&n, 1, 1); break;
		case 10: pvm_mytid(); break;
		}
		if (pipe(out))
			return;
		dup2(out[1], 2);
		pvm_perror("my message");
		dup2(copy, 2);
		close(out[1]);
		length = read(out[0], text, sizeof text - 1);
		close(out[0]);
		text[length > 0 ? length : 0] = 0;
		/* The tid stands in brackets. */
		end = strchr(text, ']');
		say("%d: %.8s..%.*s", n, text, end ? (int)strcspn(end, "\n") : 0, end);
		say("%d: strerror %s", n, pvm_strerror());
	}
	close(copy);
}

/* Errors that print themselves. */
static void automatic(void)
{
	int copy = dup(2), out[2];
	char text[300], *end;
	ssize_t length;

	pvm_setopt(PvmAutoErr, 1);
	if (pipe(out))
		return;
	dup2(out[1], 2);
	pvm_send(-1, 1);
	pvm_getopt(99);
	dup2(copy, 2);
	close(out[1]);
	pvm_setopt(PvmAutoErr, 0);
	length = read(out[0], text, sizeof text - 1);
	text[length > 0 ? length : 0] = 0;
	for (end = text; (end = strchr(end, ']')); end++)
		say("printed %.*s", (int)strcspn(end, "\n"), end);
	close(out[0]);
	close(copy);
}

static void questions(void)
{
	struct pvmhostinfo *hosts;
	struct timeval clock = { 0, 0 }, delta = { 0, 0 };
	int nhost = 0, narch = 0, *fds, n, arguments[10] = { 0 }, results[10], count;
	Pvmtmask mask;
	struct pollfd ready[8];
	int i, tid;

	say("version %s", pvm_version());
	say("config %s", code(pvm_config(&nhost, &narch, &hosts)));
	say("%d hosts, %d architectures, %s %s speed %d", nhost, narch, hosts[0].hi_name,
	    hosts[0].hi_arch, hosts[0].hi_speed);
	say("its signature is its architecture's %s",
	    yes(pvm_archcode(hosts[0].hi_arch) == hosts[0].hi_dsig));
	say("config of nothing %s", code(pvm_config(NULL, NULL, NULL)));
	say("archcode of LINUX %s", code(pvm_archcode("LINUX")));
	say("archcode of nothing %s", code(pvm_archcode("")));
	say("archcode of NULL %s", code(pvm_archcode(NULL)));
	say("mstat %s", code(pvm_mstat(hosts[0].hi_name)));
	say("mstat of nowhere %s", code(pvm_mstat("no.such.host")));
	say("mstat of nothing %s", code(pvm_mstat("")));
	say("mstat of NULL %s", code(pvm_mstat(NULL)));
	say("tidtohost %s", yes(pvm_tidtohost(pvm_mytid()) == hosts[0].hi_tid));
	say("tidtohost of the daemon %s",
	    yes(pvm_tidtohost(hosts[0].hi_tid) == hosts[0].hi_tid));
	say("tidtohost of 0 %s", code(pvm_tidtohost(0)));
	say("tidtohost of -1 %s", code(pvm_tidtohost(-1)));
	say("hostsync %s", code(pvm_hostsync(hosts[0].hi_tid, &clock, &delta)));
	say("a time %s, a difference below 1 s %s", yes(clock.tv_sec > 1000000000),
	    yes(delta.tv_sec == 0 || delta.tv_sec == -1));
	say("hostsync of nowhere %s", code(pvm_hostsync(NOWHERE, &clock, &delta)));
	n = pvm_getfds(&fds);
	say("descriptors %s", yes(n > 0));
	/* A message makes one of them readable. */
	spawn(1, &tid, "late");
	for (i = 0; i < n && i < 8; i++) {
		ready[i].fd = fds[i];
		ready[i].events = POLLIN;
	}
	say("ready %s", yes(poll(ready, i, 5000) > 0));
	say("and the message comes %d", hear(tid, 3));
	count = 10;
	say("tickle without arguments %s", code(pvm_tickle(0, arguments, &count, results)));
	count = 10;
	arguments[0] = 99;
	say("tickle of an unknown %s", code(pvm_tickle(1, arguments, &count, results)));
	count = 10;
	arguments[0] = 6;
	n = pvm_tickle(1, arguments, &count, results);
	say("tickle for the debug mask %s, %d results", code(n), count);
	say("start_pvmd %s", code(pvm_start_pvmd(0, NULL, 1)));
	n = -1;
	say("noresets %s", code(pvm_getnoresets(&fds, &n)));
	say("%d of them", n);
	say("no reset %d", pvm_setopt(PvmNoReset, 1));
	pvm_getnoresets(&fds, &n);
	say("%d of them, me %s", n, yes(n == 1 && fds[0] == pvm_mytid()));
	pvm_setopt(PvmNoReset, 0);
	pvm_getnoresets(&fds, &n);
	say("%d of them", n);

	TEV_MASK_INIT(mask)
	TEV_MASK_SET(mask, TEV_SEND);
	say("settmask %s", code(pvm_settmask(PvmTaskSelf, mask)));
	TEV_MASK_INIT(mask)
	n = pvm_gettmask(PvmTaskSelf, mask);
	say("gettmask %s, send %s, recv %s", code(n),
	    yes(TEV_MASK_CHECK(mask, TEV_SEND)), yes(TEV_MASK_CHECK(mask, TEV_RECV)));
	n = pvm_gettmask(PvmTaskChild, mask);
	say("gettmask of children %s, send %s", code(n),
	    yes(TEV_MASK_CHECK(mask, TEV_SEND)));
	say("gettmask of others %s", code(pvm_gettmask(7, mask)));
	say("settmask of others %s", code(pvm_settmask(7, mask)));
}

int main(int argc, char **argv)
{
	int parent = enroll();

	if (parent > 0)
		return child(parent, argv[argc - 1]);
	all();
	inherited();
	texts();
	automatic();
	questions();
	return pvm_exit();
}
