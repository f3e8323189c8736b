/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * syscall.c - the cost of a system call, by call site.
 *
 *     syscall REPETITIONS
 *
 * Makes two system calls, each from two sites, alternately. Prints a line for each site:
 *
 *     SITE MEDIAN_NS MIN_NS MAX_NS       (per call, over the repetitions)
 *
 *     getppid-plain  the cheapest call, by inline assembly with the number in a register
 *                    that was loaded long before: no pattern that Nagaya patches, so in a
 *                    task this goes straight to the kernel
 *     getppid-libc   by libc's syscall(): in a task this site is patched, whatever the call
 *     openat-plain   a call that fails early (descriptor -1), by inline assembly
 *     openat-libc    by libc's openat(): patched, and the gate reads the path before it passes
 *                    the call on
 *
 * In an ordinary process the sites of a call differ by the few instructions of libc. In a task
 * the gate is added.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 2000, REPETITIONS_MAX = 10000, SITES = 4 };

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The assembly never sees the number as a constant, and NOPs separate the instruction from any
 * load of it. */
static inline long plain(long number, long a, const char *b, long c)
{
	long result = number;
	__asm__ volatile("nop; nop; nop; nop; nop; nop; nop; syscall"
	                 : "+a"(result)
	                 : "D"(a), "S"(b), "d"(c)
	                 : "rcx", "r11", "memory");
	return result;
}

static volatile long getppid_number = SYS_getppid, openat_number = SYS_openat;

static void getppid_plain(void)
{
	long number = getppid_number;
	for (int i = 0; i < CALLS; i++)
		plain(number, 0, NULL, 0);
}

static void getppid_libc(void)
{
	long number = getppid_number;
	for (int i = 0; i < CALLS; i++)
		syscall(number);
}

static void openat_plain(void)
{
	long number = openat_number;
	for (int i = 0; i < CALLS; i++)
		plain(number, -1, "file", O_RDONLY);
}

static void openat_libc(void)
{
	for (int i = 0; i < CALLS; i++)
		openat(-1, "file", O_RDONLY);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static const char *const names[SITES] = { "getppid-plain", "getppid-libc", "openat-plain",
		                                      "openat-libc" };
	static void (*const sites[SITES])(void) = { getppid_plain, getppid_libc, openat_plain,
		                                        openat_libc };
	static double ns[SITES][REPETITIONS_MAX];

	int repetitions = argc > 1 ? atoi(argv[1]) : 200;
	if (repetitions < 1 || repetitions > REPETITIONS_MAX) {
		fprintf(stderr, "syscall: repetitions must be 1 to %d\n", REPETITIONS_MAX);
		return 1;
	}
	for (int r = -5; r < repetitions; r++) /* the first five warm up */
		for (int s = 0; s < SITES; s++) {
			int64_t begin = now_ns();
			sites[s]();
			double each = (double)(now_ns() - begin) / CALLS;
			if (r >= 0)
				ns[s][r] = each;
		}
	for (int s = 0; s < SITES; s++) {
		qsort(ns[s], (size_t)repetitions, sizeof(double), by_value);
		printf("%s %.2f %.2f %.2f\n", names[s], ns[s][repetitions / 2], ns[s][0],
		       ns[s][repetitions - 1]);
	}
	return 0;
}
