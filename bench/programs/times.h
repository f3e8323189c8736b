/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * times.h - a clock and sorted times, for programs that measure single operations.
 */
#ifndef TIMES_H
#define TIMES_H

#include <stdlib.h>
#include <time.h>

/* Nanoseconds. */
static inline long now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static inline int by_size(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;
	return (x > y) - (x < y);
}

/* Sorts in ascending order. */
static inline void sort(long *times, int count)
{
	qsort(times, (size_t)count, sizeof *times, by_size);
}

#endif
