/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * mm.c - C = A B, matrices of doubles. B is stored transposed, so that rows meet rows.
 *
 * Layout: A, B transposed and C, in this order, each jia_alloc2 with one band of rows for
 * each task. Each task writes the rows of its bands of A and B; barrier. For each row of B
 * transposed, from the first to the last, it multiplies all rows of its band of A with it
 * and writes its band of C; barrier. So each task fetches every page of the other tasks'
 * bands of B once, in the order of their addresses, and nothing else.
 */
#include "program.h"

static long n = 2048;

static double element(long matrix, long row, long column)
{
	return (double)(chance((unsigned long)((matrix * n + row) * n + column)) % 1000) / 1000;
}

/* Eight sums, which the compiler can keep in vector registers. */
static double dot(const double *x, const double *y)
{
	double sums[8] = {0}, sum = 0;
	long k = 0;

	for (; k + 8 <= n; k += 8)
		for (int of = 0; of < 8; of++)
			sums[of] += x[k + of] * y[k + of];
	for (; k < n; k++)
		sum += x[k] * y[k];
	for (int of = 0; of < 8; of++)
		sum += sums[of];
	return sum;
}

static void compare(const double (*c)[n])
{
	double (*a)[n] = private_memory(sizeof(double[n][n]));
	double (*b)[n] = private_memory(sizeof(double[n][n]));

	for (long i = 0; i < n; i++)
		for (long j = 0; j < n; j++) {
			a[i][j] = element(0, i, j);
			b[i][j] = element(1, i, j);
		}
	for (long j = 0; j < n; j++)
		for (long i = 0; i < n; i++)
			if (c[i][j] != dot(a[i], b[j]))
				jia_error("mm: C[%ld][%ld] is %.17g, and %.17g on one task", i, j,
					  c[i][j], dot(a[i], b[j]));
	printf("mm: the same on one task\n");
	free(a);
	free(b);
}

int main(int argc, char **argv)
{
	const struct option options[] = {
		{"size", &n, 1, 65536, "rows and columns"},
		{0},
	};
	begin(argc, argv, "matrix product", options);

	long first = share_begin(n, jiapid), end = share_end(n, jiapid);
	size_t matrix = sizeof(double[n][n]), band = (size_t)share(n) * sizeof(double[n]);
	double (*a)[n] = (void *)jia_alloc2(matrix, band);
	double (*b)[n] = (void *)jia_alloc2(matrix, band);
	double (*c)[n] = (void *)jia_alloc2(matrix, band);

	for (long i = first; i < end; i++)
		for (long j = 0; j < n; j++) {
			a[i][j] = element(0, i, j);
			b[i][j] = element(1, i, j);
		}
	jia_barrier();

	double start = seconds();
	for (long j = 0; j < n; j++)
		for (long i = first; i < end; i++)
			c[i][j] = dot(a[i], b[j]);
	jia_barrier();
	double time = seconds() - start;

	if (jiapid == 0) {
		printf("mm: %ld x %ld, %d tasks: %.3f s\n", n, n, jiahosts, time);
		if (verify)
			compare(c);
	}
	jia_exit();
	return 0;
}
