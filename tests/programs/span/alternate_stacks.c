/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * sigaltstack(2) on each node: answers, frames, inheritance, and that system calls leave the stack
 * of their thread alone. It prints what it prints alone. With `small` a handler's frame does not
 * fit on the alternate stack, with `exec` it says what execve(2) has left. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
#define BYTES (64 << 10)

static char alternate[BYTES], another[BYTES];
static sigjmp_buf back;
static volatile int entered;

static stack_t query(void)
{
	stack_t now;

	CHECK(syscall(SYS_sigaltstack, 0, &now) == 0);
	return now;
}

static const char *name(const void *start)
{
	return start == alternate ? "first" : start == another ? "second" : start ? "other" : "none";
}

static void say(const char *what, stack_t stack)
{
	printf("%s: %s, flags %x, %zu bytes\n", what, name(stack.ss_sp), stack.ss_flags, stack.ss_size);
}

/* Sets it with the kernel's call: libc's may check for itself. */
static int set(void *start, unsigned flags, size_t bytes)
{
	stack_t new = {.ss_sp = start, .ss_flags = flags, .ss_size = bytes};

	return syscall(SYS_sigaltstack, &new, 0) ? errno : 0;
}

static int is_on(const char *stack)
{
	char here;
	volatile uintptr_t at = (uintptr_t)&here;

	return at - (uintptr_t)stack < BYTES;
}

static void handler(int signal, siginfo_t *info, void *context)
{
	ucontext_t *frame = context;

	(void)info;
	entered++;
	printf("handler of %d: on first %d, on second %d\n", signal, is_on(alternate), is_on(another));
	say("  now", query());
	say("  frame", frame->uc_stack);
	printf("  change: %d\n", set(another, 0, BYTES));
	if (signal == SIGUSR1)
		raise(SIGUSR2);
}

static void handle(int signal, void (*with)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = {.sa_sigaction = with, .sa_flags = SA_SIGINFO | flags};

	CHECK(sigaction(signal, &action, NULL) == 0);
}

static void answers(void)
{
	say("at first", query());
	printf("too small: %d\n", set(alternate, 0, 2047));
	printf("unknown flag: %d\n", set(alternate, 4, BYTES));
	printf("both: %d\n", set(alternate, SS_ONSTACK | SS_DISABLE, BYTES));
	printf("bad new: %d\n", syscall(SYS_sigaltstack, 8, 0) ? errno : 0);
	printf("bad old: %d\n", syscall(SYS_sigaltstack, 0, 8) ? errno : 0);
	printf("set: %d\n", set(alternate, SS_ONSTACK, BYTES));
	say("then", query());
	printf("disabled: %d\n", set(another, SS_DISABLE, 5));
	say("then", query());
	printf("set: %d\n", set(alternate, 0, BYTES));
	say("then", query());
}

static void nest(void)
{
	static const int flags[] = {0, SA_ONSTACK};

	for (int first = 0; first < 2; first++)
		for (int second = 0; second < 2; second++) {
			CHECK(set(alternate, 0, BYTES) == 0);
			printf("nested: %d %d\n", first, second);
			handle(SIGUSR1, handler, flags[first]);
			handle(SIGUSR2, handler, flags[second]);
			raise(SIGUSR1);
			say("after", query());
		}
	printf("forgotten while a handler runs\n");
	handle(SIGUSR2, handler, SA_ONSTACK);
	CHECK(set(alternate, SS_AUTODISARM, BYTES) == 0);
	say("before", query());
	raise(SIGUSR2);
	say("after", query());
	handle(SIGUSR1, handler, SA_ONSTACK);
	raise(SIGUSR1);
	say("after", query());
	CHECK(set(alternate, 0, BYTES) == 0);
}

static void replaces(int signal, siginfo_t *info, void *context)
{
	ucontext_t *frame = context;

	(void)signal, (void)info;
	frame->uc_stack.ss_sp = another;
}

static void leaves(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
	CHECK(is_on(alternate) && query().ss_flags == SS_ONSTACK);
	siglongjmp(back, 1);
}

