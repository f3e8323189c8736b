/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * kernel_fft.c - a distributed 3D FFT, whose messages are MPI_Alltoall.
 *
 *	kernel_fft SIDE ITERATIONS
 *
 * A cube of SIDE^3 complex numbers is divided into slabs of planes. An iteration transforms it
 * forward and back: each direction transforms two dimensions in place, exchanges blocks, so that
 * the third dimension becomes local, and transforms that. FFTW does the one-dimensional part.
 * SIDE must be a multiple of the number of ranks.
 *
 * The cube is a sum of two plane waves, so its spectrum has two numbers. An iteration before the
 * measured ones checks that. At the end the cube must be as it was.
 */
#include "kernel.h"

#include <complex.h>
#include <fftw3.h>
#include <math.h>

typedef double complex number;

static long side, planes; /* planes of a rank, before and after the exchange */
static number *cube, *turned, *packed, *arrived;
static fftw_plan planes_forward, planes_back, lines_forward, lines_back;

/* Returns an element of the cube: two plane waves. */
static number element(long z, long y, long x)
{
	double turn = 2 * acos(-1.0) / (double)side;
	return cexp(I * turn * (double)(3 * x + 2 * y + z)) + 0.5 * cexp(I * turn * (double)(x + 5 * z));
}

static void exchange(void)
{
	int block = (int)(planes * planes * side * 2);
	MESSAGE(MPI_Alltoall(packed, block, MPI_DOUBLE, arrived, block, MPI_DOUBLE, MPI_COMM_WORLD));
}

/* From planes [z of mine][y][x] to lines [y of mine][x][z]. */
static void turn_forward(void)
{
	for (long to = 0; to < ranks; to++)
		for (long z = 0; z < planes; z++)
			memcpy(packed + (to * planes + z) * planes * side,
			       cube + (z * side + to * planes) * side,
			       (size_t)(planes * side) * sizeof(number));
	exchange();
	for (long z = 0; z < side; z++)
		for (long y = 0; y < planes; y++)
			for (long x = 0; x < side; x++)
				turned[(y * side + x) * side + z] = arrived[(z * planes + y) * side + x];
}

static void turn_back(void)
{
	for (long z = 0; z < side; z++)
		for (long y = 0; y < planes; y++)
			for (long x = 0; x < side; x++)
				packed[(z * planes + y) * side + x] = turned[(y * side + x) * side + z];
	exchange();
	for (long from = 0; from < ranks; from++)
		for (long z = 0; z < planes; z++)
			memcpy(cube + (z * side + from * planes) * side,
			       arrived + (from * planes + z) * planes * side,
			       (size_t)(planes * side) * sizeof(number));
}

/* Plans the transforms of all local planes and lines. */
static void plan(void)
{
	int n = (int)side, two[2] = { n, n }, one[1] = { n }, all = (int)(planes * side);
	planes_forward = fftw_plan_many_dft(2, two, (int)planes, cube, NULL, 1, n * n, cube, NULL, 1,
					    n * n, FFTW_FORWARD, FFTW_ESTIMATE);
	planes_back = fftw_plan_many_dft(2, two, (int)planes, cube, NULL, 1, n * n, cube, NULL, 1,
					 n * n, FFTW_BACKWARD, FFTW_ESTIMATE);
	lines_forward = fftw_plan_many_dft(1, one, all, turned, NULL, 1, n, turned, NULL, 1, n,
					   FFTW_FORWARD, FFTW_ESTIMATE);
	lines_back = fftw_plan_many_dft(1, one, all, turned, NULL, 1, n, turned, NULL, 1, n,
					FFTW_BACKWARD, FFTW_ESTIMATE);
	if (!planes_forward || !planes_back || !lines_forward || !lines_back)
		fail("FFTW made no plan");
}

/* The spectrum has two numbers, at (z, y, x) = (1, 2, 3) and (5, 0, 1). */
static void check_spectrum(void)
{
	double whole = (double)(side * side * side);
	for (long y = 0; y < planes; y++)
		for (long x = 0; x < side; x++)
			for (long z = 0; z < side; z++) {
				long at_y = rank * planes + y;
				int first = z == 1 && at_y == 2 && x == 3;
				int second = z == 5 && at_y == 0 && x == 1;
				double expected = first ? 1.0 : second ? 0.5 : 0.0;
				if (cabs(turned[(y * side + x) * side + z] / whole - expected) > 1e-9)
					fail("wrong spectrum at %ld %ld %ld", z, at_y, x);
			}
}

/* Returns the largest difference from the original cube. */
static double difference(void)
{
	double largest = 0;
	for (long z = 0; z < planes; z++)
		for (long y = 0; y < side; y++)
			for (long x = 0; x < side; x++) {
				number expected = element(rank * planes + z, y, x);
				double off = cabs(cube[(z * side + y) * side + x] - expected);
				largest = off > largest ? off : largest;
			}
	return largest;
}

/* One iteration. `check` looks at the spectrum in between. */
static void there_and_back(void (*check)(void))
{
	fftw_execute(planes_forward);
	turn_forward();
	fftw_execute(lines_forward);
	if (check)
		check();
	fftw_execute(lines_back);
	turn_back();
	fftw_execute(planes_back);
	for (long at = 0; at < planes * side * side; at++)
		cube[at] /= (double)(side * side * side);
}

int main(int argc, char **argv)
{
	long numbers[2];
	start(argc, argv, "kernel_fft SIDE ITERATIONS", numbers, 2);
	side = numbers[0];
	planes = side / ranks;
	if (side < 8 || side % ranks)
		fail("SIDE must be a multiple of the ranks, and at least 8");
	size_t bytes = (size_t)(planes * side * side) * sizeof(number);
	cube = room(bytes), turned = room(bytes), packed = room(bytes), arrived = room(bytes);
	plan();
	for (long z = 0; z < planes; z++)
		for (long y = 0; y < side; y++)
			for (long x = 0; x < side; x++)
				cube[(z * side + y) * side + x] = element(rank * planes + z, y, x);
	there_and_back(check_spectrum);
	begin();
	for (long iteration = 0; iteration < numbers[1]; iteration++)
		there_and_back(NULL);
	report(MPI_Wtime() - began, in_messages);
	if (difference() > 1e-9)
		fail("the cube differs by %g", difference());
	if (rank == 0)
		printf("result spectrum and cube as expected\n");
	MPI_Finalize();
	return 0;
}
