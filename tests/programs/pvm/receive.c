/* Sending and receiving: wildcards, order, timeouts, typed sends, functions that match. */
#include "say.h"

static int me;

/* Prints the result of a receive call, and the message's tag. */
static void got(const char *what, int bufid)
{
	int bytes = -1, tag = -1, tid = -1, n = -1;

	if (bufid <= 0) {
		say("%s: %s", what, bufid ? code(bufid) : "nothing");
		return;
	}
	pvm_bufinfo(bufid, &bytes, &tag, &tid);
	pvm_upkint(&n, 1, 1);
	say("%s: tag %d bytes %d from me %s int %d active %s", what, tag, bytes,
	    yes(tid == me), n, yes(pvm_getrbuf() == bufid));
}

static void to_itself(void)
{
	struct timeval none = { 0, 0 }, little = { 0, 20000 }, bad = { -1, 0 }, worse = { 0, -1 };
	int probed;

	got("nrecv of nothing", pvm_nrecv(-1, -1));
	got("probe of nothing", pvm_probe(-1, -1));
	got("trecv without time", pvm_trecv(-1, -1, &none));
	got("trecv of 20 ms", pvm_trecv(-1, 5, &little));
	got("trecv with -1 s", pvm_trecv(-1, 5, &bad));
	got("trecv with -1 us", pvm_trecv(-1, 5, &worse));

	say("send %s", code(tell(me, 1, 10)));
	tell(me, 2, 20);
	tell(me, 1, 11);
	tell(me, 3, 30);
	while ((probed = pvm_probe(me, 3)) == 0)
		;
	say("probe finds %s", yes(probed > 0));
	say("probe again %s", yes(pvm_probe(-1, 3) == probed));
	say("probe does not activate %s", yes(pvm_getrbuf() != probed));
	got("recv of tag 2", pvm_recv(-1, 2));
	got("nrecv of tag 4", pvm_nrecv(-1, 4));
	got("recv of any", pvm_recv(-1, -1));
	got("recv of any of me", pvm_recv(me, -1));
	got("nrecv of somebody else", pvm_nrecv(NOBODY, 3));
	got("trecv for ever", pvm_trecv(me, 3, NULL));
	got("nrecv after all", pvm_nrecv(-1, -1));
}

static void bad(void)
{
	int tids[3] = { me, NOBODY, 0 }, n;

	say("send to tid 0: %s", code(tell(0, 1, 1)));
	say("send to -1: %s", code(tell(-1, 1, 1)));
	say("send with tag -1: %s", code(tell(me, -1, 1)));
	say("send with tag -2: %s", code(tell(me, -2, 1)));
	say("recv of tag -2: %s", code(pvm_nrecv(-1, -2)));
	say("recv of tid 0: %s", code(pvm_nrecv(0, 1)));
	say("recv of tid -2: %s", code(pvm_nrecv(-2, 1)));
	say("probe of tid 0: %s", code(pvm_probe(0, 1)));
	say("probe of tag -2: %s", code(pvm_probe(-1, -2)));
	pvm_freebuf(pvm_setsbuf(0));
	say("send without buffer: %s", code(pvm_send(me, 1)));
	say("mcast without buffer: %s", code(pvm_mcast(tids, 1, 1)));
	n = pvm_initsend(PvmDataDefault);
	say("initsend %s", code(n));
	say("mcast to nobody: %s", code(pvm_mcast(tids, 0, 6)));
	say("mcast to -1: %s", code(pvm_mcast(tids, -1, 6)));
	say("mcast with tag -1: %s", code(pvm_mcast(tids, 1, -1)));
	say("mcast to itself: %s", code(pvm_mcast(tids, 1, 6)));
	say("it comes: %s", yes(within(50, -1, 6) > 0));
	say("send to an empty tid: %s", code(pvm_send(NOBODY, 6)));
	say("bufinfo of none: %s", code(pvm_bufinfo(9999, &n, &n, &n)));
	say("bufinfo of 0: %s", code(pvm_bufinfo(0, &n, &n, &n)));
	say("bufinfo of the send buffer: %s", code(pvm_bufinfo(pvm_getsbuf(), NULL, NULL, NULL)));
}

/* Every type of psend and precv. */
static void typed(void)
{
	static const int sizes[] = { 1, 1, 2, 4, 4, 8, 8, 16, 8, 2, 4, 8 };
	char sent[16 * 16], came[16 * 16];
	int type, i, tid, tag, count, result;

	for (type = -1; type <= 13; type++) {
		for (i = 0; i < (int)sizeof sent; i++)
			sent[i] = 'a' + i % 26;
		memset(came, 0, sizeof came);
		if (type == PVM_STR) {
			strcpy(sent, "fourteen bytes");
			i = 1;
		} else {
			i = 7;
		}
		result = pvm_psend(me, 100 + type, sent, i, type);
		tid = tag = count = -1;
		if (result < 0) {
			say("psend of type %d: %s", type, code(result));
			say("precv of type %d: %s", type,
			    code(pvm_precv(me, 8888, came, 0, type, &tid, &tag, &count)));
			continue;
		}
		result = pvm_precv(-1, -1, came, i, type, &tid, &tag, &count);
		say("type %d: %s, tid %s, tag %d, count %d, same %s", type, code(result),
		    yes(tid == me), tag, count,
		    yes(!memcmp(sent, came, type == PVM_STR ? 15 : 7 * sizes[type])));
	}
}

