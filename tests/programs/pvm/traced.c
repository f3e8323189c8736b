/* What a tracer gets of tasks that make each call: every event with all of its values, but for
 * times, tids, addresses and numbers of buffers. */
#include "say.h"
#include <signal.h>

enum { TRACE = 77, CONTEXT = 0, VALUES = 24, LENGTH = 512 };

/* The layout of an event's values, from its first message. */
static struct { int count, did[VALUES], type[VALUES]; } described[4][TEV_MAX + 1];
static int myself, traced;

/* ---- The tracer */

static const char *who(int tid)
{
	static char host[16];

	if (tid == myself)
		return "tracer";
	if (tid == traced)
		return "task";
	if (tid == NOBODY)
		return "nobody";
	if (tid > 0)
		return "another";
	if (tid < -1000)
		return "daemon";
	snprintf(host, sizeof host, "%d", tid);
	return host;
}

static const char *int_of(int did, int n)
{
	static char number[16];

	switch (did) {
	case TEV_DID_TID: case TEV_DID_PT: case TEV_DID_MT: case TEV_DID_SRC: case TEV_DID_DST:
	case TEV_DID_RST: case TEV_DID_TT: case TEV_DID_IST: case TEV_DID_GT: case TEV_DID_STL:
	case TEV_DID_SIB: case TEV_DID_MDL: case TEV_DID_NTL: case TEV_DID_TW:
		return who(n);
	case TEV_DID_TS: case TEV_DID_TU: case TEV_DID_TGS: case TEV_DID_TGU: case TEV_DID_TUS:
	case TEV_DID_TUU: case TEV_DID_TSS: case TEV_DID_TSU:
		return "time";
	case TEV_DID_MB: case TEV_DID_MSB: case TEV_DID_MRB: case TEV_DID_CD: case TEV_DID_CR:
	case TEV_DID_CC: case TEV_DID_CXN: case TEV_DID_CXF: case TEV_DID_AC: case TEV_DID_TNT:
	case TEV_DID_MHI: case TEV_DID_GS:
		return code(n);
	case TEV_DID_OPV:
		if (n == myself)
			return "tracer";
	}
	snprintf(number, sizeof number, "%d", n);
	return number;
}

/* The next value of the message, added to the line. */
static void value(char *line, int did, int type)
{
	static char text[4096];
	int n = 1, i;
	long address;

	if (type & TEV_DATA_ARRAY)
		pvm_upkint(&n, 1, 1);
	for (i = 0; i < n; i++) {
		line += strlen(line);
		switch (type & ~TEV_DATA_ARRAY) {
		case TEV_DATA_BYTE:
			pvm_upkbyte(text, n, 1);
			sprintf(line, " %d bytes", n);
			i = n;
			break;
		case TEV_DATA_INT: {
			int number = 0;

			pvm_upkint(&number, 1, 1);
			sprintf(line, " %s", did == TEV_DID_FDS ? "descriptor" : int_of(did, number));
			break;
		}
		case TEV_DATA_LONG:
			pvm_upklong(&address, 1, 1);
			strcpy(line, address ? " address" : " null");
			break;
		case TEV_DATA_STRING:
			pvm_upkstr(text);
			sprintf(line, " \"%.80s\"", text);
			break;
		default:
			sprintf(line, " type %d", type);
		}
	}
	if (n == 0)
		strcat(line, " none");
}

static int next(void)
{
	int n = TEV_MARK_EVENT_BUFFER_END;

	pvm_upkint(&n, 1, 1);
	return n;
}

static const char *phase(int id)
{
	return id & TEV_EVENT_ENTRY ? "entry" : id & TEV_EVENT_EXIT ? "exit" : "event";
}

/* Messages of tasks whose parent is traced, which arrive in between. */
static char others[1 << 16];

/* Prints the rest of the event after its marker. Returns true if the task has ended. */
static int event(int described_now)
{
	char line[4096] = "", all[5000], name[64] = "";
	int id = next(), kind = id & ~(TEV_EVENT_ENTRY | TEV_EVENT_EXIT), which = id >> 14 & 3;
	int i, did;

	if (kind < 0 || kind > TEV_MAX) {
		say("event %d is none", id);
		return 1;
	}
	if (described_now) {
		pvm_upkstr(name);
		for (i = 0; (did = next()) >= 0 && i < VALUES; i++) {
			described[which][kind].did[i] = did;
			described[which][kind].type[i] = next();
			sprintf(line + strlen(line), " %d:%d", did, described[which][kind].type[i]);
			value(line, did, described[which][kind].type[i]);
		}
		described[which][kind].count = i;
		sprintf(all, "%s %d %s describes%s, ends with %d", phase(id), kind, name, line, did);
	} else {
		for (i = 0; i < described[which][kind].count; i++) {
			did = described[which][kind].did[i];
			value(line, did, described[which][kind].type[i]);
		}
		sprintf(all, "%s %d has%s, ends with %d", phase(id), kind, line, next());
	}
	if (strstr(all, "time another") || strstr(all, "88:6 another")) {
		sprintf(others + strlen(others), "of another: %s\n", all);
		return 0;
	}
	say("%s", all);
	return kind == TEV_ENDTASK;
}

