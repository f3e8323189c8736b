/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pair.h - messages between two processes on two cores, and their time.
 *
 * Both map one file, and number themselves by a word in it, so that they may be a process
 * and its child or two tasks of a space. A transport is two functions, `send` and `receive`; the
 * loops below are compiled for each.
 *
 *  - one_way: batches of round trips; the time is half of one, of the median batch. Nothing
 *    but the messages is in it.
 *  - one_way_fresh: for large messages. The buffer is written before each send; the
 *    sender stamps before it sends, the receiver when it has received, and both read one
 *    clock, so the writing is in no interval. The mean of the middle half.
 *
 * Before and after each sample, the transfer of a cache line is measured: two words on separate
 * cache lines, one for each direction, like two receive buffers.
 */
#ifndef PAIR_H
#define PAIR_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cores.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 128, BATCHES_MAX = 400, FRESH_MAX = 2000, MESSAGE_MAX = 16 << 20 };

/* The common head; zero at first. The rest of the file is for the transports. */
struct shared {
	_Alignas(LINE) _Atomic uint32_t numbered;
	_Alignas(LINE) _Atomic uint64_t flag[2][LINE / 8];
	_Alignas(LINE) _Atomic uint64_t arrived[2][LINE / 8];
	_Alignas(LINE) _Atomic int count;
	_Alignas(LINE) _Atomic uint64_t word; /* both increment it alternately */
	int64_t sent[2][FRESH_MAX], received[2][FRESH_MAX];
	_Alignas(4096) char window[2][MESSAGE_MAX + 4096];
};

static int me; /* 0 or 1 */
static struct shared *shared;
static uint32_t *out_buffer, *in_buffer;

