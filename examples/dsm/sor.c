/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * sor.c - red-black successive over-relaxation: Laplace's equation on a grid of floats
 * whose edge is kept at 1.
 *
 * The grid has `rows` + 2 rows and 2 x `columns` + 2 columns, edges included. Its points
 * are coloured like a chessboard, point (0,0) red. Each row of each colour is a separate
 * array: point (i,j) is number j / 2 of its colour's row i. (JIAJIA's and TreadMarks' SOR
 * count columns in the same way, and the paper's N is this number.)
 *
 * Layout: for i from 0 to rows + 1: red row i, then black row i. jia_alloc2p places both on
 * the task whose share of the rows 1 to `rows` contains it (row 0: the first task, row rows
 * + 1: the last). Each task writes its rows; barrier. In each iteration it computes its red
 * rows from the black ones, from the first to the last; barrier; its black rows from the
 * red ones; barrier. From others it reads only the row above its first one and the row
 * below its last one.
 */
#include "program.h"

#define OMEGA 1.5f

static long rows = 5120, columns = 5120, iterations = 100;

/* Computes row i of one colour from the rows of the other one. `shift`: 0 if the point at k
 * has its other neighbours of the row at k - 1 and k, 1 if at k and k + 1. */
static void relax(float *to, const float *above, const float *beside, const float *below,
	long shift)
{
	const float *left = beside + shift - 1, *right = beside + shift;

	for (long k = 1 - shift; k < columns + 1 - shift; k++) {
		float mean = (above[k] + below[k] + left[k] + right[k]) / 4;
		to[k] += OMEGA * (mean - to[k]);
	}
}

/* All points of one colour, 0 red or 1 black, in rows `first` to `end` - 1. */
static void sweep(float **grid[2], int colour, long first, long end)
{
	float **to = grid[colour], **from = grid[1 - colour];

	for (long i = first; i < end; i++)
		relax(to[i], from[i - 1], from[i], from[i + 1], (i + colour) % 2);
}

static void fill(float **grid[2], long i)
{
	for (int colour = 0; colour < 2; colour++)
		for (long k = 0; k <= columns; k++) {
			long j = 2 * k + (i + colour) % 2;
			bool edge = i == 0 || i == rows + 1 || j == 0 || j == 2 * columns + 1;

			grid[colour][i][k] = edge ? 1 : 0;
		}
}

static void compare(float **grid[2])
{
	float **own[2];

	for (int colour = 0; colour < 2; colour++) {
		own[colour] = private_memory((size_t)(rows + 2) * sizeof(float *));
		for (long i = 0; i <= rows + 1; i++)
			own[colour][i] = private_memory((size_t)(columns + 1) * sizeof(float));
	}
	for (long i = 0; i <= rows + 1; i++)
		fill(own, i);
	for (long iteration = 0; iteration < iterations; iteration++) {
		sweep(own, 0, 1, rows + 1);
		sweep(own, 1, 1, rows + 1);
	}
	for (int colour = 0; colour < 2; colour++)
		for (long i = 0; i <= rows + 1; i++)
			for (long k = 0; k <= columns; k++)
				if (grid[colour][i][k] != own[colour][i][k])
					jia_error("sor: %s point %ld of row %ld is %g, and %g on one task",
						  colour ? "black" : "red", k, i,
						  (double)grid[colour][i][k],
						  (double)own[colour][i][k]);
	printf("sor: the same on one task\n");
}

int main(int argc, char **argv)
{
	const struct option options[] = {
		{"rows", &rows, 1, 1 << 24, "rows"},
		{"columns", &columns, 1, 1 << 24, "columns of each colour"},
		{"iterations", &iterations, 0, 1 << 30, "iterations"},
		{0},
	};
	begin(argc, argv, "red-black successive over-relaxation", options);

	float **grid[2];
	for (int colour = 0; colour < 2; colour++)
		grid[colour] = private_memory((size_t)(rows + 2) * sizeof(float *));
	for (long i = 0; i <= rows + 1; i++) {
		long inner = i == 0 ? 0 : i > rows ? rows - 1 : i - 1;

		for (int colour = 0; colour < 2; colour++)
			grid[colour][i] = (float *)jia_alloc2p(
				(size_t)(columns + 1) * sizeof(float), (int)(inner / share(rows)));
	}

	long first = 1 + share_begin(rows, jiapid), end = 1 + share_end(rows, jiapid);
	for (long i = first; i < end; i++)
		fill(grid, i);
	if (first < end && first == 1)
		fill(grid, 0);
	if (first < end && end == rows + 1)
		fill(grid, rows + 1);
	jia_barrier();

	double start = seconds();
	for (long iteration = 0; iteration < iterations; iteration++)
		for (int colour = 0; colour < 2; colour++) {
			sweep(grid, colour, first, end);
			jia_barrier();
		}
	double time = seconds() - start;

	if (jiapid == 0) {
		printf("sor: %ld rows, 2 x %ld columns, %ld iterations, %d tasks: %.3f s\n", rows,
		       columns, iterations, jiahosts, time);
		if (verify)
			compare(grid);
	}
	jia_exit();
	return 0;
}