static __attribute__((noinline)) int sink(int depth)
{
	volatile char block[1024];

	block[0] = depth;
	return depth < 1 << 30 ? sink(depth + 1) + block[0] : 0;
}

/* Handlers that do not return, or return elsewhere; among them one of an overflow. */
static void ways_back(void)
{
	handle(SIGUSR1, leaves, SA_ONSTACK);
	for (volatile int turn = 0; turn < 50; turn++)
		if (sigsetjmp(back, 1) == 0)
			raise(SIGUSR1);
	handle(SIGSEGV, leaves, SA_ONSTACK);
	for (volatile int turn = 0; turn < 3; turn++)
		if (sigsetjmp(back, 1) == 0)
			sink(0);
	signal(SIGSEGV, SIG_DFL);
	say("after jumps", query());
	handle(SIGUSR1, replaces, 0);
	raise(SIGUSR1);
	say("after a return to another", query());
	CHECK(set(alternate, 0, BYTES) == 0);
}

static void spoils(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info, (void)context;
	entered++;
	asm volatile("pxor %%xmm7, %%xmm7" ::: "xmm7");
}

/* A function may use 128 bytes below its stack pointer, and vector registers. */
static void keeps_the_red_zone(void)
{
	long lost = 0;

	entered = 0;
	handle(SIGUSR1, spoils, 0);
	for (int turn = 0; turn < 100; turn++) {
		long number = SYS_tkill, tid = syscall(SYS_gettid), wrong;

		asm volatile("sub $256, %%rsp\n"
			     "movq %%rsp, %%xmm7\n"
			     "mov $16, %%ecx\n"
			     "1: mov %%rcx, %%r8\n neg %%r8\n mov %%rcx, (%%rsp, %%r8, 8)\n"
			     "dec %%ecx\n jnz 1b\n"
			     "mov %[signal], %%esi\n"
			     "syscall\n"
			     "xor %%edx, %%edx\n"
			     "mov $16, %%ecx\n"
			     "2: mov %%rcx, %%r8\n neg %%r8\n cmp %%rcx, (%%rsp, %%r8, 8)\n"
			     "je 3f\n inc %%edx\n 3: dec %%ecx\n jnz 2b\n"
			     "movq %%xmm7, %%rcx\n cmp %%rsp, %%rcx\n je 4f\n inc %%edx\n"
			     "4: add $256, %%rsp\n"
			     : "+a"(number), "=&d"(wrong)
			     : "D"(tid), [signal] "i"(SIGUSR1)
			     : "rcx", "rsi", "r8", "r11", "xmm7", "memory", "cc");
		lost += wrong;
	}
	printf("red zone: %ld lost in %d handlers\n", lost, entered);
}

/* A system call on a stack above a page that is not writable. */
static long call_on(char *stack, long number, long first, long second, long third)
{
	register long fourth asm("r10") = MAP_PRIVATE | MAP_ANONYMOUS;
	register long fifth asm("r8") = -1;
	register long sixth asm("r9") = 0;

	asm volatile("mov %%rsp, %%rbx\n mov %[stack], %%rsp\n syscall\n mov %%rbx, %%rsp\n"
		     : "+a"(number)
		     : [stack] "r"(stack), "D"(first), "S"(second), "d"(third), "r"(fourth), "r"(fifth),
		       "r"(sixth)
		     : "rbx", "rcx", "r11", "memory", "cc");
	return number;
}

static void use_no_stack(void)
{
	char *area = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *stack = area + 2 * 4096 + 64;
	int word = 0, touched = 0;
	long given;

	CHECK(area != MAP_FAILED && mprotect(area, 4096, PROT_NONE) == 0);
	memset(area + 4096, 0x5a, 2 * 4096);
	CHECK(call_on(stack, SYS_getppid, 0, 0, 0) == getppid());
	CHECK(call_on(stack, SYS_futex, (long)&word, 1, 1) == 0);
	given = call_on(stack, SYS_mmap, 0, 4096, PROT_READ);
	CHECK(given > 0 && call_on(stack, SYS_munmap, given, 4096, 0) == 0);
	CHECK(call_on(stack, SYS_sigaltstack, 0, 0, 0) == 0);
	CHECK(call_on(stack, SYS_sched_yield, 0, 0, 0) == 0);
	CHECK(call_on(area + 4096, SYS_getppid, 0, 0, 0) == getppid());
	for (int at = 4096; at < 3 * 4096; at++)
		touched += area[at] != 0x5a;
	printf("touched by calls: %d\n", touched);
	munmap(area, 3 * 4096);
}

