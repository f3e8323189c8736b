/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * inherits.c - what forked children get of memory of which madvise(2) has said something.
 *
 *	inherits FILE
 *
 * Prints `right`, or what is not.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 6 };

static char *memory, *shared;
static int file;

static int is(const char *page, char byte)
{
	return page[0] == byte && page[PAGE / 2] == byte && page[PAGE - 1] == byte;
}

/* Returns true if the page has a value. */
static int is_there(char *page)
{
	int ends[2];

	CHECK(pipe(ends) == 0);
	int there = write(ends[1], page, 1) == 1;
	CHECK(there || errno == EFAULT);
	close(ends[0]);
	close(ends[1]);
	return there;
}

static void child_has(int depth)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		CHECK(is(memory, 0) && is(memory + PAGE, 0) && is(memory + 2 * PAGE, 'm'));
		CHECK(!is_there(memory + 3 * PAGE) && is(memory + 4 * PAGE, 'm'));
		CHECK(is(memory + 5 * PAGE, 'n'));
		CHECK(is(shared, 's') && !is_there(shared + PAGE));
		/* Wiped memory stays wiped for the child's children. */
		memset(memory, 'c', 2 * PAGE);
		if (depth < 2)
			child_has(depth + 1);
		CHECK(is(memory, 'c') && is(memory + PAGE, 'c'));
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *works(void *node)
{
	int status;

	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate((int)(intptr_t)node) == 0);
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	memset(memory, 'm', PAGES * PAGE);
	CHECK(madvise(memory, 3 * PAGE, MADV_WIPEONFORK) == 0);
	CHECK(madvise(memory + 2 * PAGE, PAGE, MADV_KEEPONFORK) == 0);
	CHECK(madvise(memory + 3 * PAGE, 2 * PAGE, MADV_DONTFORK) == 0);
	CHECK(madvise(memory + 4 * PAGE, PAGE, MADV_DOFORK) == 0);
	CHECK(madvise(shared + PAGE, PAGE, MADV_DONTFORK) == 0);
	/* A new mapping has no advice. */
	CHECK(madvise(memory + 5 * PAGE, PAGE, MADV_WIPEONFORK) == 0);
	CHECK(mmap(memory + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	memset(memory + 5 * PAGE, 'n', PAGE);
	child_has(0);
	CHECK(is(memory, 'm') && is(memory + 3 * PAGE, 'm') && is(shared + PAGE, 's'));
	CHECK(madvise(memory, PAGES * PAGE, MADV_KEEPONFORK) == 0);
	CHECK(madvise(memory, PAGES * PAGE, MADV_DOFORK) == 0);
	CHECK(madvise(shared, 2 * PAGE, MADV_DOFORK) == 0);
	pid_t child = fork();
	if (child == 0) {
		for (int page = 0; page < PAGES - 1; page++)
			CHECK(is(memory + page * PAGE, 'm'));
		CHECK(is(shared + PAGE, 's'));
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* Invalid requests. */
	CHECK(madvise(memory + 1, PAGE, MADV_WIPEONFORK) == -1 && errno == EINVAL);
	CHECK(madvise(memory, 0, MADV_WIPEONFORK) == 0);
	CHECK(madvise(shared, PAGE, MADV_WIPEONFORK) == -1 && errno == EINVAL);
	char *of_file = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	CHECK(of_file != MAP_FAILED);
	CHECK(madvise(of_file, PAGE, MADV_WIPEONFORK) == -1 && errno == EINVAL);
	CHECK(munmap(memory, PAGES * PAGE) == 0);
	CHECK(madvise(memory, PAGE, MADV_WIPEONFORK) == -1 && errno == ENOMEM);
	return NULL;
}

int main(int argc, char **argv)
{
	int nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;
	pthread_t thread;

	if (argc != 2 || (file = open(argv[1], O_RDWR | O_CREAT, 0600)) < 0)
		return 2;
	CHECK(ftruncate(file, PAGE) == 0);
	shared = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	memset(shared, 's', 2 * PAGE);
	for (int node = nodes - 1; node >= 0; node--) {
		CHECK(pthread_create(&thread, NULL, works, (void *)(intptr_t)node) == 0);
		pthread_join(thread, NULL);
	}
	printf("right\n");
	return 0;
}
