/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * forks.c - children that are forked by threads of all nodes: what they find, and what they do.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
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
#define PAGES 200
#define NODES_MAX 8

/* What is written on each node: bytes of pages, and blocks of the heap. */
static int nodes;
static unsigned char *pages[NODES_MAX];
static unsigned *blocks[NODES_MAX];
static _Thread_local int own = 7;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t handled;
static char alternative[64 << 10];

static void ends_with(pid_t child, int wanted)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted) {
		fprintf(stderr, "a child ends with %x\n", status);
		_exit(1);
	}
}

static void go(int node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate(node) == 0);
}

static unsigned of(int node, int page, int round)
{
	return (unsigned)(node * 1000003 + page * 101 + round * 7919);
}

static void *writes(void *argument)
{
	int node = (int)(intptr_t)argument % 100, round = (int)(intptr_t)argument / 100;

	go(node);
	/* Every other time it has all of them anew: then it is their first owner. */
	if (round % 2)
		CHECK(mmap(pages[node], PAGES * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == pages[node]);
	for (int page = 0; page < PAGES; page++) {
		unsigned *words = (unsigned *)(pages[node] + page * PAGE);
		for (int word = 0; word < PAGE / 4; word += 61)
			words[word] = of(node, page, round) + word;
	}
	if (!blocks[node])
		blocks[node] = malloc(100000);
	for (int word = 0; word < 25000; word++)
		blocks[node][word] = of(node, word, round);
	return NULL;
}

static void all_write(int round)
{
	pthread_t thread[NODES_MAX];

	for (intptr_t node = 0; node < nodes; node++)
		CHECK(pthread_create(&thread[node], NULL, writes, (void *)(node + 100 * round)) == 0);
	for (int node = 0; node < nodes; node++)
		pthread_join(thread[node], NULL);
}

static void all_is(int round)
{
	for (int node = 0; node < nodes; node++) {
		for (int page = 0; page < PAGES; page++) {
			unsigned *words = (unsigned *)(pages[node] + page * PAGE);
			for (int word = 0; word < PAGE / 4; word += 61)
				CHECK(words[word] == of(node, page, round) + word);
		}
		for (int word = 0; word < 25000; word++)
			CHECK(blocks[node][word] == of(node, word, round));
	}
}

/* A copy as it was; then each has its own. */
static void memory_is_copied(void)
{
	int down[2], up[2];
	char byte;
	pid_t child;

	all_write(1);
	CHECK(pipe(down) == 0 && pipe(up) == 0);
	own = 8;
	child = fork();
	if (child == 0) {
		CHECK(own == 8);
		CHECK(read(down[0], &byte, 1) == 1);
		/* What the parent has written meanwhile is not seen. */
		all_is(1);
		for (int node = 0; node < nodes; node++)
			memset(pages[node], 0xee, PAGES * PAGE);
		own = 9;
		CHECK(write(up[1], "c", 1) == 1);
		CHECK(read(down[0], &byte, 1) == 1);
		for (int at = 0; at < PAGES * PAGE; at++)
			CHECK(pages[nodes - 1][at] == 0xee);
		_exit(31);
	}
	/* Who reads learns that the child has failed. */
	close(up[1]);
	all_write(2);
	CHECK(write(down[1], "p", 1) == 1 && read(up[0], &byte, 1) == 1);
	all_is(2);
	CHECK(own == 8);
	CHECK(write(down[1], "p", 1) == 1);
	ends_with(child, 31);
	close(down[0]), close(down[1]), close(up[0]);
	own = 7;
}

static void *adds(void *argument)
{
	struct timespec one, other;

	clock_gettime(CLOCK_MONOTONIC, &one);
	CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &other) == 0);
	CHECK(other.tv_sec - one.tv_sec <= 10 && time(NULL) > 1000000000);
	for (int round = 0; round < 1000; round++) {
		pthread_mutex_lock(&mutex);
		++*(int *)argument;
		pthread_mutex_unlock(&mutex);
	}
	return malloc(100);
}

