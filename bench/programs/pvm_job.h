/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvm_job.h - a job of PVM tasks that measure together.
 *
 *     PROGRAM TASKS PLACES ARGUMENT...
 *
 * The started program is the starter: it spawns TASKS tasks of the same program with the
 * ARGUMENTs, sends them their indices, and prints their lines. PLACES is "-", or host names with
 * commas. The starter adds missing hosts, and the tasks use them round robin. So a starter outside
 * a space can measure tasks of a space. Any failure ends with a line and status 1, and leaves no
 * task.
 *
 * Tasks are not bound to cores, unless a program does that itself: stock PVM, which sleeps while
 * it waits, is twice as fast if the scheduler may put both ends of a route on one core.
 */
#ifndef PVM_JOB_H
#define PVM_JOB_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pvm3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TASKS_MAX = 64, TEXT_MAX = 1 << 16 };
enum { TAG_JOB = 900, TAG_SAID, TAG_FAILED, TAG_HEARD, TAG_GONE };

/* Of a task: number of tasks, its index, and the tids of all. */
static int tasks, task, tids[TASKS_MAX];
static int arguments;
static char **argument;

static void fail(const char *what, int status)
{
	char text[256];
	snprintf(text, sizeof text, "task %d: %s: %d", task, what, status);
	if (pvm_parent() > 0 && pvm_initsend(PvmDataDefault) >= 0 && pvm_pkstr(text) >= 0) {
		pvm_send(pvm_parent(), TAG_FAILED);
		pvm_recv(pvm_parent(), TAG_HEARD); /* the starter kills us */
	} else {
		fprintf(stderr, "%s\n", text);
	}
	exit(1);
}

/* Returns the result of a call of PVM; an error ends the program. */
static int check(int status, const char *what)
{
	if (status < 0)
		fail(what, status);
	return status;
}
#define CHECK(call) check(call, #call)

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Sends a line to the starter, to be printed. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	char line[1024];
	va_list values;
	va_start(values, format);
	vsnprintf(line, sizeof line, format, values);
	va_end(values);
	CHECK(pvm_initsend(PvmDataDefault));
	CHECK(pvm_pkstr(line));
	CHECK(pvm_send(pvm_parent(), TAG_SAID));
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Mean of the middle half: as robust to outliers as a median, but finer than the clock. */
__attribute__((unused)) static double mean_of_middle_half(double *values, int n)
{
	double sum = 0;
	int from = n / 4, to = n - n / 4;
	qsort(values, (size_t)n, sizeof *values, by_value);
	for (int i = from; i < to; i++)
		sum += values[i];
	return sum / (to - from);
}

static int spawn_all(char **argv, char *places)
{
	char *at = strcmp(places, "-") ? strtok(places, ",") : NULL;
	if (!at)
		return pvm_spawn(argv[0], argv + 3, PvmTaskDefault, "", tasks, tids);
	char *hosts[TASKS_MAX];
	int results[TASKS_MAX], n_hosts = 0, spawned = 0;
	for (; at && n_hosts < TASKS_MAX; at = strtok(NULL, ","))
		hosts[n_hosts++] = at;
	pvm_addhosts(hosts, n_hosts, results);
	for (int h = 0; h < n_hosts; h++)
		if (results[h] < 0 && results[h] != PvmDupHost)
			fprintf(stderr, "pvm_addhosts: %s: %d\n", hosts[h], results[h]);
	for (int t = 0; t < tasks; t++)
		spawned += pvm_spawn(argv[0], argv + 3, PvmTaskHost, hosts[t % n_hosts], 1, &tids[t]) == 1;
	return spawned;
}

/* Prints the lines of the tasks until all have ended. */
static int starter(char **argv)
{
	static char text[TEXT_MAX];
	tasks = atoi(argv[1]);
	if (tasks < 1 || tasks > TASKS_MAX) {
		fprintf(stderr, "1 to %d tasks\n", TASKS_MAX);
		return 1;
	}
	int failed = spawn_all(argv, argv[2]) != tasks;
	if (failed)
		fprintf(stderr, "pvm_spawn: %s: %d\n", argv[0], tids[0]);
	int alive = 0, running[TASKS_MAX];
	for (int t = 0; t < tasks; t++)
		if (tids[t] > 0)
			running[alive++] = tids[t];
	if (alive > 0)
		CHECK(pvm_notify(PvmTaskExit, TAG_GONE, alive, running));
	for (int t = 0; t < tasks && !failed; t++) {
		CHECK(pvm_initsend(PvmDataDefault));
		CHECK(pvm_pkint(&tasks, 1, 1));
		CHECK(pvm_pkint(&t, 1, 1));
		CHECK(pvm_pkint(tids, tasks, 1));
		CHECK(pvm_send(tids[t], TAG_JOB));
	}
	for (int killed = 0, ends = 0; alive > 0;) {
		for (int t = 0; t < tasks && failed && !killed; t++)
			if (tids[t] > 0)
				pvm_kill(tids[t]);
		killed = failed;
		int bytes, tag, from, message = CHECK(pvm_recv(-1, -1));
		CHECK(pvm_bufinfo(message, &bytes, &tag, &from));
		if (tag == TAG_GONE) {
			alive--;
		} else if (bytes < TEXT_MAX) {
			CHECK(pvm_upkstr(text));
			if (tag == TAG_SAID && !strcmp(text, "end")) {
				ends++;
				CHECK(pvm_initsend(PvmDataDefault));
				CHECK(pvm_send(from, TAG_HEARD));
			} else
				fprintf(tag == TAG_SAID ? stdout : stderr, "%s\n", text);
			failed |= tag == TAG_FAILED;
		}
		if (tag == TAG_GONE && !failed && ends + alive < tasks) {
			fprintf(stderr, "a task ended too early\n");
			failed = 1;
		}
	}
	pvm_exit();
	return failed;
}

/* The whole program: `measure` is what each task does. */
static int job(int argc, char **argv, void (*measure)(void))
{
	int parent = pvm_parent();
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parent < 0) {
		if (argc < 3 || pvm_mytid() < 0) {
			fprintf(stderr, "usage, under a virtual machine: %s TASKS PLACES ARGUMENT...\n", argv[0]);
			return 1;
		}
		return starter(argv);
	}
	CHECK(pvm_recv(parent, TAG_JOB));
	CHECK(pvm_upkint(&tasks, 1, 1));
	CHECK(pvm_upkint(&task, 1, 1));
	CHECK(pvm_upkint(tids, tasks, 1));
	arguments = argc - 1;
	argument = argv + 1;
	measure();
	/* The notification of this task's end may overtake its lines on a direct route. */
	say("end");
	CHECK(pvm_recv(parent, TAG_HEARD));
	pvm_exit();
	return 0;
}
#endif
