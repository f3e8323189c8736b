/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * private.c - private mappings of a file, which threads of all nodes read and later write.
 *
 *	private read|written|cut|forked FILE
 *
 * read: threads and system calls of all nodes read the mapping, and the threads stay on their
 * nodes. Parts are unmapped, or have no access for a time. written: the mapping becomes writable;
 * all see the writes, and the file does not change. cut: the file becomes shorter, and a use of
 * lost pages raises SIGBUS. forked: children have the mapping, also while it becomes writable.
 * Prints `right`, or the check that failed.
 */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096, PAGES = 150, BYTES = PAGES * PAGE - 100, ROUNDS = 30 };

static char *mapped;
static int file;

static int nodes(void)
{
	return nagaya_nodes() > 0 ? nagaya_nodes() : 1;
}

static void go_to(int node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate(node) == 0);
}

static void is_on(int node)
{
	CHECK(nagaya_nodes() <= 0 || nagaya_node() == node);
}

static void by_a_thread(void *(*work)(void *), intptr_t argument)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, work, (void *)argument) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void on_all(void *(*work)(void *))
{
	for (int node = nodes() - 1; node >= 0; node--)
		by_a_thread(work, node);
}

static char byte_of(long place)
{
	return place < BYTES ? (char)(1 + place / PAGE % 100 + place % 7) : 0;
}

static void make(const char *path)
{
	char *content = malloc(BYTES);

	file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(file >= 0 && content);
	for (long at = 0; at < BYTES; at++)
		content[at] = byte_of(at);
	CHECK(write(file, content, BYTES) == BYTES);
	free(content);
}

static void map(int protection)
{
	mapped = mmap(NULL, PAGES * PAGE, protection, MAP_PRIVATE, file, 0);
	CHECK(mapped != MAP_FAILED);
}

/* These pages are as the file. */
static void look(int from, int to)
{
	for (long at = (long)from * PAGE; at < (long)to * PAGE; at += 61)
		CHECK(mapped[at] == byte_of(at));
	if (to == PAGES)
		CHECK(mapped[BYTES - 1] == byte_of(BYTES - 1) && mapped[BYTES] == 0);
}

static volatile sig_atomic_t signalled;
static _Thread_local sigjmp_buf back;

static void faulted(int number)
{
	signalled = number;
	siglongjmp(back, 1);
}

/* The signal that a use of the address raises, or 0. */
static int signal_of(volatile char *at, int writes)
{
	signalled = 0;
	if (sigsetjmp(back, 1) == 0) {
		if (writes)
			*at = 1;
		else
			(void)*at;
	}
	return signalled;
}

static void *reads(void *argument)
{
	int node = (int)(intptr_t)argument, ends[2];
	char bytes[PAGE];

	go_to(node);
	/* The kernel is the first to use this page. */
	CHECK(pipe(ends) == 0 && write(ends[1], mapped + 140 * PAGE, PAGE) == PAGE);
	CHECK(read(ends[0], bytes, PAGE) == PAGE);
	CHECK(memcmp(bytes, mapped + 140 * PAGE, PAGE) == 0);
	close(ends[0]);
	close(ends[1]);
	look(0, PAGES);
	is_on(node);
	CHECK(signal_of(mapped + 3 * PAGE, 1) == SIGSEGV);
	return NULL;
}

static void *reads_parts(void *argument)
{
	int node = (int)(intptr_t)argument;

	go_to(node);
	CHECK(signal_of(mapped + 10 * PAGE, 0) == SIGSEGV);
	CHECK(signal_of(mapped + 20 * PAGE, 0) == SIGSEGV);
	look(0, 10);
	look(11, 20);
	look(21, PAGES);
	return NULL;
}

static void *reads_again(void *argument)
{
	go_to((int)(intptr_t)argument);
	CHECK(mapped[10 * PAGE] == 0);
	look(11, PAGES);
	return NULL;
}