/* What an ordinary process can do. */
static void children_go_on(void)
{
	pid_t child = fork();

	if (child == 0) {
		pthread_t thread[4];
		int sum = 0;

		CHECK(nagaya_nodes() == -1 && errno == ENOSYS);
		for (int one = 0; one < 4; one++)
			CHECK(pthread_create(&thread[one], NULL, adds, &sum) == 0);
		for (int one = 0; one < 4; one++)
			pthread_join(thread[one], NULL);
		CHECK(sum == 4000);
		/* The heap goes on where it was, and beyond its room. */
		char *end = sbrk(0), *block[3000];
		CHECK(sbrk(100000) == end && sbrk(0) == end + 100000);
		memset(end, 1, 100000);
		CHECK(sbrk(-100000) == end + 100000);
		for (int one = 0; one < 3000; one++) {
			block[one] = malloc(100000);
			CHECK(block[one]);
			memset(block[one], one, 100000);
		}
		for (int one = 0; one < 3000; one++) {
			CHECK(block[one][0] == (char)one && block[one][99999] == (char)one);
			free(block[one]);
		}
		char *large = malloc(200 << 20);
		CHECK(large);
		memset(large, 5, 1 << 20);
		free(large);
		/* And forks. */
		pid_t other = fork();
		if (other == 0) {
			CHECK(getppid() != 1);
			exit(33);
		}
		ends_with(other, 33);
		CHECK(system("exit 5") == 5 << 8);
		_exit(32);
	}
	ends_with(child, 32);
	child = fork();
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", "exit 7", NULL);
		_exit(1);
	}
	ends_with(child, 7);
}

static void counts(int signal)
{
	(void)signal;
	handled++;
}

static void on_stack(int signal)
{
	char here;

	(void)signal;
	CHECK(&here >= alternative && &here < alternative + sizeof(alternative));
	handled += 10;
}

