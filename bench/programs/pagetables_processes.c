/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pagetables_processes.c - processes that map each other's memory, and the size of their page
 * tables.
 *
 *     pagetables_processes PROCESSES MEGABYTES
 *
 * Each process has a memfd of MEGABYTES and writes it; each maps those of all others and
 * reads one word of every page. When all have done so, each prints
 *
 *     VmPTE_KB MILLISECONDS
 *
 * its own VmPTE (these add up: each process has its own page tables) and the time from
 * the moment when all had written until all had read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PROCESSES_MAX = 1024 };
static int memory[PROCESSES_MAX];
static pthread_barrier_t *all_here;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "pagetables_processes: %s: %s\n", what, why);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
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

static char *map(int process, size_t size, int protection)
{
	char *block = mmap(NULL, size, protection, MAP_SHARED, memory[process], 0);
	if (block == MAP_FAILED)
		fail("mmap", strerror(errno));
	madvise(block, size, MADV_NOHUGEPAGE); /* as the tasks: 4 KB pages */
	return block;
}

static void process_main(int self, int processes, size_t size)
{
	char *block = map(self, size, PROT_READ | PROT_WRITE);
	for (size_t at = 0; at < size; at += PAGE)
		*(uint64_t *)(block + at) = (uint64_t)self + 1;

	pthread_barrier_wait(all_here);
	int64_t begin = now_ns();
	for (int p = 0; p < processes; p++) {
		char *peer = p == self ? block : map(p, size, PROT_READ);
		uint64_t sum = 0;
		for (size_t at = 0; at < size; at += PAGE)
			sum += *(volatile uint64_t *)(peer + at);
		if (sum != (uint64_t)(p + 1) * (size / PAGE))
			fail("reading", "a peer's block has wrong contents");
	}
	pthread_barrier_wait(all_here);
	printf("%ld %.1f\n", page_tables_kb(), (double)(now_ns() - begin) / 1e6);
	fflush(stdout);
	pthread_barrier_wait(all_here);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		fail("usage", "pagetables_processes PROCESSES MEGABYTES");
	int processes = atoi(argv[1]);
	size_t size = (size_t)atol(argv[2]) << 20;
	if (processes < 1 || processes > PROCESSES_MAX)
		fail("usage", "too many processes");

	all_here = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t shared;
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	if (all_here == MAP_FAILED || pthread_barrier_init(all_here, &shared, (unsigned)processes))
		fail("pthread_barrier_init", "no shared memory");
	for (int p = 0; p < processes; p++) {
		memory[p] = memfd_create("block", 0);
		if (memory[p] < 0 || ftruncate(memory[p], (off_t)size) < 0)
			fail("memfd_create", strerror(errno));
	}
	pid_t parent = getpid();
	for (int p = 0; p < processes; p++) {
		pid_t child = fork();
		if (child < 0) {
			const char *why = strerror(errno);
			kill(0, SIGTERM);
			fail("fork", why);
		}
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(1);
			process_main(p, processes, size);
			_exit(0);
		}
	}
	int status, bad = 0;
	while (wait(&status) > 0)
		if (status && !bad) {
			bad = 1;
			break; /* the others would wait for this one; they end with this process */
		}
	return bad;
}