static void is_read(void)
{
	map(PROT_READ);
	on_all(reads);
	CHECK(munmap(mapped + 10 * PAGE, PAGE) == 0);
	CHECK(mprotect(mapped + 20 * PAGE, PAGE, PROT_NONE) == 0);
	on_all(reads_parts);
	CHECK(mprotect(mapped + 20 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(mmap(mapped + 10 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      mapped + 10 * PAGE);
	on_all(reads_again);
}

static void *writes(void *argument)
{
	int node = (int)(intptr_t)argument;

	go_to(node);
	for (int before = node + 1; before < nodes(); before++)
		CHECK(mapped[before] == 'a' + before && mapped[33 * PAGE + before] == 'a' + before);
	mapped[node] = mapped[33 * PAGE + node] = (char)('a' + node);
	look(1, 33);
	look(34, PAGES);
	is_on(node);
	return NULL;
}

static void *looks(void *argument)
{
	go_to((int)(intptr_t)argument);
	look(0, PAGES);
	return NULL;
}

/* The mapping becomes writable while threads read it for the first time. */
static void is_written_at_once(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t threads[8];
		int count = nodes() < 8 ? nodes() : 8;

		map(PROT_READ);
		for (int node = 0; node < count; node++)
			CHECK(pthread_create(&threads[node], NULL, looks, (void *)(intptr_t)node) == 0);
		for (int page = 0; page < PAGES; page += 7)
			CHECK(mprotect(mapped + page * PAGE, 3 * PAGE, PROT_READ | PROT_WRITE) == 0);
		for (int node = 0; node < count; node++)
			CHECK(pthread_join(threads[node], NULL) == 0);
		mapped[0] = 'w';
		CHECK(munmap(mapped, PAGES * PAGE) == 0);
	}
}

static void is_written(void)
{
	char byte;

	map(PROT_READ);
	on_all(reads);
	CHECK(mprotect(mapped, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
	on_all(writes);
	CHECK(pread(file, &byte, 1, 33 * PAGE) == 1 && byte == byte_of(33 * PAGE));
	/* Code that nobody has used is changed, too. */
	map(PROT_READ | PROT_EXEC);
	CHECK(mprotect(mapped + PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	mapped[PAGE] = 'x';
	CHECK(mapped[PAGE] == 'x' && mapped[PAGE + 1] == byte_of(PAGE + 1));
	CHECK(mprotect(mapped + PAGE, PAGE, PROT_READ | PROT_EXEC) == 0);
	look(2, PAGES);
	is_written_at_once();
}

static void *reads_past(void *argument)
{
	go_to((int)(intptr_t)argument);
	CHECK(signal_of(mapped + 100 * PAGE, 0) == SIGBUS);
	look(0, 50);
	return NULL;
}

static void is_cut(void)
{
	map(PROT_READ);
	CHECK(ftruncate(file, 50 * PAGE) == 0);
	on_all(reads_past);
}

static void *unprotects(void *argument)
{
	go_to((int)(intptr_t)argument);
	for (int page = 0; page < PAGES; page += 5) {
		CHECK(mprotect(mapped + page * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
		mapped[page * PAGE] = byte_of(page * PAGE);
	}
	return NULL;
}

static void fork_once(int writes)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		look(0, PAGES);
		if (writes) {
			CHECK(mprotect(mapped, PAGE, PROT_READ | PROT_WRITE) == 0);
			mapped[0] = 'c';
			look(1, PAGES);
		}
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	look(0, PAGES);
}

static void is_forked(void)
{
	map(PROT_READ);
	fork_once(1);
	on_all(reads);
	fork_once(1);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t thread;

		map(PROT_READ);
		CHECK(pthread_create(&thread, NULL, unprotects, (void *)(intptr_t)(round % nodes())) == 0);
		fork_once(0);
		CHECK(pthread_join(thread, NULL) == 0);
		fork_once(0);
		CHECK(munmap(mapped, PAGES * PAGE) == 0);
	}
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	CHECK(signal(SIGBUS, faulted) != SIG_ERR && signal(SIGSEGV, faulted) != SIG_ERR);
	make(argv[2]);
	switch (argv[1][0]) {
	case 'r':
		is_read();
		break;
	case 'w':
		is_written();
		break;
	case 'c':
		is_cut();
		break;
	default:
		is_forked();
	}
	printf("right\n");
	return 0;
}
