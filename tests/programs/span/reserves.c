/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * reserves.c - large parts of the address space that nobody uses cost nothing.
 *
 * Reserves 60 TB, most of it at fixed addresses, uses a page here and there on each node, forks
 * children that see these and map others, and gives all back; twenty times. Prints `right`.
 */
#include "check.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define TB (1ul << 40)
#define PAGE 4096ul
#define FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static char *shadow, *heap, *anywhere;

static char *some(char *memory, unsigned long at) { return memory + at * 7 * (TB / 16) + at * PAGE; }

static void *use(void *node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate((int)(long)node) == 0);
	for (unsigned long at = 0; at < 20; at++) {
		*some(shadow, at) += 1;
		*some(heap, at) += 1;
	}
	return NULL;
}

static void look(int times)
{
	for (unsigned long at = 0; at < 20; at++)
		CHECK(*some(shadow, at) == times && *some(heap, at) == times);
}

static void round_of(int nodes)
{
	shadow = mmap((void *)0x10007fff8000, 20 * TB, PROT_NONE, FLAGS | MAP_FIXED, -1, 0);
	heap = mmap((void *)0x400000000000, 20 * TB, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0);
	anywhere = mmap(NULL, 20 * TB, PROT_NONE, FLAGS, -1, 0);
	CHECK(shadow != MAP_FAILED && heap != MAP_FAILED && anywhere != MAP_FAILED);
	CHECK(mprotect(shadow, 20 * TB, PROT_READ | PROT_WRITE) == 0);
	for (long node = 0; node < nodes; node++) {
		pthread_t thread;

		CHECK(pthread_create(&thread, NULL, use, (void *)node) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	look(nodes);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		look(nodes);
		*some(heap, 3) = 100;
		CHECK(mprotect(anywhere + TB, PAGE, PROT_READ | PROT_WRITE) == 0);
		anywhere[TB] = 1;
		CHECK(munmap(shadow, 20 * TB) == 0);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	look(nodes);
	CHECK(madvise(heap, 20 * TB, MADV_DONTNEED) == 0);
	CHECK(*some(heap, 3) == 0);
	CHECK(munmap(shadow, 20 * TB) == 0 && munmap(heap, 20 * TB) == 0);
	CHECK(munmap(anywhere, 20 * TB) == 0);
}

int main(void)
{
	for (int round = 0; round < 20; round++)
		round_of(nagaya_nodes() > 0 ? nagaya_nodes() : 1);
	printf("right\n");
	return 0;
}
