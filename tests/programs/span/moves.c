/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * moves.c - threads go from node to node, and keep what is theirs.
 *
 *	moves ROUNDS
 *
 * Each thread, the first one too, goes to all nodes in turn. Vector registers, thread-locals,
 * the mask of signals, thread ID and rounding mode must come along, and memory must be the same.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

enum { THREADS = 3 };

static int rounds;
static long sum;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread long own;

/* By hand, so that nothing but the call stands between what goes in and what comes out. */
static void vectors_stay(int node, uint64_t seed)
{
	uint64_t before[4] = { seed, ~seed, seed * 3, seed * 5 }, after[4] = { 0 };
	long result = NAGAYA_SPAN_CALL;

#ifdef __AVX__
	__asm__ volatile("vmovdqu (%[before]), %%ymm5\n\tvmovdqu (%[before]), %%ymm11\n\tsyscall\n\t"
		"vxorps %%ymm5, %%ymm11, %%ymm6\n\tvmovdqu %%ymm11, (%[after])"
		: "+a"(result)
		: "D"(0L), "S"((long)node), [before] "r"(before), [after] "r"(after)
		: "rcx", "r11", "xmm5", "xmm6", "xmm11", "memory");
#else
	__asm__ volatile("movdqu (%[before]), %%xmm5\n\tmovdqu 16(%[before]), %%xmm11\n\tsyscall\n\t"
		"movdqu %%xmm5, (%[after])\n\tmovdqu %%xmm11, 16(%[after])"
		: "+a"(result)
		: "D"(0L), "S"((long)node), [before] "r"(before), [after] "r"(after)
		: "rcx", "r11", "xmm5", "xmm11", "memory");
#endif
	CHECK(result == 0);
	for (int at = 0; at < 4; at++)
		CHECK(after[at] == before[at]);
}

static void *travel(void *argument)
{
	long me = (long)argument;
	pid_t tid = gettid();
	sigset_t wanted, mask;

	own = me * 1000;
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGUSR1 + (me % 2) * (SIGUSR2 - SIGUSR1));
	pthread_sigmask(SIG_SETMASK, &wanted, NULL);
	_MM_SET_ROUNDING_MODE(me % 2 ? _MM_ROUND_UP : _MM_ROUND_DOWN);
	for (int round = 0; round < rounds; round++) {
		int node = (int)((round + me) % nagaya_nodes());

		vectors_stay(node, (uint64_t)(round * 977 + me) * 0x9e3779b97f4a7c15u);
		CHECK(nagaya_node() == node);
		CHECK(own++ == me * 1000 + round);
		CHECK(gettid() == tid && syscall(SYS_gettid) == tid);
		CHECK(_MM_GET_ROUNDING_MODE() == (me % 2 ? _MM_ROUND_UP : _MM_ROUND_DOWN));
		CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
		for (int signal = 1; signal < 32; signal++)
			CHECK(sigismember(&mask, signal) == sigismember(&wanted, signal));
		pthread_mutex_lock(&mutex);
		sum += round;
		pthread_mutex_unlock(&mutex);
	}
	CHECK(nagaya_migrate(nagaya_nodes()) == -1 && errno == EINVAL);
	CHECK(nagaya_migrate(-1) == -1 && errno == EINVAL);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	rounds = argc > 1 ? atoi(argv[1]) : 10;
	if (nagaya_nodes() < 0) {
		CHECK(errno == ENOSYS && nagaya_migrate(0) == -1 && errno == ENOSYS);
		CHECK(nagaya_node() == -1 && errno == ENOSYS);
		printf("alone\n");
		return 0;
	}
	for (long me = 0; me < THREADS; me++)
		CHECK(pthread_create(&threads[me], NULL, travel, (void *)(me + 1)) == 0);
	travel(NULL);
	for (int me = 0; me < THREADS; me++)
		pthread_join(threads[me], NULL);
	CHECK(sum == (long)(THREADS + 1) * rounds * (rounds - 1) / 2);
	/* A file is the origin's, wherever one is. */
	CHECK(nagaya_migrate(nagaya_nodes() - 1) == 0);
	printf("there and back\n");
	return 0;
}