static ucontext_t main_context, co_context;

static void coroutine(void)
{
	for (int turn = 0; turn < 10; turn++) {
		raise(SIGUSR1);
		getppid();
		swapcontext(&co_context, &main_context);
	}
}

static void switch_contexts(void)
{
	static char stack[32 << 10];

	entered = 0;
	handle(SIGUSR1, spoils, 0);
	CHECK(getcontext(&co_context) == 0);
	co_context.uc_stack = (stack_t){.ss_sp = stack, .ss_size = sizeof stack};
	co_context.uc_link = &main_context;
	makecontext(&co_context, coroutine, 0);
	for (int turn = 0; turn <= 10; turn++)
		CHECK(swapcontext(&main_context, &co_context) == 0);
	printf("contexts: %d handlers\n", entered);
}

static volatile stack_t seen;
static volatile int was_on;

static void notes(int signal, siginfo_t *info, void *context)
{
	ucontext_t *frame = context;

	(void)signal, (void)info;
	was_on = is_on(alternate);
	seen = frame->uc_stack;
}

static void *ask(void *answer)
{
	*(stack_t *)answer = query();
	return NULL;
}

static char *program;

static void children(void)
{
	pthread_t thread;
	int status;
	pid_t child;

	CHECK(set(alternate, 0, BYTES) == 0);
	CHECK(pthread_create(&thread, NULL, ask, (void *)&seen) == 0 && pthread_join(thread, NULL) == 0);
	say("thread", seen);
	fflush(stdout);
	child = fork();
	if (child == 0) {
		say("forked", query());
		handle(SIGUSR2, handler, SA_ONSTACK);
		raise(SIGUSR2);
		say("after", query());
		fflush(stdout);
		execl(program, program, "exec", NULL);
		_exit(1);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	child = vfork();
	if (child == 0) {
		stack_t now = {0};

		syscall(SYS_sigaltstack, 0, &now);
		seen = now;
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	say("vforked", seen);
	handle(SIGUSR2, notes, SA_ONSTACK);
	for (volatile int turn = 0; turn < 2; turn++) {
		CHECK(set(alternate, turn ? SS_AUTODISARM : 0, BYTES) == 0);
		child = vfork();
		if (child == 0) {
			raise(SIGUSR2);
			raise(SIGUSR2);
			_exit(0);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
		printf("handled in a vforked child: on first %d\n", was_on);
		say("  frame", seen);
		say("  parent", query());
	}
	say("parent", query());
}

static void *all(void *node)
{
	nagaya_migrate((int)(intptr_t)node);
	answers();
	nest();
	ways_back();
	keeps_the_red_zone();
	use_no_stack();
	switch_contexts();
	children();
	CHECK(set(NULL, SS_DISABLE, 0) == 0);
	return NULL;
}

static void *small(void *node)
{
	nagaya_migrate((int)(intptr_t)node);
	printf("small: %d\n", set(alternate, 0, 2048));
	fflush(stdout);
	handle(SIGUSR2, handler, SA_ONSTACK);
	raise(SIGUSR2);
	_exit(0);
}

int main(int count, char **arguments)
{
	int nodes = nagaya_nodes() > 1 ? nagaya_nodes() : 1;

	program = arguments[0];
	if (count > 1 && strcmp(arguments[1], "exec") == 0) {
		say("executed", query());
		return 0;
	}
	for (int turn = 0; turn < 3; turn++) {
		pthread_t thread;
		void *node = (void *)(intptr_t)((turn + 1) % nodes);

		CHECK(pthread_create(&thread, NULL, count > 1 ? small : all, node) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	all((void *)0);
	printf("right\n");
	return 0;
}
