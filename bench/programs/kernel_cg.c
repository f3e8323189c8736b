/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * kernel_cg.c - conjugate gradients on a grid, whose messages are exchanges of planes with the
 * neighbours (MPI_Isend, MPI_Irecv) and sums of one number (MPI_Allreduce).
 *
 *	kernel_cg SIDE PLANES ITERATIONS
 *
 * Each rank has PLANES planes of SIDE^2 points; the ranks' parts lie above each other. The matrix
 * couples a point with its 26 neighbours: 26 on the diagonal, -1 elsewhere.
 *
 * The right-hand side belongs to a solution of ones, from which the result must not be far away:
 * the error after ITERATIONS must be below a hundredth of that at the start. It is computed without
 * messages, so a wrong exchange changes the result.
 */
#include "kernel.h"

#include <math.h>

static long side, planes, row; /* a row has a point on each side that is always zero */
static double *x, *b, *residual, *direction, *product;

static double *plane_of(double *vector, long z)
{
	return vector + z * row * row;
}

/* Exchanges the outer planes with the ranks below and above. */
static void exchange(double *vector)
{
	MPI_Request requests[4];
	int below = rank > 0 ? rank - 1 : MPI_PROC_NULL;
	int above = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL, points = (int)(row * row);
	MESSAGE(MPI_Irecv(plane_of(vector, 0), points, MPI_DOUBLE, below, 1, MPI_COMM_WORLD,
			  &requests[0]));
	MESSAGE(MPI_Irecv(plane_of(vector, planes + 1), points, MPI_DOUBLE, above, 2, MPI_COMM_WORLD,
			  &requests[1]));
	MESSAGE(MPI_Isend(plane_of(vector, 1), points, MPI_DOUBLE, below, 2, MPI_COMM_WORLD,
			  &requests[2]));
	MESSAGE(MPI_Isend(plane_of(vector, planes), points, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
			  &requests[3]));
	MESSAGE(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
}

/* Multiplies with the matrix: 27 times the point, less the sum of the 27 around it. */
static void multiply(double *vector, double *to)
{
	exchange(vector);
	for (long z = 1; z <= planes; z++)
		for (long y = 1; y <= side; y++) {
			const double *lines[9];
			for (long at = 0; at < 9; at++)
				lines[at] = plane_of(vector, z + at / 3 - 1) + (y + at % 3 - 1) * row;
			double *out = plane_of(to, z) + y * row;
			for (long i = 1; i <= side; i++) {
				double sum = 0;
				for (int at = 0; at < 9; at++)
					sum += lines[at][i - 1] + lines[at][i] + lines[at][i + 1];
				out[i] = 27 * lines[4][i] - sum;
			}
		}
}

static double dot(const double *a, const double *of)
{
	double sum = 0, all;
	for (long at = row * row; at < (planes + 1) * row * row; at++)
		sum += a[at] * of[at];
	MESSAGE(MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
	return all;
}

/* Sets to += factor * of. */
static void add(double *to, double factor, const double *of)
{
	for (long at = row * row; at < (planes + 1) * row * row; at++)
		to[at] += factor * of[at];
}

/* Returns the number of points at `at` and beside it in a direction with `count` points, from 1. */
static double near(long at, long count)
{
	return 1 + (at > 1) + (at < count);
}

/* The product with a vector of ones, computed without messages. */
static void set_right_hand_side(void)
{
	for (long z = 1; z <= planes; z++)
		for (long y = 1; y <= side; y++)
			for (long i = 1; i <= side; i++)
				plane_of(b, z)[y * row + i] =
					27 - near(rank * planes + z, planes * ranks) * near(y, side) *
						     near(i, side);
}

/* Starts from zero; returns the residual's square. */
static double solve(long iterations)
{
	size_t bytes = (size_t)((planes + 2) * row * row) * sizeof *x;
	memset(x, 0, bytes);
	memcpy(residual, b, bytes);
	memcpy(direction, b, bytes);
	double square = dot(residual, residual);
	for (long iteration = 0; iteration < iterations; iteration++) {
		multiply(direction, product);
		double step = square / dot(direction, product);
		add(x, step, direction);
		add(residual, -step, product);
		double next = dot(residual, residual), factor = next / square;
		for (long at = row * row; at < (planes + 1) * row * row; at++)
			direction[at] = residual[at] + factor * direction[at];
		square = next;
	}
	return square;
}

/* Returns the largest distance of the solution from one. */
static double error(void)
{
	double mine = 0, all;
	for (long z = 1; z <= planes; z++)
		for (long y = 1; y <= side; y++)
			for (long i = 1; i <= side; i++)
				mine = fmax(mine, fabs(plane_of(x, z)[y * row + i] - 1));
	MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all;
}

int main(int argc, char **argv)
{
	long numbers[3];
	start(argc, argv, "kernel_cg SIDE PLANES ITERATIONS", numbers, 3);
	side = numbers[0], planes = numbers[1], row = side + 2;
	size_t bytes = (size_t)((planes + 2) * row * row) * sizeof *x;
	x = room(bytes), b = room(bytes), residual = room(bytes);
	direction = room(bytes), product = room(bytes);
	set_right_hand_side();
	solve(2); /* touches all memory */
	begin();
	double square = solve(numbers[2]);
	report(MPI_Wtime() - began, in_messages);
	double off = error();
	if (!(off < 0.01))
		fail("the solution is off by %g", off);
	if (rank == 0)
		printf("result residual %.3e, error %.3e\n", sqrt(square), off);
	MPI_Finalize();
	return 0;
}
