/* Mailboxes: all flags, owners that end, several entries, waiting; and the calls of PVM 3.3. */
#include "say.h"

/* A message with one int, not sent. */
static int message(int n)
{
	int bufid = pvm_mkbuf(PvmDataDefault), before = pvm_setsbuf(bufid);

	pvm_pkint(&n, 1, 1);
	pvm_setsbuf(before);
	return bufid;
}

static void put(char *name, int n, int flags)
{
	int bufid = message(n), index = pvm_putinfo(name, bufid, flags);

	say("put %d into %s with %d: %s %d", n, name, flags, code(index), index > 0 ? index : 0);
	pvm_freebuf(bufid);
}

static void get(char *name, int index, int flags)
{
	int bufid = pvm_recvinfo(name, index, flags), n = -1;

	if (bufid > 0) {
		pvm_setrbuf(bufid);
		pvm_upkint(&n, 1, 1);
		pvm_freebuf(bufid);
	}
	say("get %s %d with %d: %s %d", name, index, flags, code(bufid), n);
}

static void list(char *pattern)
{
	struct pvmmboxinfo *boxes;
	int n = -1, result = pvm_getmboxinfo(pattern, &n, &boxes), me = pvm_mytid(), i, j;

	say("list %s: %s %d", pattern, code(result), n);
	for (i = 0; i < n; i++) {
		if (boxes[i].mi_name[0] == '#')
			continue;
		for (j = 0; j < boxes[i].mi_nentries; j++)
			say("  %s %d of %d: owner %s flags %d", boxes[i].mi_name,
			    boxes[i].mi_indices[j], boxes[i].mi_nentries,
			    boxes[i].mi_owners[j] == me ? "me" :
			    boxes[i].mi_owners[j] ? "other" : "none", boxes[i].mi_flags[j]);
	}
}

static int child(int parent, const char *role)
{
	int n;

	if (!strcmp(role, "owns")) {
		put("hers", 1, PvmMboxDefault);
		put("her permanent", 2, PvmMboxPersistent);
		put("her open", 3, PvmMboxPersistent | PvmMboxOverWritable);
		put("shared", 4, PvmMboxMultiInstance);
		put("shared", 5, PvmMboxMultiInstance | PvmMboxPersistent);
		tell(parent, 1, 0);
		hear(parent, 2);
	} else {
		/* Waits for an entry that comes later. */
		n = pvm_recvinfo("awaited", 0, PvmMboxWaitForInfo);
		pvm_setrbuf(n);
		pvm_upkint(&n, 1, 1);
		tell(parent, 1, n);
		n = pvm_recvinfo("awaited too", 0, PvmMboxWaitForInfo | PvmMboxReadAndDelete);
		pvm_setrbuf(n);
		pvm_upkint(&n, 1, 1);
		tell(parent, 1, n);
	}
	return pvm_exit();
}

