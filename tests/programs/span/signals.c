/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * signals.c - signals of threads, wherever they run.
 *
 *	signals [WHAT]
 *
 * Without WHAT: all that ends well, on every node. Otherwise one that ends the program, or waits
 * for a signal from outside: segv, fpe, overflow, handled overflow, abort, term, interrupt.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Atomic int handled, handler_tid, handler_node, value, altitude;
static _Atomic int ready, over;
static int pipes[2];

static int node_here(void)
{
	int node = nagaya_node();

	return node < 0 ? 0 : node;
}

static void go(int node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate(node) == 0);
}

static void handler(int signal, siginfo_t *info, void *context)
{
	char here;

	(void)signal;
	(void)context;
	value = info->si_value.sival_int;
	handler_tid = gettid();
	handler_node = node_here();
	altitude = (int)((uintptr_t)&here >> 40);
	handled++;
}

static void catch_with(int signal, int flags)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };

	CHECK(sigaction(signal, &action, NULL) == 0);
}

static void wait_for(_Atomic int *what, int wanted)
{
	for (int spins = 0; *what != wanted; spins++) {
		CHECK(spins < 60000);
		usleep(1000);
	}
}

/* The activity of a thread while it gets signals. */
enum { COMPUTES, READS, WAITS, SLEEPS, SUSPENDS };
struct work {
	int node, what;
	long result;
	int error;
	_Atomic pid_t tid;
	_Atomic int done;
};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void *works(void *argument)
{
	struct work *work = argument;
	struct timespec hour = { 3600, 0 };
	sigset_t none;
	char byte;

	go(work->node);
	work->tid = gettid();
	ready = 1;
	switch (work->what) {
	case COMPUTES:
		while (!over)
			;
		break;
	case READS:
		work->result = read(pipes[0], &byte, 1);
		break;
	case WAITS:
		pthread_mutex_lock(&mutex);
		while (!over)
			pthread_cond_wait(&condition, &mutex);
		pthread_mutex_unlock(&mutex);
		break;
	case SLEEPS:
		work->result = nanosleep(&hour, &hour);
		break;
	case SUSPENDS:
		sigemptyset(&none);
		work->result = sigsuspend(&none);
		break;
	}
	work->error = errno;
	work->done = 1;
	return NULL;
}

/* A thread on that node is interrupted by another of this one. */
static void interrupts(int node, int what, int restarts)
{
	struct work work = { .node = node, .what = what };
	union sigval sent = { .sival_int = 40 + what };
	pthread_t thread;
	sigset_t blocked;

	handled = ready = over = value = 0;
	catch_with(SIGUSR1, restarts ? SA_RESTART : 0);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	if (what == SUSPENDS)
		pthread_sigmask(SIG_BLOCK, &blocked, NULL);
	CHECK(pthread_create(&thread, NULL, works, &work) == 0);
	pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
	wait_for(&ready, 1);
	usleep(20000);
	CHECK(pthread_sigqueue(thread, SIGUSR1, sent) == 0);
	wait_for(&handled, 1);
	CHECK(value == 40 + what && handler_tid == work.tid && handler_node == node);
	over = 1;
	/* On a busy machine the signal may have come before the call: then there is another. */
	for (int ms = 1; what == SLEEPS || (what == READS && !restarts); ms++) {
		if (work.done)
			break;
		if (ms % 500 == 0)
			CHECK(pthread_sigqueue(thread, SIGUSR1, sent) == 0);
		usleep(1000);
	}
	if (what == READS && restarts) {
		usleep(10000);
		CHECK(write(pipes[1], "x", 1) == 1);
	}
	pthread_mutex_lock(&mutex);
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
	CHECK(handled >= 1);
	if (what == READS && restarts)
		CHECK(work.result == 1);
	if ((what == READS && !restarts) || what == SLEEPS || what == SUSPENDS)
		CHECK(work.result == -1 && work.error == EINTR);
}

/* The state of a thread: a blocked signal waits, and arrives when it is unblocked. */
static void *masks(void *argument)
{
	sigset_t set, pending;
	siginfo_t info;
	struct timespec none = { 0, 0 };

	go((int)(intptr_t)argument);
	handled = 0;
	catch_with(SIGUSR2, 0);
	raise(SIGUSR2);
	CHECK(handled == 1 && handler_tid == gettid() && handler_node == node_here());
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	raise(SIGUSR2);
	CHECK(handled == 1 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2));
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	CHECK(handled == 2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	raise(SIGUSR2);
	CHECK(sigtimedwait(&set, &info, &none) == SIGUSR2 && info.si_pid == getpid());
	CHECK(sigtimedwait(&set, &info, &none) == -1 && errno == EAGAIN);
	raise(SIGUSR2);
	int descriptor = signalfd(-1, &set, SFD_CLOEXEC);
	struct signalfd_siginfo said;
	CHECK(descriptor >= 0 && read(descriptor, &said, sizeof(said)) == sizeof(said));
	CHECK(said.ssi_signo == SIGUSR2 && close(descriptor) == 0);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	CHECK(handled == 2);
	return NULL;
}

