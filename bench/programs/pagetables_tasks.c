/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pagetables_tasks.c - tasks that read each other's memory in place, and the size of their page
 * tables.
 *
 *     nagaya run -n TASKS pagetables_tasks TASKS MEGABYTES
 *
 * Each task writes a block of MEGABYTES, exports its address, and reads one word of every
 * page of every other task's block. When all have done so, each prints
 *
 *     VmPTE_KB MILLISECONDS
 *
 * its own VmPTE (the same for all: they share one set of page tables) and the time from
 * the moment when all had written until all had read.
 */
#include <errno.h>
#include <pvas.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, PATIENCE_MS = 120000 };

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "pagetables_tasks: %s: %s\n", what, why);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* A barrier: each task exports the name, and waits for those of the others. */
static void meet(const char *name, int tasks)
{
	static char here;
	if (pvas_export(name, &here, sizeof here) < 0)
		fail("pvas_export", pvas_error());
	for (int id = 0; id < tasks; id++)
		if (pvas_import(PVAS_SELF, id, name, NULL, NULL, PATIENCE_MS) < 0)
			fail("pvas_import", pvas_error());
}

/* A barrier. Task 0, whose block has the counter, returns last, since an import from an ended task
 * fails. */
static void end_together(int self, int tasks)
{
	void *block;
	if (pvas_import(PVAS_SELF, 0, "block", &block, NULL, PATIENCE_MS) < 0)
		fail("pvas_import", pvas_error());
	/* After the number at the start of the block's first page. */
	_Atomic int *arrived = (_Atomic int *)((char *)block + sizeof(uint64_t)), *left = arrived + 1;
	(*arrived)++;
	while (*arrived < tasks)
		sched_yield();
	(*left)++;
	while (self == 0 && *left < tasks)
		sched_yield();
}

static long page_tables_kb(void)
{
	char line[256];
	long kb = -1;
	FILE *status = fopen("/proc/self/status", "r");
	while (status && fgets(line, sizeof line, status))
		if (sscanf(line, "VmPTE: %ld", &kb) == 1)
			break;
	if (kb < 0)
		fail("/proc/self/status", "has no VmPTE");
	fclose(status);
	return kb;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		fail("usage", "pagetables_tasks TASKS MEGABYTES");
	int tasks = atoi(argv[1]), self = pvas_getid();
	size_t size = (size_t)atol(argv[2]) << 20;
	if (self < 0)
		fail("pvas_getid", pvas_error());

	char *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (block == MAP_FAILED)
		fail("mmap", "no memory for the block");
	madvise(block, size, MADV_NOHUGEPAGE); /* as the processes: 4 KB pages */
	for (size_t at = 0; at < size; at += PAGE)
		*(uint64_t *)(block + at) = (uint64_t)self + 1;
	if (pvas_export("block", block, size) < 0)
		fail("pvas_export", pvas_error());

	meet("written", tasks);
	int64_t begin = now_ns();
	for (int id = 0; id < tasks; id++) {
		void *peer;
		size_t peer_size;
		if (pvas_import(PVAS_SELF, id, "block", &peer, &peer_size, PATIENCE_MS) < 0)
			fail("pvas_import", pvas_error());
		uint64_t sum = 0;
		for (size_t at = 0; at < peer_size; at += PAGE)
			sum += *(volatile uint64_t *)((char *)peer + at);
		if (peer_size != size || sum != (uint64_t)(id + 1) * (size / PAGE))
			fail("reading", "a peer's block has wrong contents");
	}
	meet("read", tasks);
	printf("%ld %.1f\n", page_tables_kb(), (double)(now_ns() - begin) / 1e6);
	fflush(stdout);
	end_together(self, tasks);
	return 0;
}