static void own(void)
{
	int i;

	list("*");
	get("one", 0, PvmMboxDefault);
	put("one", 10, PvmMboxDefault);
	put("one", 11, PvmMboxDefault);
	put("one", 12, PvmMboxMultiInstance);
	get("one", 0, PvmMboxDefault);
	get("one", 1, PvmMboxDefault);
	get("one", 1, PvmMboxFirstAvail);
	put("many", 20, PvmMboxMultiInstance);
	put("many", 21, PvmMboxMultiInstance);
	put("many", 22, PvmMboxMultiInstance | PvmMboxOverWritable);
	put("many", 23, PvmMboxDefault);
	get("many", 1, PvmMboxDefault);
	get("many", 0, PvmMboxReadAndDelete);
	get("many", 0, PvmMboxDefault);
	get("many", 0, PvmMboxFirstAvail);
	get("many", 2, PvmMboxFirstAvail);
	get("many", 3, PvmMboxFirstAvail);
	get("many", 0, PvmMboxFirstAvail | PvmMboxReadAndDelete);
	put("many", 24, PvmMboxMultiInstance);
	put("direct", 30, PvmMboxMultiInstance | PvmMboxDirectIndex(5));
	put("direct", 31, PvmMboxMultiInstance);
	put("direct", 32, PvmMboxMultiInstance | PvmMboxDirectIndex(5));
	put("direct", 33, PvmMboxMultiInstance | PvmMboxOverWritable | PvmMboxDirectIndex(7));
	put("direct", 34, PvmMboxMultiInstance | PvmMboxOverWritable | PvmMboxDirectIndex(7));
	get("direct", 5, PvmMboxDefault);
	get("direct", 7, PvmMboxDefault);
	list("*");
	list("one");
	list("m*");
	list("ma.*");
	list("nothing");
	say("delete %s", code(pvm_delinfo("many", 2, PvmMboxDefault)));
	say("delete again %s", code(pvm_delinfo("many", 2, PvmMboxDefault)));
	say("delete unknown %s", code(pvm_delinfo("unknown", 0, PvmMboxDefault)));
	say("delete -1 %s", code(pvm_delinfo("one", -1, PvmMboxDefault)));
	for (i = 0; i < 8; i++)
		pvm_delinfo("direct", i, PvmMboxDefault);
	list("*");
	say("put without name %s", code(pvm_putinfo("", message(1), 0)));
	say("get without name %s", code(pvm_recvinfo("", 0, 0)));
	say("get -1 %s", code(pvm_recvinfo("one", -1, 0)));
	say("get of NULL %s", code(pvm_recvinfo(NULL, 0, 0)));
	say("put of NULL %s", code(pvm_putinfo(NULL, message(1), 0)));
	say("delete of NULL %s", code(pvm_delinfo(NULL, 0, 0)));
}

static void others(void)
{
	int tid;

	spawn(1, &tid, "owns");
	hear(tid, 1);
	list("*");
	get("hers", 0, PvmMboxDefault);
	put("hers", 100, PvmMboxDefault);
	get("hers", 0, PvmMboxReadAndDelete);
	say("delete hers %s", code(pvm_delinfo("hers", 0, PvmMboxDefault)));
	put("her permanent", 101, PvmMboxDefault);
	say("delete her permanent %s", code(pvm_delinfo("her permanent", 0, PvmMboxDefault)));
	put("her open", 102, PvmMboxPersistent | PvmMboxOverWritable);
	get("her open", 0, PvmMboxDefault);
	put("shared", 103, PvmMboxMultiInstance);
	pvm_notify(PvmTaskExit, 9, 1, &tid);
	tell(tid, 2, 0);
	hear(-1, 9);
	list("*");
	put("her permanent", 104, PvmMboxDefault);
	say("delete her permanent %s", code(pvm_delinfo("her permanent", 0, PvmMboxDefault)));
	list("*");
	pvm_delinfo("shared", 1, PvmMboxDefault);
	pvm_delinfo("her open", 0, PvmMboxDefault);
}

static void waiting(void)
{
	int tids[2];

	spawn(2, tids, "waits");
	usleep(100000);
	put("awaited", 200, PvmMboxDefault);
	say("one %d", hear(tids[0], 1));
	say("two %d", hear(tids[1], 1));
	usleep(100000);
	put("awaited too", 201, PvmMboxDefault);
	say("one of them %d", hear(-1, 1));
	put("awaited too", 202, PvmMboxDefault);
	say("the other %d", hear(-1, 1));
	get("awaited too", 0, PvmMboxDefault);
}

static void old(void)
{
	int data = -1;

	say("insert %s", code(pvm_insert("old", 3, 33)));
	say("insert again %s", code(pvm_insert("old", 3, 34)));
	say("insert anywhere %d", pvm_insert("old", -1, 35));
	say("lookup %s", code(pvm_lookup("old", 3, &data)));
	say("data %d", data);
	say("lookup of the first %s", code(pvm_lookup("old", -1, &data)));
	say("data %d", data);
	say("lookup of none %s", code(pvm_lookup("old", 4, &data)));
	say("delete %s", code(pvm_delete("old", 3)));
	say("delete again %s", code(pvm_delete("old", 3)));
	list("*");
}

int main(int argc, char **argv)
{
	int parent = enroll();

	if (parent > 0)
		return child(parent, argv[argc - 1]);
	own();
	others();
	waiting();
	old();
	pvm_exit();
	/* A persistent entry exists for another task, any other has been removed. */
	list("*");
	return pvm_exit();
}