/* A handler that is interrupted by another signal; and one on a stack of its own. */
static void nested(int signal)
{
	(void)signal;
	CHECK(handled == 0);
	raise(SIGUSR1);
	CHECK(handled == 1);
	handled = 10;
}

static void *handlers(void *argument)
{
	static char stack[4][64 << 10];
	int node = (int)(intptr_t)argument;
	stack_t alternative = { .ss_sp = stack[node], .ss_size = sizeof(stack[node]) };
	struct sigaction action = { .sa_handler = nested };

	go(node);
	handled = 0;
	catch_with(SIGUSR1, 0);
	sigaction(SIGUSR2, &action, NULL);
	raise(SIGUSR2);
	CHECK(handled == 10);
	CHECK(sigaltstack(&alternative, NULL) == 0);
	catch_with(SIGUSR1, SA_ONSTACK | SA_RESETHAND);
	altitude = 0;
	raise(SIGUSR1);
	CHECK(handled == 11 && altitude == (int)((uintptr_t)stack >> 40));
	CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
	return NULL;
}

/* Faults come to the handler, which may leave by a jump. */
static sigjmp_buf back;
static void *volatile where;

static void jumps(int signal, siginfo_t *info, void *context)
{
	(void)context;
	where = info->si_addr;
	siglongjmp(back, signal);
}

static void *faults(void *argument)
{
	struct sigaction action = { .sa_sigaction = jumps, .sa_flags = SA_SIGINFO };
	volatile int zero = 0;

	go((int)(intptr_t)argument);
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGFPE, &action, NULL);
	for (int round = 0; round < 3; round++) {
		int signal = sigsetjmp(back, 1);

		if (signal == 0)
			*(volatile int *)(uintptr_t)(4096 + round * 8) = 1;
		CHECK(signal == SIGSEGV && where == (void *)(uintptr_t)(4096 + round * 8));
	}
	int signal = sigsetjmp(back, 1);
	if (signal == 0)
		zero = 1000 / zero;
	CHECK(signal == SIGFPE);
	CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 8, NULL, 8) == -1 && errno == EFAULT);
	return NULL;
}

static int overflow(int depth)
{
	volatile char room[4096];

	room[0] = (char)depth;
	return depth < 0 ? 0 : overflow(depth + 1) + room[0];
}

static int has_no_stack(void)
{
	stack_t stack;

	CHECK(sigaltstack(NULL, &stack) == 0);
	return stack.ss_flags == SS_DISABLE;
}

/* Without a stack for signals, their handlers have the thread's own. From there it may go to
 * other nodes, and come back. */
static _Atomic(char *) below;

static void *next_node;

static void goes_on(int signal, siginfo_t *info, void *context)
{
	ucontext_t *was = context;
	char here;

	(void)signal;
	(void)info;
	CHECK(has_no_stack() && was->uc_stack.ss_flags == SS_DISABLE);
	CHECK(below > &here && below - &here < 64 << 10);
	go((int)(intptr_t)next_node);
	/* The instruction is done with, whatever it would have read. */
	was->uc_mcontext.gregs[REG_RAX] = (greg_t)(uintptr_t)below;
}

static char faults_here(char *at)
{
	char value;

	below = &value;
	__asm__ volatile("movb (%%rax), %0" : "=r"(value), "+a"(at));
	return value;
}

static void *stacks(void *argument)
{
	static char room[4][64 << 10];
	int node = (int)(intptr_t)argument, nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;
	stack_t own = { .ss_sp = room[node], .ss_size = sizeof(room[node]) }, said;
	struct sigaction action = { .sa_sigaction = goes_on, .sa_flags = SA_SIGINFO };

	go(node);
	CHECK(has_no_stack());
	next_node = (void *)(intptr_t)((node + 1) % nodes);
	for (int round = 0; round < 3; round++) {
		go(node);
		/* It has a stack for that, and does not use it. */
		action.sa_flags = SA_SIGINFO | (round == 1 ? SA_ONSTACK : 0);
		sigaction(SIGSEGV, &action, NULL);
		faults_here((char *)16);
		CHECK(node_here() == (node + 1) % nodes && has_no_stack());
	}
	/* One of its own it sees, and gives back, and new threads do not have it. */
	go(node);
	CHECK(sigaltstack(&own, NULL) == 0);
	CHECK(sigaltstack(NULL, &said) == 0 && said.ss_sp == own.ss_sp);
	CHECK(said.ss_size == own.ss_size && said.ss_flags == 0);
	pthread_t thread;
	void *result;
	CHECK(pthread_create(&thread, NULL, (void *(*)(void *))(void *)has_no_stack, NULL) == 0);
	CHECK(pthread_join(thread, &result) == 0 && (int)(intptr_t)result == 1);
	/* Who overflows its stack is handled there. */
	action.sa_sigaction = jumps;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigaction(SIGSEGV, &action, NULL);
	if (sigsetjmp(back, 1) == 0)
		overflow(0);
	CHECK(sigaltstack(NULL, &said) == 0 && said.ss_sp == own.ss_sp);
	own.ss_flags = SS_DISABLE;
	CHECK(sigaltstack(&own, NULL) == 0 && has_no_stack());
	return NULL;
}

