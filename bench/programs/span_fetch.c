/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * span_fetch.c - the fetch of a page that one thread has written, when a thread on another node
 * reads it: as in memop_fetch.c, by `nagaya span --nodes 2 --place spread`.
 *
 *	span_fetch SAMPLES
 *
 * Prints a line: span, fetch, number of samples, and their median, 99th percentile and maximum in
 * ns.
 */
#define _GNU_SOURCE
#include "times.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static int samples;
static char *region;
static long *times;

static void *reads(void *none)
{
	/* Fetches the pages of the results before the measurement. */
	for (int sample = 0; sample < samples; sample++)
		times[sample] = now_ns();
	for (int sample = 0; sample < samples; sample++) {
		volatile char *at = region + (size_t)((long)sample * 7919 % samples) * PAGE;
		long begin = now_ns();

		char value = *at;
		times[sample] = now_ns() - begin;
		if (value != 'o')
			exit(1);
	}
	return none;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	samples = argc == 2 ? atoi(argv[1]) : 0;
	if (samples < 1) {
		fprintf(stderr, "usage: span_fetch SAMPLES\n");
		return 2;
	}
	region = mmap(NULL, (size_t)samples * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	times = calloc((size_t)samples, sizeof *times);
	if (region == MAP_FAILED || !times)
		return 1;
	memset(region, 'o', (size_t)samples * PAGE);
	if (pthread_create(&thread, NULL, reads, NULL) || pthread_join(thread, NULL))
		return 1;
	sort(times, samples);
	printf("span fetch %d %ld %ld %ld\n", samples, times[samples / 2],
	       times[(long)samples * 99 / 100], times[samples - 1]);
	return 0;
}