static void user_event(void)
{
	char name[64], line[256] = "";
	int type = next();

	say("event %d of the user", type);
	pvm_upkstr(name);
	next();
	next();
	while ((type = next()) >= 0)
		value(line, TEV_DID_PRF, type);
	say("%s has%s, ends with %d", name, line, type);
}

static void identifiers(void)
{
	char letters[64], meaning[256];
	int id;

	while ((id = next()) >= 0) {
		pvm_upkstr(letters);
		pvm_upkstr(meaning);
		say("%d is %s: %s", id, letters, meaning);
	}
}

/* Prints trace messages until one task has ended. */
static void follow(void)
{
	int ended = 0, mark;

	while (!ended) {
		if (within(5000, -1, TRACE) <= 0) {
			say("no more comes");
			return;
		}
		while ((mark = next()) != TEV_MARK_EVENT_BUFFER_END) {
			switch (mark) {
			case TEV_MARK_EVENT_BUFFER: say("a buffer begins"); break;
			case TEV_MARK_DATA_ID: identifiers(); break;
			case TEV_MARK_EVENT_DESC: ended |= event(1); break;
			case TEV_MARK_EVENT_RECORD: ended |= event(0); break;
			case TEV_MARK_USER_EVENT_RECORD: user_event(); break;
			default: say("mark %d", mark); return;
			}
		}
	}
}

/* ---- Tasks that are traced */

static int handled(int id)
{
	int n;

	pvm_upkint(&n, 1, 1);
	(void)id;
	return 0;
}

static int matches(int id, int tid, int tag)
{
	int length, its_tag, source;

	pvm_bufinfo(id, &length, &its_tag, &source);
	return (tid < 0 || tid == source) && (tag < 0 || tag == its_tag);
}

/* Buffers, packing and unpacking. */
static void packs(void)
{
	struct pvmminfo info;
	char text[80] = "text", byte = 1;
	float floats[4] = { 0 };
	double doubles[4] = { 0 };
	short n16 = 1;
	unsigned short u16 = 1;
	int n32 = 1, length, tag, tid, own = pvm_mytid(), old;
	unsigned u32 = 1;
	long n64 = 1;
	unsigned long u64 = 1;

	pvm_initsend(PvmDataRaw);
	pvm_pkbyte(&byte, 1, 1);
	pvm_pkcplx(floats, 1, 1);
	pvm_pkdcplx(doubles, 1, 1);
	pvm_pkdouble(doubles, 2, 1);
	pvm_pkfloat(floats, 2, 2);
	pvm_pkint(&n32, 1, 1);
	pvm_pkuint(&u32, 1, 1);
	pvm_pklong(&n64, 1, 1);
	pvm_pkulong(&u64, 1, 1);
	pvm_pkshort(&n16, 1, 1);
	pvm_pkushort(&u16, 1, 1);
	pvm_pkstr(text);
	pvm_packf("%d %s", 1, "formatted");
	pvm_pkint(&n32, -1, 1);
	pvm_send(own, 1);
	pvm_recv(own, 1);
	pvm_upkbyte(&byte, 1, 1);
	pvm_upkcplx(floats, 1, 1);
	pvm_upkdcplx(doubles, 1, 1);
	pvm_upkdouble(doubles, 2, 1);
	pvm_upkfloat(floats, 2, 2);
	pvm_upkint(&n32, 1, 1);
	pvm_upkuint(&u32, 1, 1);
	pvm_upklong(&n64, 1, 1);
	pvm_upkulong(&u64, 1, 1);
	pvm_upkshort(&n16, 1, 1);
	pvm_upkushort(&u16, 1, 1);
	pvm_upkstr(text);
	pvm_unpackf("%d %s", &n32, text);
	pvm_upkint(&n32, 1, 1);
	pvm_bufinfo(pvm_getrbuf(), &length, &tag, &tid);
	pvm_bufinfo(999, &length, &tag, &tid);
	pvm_getminfo(pvm_getrbuf(), &info);
	info.tag = 9;
	pvm_setminfo(pvm_getrbuf(), &info);
	old = pvm_setsbuf(pvm_mkbuf(PvmDataDefault));
	pvm_pkmesg(pvm_getrbuf());
	pvm_pkmesgbody(pvm_getrbuf());
	pvm_freebuf(pvm_setsbuf(old));
	pvm_setrbuf(pvm_setrbuf(0));
	pvm_freebuf(999);
	pvm_mkbuf(99);
}