static void short_and_long(void)
{
	int sent[4] = { 1, 2, 3, 4 }, came[8], tid, tag, count, result, i;

	for (i = 0; i <= 8; i += 2) {
		memset(came, 0, sizeof came);
		pvm_psend(me, 9, sent, 4, PVM_INT);
		result = pvm_precv(me, 9, came, i, PVM_INT, &tid, &tag, &count);
		say("precv of %d of 4: %s, count %d, first %d", i, code(result), count, came[0]);
		say("left: %s", yes(pvm_nrecv(me, 9) > 0));
	}
	say("psend of none: %s", code(pvm_psend(me, 10, sent, 0, PVM_INT)));
	result = pvm_precv(me, 10, came, 4, PVM_INT, &tid, &tag, &count);
	say("precv of it: %s, count %d", code(result), count);
	say("psend to 0: %s", code(pvm_psend(0, 9, sent, 1, PVM_INT)));
	say("psend with tag -1: %s", code(pvm_psend(me, -1, sent, 1, PVM_INT)));
	/* A psend leaves the active buffers alone. */
	i = pvm_initsend(PvmDataRaw);
	pvm_psend(me, 9, sent, 1, PVM_INT);
	pvm_precv(me, 9, came, 1, PVM_INT, NULL, NULL, NULL);
	say("send buffer as before: %s", yes(pvm_getsbuf() == i));
	/* Of a message that was packed. */
	pvm_initsend(PvmDataRaw);
	pvm_pkint(sent, 4, 1);
	pvm_send(me, 9);
	result = pvm_precv(me, 9, came, 4, PVM_INT, &tid, &tag, &count);
	say("precv of a packed message: %s, count %d, last %d", code(result), count, came[3]);
}

static int calls;

/* Matches the largest tag, for any request. */
static int largest(int bufid, int tid, int tag)
{
	int its_tag;

	(void)tid, (void)tag;
	calls++;
	pvm_bufinfo(bufid, NULL, &its_tag, NULL);
	return its_tag + 1;
}

static int refuses(int bufid, int tid, int tag)
{
	(void)bufid, (void)tid, (void)tag;
	return -7;
}

static int nothing(int bufid, int tid, int tag)
{
	(void)bufid, (void)tid, (void)tag;
	return 0;
}

static void matching(void)
{
	int (*before)(int, int, int), (*standard)(int, int, int);

	tell(me, 11, 1);
	tell(me, 13, 2);
	tell(me, 12, 3);
	tell(me, 13, 4);
	tell(me, 10, 5);
	while (pvm_probe(me, 10) == 0)
		;
	standard = pvm_recvf(largest);
	say("there is a function already: %s", yes(standard != NULL));
	got("largest", pvm_recv(5, 5));
	got("largest", pvm_nrecv(-1, 11));
	say("called %s", yes(calls >= 5));
	before = pvm_recvf(refuses);
	say("the one before comes back: %s", yes(before == largest));
	got("an error", pvm_nrecv(-1, -1));
	got("an error", pvm_recv(-1, -1));
	got("an error of probe", pvm_probe(-1, -1));
	pvm_recvf(nothing);
	got("none", pvm_nrecv(-1, -1));
	pvm_recvf(NULL);
	got("default", pvm_nrecv(-1, 11));
	before = pvm_recvf(standard);
	say("NULL is the default: %s", yes(before == standard));
	got("default", pvm_nrecv(-1, -1));
	got("default", pvm_nrecv(-1, -1));
	got("default", pvm_nrecv(-1, -1));
}

/* Two children send numbered messages; each one's come in order. */
static void order(void)
{
	int tids[2], next[2] = { 0, 0 }, i, from, n, tid;

	spawn(2, tids, "counts");
	for (i = 0; i < 2; i++)
		tell(tids[i], 1, 0);
	for (i = 0; i < 200; i++) {
		pvm_bufinfo(pvm_recv(-1, 2), NULL, NULL, &tid);
		pvm_upkint(&n, 1, 1);
		from = tid == tids[1];
		if (n != next[from]++)
			say("out of order: %d", n);
	}
	say("all in order %d %d", next[0], next[1]);
	pvm_initsend(PvmDataDefault);
	say("mcast %s", code(pvm_mcast(tids, 2, 3)));
	for (i = 0; i < 2; i++)
		say("child has had it %d", hear(tids[i], 4));
}

static int counts(int parent)
{
	int i;

	hear(parent, 1);
	for (i = 0; i < 100; i++)
		tell(parent, 2, i);
	pvm_recv(parent, 3);
	tell(parent, 4, 1);
	return pvm_exit();
}

int main(void)
{
	int parent = enroll();

	if (parent > 0)
		return counts(parent);
	me = pvm_mytid();
	to_itself();
	bad();
	typed();
	short_and_long();
	matching();
	order();
	return pvm_exit();
}
