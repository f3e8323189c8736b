/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * many.c - litmus tests for sequential consistency, many executions at a time, as litmus7 runs
 * them: threads go through arrays of words at their own pace, and where they meet is chance.
 *
 *	many EXECUTIONS
 *
 * A word of each array belongs to one execution; neighbours lie on different pages. A line for
 * each shape: its name, executions, and how many ended in the rarest of the outcomes that
 * are allowed; then `right`, or what was seen that cannot be.
 *
 *  - SB (store buffering), LB (load buffering), MP (message passing), CoRR (coherence),
 *    2+2W (writes in two orders), IRIW (independent reads of independent writes).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS = 4, PAGE = 4096, PAGES = 4, WORDS = 4096 };

static atomic_int *x, *y;
/* The values that each thread has read; private memory. */
static int seen[THREADS][WORDS][2];
static pthread_barrier_t barrier;
static long rounds;

static size_t place(size_t at)
{
	return at % PAGES * (PAGE / sizeof(int)) + at / PAGES;
}

static int get(atomic_int *from, size_t at)
{
	return atomic_load_explicit(from + place(at), memory_order_relaxed);
}

static void put(atomic_int *to, size_t at, int value)
{
	atomic_store_explicit(to + place(at), value, memory_order_relaxed);
}

/* The fence that x86 requires for more than its own order. */
static void fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

static void sb(int me, size_t at)
{
	put(me ? y : x, at, 1);
	fence();
	seen[me][at][0] = get(me ? x : y, at);
}

static int sb_is(size_t at)
{
	return seen[0][at][0] + 2 * seen[1][at][0];
}

static void lb(int me, size_t at)
{
	seen[me][at][0] = get(me ? y : x, at);
	atomic_signal_fence(memory_order_seq_cst);
	put(me ? x : y, at, 1);
}

static void mp(int me, size_t at)
{
	if (me == 0) {
		put(x, at, 1);
		atomic_signal_fence(memory_order_seq_cst);
		put(y, at, 1);
	} else {
		seen[1][at][0] = get(y, at);
		atomic_signal_fence(memory_order_seq_cst);
		seen[1][at][1] = get(x, at);
	}
}

static int mp_is(size_t at)
{
	return seen[1][at][0] + 2 * seen[1][at][1];
}

static void corr(int me, size_t at)
{
	if (me == 0) {
		put(x, at, 1);
	} else {
		seen[1][at][0] = get(x, at);
		atomic_signal_fence(memory_order_seq_cst);
		seen[1][at][1] = get(x, at);
	}
}

static void two_writes(int me, size_t at)
{
	put(me ? y : x, at, 1 + me);
	atomic_signal_fence(memory_order_seq_cst);
	put(me ? x : y, at, 1 + me);
}

/* The final values: x 1 or 2, y 1 or 2. */
static int two_writes_is(size_t at)
{
	return get(x, at) - 1 + 2 * (get(y, at) - 1);
}

static void iriw(int me, size_t at)
{
	if (me < 2) {
		put(me ? y : x, at, 1);
		return;
	}
	seen[me][at][0] = get(me == 2 ? x : y, at);
	atomic_signal_fence(memory_order_seq_cst);
	seen[me][at][1] = get(me == 2 ? y : x, at);
}

static int iriw_is(size_t at)
{
	return seen[2][at][0] + 2 * seen[2][at][1] + 4 * seen[3][at][0] + 8 * seen[3][at][1];
}

/* An outcome is a number; one of them cannot be. */
static const struct {
	const char *name;
	int threads, outcomes, never;
	void (*part)(int me, size_t at);
	int (*is)(size_t at);
} shapes[] = {
	{"SB", 2, 4, 0, sb, sb_is},
	{"LB", 2, 4, 3, lb, sb_is},
	{"MP", 2, 4, 1, mp, mp_is},
	{"CoRR", 2, 4, 1, corr, mp_is},
	/* x is 1, so the second thread's write to it came first; y is 2, so the first one's. */
	{"2+2W", 2, 4, 2, two_writes, two_writes_is},
	/* One has seen x before y, the other y before x. */
	{"IRIW", 4, 16, 5, iriw, iriw_is},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static long counts[SHAPES][16];

/* Up to some microseconds: no thread keeps a page long enough to go through all words at
 * once. */
static void dawdle(unsigned *random)
{
	*random = *random * 1664525 + 1013904223;
	for (volatile unsigned left = (*random >> 16) % 4000; left > 0; left--)
		;
}

static void *thread(void *argument)
{
	int me = (int)(size_t)argument;
	unsigned random = (unsigned)me;

	for (int shape = 0; shape < SHAPES; shape++)
		for (long round = 0; round < rounds; round++) {
			if (me == 0) {
				memset((void *)x, 0, PAGES * PAGE);
				memset((void *)y, 0, PAGES * PAGE);
			}
			pthread_barrier_wait(&barrier);
			for (size_t at = 0; me < shapes[shape].threads && at < WORDS; at++) {
				if (at % 8 == 0)
					dawdle(&random);
				shapes[shape].part(me, at);
			}
			pthread_barrier_wait(&barrier);
			for (size_t at = 0; me == 0 && at < WORDS; at++)
				counts[shape][shapes[shape].is(at)]++;
		}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	long executions = argc == 2 ? atol(argv[1]) : 0;

	if (executions < 1) {
		fprintf(stderr, "usage: many EXECUTIONS\n");
		return 2;
	}
	rounds = (executions + WORDS - 1) / WORDS;
	x = mmap(NULL, 2 * PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (x == MAP_FAILED)
		return 1;
	y = x + PAGES * PAGE / sizeof(int);
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (size_t me = 0; me < THREADS; me++)
		if (pthread_create(&threads[me], NULL, thread, (void *)me) != 0)
			return 1;
	for (size_t me = 0; me < THREADS; me++)
		pthread_join(threads[me], NULL);
	for (int shape = 0; shape < SHAPES; shape++) {
		long rarest = rounds * WORDS;

		for (int outcome = 0; outcome < shapes[shape].outcomes; outcome++)
			if (counts[shape][outcome] > 0 && counts[shape][outcome] < rarest)
				rarest = counts[shape][outcome];
		fprintf(stderr, "%-5s %ld %ld\n", shapes[shape].name, rounds * WORDS, rarest);
	}
	for (int shape = 0; shape < SHAPES; shape++)
		if (counts[shape][shapes[shape].never] > 0) {
			printf("%s: %ld times what cannot be\n", shapes[shape].name,
			       counts[shape][shapes[shape].never]);
			return 1;
		}
	printf("right\n");
	return 0;
}
