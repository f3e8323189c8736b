/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * common.c - memory that threads of all nodes have in common with children, and with files.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 16
#define ROUNDS 2000

struct common {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	sem_t semaphore;
	atomic_int sum;
	int turn, plain;
	struct timespec time;
};

static int nodes;
static struct common *common;
static volatile sig_atomic_t handled;

static void go(int node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate(node) == 0);
}

static int is_on(int node)
{
	return nagaya_nodes() == -1 || nagaya_node() == node;
}

static void ends_well(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	if (status != 0) {
		fprintf(stderr, "a child ends with %x\n", status);
		_exit(1);
	}
}

static void *shared(size_t bytes, int file)
{
	int flags = MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0);
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static void adds(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		common->sum++;
		pthread_mutex_lock(&common->mutex);
		common->plain++;
		pthread_mutex_unlock(&common->mutex);
	}
}

static void *thread_adds(void *argument)
{
	go((int)(intptr_t)argument);
	CHECK(is_on((int)(intptr_t)argument));
	adds();
	/* Where others can write it, too. */
	CHECK(is_on(0));
	return NULL;
}

/* Threads of all nodes and children count together. */
static void all_count(void)
{
	pthread_t thread[8];
	pid_t child[3];

	common->sum = common->plain = 0;
	for (int one = 0; one < 3; one++) {
		child[one] = fork();
		if (child[one] == 0) {
			adds();
			_exit(0);
		}
	}
	for (intptr_t node = 0; node < nodes; node++)
		CHECK(pthread_create(&thread[node], NULL, thread_adds, (void *)node) == 0);
	for (int node = 0; node < nodes; node++)
		pthread_join(thread[node], NULL);
	for (int one = 0; one < 3; one++)
		ends_well(child[one]);
	CHECK(common->sum == (3 + nodes) * ROUNDS && common->plain == common->sum);
}

/* They wait for each other. */
static void *takes_turns(void *argument)
{
	int node = (int)(intptr_t)argument;
	pid_t child;

	common->turn = 0;
	child = fork();
	for (int round = 0; round < 50; round++) {
		if (child != 0)
			go(node);
		pthread_mutex_lock(&common->mutex);
		while (common->turn % 2 != (child == 0))
			pthread_cond_wait(&common->cond, &common->mutex);
		common->turn++;
		pthread_cond_broadcast(&common->cond);
		pthread_mutex_unlock(&common->mutex);
	}
	if (child == 0) {
		sem_post(&common->semaphore);
		_exit(0);
	}
	/* Calls that are not made at the origin, and the clock, which is no call. */
	go(node);
	CHECK(syscall(SYS_futex, &common->plain, FUTEX_WAIT, ~common->plain, NULL) == -1);
	go(node);
	CHECK(syscall(SYS_futex, &common->semaphore, FUTEX_WAKE, 0) == 0 && is_on(0));
	go(node);
	CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &common->time) == 0 && is_on(0));
	go(node);
	CHECK(clock_gettime(CLOCK_MONOTONIC, &common->time) == 0 && is_on(0));
	go(node);
	while (sem_wait(&common->semaphore) != 0)
		CHECK(errno == EINTR);
	ends_well(child);
	CHECK(common->turn == 100);
	return NULL;
}

/* A file's, which read and write see. */
static void *of_a_file(void *argument)
{
	int node = (int)(intptr_t)argument, file = memfd_create("common", 0), up[2];
	char *at, line[16] = "";
	pid_t child;

	CHECK(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
	go(node);
	at = shared(PAGES * PAGE, file);
	CHECK(pwrite(file, "from the file", 14, PAGE) == 14 && strcmp(at + PAGE, "from the file") == 0);
	strcpy(at + 2 * PAGE, "from memory");
	CHECK(pread(file, line, 16, 2 * PAGE) == 16 && strcmp(line, "from memory") == 0);
	child = fork();
	if (child == 0) {
		strcpy(at + 3 * PAGE, "from a child");
		_exit(0);
	}
	ends_well(child);
	CHECK(strcmp(at + 3 * PAGE, "from a child") == 0);
	CHECK(msync(at, PAGES * PAGE, MS_SYNC) == 0);
	/* A call of another node's thread has a buffer there. */
	go(node);
	CHECK(pipe(up) == 0 && write(up[1], at + 3 * PAGE, 13) == 13);
	CHECK(read(up[0], at + 4 * PAGE, 13) == 13 && strcmp(at + 4 * PAGE, "from a child") == 0);
	close(up[0]), close(up[1]);
	/* It stays what it is, and as long as it does. */
	CHECK(madvise(at, PAGES * PAGE, MADV_DONTNEED) == 0 && strcmp(at + PAGE, "from the file") == 0);
	CHECK(mprotect(at, PAGE, PROT_READ) == 0 && at[0] == 0);
	CHECK(munmap(at, PAGE) == 0 && strcmp(at + PAGE, "from the file") == 0);
	CHECK(mmap(at + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   -1, 0) == at + PAGE);
	CHECK(at[PAGE] == 0);
	at[PAGE] = 'p';
	CHECK(pread(file, line, 1, PAGE) == 1 && line[0] == 'f');
	child = fork();
	if (child == 0) {
		at[PAGE] = 'c';
		at[2 * PAGE] = 'C';
		_exit(0);
	}
	ends_well(child);
	CHECK(at[PAGE] == 'p' && at[2 * PAGE] == 'C');
	CHECK(munmap(at + PAGE, (PAGES - 1) * PAGE) == 0);
	close(file);
	CHECK(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, file, 0) == MAP_FAILED && errno == EBADF);
	return NULL;
}

