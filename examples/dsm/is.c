/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * is.c - ranks integers by counting: the position of each in sorted order. Each integer is
 * the sum of four random numbers, so that middle ones are frequent, as in NAS IS.
 *
 * Layout: one array of `range` counters (int), jia_alloc, so on task 0 as the first one.
 * Integers and ranks are private: each task has its share of them. In each iteration
 *   each task counts its own ones, privately; task 0 writes 0 to all counters; barrier;
 *   under lock 0 each task reads all counters and adds its own to them; barrier;
 *   each task reads all counters, and computes its ranks privately; barrier.
 */
#include "program.h"

static long integers = 1 << 22, range = 32768, iterations = 10;

static int value(long at)
{
	unsigned long sum = 0;

	for (unsigned long part = 0; part < 4; part++)
		sum += chance(4 * (unsigned long)at + part) >> 33;
	return (int)((double)sum / 0x1p33 * (double)range);
}

/* Each iteration sets one integer, so that no two are the same. */
static void change(int *values, long first, long end, long iteration)
{
	long at = iteration % integers;

	if (first <= at && at < end)
		values[at - first] = (int)(iteration % range);
}

/* `counters` is shared; `own` has room for as many. */
static void rank(const int *values, long count, int *ranks, int *counters, int *own)
{
	size_t size = (size_t)range * sizeof(int);

	memset(own, 0, size);
	for (long at = 0; at < count; at++)
		own[values[at]]++;
	if (jiapid == 0)
		memset(counters, 0, size);
	jia_barrier();

	/* Of equal integers, those of tasks that had the lock before come first. */
	jia_lock(0);
	for (long of = 0; of < range; of++) {
		int before = counters[of];

		counters[of] = before + own[of];
		own[of] = before;
	}
	jia_unlock(0);
	jia_barrier();

	int smaller = 0;
	for (long of = 0; of < range; of++) {
		own[of] += smaller;
		smaller += counters[of];
	}
	for (long at = 0; at < count; at++)
		ranks[at] = own[values[at]]++;
	jia_barrier();
}

/* The expected sums over all ranks. */
struct sums {
	unsigned long ranks, squares;
};

/* Checks that each of this task's ranks is in the range of its integer, and that all ranks
 * together have the sum and the sum of squares of the numbers 0 to integers - 1. */
static void compare(const int *values, const int *ranks, long count)
{
	struct sums *sums = (struct sums *)jia_alloc1(sizeof *sums), own = {0}, all = {0};
	int *place = private_memory((size_t)(range + 1) * sizeof(int));
	int *everything = private_memory((size_t)integers * sizeof(int));

	for (long at = 0; at < integers; at++)
		everything[at] = value(at);
	for (long iteration = 0; iteration < iterations; iteration++)
		change(everything, 0, integers, iteration);
	for (long at = 0; at < integers; at++) {
		place[everything[at] + 1]++;
		all.ranks += (unsigned long)at;
		all.squares += (unsigned long)at * (unsigned long)at;
	}
	for (long of = 0; of < range; of++)
		place[of + 1] += place[of];
	for (long at = 0; at < count; at++) {
		if (ranks[at] < place[values[at]] || ranks[at] >= place[values[at] + 1])
			jia_error("is: task %d ranks a %d %d, and on one task these begin with %d",
				  jiapid, values[at], ranks[at], place[values[at]]);
		own.ranks += (unsigned long)ranks[at];
		own.squares += (unsigned long)ranks[at] * (unsigned long)ranks[at];
	}
	jia_barrier();
	jia_lock(0);
	sums->ranks += own.ranks;
	sums->squares += own.squares;
	jia_unlock(0);
	jia_barrier();
	if (jiapid == 0) {
		if (sums->ranks != all.ranks || sums->squares != all.squares)
			jia_error("is: two integers have the same rank");
		printf("is: the same on one task\n");
	}
	free(place);
	free(everything);
}

int main(int argc, char **argv)
{
	const struct option options[] = {
		{"integers", &integers, 1, 1 << 30, "how many are ranked"},
		{"range", &range, 1, 1 << 24, "they are smaller than this"},
		{"iterations", &iterations, 1, 1 << 20, "how often"},
		{0},
	};
	begin(argc, argv, "integer sort by counting", options);

	long first = share_begin(integers, jiapid), end = share_end(integers, jiapid);
	int *counters = (int *)jia_alloc((size_t)range * sizeof(int));
	int *own = private_memory((size_t)range * sizeof(int));
	int *values = private_memory((size_t)(end - first) * sizeof(int));
	int *ranks = private_memory((size_t)(end - first) * sizeof(int));

	for (long at = first; at < end; at++)
		values[at - first] = value(at);
	jia_barrier();

	double start = seconds();
	for (long iteration = 0; iteration < iterations; iteration++) {
		change(values, first, end, iteration);
		rank(values, end - first, ranks, counters, own);
	}
	double time = seconds() - start;

	if (jiapid == 0)
		printf("is: %ld integers below %ld, %ld iterations, %d tasks: %.3f s\n", integers,
		       range, iterations, jiahosts, time);
	if (verify)
		compare(values, ranks, end - first);
	jia_exit();
	return 0;
}
