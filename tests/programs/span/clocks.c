/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * clocks.c - clocks on all nodes: they are the same, they are read without a system call, and a
 * thread that is stopped there, or goes elsewhere, goes on as if nothing had been.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 300, SECOND = 1000000000 };

static int nodes;

static void go(int node)
{
	if (nodes > 1)
		CHECK(nagaya_migrate(node) == 0);
}

static int64_t ns(struct timespec time)
{
	return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

static int64_t now(clockid_t clock)
{
	struct timespec time;

	CHECK(clock_gettime(clock, &time) == 0);
	CHECK(time.tv_nsec >= 0 && time.tv_nsec < SECOND);
	return ns(time);
}

/* As a system call. */
static int64_t now_by_call(clockid_t clock)
{
	struct timespec time;

	CHECK(syscall(SYS_clock_gettime, clock, &time) == 0);
	return ns(time);
}

static const clockid_t clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW,
				    CLOCK_BOOTTIME, CLOCK_TAI };
enum { CLOCKS = sizeof clocks / sizeof *clocks };

static void clocks_agree(void)
{
	struct timespec resolution, by_call;
	struct timeval time_of_day;
	struct timezone zone;
	int64_t before, after;
	time_t seconds;
	unsigned cpu;

	for (int at = 0; at < CLOCKS; at++) {
		before = now(clocks[at]);
		after = now_by_call(clocks[at]);
		CHECK(before <= after && after <= now(clocks[at]));
		CHECK(clock_getres(clocks[at], &resolution) == 0);
		CHECK(syscall(SYS_clock_getres, clocks[at], &by_call) == 0);
		CHECK(ns(resolution) == ns(by_call));
	}
	before = now(CLOCK_REALTIME) / 1000;
	CHECK(gettimeofday(&time_of_day, NULL) == 0 && time_of_day.tv_usec < 1000000);
	after = time_of_day.tv_sec * 1000000L + time_of_day.tv_usec;
	CHECK(before <= after + 1);
	CHECK(gettimeofday(&time_of_day, &zone) == 0);
	CHECK(after <= time_of_day.tv_sec * 1000000L + time_of_day.tv_usec + 1);
	CHECK(syscall(SYS_gettimeofday, &time_of_day, NULL) == 0);
	CHECK(after <= time_of_day.tv_sec * 1000000L + time_of_day.tv_usec + 1);
	before = now(CLOCK_REALTIME_COARSE) / SECOND;
	after = time(&seconds);
	CHECK(before <= after && seconds == after && after <= now(CLOCK_REALTIME) / SECOND);
	CHECK(syscall(SYS_time, NULL) >= after);
	CHECK(getcpu(&cpu, NULL) == 0);
	CHECK(now(CLOCK_MONOTONIC_COARSE) <= now(CLOCK_MONOTONIC));
}

/* Clocks of threads are system calls; an invalid clock is an error. */
static void clocks_of_threads(void)
{
	struct timespec time;
	clockid_t own;
	int64_t before = now(CLOCK_THREAD_CPUTIME_ID);

	CHECK(before > 0 && before <= now(CLOCK_PROCESS_CPUTIME_ID));
	CHECK(pthread_getcpuclockid(pthread_self(), &own) == 0);
	CHECK(now(own) >= before);
	CHECK(now(CLOCK_THREAD_CPUTIME_ID) >= before);
	CHECK(clock_gettime(99, &time) == -1 && errno == EINVAL);
}

/* A system call is caught by a signal, which takes many times longer than to read a clock. The
 * least time of many is compared, so that other programs of the machine do not matter. */
enum { LEAST_OF = 2000 };
#define LEAST(statement)                                             \
	({                                                           \
		uint64_t least = UINT64_MAX;                         \
		for (int round = 0; round < LEAST_OF; round++) {     \
			uint64_t start = __builtin_ia32_rdtsc();     \
			statement;                                   \
			uint64_t took = __builtin_ia32_rdtsc() - start; \
			least = took < least ? took : least;         \
		}                                                    \
		least;                                               \
	})

static void no_calls(void)
{
	static const clockid_t coarse[] = { CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE };
	struct timespec time_spec;
	struct timeval time_of_day;
	uint64_t a_call, a_read = 0;
	unsigned cpu;

	CHECK(getauxval(AT_SYSINFO_EHDR) != 0);
	if (nodes == 0)
		return;
	a_call = LEAST(syscall(SYS_getppid));
#define READS(statement)                                     \
	do {                                                 \
		uint64_t least = LEAST(statement);           \
		a_read = least > a_read ? least : a_read;    \
	} while (0)
	for (int at = 0; at < CLOCKS; at++) {
		READS(clock_gettime(clocks[at], &time_spec));
		READS(clock_getres(clocks[at], &time_spec));
	}
	READS(clock_gettime(coarse[0], &time_spec));
	READS(clock_gettime(coarse[1], &time_spec));
	READS(gettimeofday(&time_of_day, NULL));
	READS(time(NULL));
	READS(getcpu(&cpu, NULL));
	if (a_read >= a_call / 2)
		fprintf(stderr, "the slowest read took %lu ticks, a call %lu\n", a_read, a_call);
	CHECK(a_read < a_call / 2);
}

static sigjmp_buf out;
static void *volatile bad;

