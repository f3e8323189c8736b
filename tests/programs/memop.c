/* Memory operations on another process, a case at a time: `memop CASE`. */
#include "check.h"

#include <linux/prctl.h>
#include <memop.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

#define PAGE 4096
/* Where nothing is. */
#define FREE ((char *)0x500000000000)

/* Data shared by parent and child. */
static struct {
	_Atomic int step;
	_Atomic long count, sum;
	_Atomic(char *) place;
} *shared;

static void until(int step)
{
	while (shared->step < step)
		sched_yield();
}

/* Runs `body` in a child. */
static pid_t child(void (*body)(void))
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body();
		_exit(0);
	}
	return pid;
}

static void ends_well(pid_t pid)
{
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

static void ends_by(pid_t pid, int signal)
{
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status & 0x7f, signal);
}

/* The state of a process, as in /proc. */
static char state(pid_t pid)
{
	char name[64], line[256], *end;
	snprintf(name, sizeof name, "/proc/%d/stat", pid);
	FILE *file = fopen(name, "r");
	CHECK(file && fgets(line, sizeof line, file));
	fclose(file);
	end = strrchr(line, ')');
	return end[2];
}

/* --- pages, for any protection --- */

static void some_pages(void)
{
	char *at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int page = 0; page < 3; page++)
		memset(at + page * PAGE, 'a' + page, PAGE);
	CHECK(mprotect(at + PAGE, PAGE, PROT_READ) == 0);
	CHECK(mprotect(at + 2 * PAGE, PAGE, PROT_NONE) == 0);
	CHECK(munmap(at + 3 * PAGE, PAGE) == 0);
	shared->place = at;
	shared->step = 1;
	until(2);
	CHECK(mprotect(at, 3 * PAGE, PROT_READ) == 0);
	for (int page = 0; page < 3; page++)
		for (int byte = 0; byte < PAGE; byte++)
			CHECK_EQ(at[page * PAGE + byte], 'x' + page);
}

static void pages(void)
{
	char data[PAGE];
	pid_t pid = child(some_pages);
	until(1);
	char *at = shared->place;
	for (int page = 0; page < 3; page++) {
		memset(data, 0, PAGE);
		CHECK_EQ(memop_peekpage(pid, at + page * PAGE, data), 0);
		CHECK(data[0] == 'a' + page && data[PAGE - 1] == 'a' + page);
		memset(data, 'x' + page, PAGE);
		CHECK_EQ(memop_pokepage(pid, at + page * PAGE, data), 0);
	}
	CHECK_FAILS(memop_peekpage(pid, at + 3 * PAGE, data), EFAULT);
	CHECK_FAILS(memop_pokepage(pid, at + 3 * PAGE, data), EFAULT);
	CHECK_FAILS(memop_peekpage(pid, at + 8, data), EINVAL);
	CHECK_FAILS(memop_pokepage(pid, at + 8, data), EINVAL);
	CHECK_FAILS(memop_peekpage(pid, at, NULL), EFAULT);
	shared->step = 2;
	ends_well(pid);
	CHECK_FAILS(memop_peekpage(pid, at, data), ESRCH);
	CHECK_FAILS(memop_pokepage(pid, at, data), ESRCH);
	CHECK_FAILS(memop_peekpage(0, at, data), ESRCH);
	CHECK_FAILS(memop_peekpage(-1, at, data), ESRCH);
}

/* --- mmap, mprotect, munmap of a process that computes --- */

static void uses(void)
{
	shared->step = 1;
	until(2);
	FREE[PAGE] = 'w';
	shared->step = 3;
	until(4);
	FREE[PAGE] = 'x'; /* ends here */
}