static void signals_are_the_child_s(void)
{
	struct sigaction action = { .sa_handler = counts }, before;
	stack_t stack = { .ss_sp = alternative, .ss_size = sizeof(alternative) };
	sigset_t set, old;
	int status;
	pid_t child;

	handled = 0;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	action.sa_handler = on_stack;
	action.sa_flags = SA_ONSTACK;
	CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	child = fork();
	if (child == 0) {
		CHECK(raise(SIGUSR1) == 0 && handled == 1);
		CHECK(raise(SIGUSR2) == 0 && handled == 11);
		CHECK(raise(SIGHUP) == 0);
		CHECK(pthread_sigmask(SIG_BLOCK, NULL, &old) == 0);
		CHECK(sigismember(&old, SIGWINCH) && !sigismember(&old, SIGUSR1));
		CHECK(!sigismember(&old, SIGSYS) && !sigismember(&old, SIGSEGV));
		CHECK(sigaction(SIGUSR1, NULL, &before) == 0 && before.sa_handler == counts);
		CHECK(sigaction(SIGSYS, NULL, &before) == 0 && before.sa_handler == SIG_DFL);
		CHECK(sigaction(SIGSEGV, NULL, &before) == 0 && before.sa_handler == SIG_DFL);
		CHECK(kill(getpid(), SIGTERM) == 0);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
	CHECK(WTERMSIG(status) == SIGTERM && handled == 0);
	for (int signal = 0; signal < 2; signal++) {
		child = fork();
		if (child == 0) {
			if (signal)
				abort();
			pause();
		}
		if (!signal)
			CHECK(kill(child, SIGKILL) == 0);
		CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
		CHECK(WTERMSIG(status) == (signal ? SIGABRT : SIGKILL));
	}
	/* Its own end is told. */
	signal(SIGCHLD, counts);
	child = fork();
	if (child == 0)
		_exit(3);
	for (int status; waitpid(child, &status, 0) != child;)
		CHECK(errno == EINTR);
	/* By whichever thread. */
	while (handled != 1)
		sched_yield();
	signal(SIGCHLD, SIG_DFL);
	stack.ss_flags = SS_DISABLE;
	CHECK(sigaltstack(&stack, NULL) == 0);
}

static int descriptors(void)
{
	DIR *all = opendir("/proc/self/fd");
	int count = 0;

	CHECK(all);
	while (readdir(all))
		count++;
	closedir(all);
	return count;
}

/* Protections, descriptors, names. */
static void children_are_ordinary(const char *name)
{
	char *some = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status, up[2], there = descriptors(), ours = nagaya_nodes() > 0;
	char line[4096];
	pid_t child, told;

	CHECK(some != MAP_FAILED);
	some[0] = some[PAGE] = some[2 * PAGE] = some[4 * PAGE] = 1;
	CHECK(mprotect(some, PAGE, PROT_READ) == 0 && mprotect(some + PAGE, PAGE, PROT_NONE) == 0);
	CHECK(munmap(some + 2 * PAGE, PAGE) == 0);
	for (int what = 0; what < 4; what++) {
		child = fork();
		if (child == 0) {
			CHECK(some[0] == 1 && some[4 * PAGE] == 1 && some[5 * PAGE] == 0);
			some[what * PAGE] = 2;
			_exit(9);
		}
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(what < 3 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV
			       : WIFEXITED(status) && WEXITSTATUS(status) == 9);
	}
	child = fork();
	if (child == 0) {
		CHECK(mprotect(some, 2 * PAGE, PROT_READ | PROT_WRITE) == 0);
		CHECK(some[0] == 1 && some[PAGE] == 1);
		some[0] = 2;
		CHECK(munmap(some, 6 * PAGE) == 0);
		int now = descriptors();
		/* One is Nagaya's own in the parent. */
		CHECK(now == there - ours);
		for (int other = 900; other < 1024; other++)
			CHECK(close(other) == -1);
		FILE *said = fopen("/proc/self/cmdline", "r");
		CHECK(said && fread(line, 1, sizeof(line), said) > 0 && strcmp(line, name) == 0);
		_exit(getpid() == gettid() && getpid() == syscall(SYS_getpid) ? 4 : 1);
	}
	ends_with(child, 4);
	munmap(some, 6 * PAGE);
	/* The child says who it is. */
	CHECK(pipe(up) == 0);
	child = fork();
	if (child == 0) {
		told = getpid();
		CHECK(write(up[1], &told, sizeof(told)) == sizeof(told));
		told = getppid();
		CHECK(write(up[1], &told, sizeof(told)) == sizeof(told));
		_exit(0);
	}
	CHECK(read(up[0], &told, sizeof(told)) == sizeof(told) && told == child);
	CHECK(read(up[0], &told, sizeof(told)) == sizeof(told) && told == getpid());
	ends_with(child, 0);
	close(up[0]), close(up[1]);
}

static int on_own_stack(void *argument)
{
	return *(int *)argument + 1;
}

/* By other calls than fork. */
static void clones(void)
{
	static char stack[64 << 10];
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, size, tls;
	} wanted = { .flags = CLONE_PIDFD | CLONE_CHILD_SETTID, .exit_signal = SIGCHLD };
	int value = 20, pidfd = -1, status;
	pid_t child, id = 0, told = 0;
	siginfo_t info;

	child = clone(on_own_stack, stack + sizeof(stack), SIGCHLD | CLONE_PARENT_SETTID, &value, &told);
	ends_with(child, 21);
	CHECK(told == child);
	wanted.pidfd = (uint64_t)(uintptr_t)&pidfd;
	wanted.child_tid = (uint64_t)(uintptr_t)&id;
	child = syscall(SYS_clone3, &wanted, sizeof(wanted));
	if (child == 0)
		_exit(id == gettid() ? 6 : 1);
	CHECK(child > 0 && id == 0 && pidfd >= 0);
	CHECK(waitid(P_PIDFD, pidfd, &info, WEXITED) == 0 && info.si_pid == child);
	CHECK(info.si_status == 6);
	close(pidfd);
	CHECK(syscall(SYS_clone, CLONE_THREAD | SIGCHLD, 0, 0, 0, 0) == -1 && errno == EINVAL);
	child = syscall(SYS_fork);
	if (child == 0)
		_exit(8);
	CHECK(waitpid(child, &status, 0) == child && status == 8 << 8);
}

