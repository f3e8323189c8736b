/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * span_latency.c - the time of single operations of one process over two nodes, each with its
 * tail. An ordinary program with threads:
 *
 *	nagaya span --nodes 2 --place spread span_latency SAMPLES STEP...
 *
 * The first thread is at the origin, the other one, which measures, on the second node. Prints a
 * line for each step: its name, number of samples, and their median, 99th percentile and maximum
 * in ns.
 *
 *  - page-fetch: the first read of a page that the origin has written. The order of pages has no
 *    pattern, so that no prediction succeeds.
 *  - fetch-busy: the same, while the thread at the origin computes.
 *  - page-take: as page-fetch, with the first write.
 *  - upgrade: the first write to such a page after a read. Memory is new each time; otherwise the
 *    predictor would learn that pages are read and then written.
 *  - run-of-16: reading 16 such pages one after the other; the runs in an order without pattern.
 *  - call: a system call that is made at the origin (getppid).
 *  - call-here: a system call on the node of the thread (sched_yield).
 *  - clock: reading the clock, which is part of every other step.
 *  - wake: a thread at the origin is woken at a word, and wakes this one at another.
 *  - move: the measuring thread moves to the origin and back; one round trip.
 *  - thread: starting and joining a thread on the second node, from the origin.
 */
#define _GNU_SOURCE
#include "nagaya_span.h"
#include "times.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, RUN = 16, PAGES = 256, RUNS = 32 };

static int samples, ends;
/* Duration of a computation at the origin. */
enum { BUSY_NS = 20000000 };
static const char *step;
static long *times;
static volatile char *memory;
static pthread_barrier_t both;
/* Each on a separate page. */
static struct {
	_Alignas(PAGE) int word;
} words[2];

static int is(const char *name)
{
	return strcmp(step, name) == 0;
}

/* A random permutation of 0 to `count` - 1, another one each time. */
static void shuffle(int *order, int count)
{
	static unsigned seed = 1;

	for (int at = 0; at < count; at++)
		order[at] = at;
	for (int at = count - 1; at > 0; at--) {
		int with = rand_r(&seed) % (at + 1), here = order[at];

		order[at] = order[with];
		order[with] = here;
	}
}

/* Runs of pages that the other thread has just written at the origin, with as many pages between
 * them. */
static int touch(int runs, int length, int taken)
{
	int order[PAGES];

	shuffle(order, runs);
	for (int at = 0; at < runs && taken < samples; at++) {
		volatile char *byte = memory + (long)order[at] * 2 * length * PAGE;
		long begin;

		if (is("upgrade"))
			(void)*byte;
		begin = now_ns();
		if (is("page-take") || is("upgrade"))
			*byte = 2;
		else
			for (int page = 0; page < length; page++)
				(void)byte[page * PAGE];
		times[taken++] = now_ns() - begin;
	}
	return taken;
}

static void pages(int is_origin, int runs, int length)
{
	for (int taken = 0; taken < samples;) {
		if (is_origin && is("upgrade"))
			mmap((void *)memory, 2L * runs * length * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		if (is_origin)
			for (long page = 0; page < 2 * runs * length; page++)
				memory[page * PAGE] = 1;
		pthread_barrier_wait(&both);
		for (long until = now_ns() + BUSY_NS; is_origin && is("fetch-busy");)
			if (now_ns() > until)
				break;
		if (is_origin)
			taken += runs;
		else
			taken = touch(runs, length, taken);
		pthread_barrier_wait(&both);
	}
}

/* Wakes the waiter as soon as it waits. */
static void wake(int *word)
{
	while (syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) != 1)
		;
}

static void sleep_at(int *word)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void take_turns(int is_origin)
{
	for (int at = 0; at < samples; at++) {
		long begin = now_ns();

		if (is_origin) {
			sleep_at(&words[0].word);
			wake(&words[1].word);
			continue;
		}
		wake(&words[0].word);
		sleep_at(&words[1].word);
		times[at] = now_ns() - begin;
	}
}

static void calls(void)
{
	for (int at = 0; at < samples; at++) {
		long begin = now_ns();

		if (is("call"))
			syscall(SYS_getppid);
		else if (is("call-here"))
			syscall(SYS_sched_yield);
		times[at] = now_ns() - begin;
	}
}

static void move(void)
{
	for (int at = 0; at < samples; at++) {
		long begin = now_ns();

		if (nagaya_migrate(0) || nagaya_migrate(1))
			exit(1);
		times[at] = now_ns() - begin;
	}
}

static void take_part(int is_origin)
{
	if (is("wake"))
		take_turns(is_origin);
	else if (is("run-of-16"))
		pages(is_origin, RUNS, RUN);
	else if (is("page-fetch") || is("page-take") || is("fetch-busy") || is("upgrade"))
		pages(is_origin, PAGES, 1);
	else if (!is_origin && is("move"))
		move();
	else if (!is_origin)
		calls();
}

static void *other(void *none)
{
	pthread_barrier_wait(&both);
	while (!ends) {
		take_part(0);
		pthread_barrier_wait(&both);
		pthread_barrier_wait(&both);
	}
	return none;
}

static void *nothing(void *none)
{
	return none;
}

static void begin_and_join(void)
{
	for (int at = 0; at < samples; at++) {
		long begin = now_ns();
		pthread_t thread;

		if (pthread_create(&thread, NULL, nothing, NULL))
			exit(1);
		pthread_join(thread, NULL);
		times[at] = now_ns() - begin;
	}
}

static void report(void)
{
	sort(times, samples);
	printf("%s %d %ld %ld %ld\n", step, samples, times[samples / 2],
	       times[(long)samples * 99 / 100], times[samples - 1]);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	pthread_t thread;

	samples = argc > 2 ? atoi(argv[1]) : 0;
	times = calloc((size_t)samples + PAGES, sizeof *times);
	memory = aligned_alloc(PAGE, 2L * RUNS * RUN * PAGE);
	if (samples < 1 || times == NULL || memory == NULL) {
		fprintf(stderr, "usage: span_latency SAMPLES STEP...\n");
		return 2;
	}
	step = argv[2];
	/* New threads start on the second node as long as it has no others. */
	for (int at = 2; at < argc; at++) {
		step = argv[at];
		if (is("thread")) {
			begin_and_join();
			report();
		}
	}
	pthread_barrier_init(&both, NULL, 2);
	if (pthread_create(&thread, NULL, other, NULL))
		return 1;
	for (int at = 2; at < argc; at++) {
		step = argv[at];
		if (is("thread"))
			continue;
		pthread_barrier_wait(&both);
		take_part(1);
		pthread_barrier_wait(&both);
		report();
	}
	ends = 1;
	pthread_barrier_wait(&both);
	pthread_join(thread, NULL);
	return 0;
}
