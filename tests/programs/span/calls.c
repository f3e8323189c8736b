/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * calls.c - system calls that are not as on one machine, on every node.
 *
 *	calls [exec NODE]
 *
 * With exec: a thread of this node executes something, while others compute on all nodes.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, THREADS = 4 };

static int fails(int error, long number, long a, long b, long c, long d)
{
	errno = 0;
	return syscall(number, a, b, c, d, 0, 0) == -1 && errno == error;
}

/* Nobody would wait where these wake, and the like: programs have other ways. */
static void nobody_makes_these(long memory)
{
	static int word;
	static const long calls[] = { 335, 336, 453, 454, 455, 456, 462, 470, 100000,
				      SYS_modify_ldt, SYS_iopl, SYS_ioperm, 440 };

	for (unsigned at = 0; at < sizeof calls / sizeof *calls; at++)
		CHECK(fails(ENOSYS, calls[at], memory, PAGE, 0, 0));
	CHECK(fails(ENOSYS, 454, (long)&word, -1, 1, 2));
	CHECK(fails(EPERM, SYS_prctl, PR_SET_MM, PR_SET_MM_BRK, memory, 0));
	CHECK(fails(EPERM, SYS_prctl, 65 /* PR_SET_MDWE */, 1, 0, 0));
	CHECK(fails(EPERM, SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, memory, 0, 0));
	CHECK(fails(EPERM, SYS_arch_prctl, 0x5001 /* ARCH_SHSTK_ENABLE */, 1, 0, 0));
	if (nagaya_nodes() > 1)
		CHECK(fails(EOPNOTSUPP, SYS_arch_prctl, 0x1023, 18, 0, 0));
}

static void advice(char *memory)
{
	memory[0] = memory[PAGE] = 1;
	CHECK(madvise(memory, 2 * PAGE, MADV_WILLNEED) == 0);
	CHECK(fails(EINVAL, SYS_madvise, (long)memory + 1, PAGE, MADV_DONTNEED, 0));
	CHECK(fails(EINVAL, SYS_madvise, (long)memory, PAGE, 102 /* MADV_GUARD_INSTALL */, 0));
	CHECK(fails(EINVAL, SYS_madvise, (long)memory, PAGE, 77, 0));
	CHECK(memory[0] == 1 && memory[PAGE] == 1);
	CHECK(madvise(memory, PAGE, 24 /* MADV_DONTNEED_LOCKED */) == 0);
	CHECK(memory[0] == 0 && memory[PAGE] == 1);
}

static void all(void)
{
	const int shared = MAP_PRIVATE | MAP_ANONYMOUS;
	char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, shared, -1, 0);

	CHECK(memory != MAP_FAILED);
	nobody_makes_these((long)memory);
	advice(memory);
	/* Asked for on the first node. */
	CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
	CHECK(fails(EINVAL, SYS_membarrier, 1 << 30, 0, 0, 0));
	CHECK(munmap(memory, 2 * PAGE) == 0);
}

static _Atomic int computing;
static int executes;

static void *computes(void *argument)
{
	int me = (int)(long)argument, nodes = nagaya_nodes();

	if (nodes > 1)
		CHECK(nagaya_migrate(me % nodes) == 0);
	computing++;
	if (me != executes)
		for (;;)
			;
	while (computing < THREADS)
		;
	execl("/bin/echo", "echo", "executed", (char *)NULL);
	fail("executed", __LINE__);
	return NULL;
}

int main(int argc, char **argv)
{
	int nodes = nagaya_nodes();
	pthread_t thread;

	if (argc > 2 && strcmp(argv[1], "exec") == 0) {
		executes = atoi(argv[2]);
		for (long me = 0; me < THREADS; me++)
			CHECK(pthread_create(&thread, NULL, computes, (void *)me) == 0);
		pthread_join(thread, NULL);
		pause();
	}
	CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
	for (int node = 0; node < nodes || node == 0; node++) {
		if (nodes > 1)
			CHECK(nagaya_migrate(node) == 0);
		all();
	}
	puts("right");
	return 0;
}
