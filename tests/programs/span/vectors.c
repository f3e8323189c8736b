/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * vectors.c - a signal that arrives while its thread returns from the handler of another.
 *
 * A thread sends itself SIGUSR1 and returns from its handler, again and again, while another thread
 * sends it SIGUSR2. Its vector registers must survive, on every node, with the handlers' frames on
 * the thread's stack and on an alternate one.
 */
#define _GNU_SOURCE
#include "check.h"

#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIGNALS = 100, REGISTERS = 16 };

typedef uint64_t vector[2];

static _Atomic int arrived, returned, over;

static void clobber(void)
{
	static const vector other = { ~0ull, ~0ull };

	__asm__ volatile("movups %0, %%xmm0\n\tmovups %0, %%xmm5\n\tmovups %0, %%xmm10\n\t"
			 "movups %0, %%xmm15"
			 : : "m"(other) : "xmm0", "xmm5", "xmm10", "xmm15");
}

static void on_first(int signal)
{
	(void)signal;
	clobber();
	returned++;
}

static void on_second(int signal)
{
	(void)signal;
	clobber();
	arrived++;
}

/* Sends SIGUSR1 to this thread with known vector registers, and reads them after its handler. */
static void returns(uint64_t seed)
{
	/* The frames are at other places of a page each time. */
	volatile char *room = alloca(seed % 128 * 64 + 16);
	vector before[REGISTERS], after[REGISTERS];
	long result;

	room[0] = 1;
	for (int at = 0; at < REGISTERS; at++)
		before[at][0] = seed * 16 + at, before[at][1] = ~before[at][0];
#define LOAD(n) "movups " #n "*16(%[before]), %%xmm" #n "\n\t"
#define STORE(n) "movups %%xmm" #n ", " #n "*16(%[after])\n\t"
	__asm__ volatile(
		LOAD(0) LOAD(1) LOAD(2) LOAD(3) LOAD(4) LOAD(5) LOAD(6) LOAD(7) LOAD(8) LOAD(9)
		LOAD(10) LOAD(11) LOAD(12) LOAD(13) LOAD(14) LOAD(15) "syscall\n\t"
		STORE(0) STORE(1) STORE(2) STORE(3) STORE(4) STORE(5) STORE(6) STORE(7) STORE(8)
		STORE(9) STORE(10) STORE(11) STORE(12) STORE(13) STORE(14) STORE(15)
		: "=a"(result)
		: "a"(SYS_tgkill), "D"(getpid()), "S"(gettid()), "d"(SIGUSR1),
		  [before] "r"(before), [after] "r"(after)
		: "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
		  "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
	CHECK(result == 0);
	CHECK(memcmp(before, after, sizeof(before)) == 0);
}

static void *receives(void *argument)
{
	int node = (int)(intptr_t)argument;

	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate(node) == 0);
	for (uint64_t round = 1; !over; round++) {
		returns(round);
		CHECK(returned == (int)round);
	}
	return NULL;
}

static void *receives_elsewhere(void *argument)
{
	static char room[64 << 10];
	stack_t stack = { .ss_sp = room, .ss_size = sizeof(room) };

	CHECK(sigaltstack(&stack, NULL) == 0);
	return receives(argument);
}

static void meet(void *(*receiver)(void *), int node, int flags)
{
	struct sigaction first = { .sa_handler = on_first, .sa_flags = flags };
	struct sigaction second = { .sa_handler = on_second, .sa_flags = flags };
	pthread_t thread;

	arrived = returned = over = 0;
	CHECK(sigaction(SIGUSR1, &first, NULL) == 0 && sigaction(SIGUSR2, &second, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, receiver, (void *)(intptr_t)node) == 0);
	for (int sent = 0; sent < SIGNALS; sent++) {
		CHECK(pthread_kill(thread, SIGUSR2) == 0);
		for (int spins = 0; arrived <= sent && spins < 100000; spins++)
			usleep(20);
		CHECK(arrived == sent + 1);
	}
	over = 1;
	pthread_join(thread, NULL);
}

int main(void)
{
	int nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;

	for (int node = 0; node < nodes; node++) {
		meet(receives, node, 0);
		meet(receives, node, SA_NODEFER);
		meet(receives_elsewhere, node, SA_ONSTACK);
	}
	printf("right\n");
	return 0;
}