static atomic_int stop, calls;

static void *disturbs(void *argument)
{
	int node = (int)(intptr_t)argument;

	go(node);
	for (int round = 0; !stop; round++) {
		char *block = malloc(20000 + round % 7 * 30000);
		memset(block, round, 20000);
		for (int page = 0; page < PAGES; page += 3)
			pages[(node + 1) % nodes][page * PAGE + 100 + node] = (unsigned char)round;
		if (round % 50 == 0) {
			void *some = mmap(NULL, 50 * PAGE, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			memset(some, 1, 50 * PAGE);
			munmap(some, 50 * PAGE);
		}
		free(block);
	}
	return NULL;
}

static void before(void)
{
	calls++;
	pthread_mutex_lock(&mutex);
}

static void after(void)
{
	pthread_mutex_unlock(&mutex);
}

static void *forks_often(void *argument)
{
	int node = (int)(intptr_t)argument, value = node, rounds = 25;

	go(node);
	for (int round = 0; round < rounds; round++) {
		value = round;
		char *block = malloc(5000);
		memset(block, round, 5000);
		pid_t child = fork();
		if (child == 0) {
			/* It has the mutex, as its parent had. */
			CHECK(pthread_mutex_trylock(&mutex) == 0);
			CHECK(value == round && block[0] == round && block[4999] == round);
			free(malloc(300000));
			_exit(round);
		}
		value = -1;
		block[0] = -1;
		ends_with(child, round);
		free(block);
	}
	return NULL;
}

/* Several fork at once, while others write everywhere. */
static void forks_while_others_run(void)
{
	pthread_t thread[3 * NODES_MAX];
	int count = 0;

	for (intptr_t node = 0; node < nodes; node++)
		CHECK(pthread_create(&thread[count++], NULL, disturbs, (void *)node) == 0);
	for (intptr_t node = 0; node < nodes; node++)
		CHECK(pthread_create(&thread[count++], NULL, forks_often, (void *)node) == 0);
	CHECK(pthread_create(&thread[count++], NULL, forks_often, (void *)0) == 0);
	for (int one = nodes; one < count; one++)
		pthread_join(thread[one], NULL);
	stop = 1;
	for (int one = 0; one < nodes; one++)
		pthread_join(thread[one], NULL);
	CHECK(calls >= 25 * (nodes + 1));
}

static const char *itself;

static void *one_node(void *argument)
{
	go((int)(intptr_t)argument);
	memory_is_copied();
	children_go_on();
	signals_are_the_child_s();
	children_are_ordinary(itself);
	clones();
	return NULL;
}

/* A daemon, which says something when all others have ended. */
static int daemon_says(const char *file)
{
	int up[2];
	char byte;

	CHECK(pipe(up) == 0);
	if (fork() == 0) {
		setsid();
		if (fork() != 0)
			_exit(0);
		close(up[1]);
		/* The end of who has forked. */
		CHECK(read(up[0], &byte, 1) == 0);
		FILE *to = fopen(file, "w");
		CHECK(to && fputs("still there\n", to) > 0 && fclose(to) == 0);
		_exit(0);
	}
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc > 1)
		return daemon_says(argv[1]);
	itself = argv[0];
	nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 2;
	for (int node = 0; node < nodes; node++)
		pages[node] = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	one_node((void *)0);
	for (intptr_t node = 0; node < nodes; node++) {
		CHECK(pthread_create(&thread, NULL, one_node, (void *)node) == 0);
		pthread_join(thread, NULL);
	}
	for (int round = 0; round < 50; round++) {
		pid_t child = fork();
		if (child == 0)
			_exit(round);
		ends_with(child, round);
	}
	pthread_atfork(before, after, after);
	forks_while_others_run();
	printf("right\n");
	return 0;
}
