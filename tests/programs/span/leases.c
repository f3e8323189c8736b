/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * leases.c - files that are mapped shared and only for reading, by threads of all nodes.
 *
 *	leases stay|written|cut|unmapped FILE
 *
 * stay: threads that read the mapping, or name it in system calls, stay on their nodes. written:
 * what a process writes to the file, when it has opened it, is seen by all, in the mapping too;
 * many times. cut: the file becomes shorter: who reads behind its end gets SIGBUS. unmapped: what
 * is mapped in place of such a mapping is new. Prints `right`.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 300, BYTES = PAGES * PAGE - 1000, ROUNDS = 12, NODES = 4 };

static const char *path;
static unsigned char *mapped;
static pthread_barrier_t barrier;
static int count;

static int nodes(void)
{
	return nagaya_nodes() > 0 ? nagaya_nodes() : 1;
}

static void go_to(int node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate(node) == 0);
}

/* Writes so many bytes of this kind to the file. */
static void fill(size_t bytes, int byte)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	char *text = malloc(bytes);

	CHECK(file >= 0 && text);
	memset(text, byte, bytes);
	CHECK(write(file, text, bytes) == (ssize_t)bytes);
	free(text);
	CHECK(close(file) == 0);
}

static void map(void)
{
	int file = open(path, O_RDONLY);

	CHECK(file >= 0);
	mapped = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0);
	CHECK(mapped != MAP_FAILED);
	CHECK(close(file) == 0);
}

/* All bytes are of this kind, in an order that is a thread's own; zeros are behind them. */
static void look(int byte, int node)
{
	for (int at = 0; at < PAGES; at++) {
		int page = node % 2 ? PAGES - 1 - at : at;

		for (int in = 0; in < PAGE; in += 61) {
			long place = (long)page * PAGE + in;

			if (mapped[place] != (place < BYTES ? byte : 0)) {
				printf("%d at %ld on node %d, not %d\n", mapped[place], place,
				       node, byte);
				exit(1);
			}
		}
	}
}

static void by_threads(void *(*work)(void *))
{
	pthread_t threads[NODES];

	count = nodes();
	CHECK(count <= NODES);
	CHECK(pthread_barrier_init(&barrier, NULL, count) == 0);
	for (long node = 0; node < count; node++)
		CHECK(pthread_create(&threads[node], NULL, work, (void *)node) == 0);
	for (long node = 0; node < count; node++)
		CHECK(pthread_join(threads[node], NULL) == 0);
}

static void is_on(int node)
{
	if (nagaya_nodes() > 0 && nagaya_node() != node) {
		printf("a thread of node %d is on node %d\n", node, nagaya_node());
		exit(1);
	}
}

static void *stays(void *argument)
{
	int node = (int)(intptr_t)argument, ends[2];
	char byte;

	go_to(node);
	look('a', node);
	is_on(node);
	CHECK(pipe(ends) == 0);
	CHECK(write(ends[1], mapped + 5 * PAGE, 1) == 1 && read(ends[0], &byte, 1) == 1);
	CHECK(byte == 'a' && close(ends[0]) == 0 && close(ends[1]) == 0);
	is_on(node);
	errno = 0;
	CHECK(read(-1, mapped, 1) == -1 && errno == EBADF);
	is_on(node);
	return NULL;
}

static void *sees(void *argument)
{
	int node = (int)(intptr_t)argument;

	for (int round = 0; round < ROUNDS; round++) {
		go_to(node);
		pthread_barrier_wait(&barrier);
		if (node == round % count)
			map();
		pthread_barrier_wait(&barrier);
		look('a' + round, node);
		if (round % 3 != 0)
			pthread_barrier_wait(&barrier);
		/* Others may read at this moment. */
		if (node == (round + 1) % count) {
			pid_t child = round % 2 ? fork() : 0;
			int file, status;

			if (child == 0) {
				file = open(path, O_WRONLY);
				CHECK(file >= 0);
				for (int page = 0; page < PAGES; page++) {
					char text[PAGE];
					long left = BYTES - (long)page * PAGE;

					memset(text, 'b' + round, PAGE);
					if (round % 3 == 0 && page == 0)
						break;
					CHECK(pwrite(file, text, left < PAGE ? left : PAGE,
						     (long)page * PAGE) > 0);
				}
				CHECK(close(file) == 0);
				if (round % 2)
					_exit(0);
			} else {
				CHECK(waitpid(child, &status, 0) == child && status == 0);
			}
		}
		pthread_barrier_wait(&barrier);
		if (round % 3 == 0 && node == 0)
			fill(BYTES, 'b' + round);
		pthread_barrier_wait(&barrier);
		look('b' + round, node);
		pthread_barrier_wait(&barrier);
		if (node == round % count)
			CHECK(munmap(mapped, PAGES * PAGE) == 0);
	}
	return NULL;
}

static __thread sigjmp_buf back;

static void on_bus(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static void *meets_end(void *argument)
{
	int node = (int)(intptr_t)argument;

	go_to(node);
	look('a', node);
	pthread_barrier_wait(&barrier);
	if (node == count - 1)
		CHECK(truncate(path, 100 * PAGE) == 0);
	pthread_barrier_wait(&barrier);
	for (int page = 0; page < PAGES; page += 9) {
		volatile int got = 0;

		if (sigsetjmp(back, 1) == 0)
			got = ((volatile unsigned char *)mapped)[page * PAGE];
		CHECK(got == (page < 100 ? 'a' : 0));
	}
	return NULL;
}

static void *is_new(void *argument)
{
	int node = (int)(intptr_t)argument;

	for (int round = 0; round < ROUNDS; round++) {
		int other = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

		go_to(node);
		if (node == 0)
			map();
		pthread_barrier_wait(&barrier);
		look('a', node);
		pthread_barrier_wait(&barrier);
		/* The middle of the mapping. */
		if (node == round % count)
			CHECK(mmap(mapped + 50 * PAGE, 99 * PAGE, PROT_READ | PROT_WRITE, other, -1,
				   0) == mapped + 50 * PAGE);
		pthread_barrier_wait(&barrier);
		for (int page = 50; page < 149; page++)
			CHECK(mapped[page * PAGE + 8 + 5 * node] == 0);
		CHECK(mapped[49 * PAGE] == 'a' && mapped[149 * PAGE] == 'a');
		mapped[(50 + node) * PAGE] = 7;
		is_on(node);
		pthread_barrier_wait(&barrier);
		if (node == 0)
			CHECK(munmap(mapped, PAGES * PAGE) == 0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *what = argv[1];

	CHECK(argc == 3);
	path = argv[2];
	CHECK(signal(SIGBUS, on_bus) != SIG_ERR);
	fill(BYTES, 'a');
	if (strcmp(what, "written") != 0 && strcmp(what, "unmapped") != 0)
		map();
	if (strcmp(what, "stay") == 0)
		by_threads(stays);
	else if (strcmp(what, "written") == 0)
		by_threads(sees);
	else if (strcmp(what, "cut") == 0)
		by_threads(meets_end);
	else
		by_threads(is_new);
	printf("right\n");
	return 0;
}
