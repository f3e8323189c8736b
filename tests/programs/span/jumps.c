/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * jumps.c - system calls of patched sites: registers, the stack's red zone and bad addresses are as
 * after the kernel's calls, signals interrupt them, and stubs end with their code.
 */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { ROUNDS = 300, REGISTERS = 16 };

typedef uint64_t vector[2];

static _Atomic int over, handled;
static char zeros[64], *nothing;
static int zero, sink;

/* `mov $NUMBER,%eax; syscall` with known vector registers and red zone. */
#define LOAD(n) "movups " #n "*16(%[before]), %%xmm" #n "\n\t"
#define STORE(n) "movups %%xmm" #n ", " #n "*16(%[after])\n\t"
#define CALL(number, a, b, c)                                                                     \
	__asm__ volatile(                                                                         \
		"movq $0x1234, -8(%%rsp)\n\tmovq $0x5678, -128(%%rsp)\n\t"                        \
		LOAD(0) LOAD(1) LOAD(2) LOAD(3) LOAD(4) LOAD(5) LOAD(6) LOAD(7) LOAD(8) LOAD(9)   \
		LOAD(10) LOAD(11) LOAD(12) LOAD(13) LOAD(14) LOAD(15)                             \
		"mov %[nr], %%eax\n\tsyscall\n\t"                                                 \
		STORE(0) STORE(1) STORE(2) STORE(3) STORE(4) STORE(5) STORE(6) STORE(7) STORE(8)  \
		STORE(9) STORE(10) STORE(11) STORE(12) STORE(13) STORE(14) STORE(15)              \
		"mov -8(%%rsp), %[near]\n\tmov -128(%%rsp), %[far]\n\t"                           \
		: "=&a"(result), [near] "=&r"(near), [far] "=&r"(far)                             \
		: [nr] "i"(number), "D"(a), "S"(b), "d"(c), [before] "r"(before), [after] "r"(after) \
		: "rcx", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", \
		  "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")

static void keeps_registers(int round)
{
	vector before[REGISTERS], after[REGISTERS];
	uint64_t near, far;
	long result;
	struct stat stat;

	for (int at = 0; at < REGISTERS; at++)
		before[at][0] = (uint64_t)round * 16 + at, before[at][1] = ~before[at][0];
#define KEEPS(expected, ...)                                                                      \
	do {                                                                                      \
		memset(after, 0, sizeof(after));                                                  \
		CALL(__VA_ARGS__);                                                                \
		CHECK(result == (expected));                                                      \
		CHECK(memcmp(before, after, sizeof(before)) == 0);                                \
		CHECK(near == 0x1234 && far == 0x5678);                                           \
	} while (0)
	KEEPS(getppid(), SYS_getppid, 0, 0, 0);
	KEEPS(sizeof(zeros), SYS_write, sink, zeros, sizeof(zeros));
	KEEPS(sizeof(zeros), SYS_pread64, zero, zeros, sizeof(zeros));
	KEEPS(0, SYS_stat, "/", &stat, 0);
	KEEPS(0, SYS_stat, "/proc/self/exe", &stat, 0);
	KEEPS(0, SYS_stat, ".", &stat, 0);
	KEEPS(-ENOENT, SYS_stat, "/sys/nothing", &stat, 0);
	KEEPS(-EFAULT, SYS_stat, 8, &stat, 0);
	KEEPS(-EFAULT, SYS_stat, nothing, &stat, 0);
	KEEPS(-EFAULT, SYS_pread64, zero, nothing, 1);
	KEEPS(-EFAULT, SYS_clock_nanosleep, 0, 0, nothing);
	KEEPS(-EBADF, SYS_close, -1, 0, 0);
	KEEPS(0, SYS_futex, &handled, 1 /* FUTEX_WAKE */, 1);
}

static void handler(int signal)
{
	(void)signal;
	handled++;
}

static sigset_t mask(void)
{
	sigset_t now;

	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
	return now;
}

static void *calls(void *node)
{
	CHECK(nagaya_migrate((int)(intptr_t)node) == 0 || errno == ENOSYS);
	for (int round = 0; round < ROUNDS && !over; round++) {
		keeps_registers(round);
		/* A signal that came has left no other mask. */
		sigset_t now = mask();
		CHECK(!sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2));
	}
	over = 1;
	return NULL;
}

