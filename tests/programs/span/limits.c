/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * limits.c - resource limits on memory.
 *
 *	limits stack KIB		uses so much of the main thread's stack
 *	limits raise FROM_KIB TO_KIB	the same, after the program has raised its limit from there
 *	limits threads			the size of a thread's stack
 *	limits addresses		what RLIMIT_AS refuses: the program has 512 MiB
 *	limits child			the limit that a child executes with
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static long use(long kib)
{
	volatile char room[1000];

	room[0] = (char)kib;
	return kib <= 0 ? 0 : use(kib - 1) + (room[0] != (char)kib);
}

static long depth;

static void *goes(void *node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate((int)(intptr_t)node) == 0);
	return NULL;
}

static void addresses(void)
{
	const size_t large = 600 << 20, fits = 200 << 20;
	struct rlimit limit;
	void *one, *two;

	CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == 512 << 20);
	CHECK(mmap(NULL, large, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	CHECK(errno == ENOMEM);
	CHECK(malloc(large) == NULL && sbrk(large) == (void *)-1);
	one = mmap(NULL, fits, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	two = mmap(NULL, fits, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(one != MAP_FAILED && two != MAP_FAILED);
	CHECK(mmap(NULL, fits, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	/* In place of what is there, nothing is new. */
	CHECK(mmap(two, fits, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == two);
	CHECK(munmap(two, fits) == 0);
	two = mmap(NULL, fits, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(two != MAP_FAILED && munmap(two, fits) == 0);
	CHECK(mremap(one, fits, large, MREMAP_MAYMOVE) == MAP_FAILED);
	limit.rlim_cur = 1 << 20;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	CHECK(mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	limit.rlim_cur = limit.rlim_max + 1;
	CHECK(limit.rlim_max == RLIM_INFINITY || setrlimit(RLIMIT_AS, &limit) == -1);
	limit.rlim_cur = limit.rlim_max;
	CHECK(prlimit(getpid(), RLIMIT_AS, &limit, NULL) == 0);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;
	struct rlimit limit;

	depth = argc > 2 ? atol(argv[argc - 1]) : 0;
	if (strcmp(what, "raise") == 0) {
		CHECK(getrlimit(RLIMIT_STACK, &limit) == 0);
		CHECK(limit.rlim_cur == (rlim_t)atol(argv[2]) << 10);
		limit.rlim_cur = (rlim_t)(depth + 1024) << 10;
		CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
	}
	if (strcmp(what, "threads") == 0) {
		pthread_attr_t attributes;
		size_t bytes;

		CHECK(pthread_getattr_default_np(&attributes) == 0);
		CHECK(pthread_attr_getstacksize(&attributes, &bytes) == 0);
		CHECK(getrlimit(RLIMIT_STACK, &limit) == 0);
		printf("%zu %ld\n", bytes, (long)limit.rlim_cur);
		return 0;
	}
	for (int node = 0; node < nodes; node++) {
		goes((void *)(intptr_t)node);
		if (depth > 0)
			CHECK(use(depth) == 0);
		if (strcmp(what, "addresses") == 0)
			addresses(), node = nodes;
		if (strcmp(what, "child") == 0) {
			fflush(stdout);
			CHECK(WEXITSTATUS(system("ulimit -v")) == 0);
		}
	}
	printf("right\n");
	return 0;
}
