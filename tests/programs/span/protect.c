/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * protect.c - threads that change the protection of memory thousands of times, as allocators do.
 *
 *	protect grows|moves|forks
 *
 * grows: threads make reserved memory accessible part by part, and take it back. A use of
 * inaccessible memory raises SIGSEGV. moves: other nodes find the protection that threads set
 * before. forks: children do, too, while other threads go on. All let the heap grow and shrink.
 * Prints `right`, or the check that failed.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096, PAGES = 512, THREADS = 3, ROUNDS = 4, CHILDREN = 12 };
enum { NONE = PROT_NONE, READ = PROT_READ, WRITE = PROT_READ | PROT_WRITE };

static int nodes(void)
{
	return nagaya_nodes() > 0 ? nagaya_nodes() : 1;
}

static void go_to(int node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate(node) == 0);
}

static _Thread_local sigjmp_buf back;
static _Thread_local volatile sig_atomic_t signalled;

static void faulted(int number)
{
	signalled = number;
	siglongjmp(back, 1);
}

/* What may be done with this address. */
static int access_of(volatile char *at)
{
	signalled = 0;
	if (sigsetjmp(back, 1) == 0)
		(void)*at;
	if (signalled)
		return NONE;
	if (sigsetjmp(back, 1) == 0)
		*at = *at;
	return signalled ? READ : WRITE;
}

static char *reserve(void)
{
	char *at = mmap(NULL, PAGES * PAGE, NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static void set(char *at, int page, int pages, int protection)
{
	CHECK(mprotect(at + page * PAGE, pages * PAGE, protection) == 0);
}

static void *grows(void *argument)
{
	(void)argument;
	char *at = reserve();

	for (int round = 0; round < ROUNDS; round++) {
		for (int page = 0; page < PAGES; page++) {
			if (page % 16 == 0)
				CHECK(access_of(at + page * PAGE) == NONE);
			set(at, page, 1, WRITE);
			at[page * PAGE] = (char)page;
		}
		for (int page = 0; page < PAGES; page += 5)
			set(at, page, 1, READ);
		for (int page = 0; page < PAGES; page++) {
			CHECK(at[page * PAGE] == (char)page);
			if (page % 16 == 0)
				CHECK(access_of(at + page * PAGE) == (page % 5 ? WRITE : READ));
		}
		/* A hole in the middle, which the next mapping fills. */
		CHECK(munmap(at + 7 * PAGE, PAGE) == 0);
		CHECK(mprotect(at, 16 * PAGE, WRITE) == -1 && access_of(at + 7 * PAGE) == NONE);
		char *hole = mmap(at + 7 * PAGE, PAGE, READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		CHECK(hole == at + 7 * PAGE && *hole == 0 && access_of(hole) == READ);
		set(at, 0, PAGES, NONE);
		CHECK(access_of(at + round * PAGE) == NONE);
	}
	CHECK(munmap(at, PAGES * PAGE) == 0);
	return NULL;
}

static char *shared;

/* As `prepare` has left it. */
static void *looks(void *argument)
{
	go_to((int)(intptr_t)argument);
	for (int page = 0; page < PAGES; page += 7)
		CHECK(access_of(shared + page * PAGE) == (page % 3 == 0 ? WRITE : page % 3 == 1 ? READ : NONE));
	go_to(0);
	return NULL;
}

static void prepare(void)
{
	for (int page = 0; page < PAGES; page++) {
		set(shared, page, 1, WRITE);
		shared[page * PAGE] = 1;
		set(shared, page, 1, page % 3 == 0 ? WRITE : page % 3 == 1 ? READ : NONE);
	}
}

static void moves(void)
{
	pthread_t thread;

	for (int round = 0; round < ROUNDS; round++) {
		shared = reserve();
		prepare();
		for (int node = nodes() - 1; node >= 0; node--) {
			CHECK(pthread_create(&thread, NULL, looks, (void *)(intptr_t)node) == 0);
			CHECK(pthread_join(thread, NULL) == 0);
		}
		CHECK(munmap(shared, PAGES * PAGE) == 0);
	}
}

enum { HEAP_PAGES = 100 };
static char *heap;

/* The heap as it has grown to this number of pages, and not further. */
static void *looks_at_heap(void *argument)
{
	long pages = (intptr_t)argument / 16;

	go_to((int)((intptr_t)argument % 16));
	for (long page = 0; page < pages; page += 9)
		CHECK(heap[page * PAGE] == (char)page && access_of(heap + page * PAGE) == WRITE);
	CHECK(access_of(heap + pages * PAGE) == NONE);
	go_to(0);
	return NULL;
}

/* Before there are other threads, whose allocations could need the heap. */
static void grow_heap(int checks)
{
	int status;

	heap = sbrk(0);
	CHECK(brk((void *)(((uintptr_t)heap + PAGE - 1) / PAGE * PAGE)) == 0);
	heap = sbrk(0);
	for (int round = 0; round < ROUNDS; round++) {
		for (long page = 0; page < HEAP_PAGES; page++) {
			char *at = heap + page * PAGE;

			CHECK(access_of(at) == NONE);
			CHECK(brk(at + 10) == 0 && sbrk(0) == at + 10);
			CHECK(at[0] == 0 && at[PAGE - 1] == 0);
			at[0] = (char)page;
			CHECK(brk(at + PAGE) == 0);
		}
		if (checks == 'f') {
			pid_t child = fork();

			if (child == 0) {
				looks_at_heap((void *)(16 * HEAP_PAGES));
				CHECK(brk(heap) == 0 && access_of(heap) == NONE);
				_exit(7);
			}
			CHECK(child > 0 && waitpid(child, &status, 0) == child);
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		}
		for (int node = nodes() - 1; checks == 'm' && node >= 0; node--) {
			go_to(node);
			looks_at_heap((void *)(intptr_t)(16 * HEAP_PAGES + node));
		}
		CHECK(brk(heap + 50 * PAGE) == 0 && access_of(heap + 50 * PAGE) == NONE);
		CHECK(heap[49 * PAGE] == 49);
		CHECK(brk(heap) == 0);
	}
}

static volatile int over;

static void *disturbs(void *argument)
{
	(void)argument;
	char *at = reserve();

	while (!over)
		for (int page = 0; page < PAGES; page++) {
			set(at, page, 1, WRITE);
			at[page * PAGE] = 1;
			set(at, page, 1, NONE);
		}
	return NULL;
}

static void forks(void)
{
	pthread_t threads[THREADS];

	shared = reserve();
	prepare();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, disturbs, NULL) == 0);
	for (int i = 0; i < CHILDREN; i++) {
		int status;

		char *last = shared + (2 + 21 * i) * PAGE;

		set(last, 0, 1, WRITE);
		*last = (char)i;
		pid_t child = fork();

		if (child == 0) {
			CHECK(access_of(last) == WRITE && *last == (char)i);
			looks((void *)0);
			_exit(7);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
		set(last, 0, 1, NONE);
	}
	over = 1;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int count, char **arguments)
{
	struct sigaction action = {.sa_handler = faulted};
	pthread_t threads[THREADS];

	CHECK(count == 2);
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	grow_heap(arguments[1][0]);
	if (strcmp(arguments[1], "moves") == 0)
		moves();
	else if (strcmp(arguments[1], "forks") == 0)
		forks();
	else
		CHECK(strcmp(arguments[1], "grows") == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, grows, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	puts("right");
	return 0;
}
