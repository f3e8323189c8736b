/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * syscall.c - what one system call costs, by the site that makes it.
 *
 *     syscall REPETITIONS
 *
 * Three sites make the same call, getppid, in turns; for each one line is printed:
 *
 *     SITE MEDIAN_NS MIN_NS MAX_NS       (per call, over the repetitions)
 *
 *     plain    inline assembly, with the number in a register that was loaded long before:
 *              no pattern that Nagaya patches, so in a task this goes straight to the kernel
 *     syscall  libc's syscall(SYS_getppid): in a task, patched, passes through the gate
 *     getppid  libc's getppid(): the other patched form (mov $NR,%eax; syscall)
 *
 * Run as an ordinary process the differences between the sites are those of libc's own
 * few instructions; run as a task, the gate comes on top.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 2000, REPETITIONS_MAX = 10000, SITES = 3 };

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The assembly never sees the number as a constant, and NOPs keep the instruction away
 * from whatever would load it. */
static void plain_site(long number)
{
	for (int i = 0; i < CALLS; i++) {
		long result = number;
		__asm__ volatile("nop; nop; nop; nop; nop; nop; nop; syscall"
		                 : "+a"(result)
		                 :
		                 : "rcx", "r11", "memory");
	}
}

static void syscall_site(long number)
{
	for (int i = 0; i < CALLS; i++)
		syscall(number);
}

static void getppid_site(long number)
{
	(void)number;
	for (int i = 0; i < CALLS; i++)
		getppid();
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static const char *const names[SITES] = { "plain", "syscall", "getppid" };
	static void (*const sites[SITES])(long) = { plain_site, syscall_site, getppid_site };
	static double ns[SITES][REPETITIONS_MAX];
	static volatile long number = SYS_getppid;

	int repetitions = argc > 1 ? atoi(argv[1]) : 200;
	if (repetitions < 1 || repetitions > REPETITIONS_MAX) {
		fprintf(stderr, "syscall: repetitions must be 1 to %d\n", REPETITIONS_MAX);
		return 1;
	}
	for (int r = -5; r < repetitions; r++) /* the first five warm up */
		for (int s = 0; s < SITES; s++) {
			int64_t begin = now_ns();
			sites[s](number);
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