/* Sending and receiving. */
static void sends(int parent)
{
	struct timeval half = { 0, 500 }, *never = NULL;
	int own = pvm_mytid(), n = 7, tids[2], tid, tag, length;

	tids[0] = own;
	tids[1] = NOBODY;
	pvm_psend(own, 2, &n, 1, PVM_INT);
	pvm_precv(-1, 2, &n, 1, PVM_INT, &tid, &tag, &length);
	pvm_psend(own, 2, &n, 1, 99);
	pvm_initsend(PvmDataDefault);
	pvm_pkint(&n, 1, 1);
	pvm_mcast(tids, 2, 3);
	pvm_send(own, 4);
	pvm_send(own, -5);
	pvm_send(parent, 4);
	pvm_probe(own, 99);
	usleep(100000);
	pvm_probe(own, 4);
	pvm_nrecv(own, 4);
	pvm_nrecv(own, 4);
	pvm_trecv(own, 4, &half);
	pvm_send(own, 4);
	pvm_trecv(-1, -1, never);
	pvm_recvf(matches);
	pvm_send(own, 5);
	pvm_recv(own, 5);
	pvm_recvf(NULL);
}

/* Message handlers: their calls are traced, if the task's calls are. PVM's own handlers run
 * first, and their calls are ignored here. */
static void handlers(void)
{
	Pvmtmask mask;
	int own = pvm_mytid(), n = 3, handler, *siblings;

	pvm_siblings(&siblings);
	TEV_MASK_INIT(mask)
	TEV_MASK_SET(mask, TEV_ADDMHF);
	TEV_MASK_SET(mask, TEV_DELMHF);
	TEV_MASK_SET(mask, TEV_MHF_INVOKE);
	TEV_MASK_SET(mask, TEV_UPKINT);
	pvm_settmask(PvmTaskSelf, mask);
	handler = pvm_addmhf(own, 6, -1, handled);
	pvm_addmhf(own, 6, -1, handled);
	pvm_initsend(PvmDataDefault);
	pvm_pkint(&n, 1, 1);
	pvm_send(own, 6);
	pvm_send(own, 7);
	pvm_recv(own, 7);
	TEV_MASK_UNSET(mask, TEV_MHF_INVOKE);
	TEV_MASK_SET(mask, TEV_RECV);
	pvm_settmask(PvmTaskSelf, mask);
	pvm_send(own, 6);
	pvm_send(own, 7);
	pvm_recv(own, 7);
	pvm_delmhf(handler);
	pvm_delmhf(99);
}

/* Contexts and options. */
static void contexts(void)
{
	static const int traced_options[] = { PvmRoute, PvmFragSize, PvmSelfTraceOptions, 999 };
	int context;
	size_t i;

	context = pvm_newcontext();
	context = pvm_setcontext(context);
	pvm_getcontext();
	context = pvm_setcontext(context);
	pvm_freecontext(context);
	for (i = 0; i < sizeof traced_options / sizeof *traced_options; i++)
		pvm_getopt(traced_options[i]);
	pvm_setopt(PvmRoute, PvmAllowDirect);
	pvm_setopt(PvmFragSize, 10);
	pvm_setopt(999, 1);
}

/* Mailboxes. */
static void mailboxes(void)
{
	struct pvmmboxinfo *classes;
	int n = 3, index, count;

	pvm_initsend(PvmDataDefault);
	pvm_pkint(&n, 1, 1);
	index = pvm_putinfo("traced", pvm_getsbuf(), PvmMboxDefault);
	pvm_putinfo("traced", pvm_getsbuf(), PvmMboxDefault);
	pvm_putinfo(NULL, pvm_getsbuf(), PvmMboxDefault);
	pvm_recvinfo("traced", index, PvmMboxDefault);
	pvm_recvinfo("nothing", 0, PvmMboxDefault);
	pvm_getmboxinfo("tra*", &count, &classes);
	pvm_delinfo("traced", index, PvmMboxDefault);
	pvm_delinfo("traced", index, PvmMboxDefault);
	pvm_insert("old", -1, 5);
	pvm_lookup("old", -1, &n);
	pvm_delete("old", 0);
}

