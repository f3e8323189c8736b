/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvm_many.c - operations of several PVM tasks: groups, multicast, rings, pairs.
 *
 *     pvm_many TASKS PLACES ROUTE OPERATIONS MILLISECONDS BYTES
 *
 * ROUTE as in pvm_pingpong. OPERATIONS, with commas:
 *
 *     barrier     pvm_barrier of all
 *     bcast       pvm_bcast of BYTES from task 0
 *     gather      pvm_gather of BYTES of each to task 0
 *     reduce      pvm_reduce (PvmSum) of BYTES of ints to task 0
 *     mcast       pvm_mcast of BYTES from task 0 to all others
 *     ring        BYTES go once around; the time counts for each hop
 *     pairs       tasks 2k and 2k+1 send BYTES to and fro, all at once; the time of a message
 *                 of a pair (an even number of tasks)
 *
 * Each is repeated for about MILLISECONDS; a line for each:
 *
 *     OPERATION ITERATIONS NANOSECONDS
 *
 * Barrier, ring and pairs: the whole time divided by the iterations. The others: from the start
 * of the first task until the end of the last one, after a barrier; the mean of the middle half.
 * All received data are checked.
 */
#include "pvm_job.h"

enum { ITERATIONS_MIN = 4, ITERATIONS_MAX = 2000, TAG_DATA = 1, TAG_STAMPS, TAG_TURNS };
static char group[] = "nagaya-bench";

static int bytes, *data, *gathered;
static int64_t begun[ITERATIONS_MAX], ended[ITERATIONS_MAX];

static void barrier(void)
{
	CHECK(pvm_barrier(group, tasks));
}

static void fill(int value)
{
	for (int k = 0; k < bytes / (int)sizeof(int); k++)
		data[k] = value + k;
}

static void expect(const int *words, int value)
{
	for (int k = 0; k < bytes / (int)sizeof(int); k++)
		if (words[k] != value + k)
			fail("wrong data, word", k);
}

static void pack(void)
{
	CHECK(pvm_initsend(PvmDataRaw));
	CHECK(pvm_pkbyte((char *)data, bytes, 1));
}

static void receive(int from)
{
	CHECK(pvm_recv(from, TAG_DATA));
	CHECK(pvm_upkbyte((char *)data, bytes, 1));
}

static void bcast(int i)
{
	if (task == 0) {
		pack();
		CHECK(pvm_bcast(group, TAG_DATA));
	} else {
		receive(tids[0]);
		expect(data, i);
	}
}

static void mcast(int i)
{
	if (task == 0) {
		pack();
		CHECK(pvm_mcast(tids + 1, tasks - 1, TAG_DATA));
	} else {
		receive(tids[0]);
		expect(data, i);
	}
}

static void gather(int i)
{
	CHECK(pvm_gather(gathered, data, bytes, PVM_BYTE, TAG_DATA, group, 0));
	for (int t = 0; t < tasks && task == 0; t++)
		expect(gathered + t * (bytes / (int)sizeof(int)), i);
}

static void reduce(int i)
{
	int words = bytes / (int)sizeof(int), last = words - 1;
	CHECK(pvm_reduce(PvmSum, data, words, PVM_INT, TAG_DATA, group, 0));
	if (task == 0 && (data[0] != tasks * i || data[last] != tasks * (i + last)))
		fail("wrong sum", data[0]);
}

static void ring(int i)
{
	if (task == 0) {
		pack();
		CHECK(pvm_send(tids[1 % tasks], TAG_DATA));
	}
	receive(tids[(task + tasks - 1) % tasks]);
	expect(data, i);
	if (task != 0) {
		pack();
		CHECK(pvm_send(tids[(task + 1) % tasks], TAG_DATA));
	}
}

static void pairs(int i)
{
	(void)i;
	for (int turn = 0; turn < 2; turn++)
		if (turn == (task & 1)) {
			pack();
			CHECK(pvm_send(tids[task ^ 1], TAG_DATA));
		} else {
			receive(tids[task ^ 1]);
		}
}

static void only_barrier(int i)
{
	(void)i;
	barrier();
}

static const struct {
	const char *name;
	void (*run)(int);
	int waits; /* each iteration waits for the previous one, so that no barrier is needed */
	int pairs; /* parts of an iteration that count: 1, 2, or (0) the number of tasks */
} operations[] = {
	{ "barrier", only_barrier, 1, 1 }, { "bcast", bcast, 0, 1 }, { "gather", gather, 0, 1 },
	{ "reduce", reduce, 0, 1 },        { "mcast", mcast, 0, 1 }, { "ring", ring, 1, 0 },
	{ "pairs", pairs, 1, 2 },
};