/* A thread makes calls, while another one interrupts it. */
static void interrupts(int node)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	pthread_t thread;

	over = handled = 0;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, calls, (void *)(intptr_t)node) == 0);
	while (!over) {
		pthread_kill(thread, SIGUSR1);
		pthread_kill(thread, SIGUSR2);
		usleep(500);
	}
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(handled > 0);
}

static int pipes[2];
static _Atomic int waits;

static void *waits_for_a_byte(void *node)
{
	char byte;

	CHECK(nagaya_migrate((int)(intptr_t)node) == 0 || errno == ENOSYS);
	waits = 1;
	if (syscall(SYS_read, pipes[0], &byte, 1) == 1)
		return NULL;
	int error = errno;
	/* The handler comes before the call returns. */
	CHECK(handled > 0);
	return (void *)(long)error;
}

/* Signals end a blocked call, or it is restarted. */
static void blocks(int node, int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
	void *result;
	pthread_t thread;

	waits = handled = 0;
	CHECK(pipe(pipes) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, waits_for_a_byte, (void *)(intptr_t)node) == 0);
	while (!waits)
		usleep(100);
	/* It may be about to read; without SA_RESTART the signal must come later. */
	usleep(100000);
	CHECK(pthread_kill(thread, SIGUSR1) == 0);
	while (!handled)
		usleep(100);
	CHECK(write(pipes[1], "", 1) == 1);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK((long)result == (flags & SA_RESTART ? 0 : EINTR));
	close(pipes[0]), close(pipes[1]);
}

/* Random bytes for memory that other processes may share: it is at the origin. */
static void *fills_shared(void *node)
{
	unsigned char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int sum = 0;

	CHECK(shared != MAP_FAILED);
	CHECK(nagaya_migrate((int)(intptr_t)node) == 0 || errno == ENOSYS);
	CHECK(syscall(SYS_getrandom, shared, 64, 0) == 64);
	for (int at = 0; at < 64; at++)
		sum += shared[at];
	CHECK(sum > 0 && munmap(shared, 4096) == 0);
	return NULL;
}

static void fills(int node)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, fills_shared, (void *)(intptr_t)node) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

/* mov $39,%eax; syscall; ret: getpid */
static const unsigned char code[] = { 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3 };

/* Code that the program has written, and that cannot be read. */
static void runs_code_that_cannot_be_read(void)
{
	unsigned char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	memcpy(at, code, sizeof(code));
	CHECK(mprotect(at, 4096, PROT_EXEC) == 0);
	CHECK(((long (*)(void))at)() == getpid());
	CHECK(munmap(at, 4096) == 0);
}

/* Code that is mapped from a file, and unmapped. */
static void maps_code(int is_patched)
{
	int file = memfd_create("code", 0), pair[2];

	CHECK(file >= 0 && write(file, code, sizeof(code)) == sizeof(code) && pipe(pair) == 0);
	for (int round = 0; round < 20; round++) {
		unsigned char *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
		int32_t distance;

		CHECK(at != MAP_FAILED);
		CHECK(((long (*)(void))at)() == getpid());
		CHECK(!is_patched || at[0] == 0xe9);
		memcpy(&distance, at + 1, sizeof(distance));
		CHECK(munmap(at, 4096) == 0);
		/* The stub is unmapped, too. */
		CHECK(!is_patched || write(pair[1], at + 5 + distance, 1) == -1);
	}
	close(file), close(pair[0]), close(pair[1]);
}

int main(void)
{
	int nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;

	nothing = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(nothing != MAP_FAILED);
	zero = open("/dev/zero", O_RDWR), sink = open("/dev/null", O_RDWR);
	CHECK(zero >= 0 && sink >= 0);
	/* libc's code has been patched. */
	if (nagaya_nodes() > 0)
		CHECK(*(const unsigned char *)(uintptr_t)getppid == 0xe9);
	for (int node = 0; node < nodes; node++) {
		interrupts(node);
		blocks(node, 0);
		blocks(node, SA_RESTART);
		fills(node);
	}
	maps_code(nagaya_nodes() > 0);
	runs_code_that_cannot_be_read();
	printf("right\n");
	return 0;
}
