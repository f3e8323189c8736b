/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * lu.c - A = L U, dense, blocked, without pivoting; L and U replace A. A block's numbers
 * are contiguous, so with the default size each block is one page of 8 KB.
 *
 * Tasks form a grid as square as their number allows; the one at (r,c) owns the blocks
 * (i,j) with i mod grid rows = r, j mod grid columns = c. A matrix whose size is not a
 * multiple of the block's is filled up with the unit matrix.
 *
 * Layout: for each task, in their order, jia_alloc2p on it of all its blocks, sorted by i,
 * then by j. Each task writes its blocks; barrier; for each k:
 *   the owner factors block (k,k); barrier;
 *   owners solve blocks (i,k), then (k,j), all greater than k, which reads (k,k); barrier;
 *   owners subtract the product of (i,k) and (k,j) from (i,j), sorted by i, then by j.
 * A task writes only its own blocks.
 */
#include "program.h"

#include <math.h>

static long n = 1024, size = 32; /* of the matrix and of a block */
static long blocks;              /* in a row */
static long grid_rows, grid_columns;
static double **owned; /* each task's blocks */

static int owner(long i, long j)
{
	return (int)(i % grid_rows * grid_columns + j % grid_columns);
}

/* Returns the number of blocks of a row (column) that belong to column (row) `at` of the
 * grid. */
static long owned_by(long at, long grid)
{
	return (blocks - at + grid - 1) / grid;
}

static double (*block(long i, long j))[]
{
	long before = i / grid_rows * owned_by(j % grid_columns, grid_columns) + j / grid_columns;

	return (void *)(owned[owner(i, j)] + before * size * size);
}

static double element(long i, long j)
{
	if (i >= n || j >= n)
		return i == j;
	return (double)(chance((unsigned long)(i * n + j)) % 1000) / 1000 + (i == j ? (double)n : 0);
}

/* a = L U. */
static void factor(double (*a)[size])
{
	for (long k = 0; k < size; k++)
		for (long i = k + 1; i < size; i++) {
			a[i][k] /= a[k][k];
			for (long j = k + 1; j < size; j++)
				a[i][j] -= a[i][k] * a[k][j];
		}
}

/* a becomes a U^-1. */
static void solve_upper(double (*a)[size], const double (*u)[size])
{
	for (long i = 0; i < size; i++)
		for (long k = 0; k < size; k++) {
			a[i][k] /= u[k][k];
			for (long j = k + 1; j < size; j++)
				a[i][j] -= a[i][k] * u[k][j];
		}
}

/* a becomes L^-1 a. */
static void solve_lower(double (*a)[size], const double (*l)[size])
{
	for (long k = 0; k < size; k++)
		for (long i = k + 1; i < size; i++)
			for (long j = 0; j < size; j++)
				a[i][j] -= l[i][k] * a[k][j];
}

/* a becomes a - l u. */
static void subtract(double (*a)[size], const double (*l)[size], const double (*u)[size])
{
	for (long i = 0; i < size; i++)
		for (long k = 0; k < size; k++)
			for (long j = 0; j < size; j++)
				a[i][j] -= l[i][k] * u[k][j];
}

static void decompose(void)
{
	for (long k = 0; k < blocks; k++) {
		if (owner(k, k) == jiapid)
			factor(block(k, k));
		jia_barrier();
		for (long i = k + 1; i < blocks; i++)
			if (owner(i, k) == jiapid)
				solve_upper(block(i, k), block(k, k));
		for (long j = k + 1; j < blocks; j++)
			if (owner(k, j) == jiapid)
				solve_lower(block(k, j), block(k, k));
		jia_barrier();
		for (long i = k + 1; i < blocks; i++)
			for (long j = k + 1; j < blocks; j++)
				if (owner(i, j) == jiapid)
					subtract(block(i, j), block(i, k), block(k, j));
	}
}

/* With the same, not blocked. */
static void compare(void)
{
	double (*a)[n] = private_memory(sizeof(double[n][n]));

	for (long i = 0; i < n; i++)
		for (long j = 0; j < n; j++)
			a[i][j] = element(i, j);
	for (long k = 0; k < n; k++)
		for (long i = k + 1; i < n; i++) {
			a[i][k] /= a[k][k];
			for (long j = k + 1; j < n; j++)
				a[i][j] -= a[i][k] * a[k][j];
		}
	for (long i = 0; i < n; i++)
		for (long j = 0; j < n; j++) {
			const double (*b)[size] = (void *)block(i / size, j / size);
			double ours = b[i % size][j % size];

			/* A compiler may round the two differently. */
			if (!(fabs(ours - a[i][j]) <= 1e-9 * (1 + fabs(a[i][j]))))
				jia_error("lu: element (%ld,%ld) is %.17g, and %.17g on one task",
					  i, j, ours, a[i][j]);
		}
	printf("lu: the same on one task\n");
	free(a);
}

int main(int argc, char **argv)
{
	const struct option options[] = {
		{"size", &n, 1, 65536, "rows and columns"},
		{"block", &size, 1, 4096, "rows and columns of a block"},
		{0},
	};
	begin(argc, argv, "LU decomposition by blocks, no pivoting", options);

	blocks = (n + size - 1) / size;
	for (grid_rows = 1; (grid_rows + 1) * (grid_rows + 1) <= jiahosts;)
		grid_rows++;
	while (jiahosts % grid_rows != 0)
		grid_rows--;
	grid_columns = jiahosts / grid_rows;

	owned = private_memory((size_t)jiahosts * sizeof *owned);
	for (int task = 0; task < jiahosts; task++) {
		long count = owned_by(task / grid_columns, grid_rows) *
			     owned_by(task % grid_columns, grid_columns);
		if (count > 0)
			owned[task] = (double *)jia_alloc2p(
				(size_t)(count * size * size) * sizeof(double), task);
	}
	for (long i = 0; i < blocks; i++)
		for (long j = 0; j < blocks; j++)
			if (owner(i, j) == jiapid) {
				double (*own)[size] = block(i, j);

				for (long r = 0; r < size; r++)
					for (long c = 0; c < size; c++)
						own[r][c] = element(i * size + r, j * size + c);
			}
	jia_barrier();

	double start = seconds();
	decompose();
	jia_barrier();
	double time = seconds() - start;

	if (jiapid == 0) {
		printf("lu: %ld x %ld, blocks of %ld x %ld, %d tasks: %.3f s\n", n, n, size, size,
		       jiahosts, time);
		if (verify)
			compare();
	}
	jia_exit();
	return 0;
}