static char *ended;

static void *writes_ended(void *argument)
{
	int node = (int)(intptr_t)argument;

	go(node);
	for (int page = 0; page < PAGES; page++)
		CHECK(ended[page * PAGE + node] == 0);
	for (int round = 0; round < 100; round++)
		for (int page = 0; page < PAGES; page++)
			ended[page * PAGE + node]++;
	CHECK(is_on(node));
	return NULL;
}

/* Where shared memory was, memory is all nodes' again. */
static void memory_is_used_again(void)
{
	pthread_t thread[8];

	for (int round = 0; round < 3; round++) {
		char *at = shared(PAGES * PAGE, -1);
		memset(at, 7, PAGES * PAGE);
		if (round == 0)
			CHECK(munmap(at, PAGES * PAGE) == 0);
		ended = mmap(at, PAGES * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		CHECK(ended == at);
		for (intptr_t node = 0; node < nodes; node++)
			CHECK(pthread_create(&thread[node], NULL, writes_ended, (void *)node) == 0);
		for (int node = 0; node < nodes; node++)
			pthread_join(thread[node], NULL);
		for (int node = 0; node < nodes; node++)
			for (int page = 0; page < PAGES; page++)
				CHECK(ended[page * PAGE + node] == 100);
		CHECK(munmap(ended, PAGES * PAGE) == 0);
	}
}

/* There may be many holes in it, but not any number. */
static void it_can_be_cut(void)
{
	char *at = shared(5000 * PAGE, -1);
	int cut = 0;

	memset(at, 1, 5000 * PAGE);
	while (cut < 2500 && munmap(at + (2 * cut + 1) * PAGE, PAGE) == 0)
		cut++;
	CHECK(nagaya_nodes() == -1 ? cut == 2500 : cut > 2000 && errno == ENOMEM);
	CHECK(at[0] == 1 && at[2 * (cut - 1) * PAGE] == 1);
	if (nagaya_nodes() > 0)
		CHECK(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	CHECK(munmap(at, 5000 * PAGE) == 0);
	CHECK(munmap(shared(PAGE, -1), PAGE) == 0);
}

static void counts(int signal)
{
	(void)signal;
	handled++;
}

static void *on_a_shared_stack(void *argument)
{
	char some[2000];

	CHECK(is_on(0));
	memset(some, (int)(intptr_t)argument, sizeof(some));
	/* It cannot go. */
	go(nodes - 1);
	CHECK(is_on(0) && some[1999] == (char)(intptr_t)argument);
	CHECK(raise(SIGUSR1) == 0);
	return NULL;
}

static void stacks_can_be_there(void)
{
	enum { BYTES = 1 << 18 };
	pthread_attr_t attributes;
	pthread_t thread;

	signal(SIGUSR1, counts);
	pthread_attr_init(&attributes);
	CHECK(pthread_attr_setstack(&attributes, shared(BYTES, -1), BYTES) == 0);
	for (intptr_t round = 0; round < 4; round++) {
		CHECK(pthread_create(&thread, &attributes, on_a_shared_stack, (void *)round) == 0);
		pthread_join(thread, NULL);
	}
	CHECK(handled == 4);
}

int main(void)
{
	pthread_mutexattr_t mutex;
	pthread_condattr_t cond;
	pthread_t thread;

	nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 2;
	common = shared(sizeof(*common), -1);
	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	pthread_condattr_init(&cond);
	pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&common->mutex, &mutex);
	pthread_cond_init(&common->cond, &cond);
	sem_init(&common->semaphore, 1, 0);
	all_count();
	for (intptr_t node = 0; node < nodes; node++) {
		CHECK(pthread_create(&thread, NULL, takes_turns, (void *)node) == 0);
		pthread_join(thread, NULL);
		CHECK(pthread_create(&thread, NULL, of_a_file, (void *)node) == 0);
		pthread_join(thread, NULL);
	}
	memory_is_used_again();
	it_can_be_cut();
	stacks_can_be_there();
	printf("right\n");
	return 0;
}
