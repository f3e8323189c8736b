/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * domains.c - reads of another task's memory, and page faults of many tasks, in one or several
 * domains.
 *
 *     domains reads MEGABYTES
 *         Task 0 writes MEGABYTES; task 1 reads one word of each page twice, then all words
 *         twice. Prints
 *             touch NS_A_PAGE NS_AGAIN PAGE_TABLES_KIB
 *             scan  NS_A_PAGE NS_AGAIN PAGE_TABLES_KIB
 *         The scan is of other memory, so that its first pass maps it, too.
 *     domains maps_of MEGABYTES
 *         Task 1 reads a word of every hundredth page, of other memory a word of each page, and
 *         lets the kernel map other memory whole. Prints for each, in all,
 *             hundredth|each|whole MICROSECONDS PAGE_TABLES_KIB
 *         where the page tables are the new ones.
 *     domains faults MILLISECONDS
 *         All tasks map 1 MiB, touch each page, and unmap it, for MILLISECONDS. Each prints
 *             faults PAGES_A_SECOND
 *     domains maps MILLISECONDS
 *         All tasks map one page and unmap it. Each prints
 *             maps PAIRS_A_SECOND
 *
 * The tasks are started by nagaya run, which decides which of them share page tables. */
#define _GNU_SOURCE
#include "times.h"

#include <errno.h>
#include <pvas.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ul
#define WAIT_MS 60000

static int me, tasks;
static _Atomic int arrived; /* that of task 0 is used */

static void fail(const char *what)
{
	fprintf(stderr, "domains: task %d: %s: %s\n", me, what, pvas_error());
	exit(1);
}

static void *of(int task, const char *name)
{
	void *address;
	if (pvas_import(PVAS_SELF, task, name, &address, NULL, WAIT_MS))
		fail(name);
	return address;
}

static void meet(void)
{
	static int step;
	_Atomic int *count = me ? of(0, "arrived") : &arrived;
	step++;
	atomic_fetch_add(count, 1);
	while (atomic_load(count) < step * tasks)
		usleep(200);
}

static long page_tables_kib(void)
{
	char line[128];
	long kib = -1;
	FILE *file = fopen("/proc/self/status", "r");
	while (file && kib < 0 && fgets(line, sizeof line, file))
		sscanf(line, "VmPTE: %ld", &kib);
	if (file)
		fclose(file);
	return kib;
}

static long *pages(size_t bytes)
{
	long *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) {
		perror("domains: mmap");
		exit(1);
	}
	/* All pages have one size. */
	madvise(at, bytes, MADV_NOHUGEPAGE);
	return at;
}

static volatile long sink;

/* Reads every `stride`-th word. */
static double pass(const long *words, size_t count, size_t stride)
{
	double start = now_ns();
	long sum = 0;
	for (size_t i = 0; i < count; i += stride)
		sum += words[i];
	sink = sum;
	return (now_ns() - start) / (count / (PAGE / sizeof(long)));
}

static void reads(size_t megabytes)
{
	size_t bytes = megabytes << 20, count = bytes / sizeof(long);
	const char *names[2] = {"touch", "scan"};
	size_t strides[2] = {PAGE / sizeof(long), 1};
	for (int i = 0; i < 2; i++) {
		if (me == 0) {
			long *own = pages(bytes);
			for (size_t word = 0; word < count; word++)
				own[word] = word;
			pvas_export(names[i], own, bytes);
		}
		meet();
		if (me == 1) {
			const long *words = of(0, names[i]);
			double first = pass(words, count, strides[i]);
			double again = pass(words, count, strides[i]);
			printf("%s %.1f %.1f %ld\n", names[i], first, again, page_tables_kib());
		}
		meet();
	}
}

static void maps_of(size_t megabytes)
{
	size_t bytes = megabytes << 20, count = bytes / sizeof(long);
	const char *names[3] = {"hundredth", "each", "whole"};
	for (int i = 0; i < 3; i++) {
		if (me == 0) {
			/* Separate: its neighbours are not in its page tables. */
			long *own = pages(bytes + (4ul << 20)) + (2ul << 20) / sizeof(long);
			memset(own, 1, bytes);
			pvas_export(names[i], own, bytes);
		}
		meet();
		if (me == 1) {
			long *words = of(0, names[i]), tables = page_tables_kib();
			double start = now_ns();
			if (i == 2) {
				if (madvise(words, bytes, MADV_POPULATE_READ)) {
					perror("domains: madvise");
					exit(1);
				}
			} else {
				pass(words, count, PAGE / sizeof(long) * (i ? 1 : 100));
			}
			double us = (now_ns() - start) / 1e3;
			printf("%s %.1f %ld\n", names[i], us, page_tables_kib() - tables);
		}
		meet();
	}
}

static double rate(double ms, size_t bytes, size_t unit)
{
	long done = 0;
	meet();
	double start = now_ns(), end = start + ms * 1e6, now;
	do {
		char *at = (char *)pages(bytes);
		for (size_t page = 0; unit && page < bytes; page += PAGE)
			at[page] = 1;
		munmap(at, bytes);
		done += unit ? bytes / unit : 1;
	} while ((now = now_ns()) < end);
	return done / ((now - start) / 1e9);
}

int main(int argc, char **argv)
{
	const char *count = getenv("NAGAYA_TASKS");
	me = pvas_getid();
	if (me < 0 || !count || argc != 3) {
		fprintf(stderr, "usage: nagaya run ... domains reads|maps_of|faults|maps AMOUNT\n");
		return 2;
	}
	tasks = atoi(count);
	if (me == 0)
		pvas_export("arrived", &arrived, sizeof arrived);
	double amount = atof(argv[2]);
	if (!strcmp(argv[1], "reads"))
		reads(amount);
	else if (!strcmp(argv[1], "maps_of"))
		maps_of(amount);
	else if (!strcmp(argv[1], "faults"))
		printf("faults %.0f\n", rate(amount, 1 << 20, PAGE));
	else
		printf("maps %.0f\n", rate(amount, PAGE, 0));
	fflush(stdout);
	/* Task 0, whose counter the others read, stays until they have ended. */
	meet();
	for (int task = 1; !me && task < tasks; task++)
		while (pvas_getpid(PVAS_SELF, task) >= 0 || errno == EREMOTE)
			usleep(200);
	return 0;
}
