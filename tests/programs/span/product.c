/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * product.c - a matrix product and a sum by OpenMP: tasks, a reduction, a barrier.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 200 };

static long fibonacci(int n)
{
	long a, b;

	if (n < 2)
		return n;
	if (n < 14)
		return fibonacci(n - 1) + fibonacci(n - 2);
#pragma omp task shared(a)
	a = fibonacci(n - 1);
	b = fibonacci(n - 2);
#pragma omp taskwait
	return a + b;
}

int main(void)
{
	double *a = malloc(SIZE * SIZE * sizeof *a), *b = malloc(SIZE * SIZE * sizeof *b);
	double *c = malloc(SIZE * SIZE * sizeof *c), sum = 0;
	long number = 0;

	for (int at = 0; at < SIZE * SIZE; at++) {
		a[at] = at % 7;
		b[at] = at % 5;
	}
#pragma omp parallel
	{
#pragma omp for
		for (int i = 0; i < SIZE; i++)
			for (int j = 0; j < SIZE; j++) {
				double cell = 0;

				for (int k = 0; k < SIZE; k++)
					cell += a[i * SIZE + k] * b[k * SIZE + j];
				c[i * SIZE + j] = cell;
			}
#pragma omp for reduction(+ : sum)
		for (int at = 0; at < SIZE * SIZE; at++)
			sum += c[at] * (at % 3);
#pragma omp single
		number = fibonacci(18);
	}
	printf("%.0f %ld\n", sum, number);
	return 0;
}
