/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * sparse.c - sparse use of memory takes about as much memory as the used pages.
 *
 *	sparse [MEGABYTES]
 *
 * On each node a thread touches so much memory (16): every sixteenth page of a large mapping, then
 * pages in no order, then short rows of others, then a large part without a gap. After each of
 * these, the program's memory (RSS) has grown by at most a fifth more than was touched, where the
 * thread runs on the first node: of others the caller looks at the report. Prints `right`.
 */
#include "check.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096l
#define SLACK (4l << 20)

static long pages;

static long resident(void)
{
	char line[200];
	long kilobytes = -1;
	FILE *file = fopen("/proc/self/status", "r");

	CHECK(file);
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "VmRSS: %ld", &kilobytes) == 1)
			break;
	fclose(file);
	CHECK(kilobytes > 0);
	return kilobytes << 10;
}

static long apart(long at) { return at * 16; }
static long scattered(long at) { return at * 7919 % (pages * 8); }
static long rows(long at) { return at / 5 * 16 + at % 5; }
static long dense(long at) { return at; }

static void touch(long (*which)(long), const char *name)
{
	char *memory = mmap(NULL, pages * 16 * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	long before = resident(), after;

	CHECK(memory != MAP_FAILED);
	for (long at = 0; at < pages; at++)
		memory[which(at) * PAGE] = 1;
	after = resident();
	if (nagaya_node() <= 0 && (after - before - SLACK) / 12 * 10 > pages * PAGE) {
		printf("%s: %ld KB touched, %ld taken\n", name, pages * PAGE >> 10,
		       (after - before) >> 10);
		exit(1);
	}
	CHECK(munmap(memory, pages * 16 * PAGE) == 0);
}

static void *work(void *node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate((int)(long)node) == 0);
	touch(apart, "apart");
	touch(scattered, "scattered");
	touch(rows, "rows");
	touch(dense, "dense");
	return NULL;
}

int main(int argc, char **argv)
{
	int nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;
	pthread_t thread;

	pages = (argc > 1 ? atol(argv[1]) : 16) << 8;
	for (long node = 0; node < nodes; node++) {
		CHECK(pthread_create(&thread, NULL, work, (void *)node) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	printf("right\n");
	return 0;
}