static void faulted(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	CHECK((uintptr_t)info->si_addr - (uintptr_t)bad < sizeof(struct timespec));
	siglongjmp(out, 1);
}

static void bad_addresses(void)
{
	bad = (void *)64;
	if (sigsetjmp(out, 1) == 0) {
		clock_gettime(CLOCK_MONOTONIC, bad);
		CHECK(!"an address there");
	}
	errno = 0;
	CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, bad) == -1 && errno == EFAULT);
}

/* A thread reads clocks on each node, one after the other. */
static void *everywhere(void *none)
{
	for (int node = 0; node < nodes || node == 0; node++) {
		go(node);
		clocks_agree();
		clocks_of_threads();
		no_calls();
		bad_addresses();
	}
	return none;
}

/* Two threads exchange the time: it never decreases. */
static struct {
	_Alignas(4096) _Atomic int turn;
	_Atomic int64_t times[CLOCKS];
} told;

static void *tells(void *argument)
{
	int me = (int)(intptr_t)argument;

	go(me % (nodes > 1 ? nodes : 1));
	for (int round = 0; round < ROUNDS; round++) {
		while (told.turn % 2 != me)
			;
		for (int at = 0; at < CLOCKS; at++) {
			int64_t time = now(clocks[at]);

			CHECK(time >= told.times[at]);
			told.times[at] = time;
			CHECK(now_by_call(clocks[at]) >= time);
		}
		told.turn++;
	}
	return NULL;
}

/* A thread waits until a time that another one has said. */
static struct timespec in_30_ms(clockid_t clock)
{
	int64_t time = now(clock) + 30000000;

	return (struct timespec){ time / SECOND, time % SECOND };
}

static struct timespec until[2];

static void *waits(void *argument)
{
	static const clockid_t both[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t condition;
	pthread_condattr_t attributes;
	sem_t never;

	(void)argument;
	go(nodes - 1);
	for (int at = 0; at < 2; at++) {
		struct timespec time = until[at], again;
		clockid_t clock = both[at];

		CHECK(clock_nanosleep(clock, TIMER_ABSTIME, &time, NULL) == 0);
		CHECK(now(clock) >= ns(time));
		/* It has passed. */
		CHECK(clock_nanosleep(clock, TIMER_ABSTIME, &time, NULL) == 0);
		time.tv_nsec = SECOND;
		CHECK(clock_nanosleep(clock, TIMER_ABSTIME, &time, NULL) == EINVAL);
		pthread_condattr_init(&attributes);
		pthread_condattr_setclock(&attributes, clock);
		pthread_cond_init(&condition, &attributes);
		pthread_mutex_lock(&mutex);
		again = in_30_ms(clock);
		while (pthread_cond_timedwait(&condition, &mutex, &again) == 0)
			;
		CHECK(now(clock) >= ns(again));
		pthread_mutex_unlock(&mutex);
		sem_init(&never, 0, 0);
		again = in_30_ms(clock);
		CHECK(sem_clockwait(&never, clock, &again) == -1 && errno == ETIMEDOUT);
		CHECK(now(clock) >= ns(again));
	}
	return NULL;
}

/* A thread does nothing but read clocks, while signals take it from node to node: its handler
 * does. */
static _Atomic int handled, is_over;

static void goes(int signal)
{
	int64_t before = now(CLOCK_MONOTONIC);

	(void)signal;
	go(handled % (nodes > 1 ? nodes : 1));
	CHECK(now(CLOCK_MONOTONIC) >= before);
	handled++;
}

static void *reads(void *none)
{
	int64_t a = 0, b = 1, c = 2, d = 3, e = 4, last = 0;
	struct timeval time_of_day;

	while (!is_over) {
		int64_t time = now(CLOCK_MONOTONIC);

		CHECK(time >= last);
		last = time;
		gettimeofday(&time_of_day, NULL);
		(void)time_of_day;
		a++;
		b++;
		c++;
		d++;
		e++;
		CHECK(a + 1 == b && b + 1 == c && c + 1 == d && d + 1 == e);
	}
	return none;
}

static void stopped_in_clocks(void)
{
	struct sigaction action = { .sa_handler = goes };
	pthread_t thread;

	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, reads, NULL) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		CHECK(pthread_kill(thread, SIGUSR1) == 0);
		while (handled <= round)
			usleep(100);
	}
	is_over = 1;
	CHECK(pthread_join(thread, NULL) == 0);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = faulted, .sa_flags = SA_SIGINFO };
	pthread_t threads[2];

	nodes = nagaya_nodes();
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	everywhere(NULL);
	CHECK(pthread_create(&threads[0], NULL, everywhere, NULL) == 0);
	CHECK(pthread_join(threads[0], NULL) == 0);
	for (intptr_t me = 0; me < 2; me++)
		CHECK(pthread_create(&threads[me], NULL, tells, (void *)me) == 0);
	for (int me = 0; me < 2; me++)
		CHECK(pthread_join(threads[me], NULL) == 0);
	go(0);
	until[0] = in_30_ms(CLOCK_MONOTONIC);
	until[1] = in_30_ms(CLOCK_REALTIME);
	CHECK(pthread_create(&threads[0], NULL, waits, NULL) == 0);
	CHECK(pthread_join(threads[0], NULL) == 0);
	stopped_in_clocks();
	puts("right");
	return 0;
}
