/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * matrix.c - the product of two square matrices, with OpenMP.
 *
 *	matrix ROWS
 *
 * The first thread fills both, as in most programs; OpenMP distributes the rows. Prints a sum over
 * the product that is exact: all values are small whole numbers.
 */
#include <stdio.h>
#include <stdlib.h>

/* Rows of `b` per block, so that a block stays in the cache. */
enum { BLOCK = 64 };

int main(int argc, char **argv)
{
	long n = argc == 2 ? atol(argv[1]) : 0;
	double *a = calloc((size_t)(n * n), sizeof *a), *b = calloc((size_t)(n * n), sizeof *b);
	double *c = calloc((size_t)(n * n), sizeof *c), sum = 0;

	if (n < 1 || a == NULL || b == NULL || c == NULL) {
		fprintf(stderr, "usage: matrix ROWS\n");
		return 2;
	}
	for (long at = 0; at < n * n; at++) {
		a[at] = (double)(at * 7 % 11);
		b[at] = (double)(at * 5 % 13);
	}
#pragma omp parallel for schedule(static)
	for (long row = 0; row < n; row++)
		for (long from = 0; from < n; from += BLOCK)
			for (long k = from; k < from + BLOCK && k < n; k++)
				for (long column = 0; column < n; column++)
					c[row * n + column] += a[row * n + k] * b[k * n + column];
	for (long at = 0; at < n * n; at++)
		sum += c[at] * (double)(1 + at % 3);
	printf("%.0f\n", sum);
	return 0;
}