__attribute__((noreturn)) static void fail(const char *what)
{
	fprintf(stderr, "process %d: %s: %s\n", me, what, strerror(errno));
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* Maps the file, takes a number, and binds to a core. */
static void pair_begin(const char *file)
{
	int opened = open(file, O_RDWR | O_CLOEXEC);
	if (opened < 0 || ftruncate(opened, sizeof *shared))
		fail(file);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
	out_buffer = aligned_alloc(4096, MESSAGE_MAX);
	in_buffer = aligned_alloc(4096, MESSAGE_MAX);
	if (shared == MAP_FAILED || !out_buffer || !in_buffer)
		fail("memory");
	close(opened);
	memset(out_buffer, 1, MESSAGE_MAX);
	memset(in_buffer, 2, MESSAGE_MAX);
	me = (int)atomic_fetch_add(&shared->numbered, 1);
	stay_on(me);
}

/* As above, for one program: forks the second process, unless two tasks of it run. Returns the
 * argument of pair_end. */
__attribute__((unused)) static pid_t pair_begin_both(const char *file)
{
	int are_tasks = getenv("NAGAYA_TASKS") != NULL;
	pid_t child = are_tasks ? 0 : fork();
	if (child < 0)
		fail("fork");
	if (child == 0 && !are_tasks)
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* else it would wait for its partner for ever */
	pair_begin(file);
	return child;
}

/* Returns the exit status of the program. */
__attribute__((unused)) static int pair_end(pid_t child)
{
	int status = 0;
	return child != 0 && (waitpid(child, &status, 0) != child || status != 0);
}

/* A barrier of both. */
static void meet(void)
{
	uint64_t mine = atomic_fetch_add(&shared->arrived[me][0], 1) + 1;
	while (atomic_load(&shared->arrived[!me][0]) < mine)
		relax();
}

static inline void line_send(size_t bytes)
{
	(void)bytes;
	uint64_t next = atomic_load_explicit(&shared->flag[me][0], memory_order_relaxed) + 1;
	atomic_store_explicit(&shared->flag[me][0], next, memory_order_release);
}

static inline void line_receive(size_t bytes)
{
	static uint64_t seen;
	(void)bytes;
	seen++;
	while (atomic_load_explicit(&shared->flag[!me][0], memory_order_acquire) < seen)
		relax();
}

typedef void move(size_t);

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static inline __attribute__((always_inline)) double round_trips_ns(move *send, move *receive,
                                                                   size_t bytes, int n)
{
	meet();
	int64_t begin = now_ns();
	for (int i = 0; i < n; i++) {
		if (me == 0)
			send(bytes);
		receive(bytes);
		if (me == 1)
			send(bytes);
	}
	return (double)(now_ns() - begin) / (2.0 * n);
}

static inline __attribute__((always_inline)) double one_way_ns(move *send, move *receive,
                                                               size_t bytes, int milliseconds)
{
	static double batches[BATCHES_MAX];
	enum { BATCH_NS = 50000, WARM_UP = 20 };
	double first = 0;
	for (int pass = 0; pass < 2; pass++)
		first = round_trips_ns(send, receive, bytes, WARM_UP);
	if (me == 0)
		atomic_store(&shared->count, (int)(BATCH_NS / (2 * first)) + 1);
	meet();
	int each = atomic_load(&shared->count);
	meet();
	double of_batch = 2 * first * each, fit = milliseconds * 1e6 / of_batch;
	if (me == 0)
		atomic_store(&shared->count, fit < 3 ? 3 : fit > BATCHES_MAX ? BATCHES_MAX : (int)fit);
	meet();
	int n = atomic_load(&shared->count);
	for (int b = 0; b < n; b++)
		batches[b] = round_trips_ns(send, receive, bytes, each);
	qsort(batches, (size_t)n, sizeof *batches, by_value);
	return batches[n / 2];
}

static inline __attribute__((always_inline)) double one_way_fresh_ns(move *send, move *receive,
                                                                     size_t bytes, int milliseconds)
{
	static double each[FRESH_MAX];
	double first = round_trips_ns(send, receive, bytes, 4);
	double fit = milliseconds * 1e6 / (4 * first);
	if (me == 0)
		atomic_store(&shared->count, fit < 4 ? 4 : fit > FRESH_MAX ? FRESH_MAX : (int)fit);
	meet();
	int n = atomic_load(&shared->count);
	meet();
	for (int i = 0; i < n; i++)
		for (int turn = 0; turn < 2; turn++)
			if (turn == me) {
				for (size_t k = 0; k < bytes / sizeof *out_buffer; k++)
					out_buffer[k] = (uint32_t)(k + (size_t)i);
				shared->sent[me][i] = now_ns();
				send(bytes);
			} else {
				receive(bytes);
				shared->received[me][i] = now_ns();
				size_t last = bytes / sizeof *in_buffer - 1;
				if (in_buffer[0] != (uint32_t)i || in_buffer[last] != (uint32_t)(last + (size_t)i))
					errno = 0, fail("a message arrived with wrong contents");
			}
	meet();
	for (int i = 0; i < n; i++)
		each[i] = (double)(shared->received[1][i] - shared->sent[0][i] + shared->received[0][i] -
		                   shared->sent[1][i]) / 2;
	qsort(each, (size_t)n, sizeof *each, by_value);
	double sum = 0;
	for (int i = n / 4; i < n - n / 4; i++)
		sum += each[i];
	return sum / (n - n / 4 - n / 4);
}

static double line_ns(void)
{
	return one_way_ns(line_send, line_receive, 0, 1);
}

/* Measures one size of one transport, REPETITIONS times, and prints for each
 *
 *     TRANSPORT BUFFERS SIZE ONE_WAY_NS LINE_BEFORE_NS LINE_AFTER_NS
 */
static inline __attribute__((always_inline)) void measure(const char *way, move *send, move *receive,
                                                          size_t bytes, int repetitions,
                                                          int milliseconds)
{
	enum { FRESH_FROM = 16384 };
	if (bytes > MESSAGE_MAX)
		errno = EINVAL, fail("size");
	for (int fresh = 0; fresh < (bytes >= FRESH_FROM ? 2 : 1); fresh++) {
		double before = line_ns();
		for (int r = 0; r < repetitions; r++) {
			double ns = fresh ? one_way_fresh_ns(send, receive, bytes, milliseconds)
			                  : one_way_ns(send, receive, bytes, milliseconds);
			double after = line_ns();
			if (me == 0)
				printf("%s %s %zu %.1f %.1f %.1f\n", way, fresh ? "fresh" : "unchanged", bytes, ns,
				       before, after);
			before = after;
		}
	}
	fflush(stdout);
}
#endif
