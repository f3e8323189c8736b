/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pip_tasks.c - tasks of one address space: the time of a start, and of passing a buffer. Measures
 * PiP (Process-in-Process) if compiled with -DWITH_PIP, else PVAS.
 *
 *     pip_tasks SPAWNS ROUNDS NOOP    (PVAS)
 *     pip_tasks SPAWNS ROUNDS NOOP                    (PiP)
 *
 * Needs an installed PiP 2 for the latter; no part of Nagaya's build compiles it. With a stock
 * glibc, PiP starts only a few tasks in the life of a process, so SPAWNS must be about 4. Starts
 * NOOP, which ends at once, by posix_spawn and as a task by turns, and prints the median time until
 * waitpid has returned: "spawn POSIX_NS TASK_NS". Then two tasks pass a buffer of each size to and
 * fro: one writes it, sets a flag, and the other copies it directly from the writer's memory.
 * Prints "pass BYTES NS", the median time of one way with the copy and without the writing.
 */
#define _GNU_SOURCE
#include "times.h"

#ifdef WITH_PIP
#include <pip/pip.h>
#else
#include <pvas.h>
#endif
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4 << 20, SIZES = 4 };
static const size_t sizes[SIZES] = {8, 64 << 10, 1 << 20, MOST};
extern char **environ;

/* Memory of the first task, where both meet. */
struct meeting {
	_Alignas(64) atomic_long turn;
	_Alignas(64) _Atomic(char *) buffers[2];
	long sent[2];
};
static struct meeting meeting;

static void check(int is_right, const char *what)
{
	if (!is_right) {
		fprintf(stderr, "pip_tasks: %s failed\n", what);
		exit(1);
	}
}

static void run_on(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	check(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

/* Both tasks. Task 0 prints. */
static void pass(struct meeting *at, int me, int rounds)
{
	char *own = malloc(MOST), *into = malloc(MOST);
	long *times = calloc((size_t)rounds, sizeof *times), turn = 0;
	run_on(me);
	memset(own, me, MOST);
	memset(into, me, MOST);
	at->buffers[me] = own;
	while (at->buffers[1 - me] == NULL)
		;
	for (int size = 0; size < SIZES; size++) {
		for (int round = -20; round < rounds; round++) {
			for (int sender = 0; sender < 2; sender++, turn++) {
				if (sender == me) {
					memset(own, round, sizes[size]);
					at->sent[me] = now_ns();
					atomic_store(&at->turn, turn + 1);
					continue;
				}
				while (atomic_load(&at->turn) != turn + 1)
					;
				memcpy(into, at->buffers[1 - me], sizes[size]);
				long end = now_ns();
				check(into[sizes[size] - 1] == (char)round, "a copy");
				if (me == 0 && round >= 0)
					times[round] = end - at->sent[1];
			}
		}
		sort(times, rounds);
		if (me == 0)
			printf("pass %zu %ld\n", sizes[size], times[rounds / 2]);
	}
	/* The buffers live until both have ended. */
	atomic_fetch_add(&at->turn, 1L << 40);
	while (atomic_load(&at->turn) < 2L << 40)
		;
}

#ifdef WITH_PIP
static long start(char **argv, int wait)
{
	int id = PIP_PIPID_ANY, status;
	long begin = now_ns();
	check(pip_spawn(argv[0], argv, NULL, PIP_CPUCORE_ASIS, &id, NULL, NULL, NULL) == 0,
	      "pip_spawn");
	if (wait)
		check(pip_wait(id, &status) == 0, "pip_wait");
	return now_ns() - begin;
}
#else
static int space;

static long start(char **argv, int wait)
{
	int status;
	long begin = now_ns();
	pid_t pid = pvas_spawn(space, PVAS_ANY_ID, argv[0], argv, environ, NULL);
	check(pid > 0, "pvas_spawn");
	if (wait)
		check(waitpid(pid, &status, 0) == pid && status == 0, "waitpid");
	return now_ns() - begin;
}
#endif

static void spawn(int count, char *noop)
{
	char *argv[] = {noop, NULL};
	long *times[2] = {calloc((size_t)count, sizeof(long)), calloc((size_t)count, sizeof(long))};
	for (int at = -1; at < count; at++) {
		pid_t pid;
		int status;
		long begin = now_ns();
		check(posix_spawn(&pid, noop, NULL, NULL, argv, environ) == 0, "posix_spawn");
		check(waitpid(pid, &status, 0) == pid && status == 0, "waitpid");
		long posix = now_ns() - begin, task = start(argv, 1);
		if (at >= 0) {
			times[0][at] = posix;
			times[1][at] = task;
		}
	}
	for (int call = 0; call < 2; call++)
		sort(times[call], count);
	printf("spawn %ld %ld\n", times[0][count / 2], times[1][count / 2]);
	fflush(stdout);
}

#ifdef WITH_PIP
int main(int argc, char **argv)
{
	int id, most = 2;
	void *root = &meeting;
	check(argc == 4, "the command line");
	check(pip_init(&id, &most, &root, 0) == 0, "pip_init");
	if (id != PIP_PIPID_ROOT) {
		pass(root, 1, atoi(argv[2]));
		return 0;
	}
	spawn(atoi(argv[1]), argv[3]);
	start(argv, 0);
	pass(&meeting, 0, atoi(argv[2]));
	check(pip_wait_any(NULL, NULL) == 0, "pip_wait_any");
	return pip_fin();
}
#else
int main(int argc, char **argv)
{
	check(argc == 4 || argc == 5, "the command line");
	if (argc == 4) {
		/* This process owns the space; both partners are its tasks. */
		char *with_id[] = {argv[0], argv[1], argv[2], argv[3], "task", NULL};
		space = pvas_create();
		check(space >= 0, "pvas_create");
		spawn(atoi(argv[1]), argv[3]);
		start(with_id, 0);
		start(with_id, 0);
		for (int task = 0, status; task < 2; task++)
			check(wait(&status) > 0 && status == 0, "a task");
		return 0;
	}
	int me = pvas_getid();
	void *there;
	if (me == 0)
		check(pvas_export("meeting", &meeting, sizeof meeting) == 0, "pvas_export");
	check(pvas_import(PVAS_SELF, 0, "meeting", &there, NULL, 10000) == 0, "pvas_import");
	pass(there, me, atoi(argv[2]));
	return 0;
}
#endif