/* Cancelled where it waits, a thread cleans up. */
static void cleans(void *argument)
{
	*(int *)argument = 1;
}

static void *is_cancelled(void *argument)
{
	int *cleaned = argument, node = *cleaned;
	char byte;

	*cleaned = 0;
	pthread_cleanup_push(cleans, cleaned);
	go(node);
	ready = 1;
	(void)!read(pipes[0], &byte, 1);
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancels(int node)
{
	int cleaned = node;
	pthread_t thread;
	void *result;

	ready = 0;
	CHECK(pthread_create(&thread, NULL, is_cancelled, &cleaned) == 0);
	wait_for(&ready, 1);
	usleep(10000);
	CHECK(pthread_cancel(thread) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED && cleaned == 1);
}

/* One for the process goes to whoever does not block it: here a thread of that node. */
static void to_the_process(int node)
{
	struct work work = { .node = node, .what = COMPUTES };
	struct itimerval soon = { .it_value = { 0, 20000 } };
	pthread_t thread;
	sigset_t set;

	handled = ready = over = 0;
	catch_with(SIGALRM, 0);
	catch_with(SIGHUP, 0);
	CHECK(pthread_create(&thread, NULL, works, &work) == 0);
	wait_for(&ready, 1);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	kill(getpid(), SIGHUP);
	wait_for(&handled, 1);
	CHECK(handler_tid == work.tid && handler_node == node);
	setitimer(ITIMER_REAL, &soon, NULL);
	wait_for(&handled, 2);
	CHECK(handler_tid == work.tid && handler_node == node);
	over = 1;
	pthread_join(thread, NULL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void run(void *(*thread)(void *), int node)
{
	pthread_t it;

	CHECK(pthread_create(&it, NULL, thread, (void *)(intptr_t)node) == 0);
	pthread_join(it, NULL);
}

/* Signals that come as fast as can be, while the thread goes around. */
static void *rains(void *argument)
{
	pthread_t *thread = argument;

	for (int count = 0; count < 200; count++) {
		int before = handled;

		CHECK(pthread_kill(*thread, SIGUSR1) == 0);
		for (int spins = 0; handled == before && spins < 10000; spins++)
			usleep(100);
		CHECK(handled == before + 1);
	}
	over = 1;
	return NULL;
}

static void in_the_rain(int nodes)
{
	pthread_t self = pthread_self(), thread;

	handled = over = 0;
	catch_with(SIGUSR1, SA_RESTART);
	CHECK(pthread_create(&thread, NULL, rains, &self) == 0);
	for (int round = 0; !over; round++) {
		go(round % nodes);
		CHECK(node_here() == round % nodes);
		for (volatile int spin = 0; spin < 1000; spin++)
			;
	}
	pthread_join(thread, NULL);
	CHECK(handled == 200);
	go(0);
}

static void *ends(void *argument)
{
	struct sigaction action = { .sa_sigaction = jumps, .sa_flags = SA_SIGINFO };
	const char *what = argument;
	volatile int zero = 0;

	go(nagaya_nodes() > 1 ? 1 : 0);
	switch (what[0]) {
	case 's': *(volatile int *)16 = 1; break;
	case 'f': zero = 1000 / zero; break;
	case 'h': sigaction(SIGSEGV, &action, NULL); /* has no room */
	/* fall through */
	case 'o': overflow(0); break;
	case 'a': abort();
	default:
		printf("there\n");
		fflush(stdout);
		while (!handled)
			usleep(1000);
		printf("handled %d\n", handled);
		exit(7);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;

	if (argc > 1) {
		pthread_t thread;
		sigset_t set;

		if (argv[1][0] == 'i' || argv[1][0] == 't')
			catch_with(argv[1][0] == 'i' ? SIGINT : SIGTERM, 0);
		CHECK(pthread_create(&thread, NULL, ends, argv[1]) == 0);
		sigfillset(&set);
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		pthread_join(thread, NULL);
		return 0;
	}
	CHECK(pipe(pipes) == 0);
	for (int node = 0; node < nodes; node++) {
		for (int what = COMPUTES; what <= SUSPENDS; what++)
			for (int restarts = 0; restarts < 2; restarts++)
				interrupts(node, what, restarts);
		run(masks, node);
		run(handlers, node);
		run(faults, node);
		run(stacks, node);
		cancels(node);
		to_the_process(node);
	}
	in_the_rain(nodes);
	printf("right\n");
	return 0;
}
