/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * sysv.c - System V shared memory, between threads of all nodes, children and another program.
 *
 *	sysv		all of it
 *	sysv ID		what the other program does: adds 1 to the segment's first word
 *
 * Prints `right`.
 */
#include "check.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>

#define PAGE 4096ul
#define BYTES (100 * PAGE + 1)

static int segment;
static volatile long *words;

static void wait_for(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static long attached(void)
{
	struct shmid_ds of;

	CHECK(shmctl(segment, IPC_STAT, &of) == 0 && of.shm_segsz == BYTES);
	return of.shm_nattch;
}

static void *visit(void *node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate((int)(long)node) == 0);
	for (int i = 0; i < 1000; i++)
		__atomic_fetch_add(&words[1], 1, __ATOMIC_SEQ_CST);
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate((int)(long)node) == 0);
	/* Attached by a thread that is elsewhere. */
	long *mine = shmat(segment, NULL, 0);
	CHECK(mine != (void *)-1 && mine != words && mine[0] == words[0]);
	mine[2 + (long)node] = (long)node;
	CHECK(shmdt(mine) == 0);
	return NULL;
}

static void children(const char *program)
{
	char id[20];
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		CHECK(attached() == 2);
		__atomic_fetch_add(&words[0], 1, __ATOMIC_SEQ_CST);
		CHECK(shmdt((void *)words) == 0);
		_exit(0);
	}
	wait_for(child);
	snprintf(id, sizeof id, "%d", segment);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		execl(program, program, id, NULL);
		_exit(9);
	}
	wait_for(child);
	CHECK(words[0] == 2);
}

static void places(void)
{
	void *there = (void *)0x234500000000;
	long *read_only;

	CHECK(shmat(segment, there, 0) == there);
	CHECK(shmat(segment, there, 0) == (void *)-1 && errno == EINVAL);
	CHECK(shmat(segment, (char *)there + 1, 0) == (void *)-1 && errno == EINVAL);
	CHECK(shmat(segment, (char *)there + 5, SHM_REMAP | SHM_RND) == there);
	CHECK(((long *)there)[0] == words[0]);
	CHECK(attached() == 2);
	CHECK(shmdt(there) == 0);
	CHECK(shmdt(there) == -1 && errno == EINVAL);
	CHECK(attached() == 1);
	read_only = shmat(segment, NULL, SHM_RDONLY);
	CHECK(read_only != (void *)-1 && read_only[0] == words[0]);
	/* By munmap, too. */
	CHECK(munmap(read_only, 101 * PAGE) == 0);
	CHECK(shmdt(read_only) == -1 && errno == EINVAL);
	CHECK(shmat(segment + 1000000, NULL, 0) == (void *)-1 && errno == EINVAL);
}

int main(int argc, char **argv)
{
	long nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;
	pthread_t threads[8];

	if (argc > 1) {
		long *theirs = shmat(atoi(argv[1]), NULL, 0);

		CHECK(theirs != (void *)-1);
		__atomic_fetch_add(theirs, 1, __ATOMIC_SEQ_CST);
		return 0;
	}
	CHECK((segment = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600)) >= 0);
	words = shmat(segment, NULL, 0);
	CHECK(words != (void *)-1 && attached() == 1);
	/* It lives as long as a process has it attached. */
	CHECK(shmctl(segment, IPC_RMID, NULL) == 0);
	children(argv[0]);
	for (long node = 0; node < nodes; node++)
		CHECK(pthread_create(&threads[node], NULL, visit, (void *)node) == 0);
	for (long node = 0; node < nodes; node++)
		CHECK(pthread_join(threads[node], NULL) == 0);
	CHECK(words[1] == 1000 * nodes);
	for (long node = 0; node < nodes; node++)
		CHECK(words[2 + node] == node);
	places();
	CHECK(shmdt((void *)words) == 0);
	CHECK(shmat(segment, NULL, 0) == (void *)-1);
	printf("right\n");
	return 0;
}