/* The virtual machine. */
static void machine(int parent)
{
	struct pvmhostinfo *hosts;
	struct pvmtaskinfo *tasks;
	Pvmtmask mask;
	char *names[] = { "127.0.0.2" }, *argv[] = { "idle", NULL };
	int count, kinds, *descriptors, *siblings, tids[2], status[1], arguments[2] = { 5, 0 };
	int results[10];

	pvm_parent();
	pvm_config(&count, &kinds, &hosts);
	pvm_mstat(names[0]);
	pvm_mstat("no.such.host.");
	pvm_mstat(NULL);
	pvm_archcode(hosts[0].hi_arch);
	pvm_archcode("NOTHING");
	pvm_tidtohost(parent);
	pvm_tasks(0, &count, &tasks);
	pvm_tasks(parent, &count, &tasks);
	pvm_pstat(parent);
	pvm_pstat(NOBODY);
	pvm_siblings(&siblings);
	pvm_getfds(&descriptors);
	pvm_tickle(1, arguments, &count, results);
	pvm_addhosts(names, 1, status);
	pvm_delhosts(names, 0, status);
	pvm_start_pvmd(0, NULL, 0);
	pvm_gettmask(PvmTaskSelf, mask);
	pvm_settmask(PvmTaskSelf, mask);
	pvm_perror("said");
	pvm_version();
	pvm_strerror();
	pvm_setopt(PvmTraceTid, 0);
	pvm_spawn(program_invocation_short_name, argv, PvmTaskDefault, NULL, 1, tids);
	pvm_notify(PvmTaskExit, 8, 1, tids);
	pvm_notify(PvmHostAdd, 8, 1, NULL);
	pvm_notify(99, 8, 1, tids);
	pvm_sendsig(tids[0], SIGCONT);
	pvm_sendsig(0, SIGCONT);
	pvm_kill(tids[0]);
	pvm_recv(-1, 8);
	pvm_spawn("no such program", argv, PvmTaskDefault, "", 2, tids);
}

/* Plug-ins. */
static void plugins(void)
{
	Pvmtmask mask;
	struct pvmhostinfo *host;

	TEV_MASK_INIT(mask)
	pvm_reg_hoster();
	pvm_reg_hoster();
	pvm_reg_tasker();
	pvm_reg_tasker();
	pvm_reg_tracer(0, 666, 0, 667, mask, 12, PvmTraceCount);
	pvm_reg_tracer(0, 0, 0, 0, mask, 0, 0);
	(void)host;
}

/* Groups. */
static void groups(void)
{
	int n = 2, all[4] = { 0 }, own = pvm_mytid();

	pvm_joingroup("traced");
	pvm_joingroup("traced");
	pvm_gsize("traced");
	pvm_getinst("traced", own);
	pvm_gettid("traced", 0);
	pvm_gettid("traced", 7);
	pvm_barrier("traced", 1);
	pvm_initsend(PvmDataDefault);
	pvm_pkint(&n, 1, 1);
	pvm_bcast("traced", 9);
	pvm_joingroup("tracer's");
	pvm_initsend(PvmDataDefault);
	pvm_bcast("tracer's", 9);
	pvm_bcast("nobody", 9);
	pvm_reduce(PvmSum, &n, 1, PVM_INT, 9, "traced", 0);
	pvm_gather(all, &n, 1, PVM_INT, 9, "traced", 0);
	pvm_scatter(&n, all, 1, PVM_INT, 9, "traced", 0);
	pvm_lvgroup("traced");
	pvm_lvgroup("traced");
	pvm_gsize(NULL);
}

/* A few calls, of which those in loops are described once. */
static void some(void)
{
	int n = 4, own = pvm_mytid(), i;

	for (i = 0; i < 3; i++) {
		pvm_initsend(PvmDataDefault);
		pvm_pkint(&n, 1, 1);
		pvm_send(own, 1);
		pvm_recv(own, 1);
		pvm_upkint(&n, 1, 1);
	}
}