static void maps(void)
{
	pid_t pid = child(uses);
	char data[PAGE];
	until(1);
	CHECK_EQ(memop_mmap(pid, FREE, 3 * PAGE), 0);
	CHECK_FAILS(memop_mmap(pid, FREE + PAGE, PAGE), EEXIST);
	CHECK_EQ(memop_peekpage(pid, FREE + PAGE, data), 0);
	CHECK_EQ(data[0], 0);
	CHECK_EQ(memop_mprotect(pid, FREE + PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
	shared->step = 2;
	until(3);
	CHECK_EQ(memop_peekpage(pid, FREE + PAGE, data), 0);
	CHECK_EQ(data[0], 'w');
	CHECK_EQ(memop_munmap(pid, FREE + PAGE, PAGE), 0);
	CHECK_FAILS(memop_peekpage(pid, FREE + PAGE, data), EFAULT);
	CHECK_EQ(memop_peekpage(pid, FREE, data), 0);
	CHECK_FAILS(memop_mprotect(pid, FREE + PAGE, PAGE, PROT_READ), ENOMEM);
	CHECK_FAILS(memop_mprotect(pid, FREE, PAGE - 1, PROT_READ), EINVAL);
	CHECK_FAILS(memop_mmap(pid, FREE + 8, PAGE), EINVAL);
	CHECK_FAILS(memop_munmap(pid, FREE, 0), EINVAL);
	shared->step = 4;
	ends_by(pid, SIGSEGV);
	CHECK_FAILS(memop_mmap(pid, FREE, PAGE), ESRCH);
}

/* --- what it was doing goes on --- */

static int ends[2];

static void reads_and_sleeps(void)
{
	char byte;
	shared->step = 1;
	CHECK_EQ(read(ends[0], &byte, 1), 1);
	CHECK_EQ(byte, 'r');
	struct timespec before, after, second = {1, 0};
	clock_gettime(CLOCK_MONOTONIC, &before);
	shared->step = 2;
	CHECK_EQ(nanosleep(&second, NULL), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	long ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
	CHECK(ms >= 1000 && ms < 3000);
}

static void calls_go_on(void)
{
	CHECK_EQ(pipe(ends), 0);
	pid_t pid = child(reads_and_sleeps);
	for (int step = 1; step <= 2; step++) {
		until(step);
		while (state(pid) != 'S')
			usleep(1000);
		for (int time = 0; time < 100; time++) {
			CHECK_EQ(memop_mmap(pid, FREE, PAGE), 0);
			CHECK_EQ(memop_munmap(pid, FREE, PAGE), 0);
		}
		if (step == 1)
			CHECK_EQ(write(ends[1], "r", 1), 1);
	}
	ends_well(pid);
}

static double turns(long rounds)
{
	double sum = 0;
	unsigned long mix = 1;
	for (long round = 1; round <= rounds; round++) {
		mix = mix * 6364136223846793005u + 1442695040888963407u;
		sum += 1.0 / (double)(mix >> 33 | 1);
	}
	return sum + (double)(mix >> 40);
}

static void computes(void)
{
	double alone = turns(1000000);
	shared->step = 1;
	while (shared->step < 2) {
		CHECK(turns(1000000) == alone);
		shared->count++;
	}
}

static void registers_are_kept(void)
{
	pid_t pid = child(computes);
	until(1);
	for (int time = 0; time < 1000 || shared->count < 20; time++) {
		CHECK_EQ(memop_mmap(pid, FREE, PAGE), 0);
		CHECK_EQ(memop_munmap(pid, FREE, PAGE), 0);
	}
	shared->step = 2;
	ends_well(pid);
}

static void stays_stopped(void)
{
	pid_t pid = child(computes);
	until(1);
	kill(pid, SIGSTOP);
	while (state(pid) != 'T')
		usleep(1000);
	CHECK_EQ(memop_mmap(pid, FREE, PAGE), 0);
	while (state(pid) != 'T')
		usleep(1000);
	long before = shared->count;
	usleep(100000);
	CHECK_EQ(shared->count, before);
	CHECK_EQ(state(pid), 'T');
	kill(pid, SIGCONT);
	while (shared->count == before)
		usleep(1000);
	shared->step = 2;
	ends_well(pid);
}

static void counts(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	shared->count++;
	shared->sum += info->si_value.sival_int;
}

static void is_signalled(void)
{
	struct sigaction action = {.sa_sigaction = counts, .sa_flags = SA_SIGINFO};
	sigaction(SIGRTMIN, &action, NULL);
	shared->step = 1;
	until(2);
}

static void *signals(void *pid)
{
	for (int time = 0; time < 2000; time++) {
		while (sigqueue(*(pid_t *)pid, SIGRTMIN, (union sigval){.sival_int = time}) != 0)
			CHECK_EQ(errno, EAGAIN);
		if (time % 16 == 0)
			usleep(100);
	}
	return NULL;
}

static void signals_come(void)
{
	pthread_t thread;
	pid_t pid = child(is_signalled);
	until(1);
	pthread_create(&thread, NULL, signals, &pid);
	for (int time = 0; time < 1000; time++) {
		CHECK_EQ(memop_mmap(pid, FREE, PAGE), 0);
		CHECK_EQ(memop_munmap(pid, FREE, PAGE), 0);
	}
	pthread_join(thread, NULL);
	while (shared->count < 2000)
		sched_yield();
	shared->step = 2;
	ends_well(pid);
	CHECK_EQ(shared->count, 2000);
	/* Each arrived with its data. */
	CHECK_EQ(shared->sum, 2000 * 1999 / 2);
}

/* --- processes that are not like others --- */

static void *lives_on(void *nothing)
{
	shared->step = 1;
	until(2);
	FREE[0] = 'l';
	_exit(0);
	return nothing;
}

static void first_ends(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, lives_on, NULL);
	pthread_exit(NULL);
}

static void first_thread_has_ended(void)
{
	pid_t pid = child(first_ends);
	until(1);
	while (state(pid) != 'Z')
		usleep(1000);
	CHECK_EQ(memop_mmap(pid, FREE, PAGE), 0);
	CHECK_EQ(memop_mprotect(pid, FREE, PAGE, PROT_READ | PROT_WRITE), 0);
	char data[PAGE] = "page";
	CHECK_EQ(memop_pokepage(pid, FREE, data), 0);
	data[0] = 0;
	CHECK_EQ(memop_peekpage(pid, FREE, data), 0);
	CHECK_EQ(data[0], 'p');
	shared->step = 2;
	ends_well(pid);
}

static volatile char selector = SYSCALL_DISPATCH_FILTER_ALLOW;

static void catches(void)
{
	CHECK_EQ(prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector), 0);
	selector = SYSCALL_DISPATCH_FILTER_BLOCK;
	shared->step = 1;
	while (shared->step < 2)
		;
	FREE[0] = 'c';
	/* Its own calls are caught as before. */
	getppid();
}

static void its_calls_are_caught(void)
{
	pid_t pid = child(catches);
	until(1);
	CHECK_EQ(memop_mmap(pid, FREE, PAGE), 0);
	CHECK_EQ(memop_mprotect(pid, FREE, PAGE, PROT_READ | PROT_WRITE), 0);
	shared->step = 2;
	ends_by(pid, SIGSYS);
}

/* --- the control process of the paper --- */

static void touches(void)
{
	char *at = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared->place = at;
	shared->step = 1;
	until(2);
	for (int page = 0; page < 16; page++) {
		volatile char *first = at + page * PAGE;
		CHECK_EQ(*first, 'A' + page);
		*first = 'z'; /* again not allowed */
	}
}

/* It traces the process, sees accesses that are not allowed, and brings pages. */
static void tracer(int attach)
{
	char data[PAGE];
	int status, faults = 0;
	pid_t pid = child(touches);
	until(1);
	if (attach) {
		CHECK_EQ(ptrace(PTRACE_ATTACH, pid, 0, 0), 0);
		CHECK_EQ(waitpid(pid, &status, __WALL), pid);
		CHECK_EQ(ptrace(PTRACE_CONT, pid, 0, 0), 0);
	} else {
		CHECK_EQ(ptrace(PTRACE_SEIZE, pid, 0, 0), 0);
	}
	shared->step = 2;
	for (;; faults++) {
		siginfo_t info;
		CHECK_EQ(waitpid(pid, &status, __WALL), pid);
		if (!WIFSTOPPED(status))
			break;
		CHECK_EQ(WSTOPSIG(status), SIGSEGV);
		CHECK_EQ(ptrace(PTRACE_GETSIGINFO, pid, 0, &info), 0);
		char *page = (char *)((uintptr_t)info.si_addr & -PAGE);
		int is_first = faults % 2 == 0;
		if (is_first) {
			memset(data, 'A' + faults / 2, PAGE);
			CHECK_EQ(memop_pokepage(pid, page, data), 0);
		}
		int prot = is_first ? PROT_READ : PROT_READ | PROT_WRITE;
		CHECK_EQ(memop_mprotect(pid, page, PAGE, prot), 0);
		CHECK_EQ(state(pid), 't');
		CHECK_EQ(ptrace(PTRACE_CONT, pid, 0, 0), 0);
	}
	CHECK_EQ(status, 0);
	CHECK_EQ(faults, 32);
}

static void paper(void)
{
	tracer(0);
}

static void attached(void)
{
	tracer(1);
}

/* A call that was interrupted for its tracer's sake goes on, too. */
static void held_in_a_call(void)
{
	int status;
	CHECK_EQ(pipe(ends), 0);
	pid_t pid = child(reads_and_sleeps);
	until(1);
	while (state(pid) != 'S')
		usleep(1000);
	CHECK_EQ(ptrace(PTRACE_SEIZE, pid, 0, 0), 0);
	CHECK_EQ(ptrace(PTRACE_INTERRUPT, pid, 0, 0), 0);
	CHECK_EQ(waitpid(pid, &status, __WALL), pid);
	CHECK_EQ(status >> 16, PTRACE_EVENT_STOP);
	CHECK_EQ(memop_mmap(pid, FREE, PAGE), 0);
	CHECK_EQ(state(pid), 't');
	CHECK_EQ(ptrace(PTRACE_CONT, pid, 0, 0), 0);
	usleep(10000);
	CHECK_EQ(write(ends[1], "r", 1), 1);
	ends_well(pid);
}

/* --- ends --- */

static void lasts(void)
{
	shared->step = 1;
	for (;;)
		pause();
}

static void *kills(void *pid)
{
	usleep(rand() % 2000);
	kill(*(pid_t *)pid, SIGKILL);
	return NULL;
}

static void killed_meanwhile(void)
{
	for (int time = 0; time < 200; time++) {
		pthread_t thread;
		shared->step = 0;
		pid_t pid = child(lasts);
		until(1);
		pthread_create(&thread, NULL, kills, &pid);
		int error = 0;
		while (error == 0)
			if (memop_mmap(pid, FREE, PAGE) != 0 || memop_munmap(pid, FREE, PAGE) != 0)
				error = errno;
		CHECK_EQ(error, ESRCH);
		pthread_join(thread, NULL);
		/* The tracer of a process gets the notice of its end, too. */
		waitpid(pid, NULL, 0);
	}
}

/* Ends with its parent: another process with the same PID may not kill it. */
static void lasts_as_long(void)
{
	char byte;
	close(ends[1]);
	shared->step = 1;
	CHECK_EQ(read(ends[0], &byte, 1), 0);
}

static void somebody_else_s(void)
{
	char data[PAGE];
	CHECK_EQ(pipe(ends), 0);
	pid_t pid = child(lasts_as_long);
	until(1);
	CHECK_EQ(setresuid(65534, 65534, 65534), 0);
	/* The place of the error comes first. (An array on the stack may begin with a page.) */
	CHECK_FAILS(memop_peekpage(pid, (char *)FREE + 1, data), EINVAL);
	CHECK_FAILS(memop_mmap(pid, FREE, PAGE), EPERM);
	CHECK_FAILS(memop_peekpage(pid, FREE, data), EPERM);
	CHECK_FAILS(memop_pokepage(pid, FREE, data), EPERM);
}

static void traced_by_another(void)
{
	int ready[2];
	CHECK_EQ(pipe(ready), 0);
	pid_t pid = child(lasts);
	until(1);
	pid_t other = fork();
	if (other == 0) {
		CHECK_EQ(ptrace(PTRACE_SEIZE, pid, 0, 0), 0);
		CHECK_EQ(write(ready[1], "r", 1), 1);
		for (;;)
			pause();
	}
	char byte;
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	CHECK_FAILS(memop_mmap(pid, FREE, PAGE), EPERM);
	kill(other, SIGKILL);
	CHECK_EQ(waitpid(other, NULL, 0), other);
	CHECK_EQ(memop_mmap(pid, FREE, PAGE), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#define CASE(name) {#name, name}
static const struct check_case cases[] = {
	CASE(pages),
	CASE(maps),
	CASE(calls_go_on),
	CASE(registers_are_kept),
	CASE(stays_stopped),
	CASE(signals_come),
	CASE(first_thread_has_ended),
	CASE(its_calls_are_caught),
	CASE(paper),
	CASE(attached),
	CASE(held_in_a_call),
	CASE(killed_meanwhile),
	CASE(somebody_else_s),
	CASE(traced_by_another),
	{NULL, NULL},
};

int main(int count, char **words)
{
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return check_main(cases, count, words);
}
