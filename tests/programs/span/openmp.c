/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * openmp.c - programs as people write them with OpenMP: `openmp jacobi|montecarlo|quicksort`.
 * What they print does not depend on who computed what.
 */
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Heat in a plate whose upper edge is hot, until it changes little. */
static void jacobi(void)
{
	enum { SIZE = 96, STEPS = 40 };
	double(*now)[SIZE] = calloc(SIZE, sizeof *now), (*next)[SIZE] = calloc(SIZE, sizeof *next);
	double change = 0, sum = 0;

	for (int at = 0; at < SIZE; at++)
		now[0][at] = next[0][at] = 100;
	for (int step = 0; step < STEPS; step++) {
		change = 0;
#pragma omp parallel for schedule(static) reduction(max : change)
		for (int i = 1; i < SIZE - 1; i++)
			for (int j = 1; j < SIZE - 1; j++) {
				double is = (now[i - 1][j] + now[i + 1][j] + now[i][j - 1] +
					     now[i][j + 1]) / 4;

				change = fmax(change, fabs(is - now[i][j]));
				next[i][j] = is;
			}
		double(*other)[SIZE] = now;
		now = next;
		next = other;
	}
	for (int i = 0; i < SIZE; i++)
		for (int j = 0; j < SIZE; j++)
			sum += now[i][j] * (i % 3 + 1);
	printf("jacobi %.10g %.10g\n", sum, change);
}

static uint64_t mixed(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static void montecarlo(void)
{
	long inside = 0;

#pragma omp parallel for schedule(dynamic, 1000) reduction(+ : inside)
	for (long at = 0; at < 400000; at++) {
		double x = (double)(mixed(2 * at + 1) >> 11) / 0x1p53;
		double y = (double)(mixed(2 * at + 2) >> 11) / 0x1p53;

		inside += x * x + y * y < 1;
	}
	printf("montecarlo %ld\n", inside);
}

static void sort(uint32_t *from, long count)
{
	if (count < 2)
		return;
	uint32_t pivot = from[count / 2];
	long low = 0, high = count - 1;

	while (low <= high) {
		while (from[low] < pivot)
			low++;
		while (from[high] > pivot)
			high--;
		if (low <= high) {
			uint32_t other = from[low];
			from[low++] = from[high];
			from[high--] = other;
		}
	}
#pragma omp task if (count > 10000)
	sort(from, high + 1);
#pragma omp task if (count > 10000)
	sort(from + low, count - low);
#pragma omp taskwait
}

static void quicksort(void)
{
	enum { COUNT = 120000 };
	uint32_t *numbers = malloc(COUNT * sizeof *numbers);
	uint64_t sum = 0;

	for (long at = 0; at < COUNT; at++)
		numbers[at] = (uint32_t)mixed((uint64_t)at);
#pragma omp parallel
#pragma omp single
	sort(numbers, COUNT);
	for (long at = 0; at < COUNT; at++) {
		if (at > 0 && numbers[at - 1] > numbers[at]) {
			printf("quicksort: not sorted at %ld\n", at);
			exit(1);
		}
		sum = sum * 31 + numbers[at];
	}
	printf("quicksort %016lx\n", sum);
}

int main(int argc, char **argv)
{
	const struct {
		const char *name;
		void (*run)(void);
	} programs[] = {{"jacobi", jacobi}, {"montecarlo", montecarlo}, {"quicksort", quicksort}};

	for (size_t at = 0; argc == 2 && at < sizeof programs / sizeof *programs; at++)
		if (strcmp(argv[1], programs[at].name) == 0) {
			programs[at].run();
			return 0;
		}
	fprintf(stderr, "usage: openmp jacobi|montecarlo|quicksort\n");
	return 2;
}