/* The trace mask changes while the task runs. */
static void changes(void)
{
	Pvmtmask none, all;
	int n = 5;

	TEV_MASK_INIT(none)
	pvm_gettmask(PvmTaskSelf, all);
	pvm_getsbuf();
	pvm_settmask(PvmTaskSelf, none);
	pvm_getsbuf();
	pvm_settmask(PvmTaskSelf, all);
	pvm_getsbuf();
	pvm_setopt(PvmSelfTraceBuffer, 200);
	some();
	pvm_setopt(PvmSelfTraceBuffer, 0);
	pvm_getsbuf();
	pvm_setopt(PvmSelfTraceOptions, PvmTraceCount);
	pvm_getsbuf();
	pvm_getrbuf();
	pvm_setopt(PvmSelfTraceOptions, PvmTraceFull);
	pvm_getsbuf();
	pvm_setopt(PvmSelfTraceCode, TRACE);
	pvm_initsend(PvmDataTrace);
	pvm_pkint(&n, 1, 1);
	pvm_pkstr("abc");
	pvm_send(PVM_TRACE_TID, PVM_TRACE_CODE);
}

/* Children inherit what is traced, and where to. */
static void inherits(void)
{
	char *argv[] = { "quick", NULL };
	Pvmtmask mask;
	int tid;

	TEV_MASK_INIT(mask)
	TEV_MASK_SET(mask, TEV_PARENT);
	TEV_MASK_SET(mask, TEV_EXIT);
	pvm_settmask(PvmTaskChild, mask);
	pvm_spawn(program_invocation_short_name, argv, PvmTaskDefault, NULL, 1, &tid);
	pvm_notify(PvmTaskExit, 8, 1, &tid);
	pvm_recv(-1, 8);
}

static int child(const char *role)
{
	int parent;

	if (!strcmp(role, "idle")) {
		pvm_mytid();
		pause();
	}
	if (!strcmp(role, "direct")) {
		/* The first call is none that needs the daemon. */
		pvm_initsend(PvmDataDefault);
		/* Stock PVM's daemon may drop what comes as the task ends. */
		usleep(100000);
		exit(3);
	}
	parent = pvm_parent();
	pvm_setopt(PvmAutoErr, 0);
	if (!strcmp(role, "packs"))
		packs();
	if (!strcmp(role, "sends"))
		sends(parent);
	if (!strcmp(role, "handlers"))
		handlers();
	if (!strcmp(role, "contexts"))
		contexts();
	if (!strcmp(role, "mailboxes"))
		mailboxes();
	if (!strcmp(role, "machine"))
		machine(parent);
	if (!strcmp(role, "plugins"))
		plugins();
	if (!strcmp(role, "groups"))
		groups();
	if (!strcmp(role, "some"))
		some();
	if (!strcmp(role, "changes"))
		changes();
	if (!strcmp(role, "inherits"))
		inherits();
	pvm_exit();
	return 0;
}

int main(int argc, char **argv)
{
	static const struct { char *role; int options, buffer; } runs[] = {
		{ "quick", PvmTraceFull, 0 },	    { "direct", PvmTraceFull, 0 },
		{ "packs", PvmTraceFull, 0 },	    { "sends", PvmTraceFull, 0 },
		{ "handlers", PvmTraceFull, 0 },    { "contexts", PvmTraceFull, 0 },    { "mailboxes", PvmTraceFull, 0 },
		{ "machine", PvmTraceFull, 0 },	    { "plugins", PvmTraceFull, 0 },
		{ "groups", PvmTraceFull, 0 },	    { "some", PvmTraceFull, 300 },
		{ "some", PvmTraceFull, 1000000 },  { "some", PvmTraceCount, 0 },
		{ "some", PvmTraceTime, 0 },	    { "changes", PvmTraceFull, 0 },
		{ "inherits", PvmTraceFull, 0 },
	};
	Pvmtmask mask;
	size_t i;
	int kind;

	if (argc > 1)
		return child(argv[1]);
	enroll();
	myself = pvm_mytid();
	TEV_MASK_INIT(mask)
	for (kind = TEV_FIRST; kind <= TEV_MAX; kind++)
		if (kind != TEV_MHF_INVOKE)
			TEV_MASK_SET(mask, kind);
	pvm_settmask(PvmTaskChild, mask);
	pvm_setopt(PvmTraceTid, myself);
	pvm_setopt(PvmTraceCode, TRACE);
	pvm_joingroup("tracer's");
	for (i = 0; i < sizeof runs / sizeof *runs; i++) {
		char *role[] = { runs[i].role, NULL };

		say("%s", runs[i].role);
		pvm_setopt(PvmTraceOptions, runs[i].options);
		pvm_setopt(PvmTraceBuffer, runs[i].buffer);
		pvm_spawn(program_invocation_short_name, role, PvmTaskDefault, NULL, 1, &traced);
		follow();
		while (within(50, -1, TRACE) > 0)
			say("and more");
		printf("%s", others);
		others[0] = 0;
	}
	pvm_exit();
	return 0;
}
