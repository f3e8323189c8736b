/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * spawn.c - posix_spawn against pvas_spawn, each with the waitpid that follows.
 *
 *     spawn SPAWNS LIVING NOOP PROGRAM...
 *
 * For every PROGRAM, spawns it SPAWNS times by each call, alternately, and prints for each call
 *
 *     PROGRAM CALL CALL_NS TOTAL_NS
 *
 * with CALL "posix_spawn" or "pvas_spawn", CALL_NS the median time of the spawning call
 * alone and TOTAL_NS the median time until waitpid returned. LIVING processes and LIVING
 * tasks, all running "NOOP fd" (asleep), live meanwhile.
 */
#include <errno.h>
#include <pvas.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UP = 20 };
extern char **environ;
static int space;

static void fail(const char *call, const char *why)
{
	fprintf(stderr, "spawn: %s: %s\n", call, why);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static pid_t start_process(char *const argv[])
{
	pid_t pid;
	int error = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
	if (error)
		fail("posix_spawn", strerror(error));
	return pid;
}

static pid_t start_task(char *const argv[])
{
	pid_t pid = pvas_spawn(space, PVAS_ANY_ID, argv[0], argv, environ, NULL);
	if (pid < 0)
		fail("pvas_spawn", pvas_error());
	return pid;
}

static void wait_for(pid_t pid)
{
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid", strerror(errno));
	if (status != 0)
		fail("waitpid", "the program did not end with status 0");
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

static int64_t median(int64_t *values, int n)
{
	qsort(values, (size_t)n, sizeof *values, by_value);
	return values[n / 2];
}

static void measure(char *program, int spawns)
{
	static const char *const names[2] = { "posix_spawn", "pvas_spawn" };
	static pid_t (*const start[2])(char *const[]) = { start_process, start_task };
	char *argv[] = { program, NULL };
	int64_t *call[2], *total[2];
	for (int way = 0; way < 2; way++) {
		call[way] = malloc(sizeof(int64_t) * (size_t)spawns);
		total[way] = malloc(sizeof(int64_t) * (size_t)spawns);
		if (!call[way] || !total[way])
			fail("malloc", "no memory");
	}
	for (int i = -WARM_UP; i < spawns; i++)
		for (int way = 0; way < 2; way++) {
			int64_t begin = now_ns();
			pid_t pid = start[way](argv);
			int64_t called = now_ns();
			wait_for(pid);
			int64_t end = now_ns();
			if (i >= 0) {
				call[way][i] = called - begin;
				total[way][i] = end - begin;
			}
		}
	for (int way = 0; way < 2; way++) {
		printf("%s %s %lld %lld\n", program, names[way], (long long)median(call[way], spawns),
		       (long long)median(total[way], spawns));
		free(call[way]);
		free(total[way]);
	}
}

int main(int argc, char **argv)
{
	if (argc < 5)
		fail("usage", "spawn SPAWNS LIVING NOOP PROGRAM...");
	int spawns = atoi(argv[1]), living = atoi(argv[2]), ready[2];
	space = pvas_create();
	if (space < 0)
		fail("pvas_create", pvas_error());

	char fd[16], byte;
	if (pipe(ready) < 0)
		fail("pipe", strerror(errno));
	snprintf(fd, sizeof fd, "%d", ready[1]);
	char *sleeper[] = { argv[3], fd, NULL };
	pid_t *sleepers = calloc(2 * (size_t)living + 1, sizeof *sleepers);
	if (!sleepers)
		fail("calloc", "no memory");
	for (int i = 0; i < living; i++) {
		sleepers[2 * i] = start_process(sleeper);
		sleepers[2 * i + 1] = start_task(sleeper);
	}
	for (int i = 0; i < 2 * living; i++) /* each writes a byte after its start */
		if (read(ready[0], &byte, 1) != 1)
			fail("read", "a sleeping program did not start");

	for (int p = 4; p < argc; p++)
		measure(argv[p], spawns);

	for (int i = 0; i < 2 * living; i++)
		kill(sleepers[i], SIGKILL);
	for (int i = 0; i < 2 * living; i++)
		waitpid(sleepers[i], NULL, 0);
	if (pvas_destroy(space) < 0)
		fail("pvas_destroy", pvas_error());
	return 0;
}
