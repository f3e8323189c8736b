/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * dsm_latency.c - the time of single operations of shared memory, each with its tail.
 *
 *	mpirun -n TASKS dsm_latency SAMPLES STEP...
 *
 * Task 0 measures; the others take part, or wait at a barrier. Prints a line for each step: its
 * name, tasks, number of samples, and their median, 99th percentile and maximum in ns.
 *
 *  - read-miss, write-miss: the first access to a page whose home is task 1, which wrote it
 *    after the last access of task 0. The order of pages has no pattern, so that no prediction
 *    succeeds.
 *  - upgrade: the first write to such a page that task 0 has read.
 *  - lock: acquiring a free lock whose manager is task 1, one after the other.
 *  - lock-again: the same lock again and again, each time right after its release, which
 *    the manager must receive first.
 *  - hand-over: two tasks request one lock: from before the release until the other task has it.
 *  - barrier: from task 0's arrival, after all have left the previous barrier, to its end.
 */
#include "times.h"

#include <nagaya_dsm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pages between two barriers. */
enum { PAGES = 256, LOCK = 1 };

static int samples, tasks, me;
static size_t page;
static long *times; /* of task 0 */

static void check(int status)
{
	if (status < 0) {
		fprintf(stderr, "dsm_latency: task %d: %s\n", me, nagaya_dsm_reason());
		exit(1);
	}
}

static void *shared(size_t size, unsigned home)
{
	const struct nagaya_dsm_homes homes = {0, home};
	void *memory = nagaya_dsm_alloc(size, &homes);

	check(memory == NULL ? -1 : 0);
	return memory;
}

static void report(const char *step, int count)
{
	sort(times, count);
	printf("%s %d %d %ld %ld %ld\n", step, tasks, count, times[count / 2],
	       times[(long)count * 99 / 100], times[count - 1]);
	fflush(stdout);
}

/* A random permutation of 0 to PAGES - 1, another one for each round. */
static void shuffle(int *order, unsigned *seed)
{
	for (int at = 0; at < PAGES; at++)
		order[at] = at;
	for (int at = PAGES - 1; at > 0; at--) {
		int with = rand_r(seed) % (at + 1), page_here = order[at];

		order[at] = order[with];
		order[with] = page_here;
	}
}

static void pages(const char *step)
{
	static volatile char *memory;
	int order[PAGES], writes = strcmp(step, "read-miss") != 0, taken = 0;
	int reads_before = strcmp(step, "upgrade") == 0;
	unsigned seed = 1;

	if (memory == NULL)
		memory = shared(PAGES * page, 1);
	while (taken < samples) {
		if (me == 1)
			for (int at = 0; at < PAGES; at++)
				memory[(size_t)at * page]++;
		check(nagaya_dsm_barrier());
		shuffle(order, &seed);
		for (int at = 0; me == 0 && at < PAGES; at++) {
			volatile char *byte = memory + (size_t)order[at] * page;

			if (reads_before)
				(void)*byte;
			long begin = now_ns();
			if (writes)
				byte[1] = (char)at;
			else
				(void)*byte;
			if (taken + at < samples)
				times[taken + at] = now_ns() - begin;
		}
		taken += PAGES;
		check(nagaya_dsm_barrier());
	}
	if (me == 0)
		report(step, samples);
}

static void lock(void)
{
	for (int at = 0; me == 0 && at < samples; at++) {
		long begin = now_ns();

		check(nagaya_dsm_acquire(LOCK + (unsigned)(at * tasks)));
		times[at] = now_ns() - begin;
	}
	for (int at = 0; me == 0 && at < samples; at++)
		check(nagaya_dsm_release(LOCK + (unsigned)(at * tasks)));
	check(nagaya_dsm_barrier());
	if (me == 0)
		report("lock", samples);
}

static void lock_again(void)
{
	for (int at = 0; me == 0 && at < samples; at++) {
		long begin = now_ns();

		check(nagaya_dsm_acquire(LOCK));
		times[at] = now_ns() - begin;
		check(nagaya_dsm_release(LOCK));
	}
	check(nagaya_dsm_barrier());
	if (me == 0)
		report("lock-again", samples);
}

/* The time when a task got the lock, and when it began to release it. */
struct turn {
	long acquired, released;
};

static int by_time(const void *a, const void *b)
{
	const struct turn *x = a, *y = b;
	return (x->acquired > y->acquired) - (x->acquired < y->acquired);
}

/* Tasks 0 and 1, equally often. Consecutive turns of one task are no hand-overs. */
static void hand_over(void)
{
	static struct turn *turns;
	int count = 0;

	if (turns == NULL)
		turns = shared(2 * (size_t)samples * sizeof *turns, 0);
	struct turn *own = calloc((size_t)samples, sizeof *own);
	check(nagaya_dsm_barrier());
	for (int at = 0; me < 2 && at < samples; at++) {
		check(nagaya_dsm_acquire(LOCK));
		own[at].acquired = now_ns();
		own[at].released = now_ns();
		check(nagaya_dsm_release(LOCK));
	}
	if (me < 2)
		memcpy(turns + me * samples, own, (size_t)samples * sizeof *own);
	check(nagaya_dsm_barrier());
	if (me == 0) {
		struct turn *all = calloc(2 * (size_t)samples, sizeof *all);
		char *task = calloc(2 * (size_t)samples, 1);

		memcpy(all, turns, 2 * (size_t)samples * sizeof *all);
		qsort(all, 2 * (size_t)samples, sizeof *all, by_time);
		for (int at = 0, mine = 0; at < 2 * samples; at++) {
			task[at] = mine < samples && all[at].acquired == own[mine].acquired;
			mine += task[at];
			if (at > 0 && task[at] != task[at - 1] && count < samples)
				times[count++] = all[at].acquired - all[at - 1].released;
		}
		if (count > 0)
			report("hand-over", count);
		free(all);
		free(task);
	}
	free(own);
	check(nagaya_dsm_barrier());
}

static void barrier(void)
{
	for (int at = 0; at < samples; at++) {
		long begin = now_ns();

		check(nagaya_dsm_barrier());
		if (me == 0)
			times[at] = now_ns() - begin;
	}
	if (me == 0)
		report("barrier", samples);
}

int main(int argc, char **argv)
{
	if (argc < 3 || (samples = atoi(argv[1])) < 1) {
		fprintf(stderr, "usage: dsm_latency SAMPLES STEP...\n");
		return 2;
	}
	check(nagaya_dsm_init());
	me = nagaya_dsm_task();
	tasks = nagaya_dsm_tasks();
	page = nagaya_dsm_page_size();
	times = calloc((size_t)samples, sizeof *times);
	if (tasks < 2 || times == NULL) {
		fprintf(stderr, "dsm_latency: start it with two tasks or more\n");
		return 1;
	}
	check(nagaya_dsm_barrier());
	for (int at = 2; at < argc; at++) {
		if (strcmp(argv[at], "lock") == 0)
			lock();
		else if (strcmp(argv[at], "lock-again") == 0)
			lock_again();
		else if (strcmp(argv[at], "hand-over") == 0)
			hand_over();
		else if (strcmp(argv[at], "barrier") == 0)
			barrier();
		else
			pages(argv[at]);
	}
	check(nagaya_dsm_exit());
	return 0;
}