static void iterate(size_t o, int n)
{
	barrier();
	for (int i = 0; i < n; i++) {
		/* Received data overwrite the task's data; only those of senders must be right. */
		if (task == 0 || !operations[o].waits)
			fill(i);
		if (!operations[o].waits)
			barrier();
		begun[i] = now_ns();
		operations[o].run(i);
		ended[i] = now_ns();
	}
	barrier();
}

/* From the first to begin until the last to end, of each iteration; on task 0. */
static double slowest_ns(int n)
{
	static int64_t others_begun[ITERATIONS_MAX], others_ended[ITERATIONS_MAX];
	static double each[ITERATIONS_MAX];
	if (task != 0) {
		CHECK(pvm_initsend(PvmDataRaw));
		CHECK(pvm_pklong(begun, n, 1));
		CHECK(pvm_pklong(ended, n, 1));
		CHECK(pvm_send(tids[0], TAG_STAMPS));
		return 0;
	}
	for (int t = 1; t < tasks; t++) {
		CHECK(pvm_recv(tids[t], TAG_STAMPS));
		CHECK(pvm_upklong(others_begun, n, 1));
		CHECK(pvm_upklong(others_ended, n, 1));
		for (int i = 0; i < n; i++) {
			begun[i] = others_begun[i] < begun[i] ? others_begun[i] : begun[i];
			ended[i] = others_ended[i] > ended[i] ? others_ended[i] : ended[i];
		}
	}
	for (int i = 0; i < n; i++)
		each[i] = (double)(ended[i] - begun[i]);
	return mean_of_middle_half(each, n);
}

/* Returns the number of iterations that fit, which task 0 sends to the others. */
static int agree(double each_ns, int milliseconds)
{
	double fit = milliseconds * 1e6 / each_ns;
	int n = fit < ITERATIONS_MIN ? ITERATIONS_MIN : fit > ITERATIONS_MAX ? ITERATIONS_MAX : (int)fit;
	if (task == 0) {
		CHECK(pvm_initsend(PvmDataRaw));
		CHECK(pvm_pkint(&n, 1, 1));
		CHECK(pvm_mcast(tids + 1, tasks - 1, TAG_TURNS));
	} else {
		CHECK(pvm_recv(tids[0], TAG_TURNS));
		CHECK(pvm_upkint(&n, 1, 1));
	}
	return n;
}

static void measure_operation(size_t o, int milliseconds)
{
	enum { WARM_UP = 5 };
	int64_t start = 0;
	for (int pass = 0; pass < 2; pass++) { /* the first one establishes routes */
		start = now_ns();
		iterate(o, WARM_UP);
	}
	int n = agree((double)(now_ns() - start) / WARM_UP, milliseconds);
	barrier();
	start = now_ns();
	iterate(o, n);
	double ns = (double)(now_ns() - start) / n;
	if (operations[o].waits)
		ns /= operations[o].pairs ? operations[o].pairs : tasks;
	else
		ns = slowest_ns(n);
	if (task == 0)
		say("%s %d %.1f", operations[o].name, n, ns);
}

static void measure(void)
{
	if (tasks < 2 || arguments < 4 || (bytes = atoi(argument[3])) < 4 || bytes % 4)
		fail("usage: TASKS PLACES ROUTE OPERATIONS MILLISECONDS BYTES; bytes", bytes);
	if (strcmp(argument[0], "default"))
		CHECK(pvm_setopt(PvmRoute, strcmp(argument[0], "direct") ? PvmDontRoute : PvmRouteDirect));
	data = malloc((size_t)bytes);
	gathered = malloc((size_t)bytes * (size_t)tasks);
	if (!data || !gathered)
		fail("no memory for bytes", bytes);
	/* Instances in the order of the tasks: task 0 is the root. */
	for (int t = 0; t < tasks; t++) {
		if (t == task && CHECK(pvm_joingroup(group)) != task)
			fail("joined out of turn", t);
		if (t == task && t + 1 < tasks) {
			CHECK(pvm_initsend(PvmDataRaw));
			CHECK(pvm_send(tids[t + 1], TAG_TURNS));
		}
		if (t + 1 == task)
			CHECK(pvm_recv(tids[t], TAG_TURNS));
	}
	barrier();
	for (size_t o = 0; o < sizeof operations / sizeof *operations; o++)
		if (strstr(argument[1], operations[o].name) && !(operations[o].run == pairs && tasks % 2))
			measure_operation(o, atoi(argument[2]));
	barrier();
	pvm_lvgroup(group);
}

int main(int argc, char **argv)
{
	return job(argc, argv, measure);
}
