/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * kernel.h - what the communication kernels share: their ranks, the time in MPI calls, and the
 * report that rank 0 prints:
 *
 *	seconds S	time of the slowest rank in the measured part
 *	messages S	mean time of the ranks in MPI calls during that, with waits
 *	result TEXT	a result that must not depend on how messages are transferred
 */
#ifndef KERNEL_H
#define KERNEL_H

#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static double in_messages, began;

/* Ends the job: a wrong result must not become a figure. */
__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fprintf(stderr, "rank %d: ", rank);
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

/* Makes an MPI call and adds its time to that in messages. */
#define MESSAGE(call)                             \
	do {                                      \
		double entered = MPI_Wtime();     \
		if ((call) != MPI_SUCCESS)        \
			fail("%s failed", #call); \
		in_messages += MPI_Wtime() - entered; \
	} while (0)

static void *room(size_t bytes)
{
	void *memory = malloc(bytes);
	if (!memory)
		fail("no memory for %zu bytes", bytes);
	memset(memory, 0, bytes);
	return memory;
}

/* Starts MPI and reads `count` positive numbers from the command line. */
static void start(int argc, char **argv, const char *usage, long *numbers, int count)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != count + 1)
		fail("usage: %s", usage);
	for (int at = 0; at < count; at++)
		if ((numbers[at] = atol(argv[at + 1])) < 1)
			fail("%s: not a positive number; usage: %s", argv[at + 1], usage);
}

/* Begins the measured part on all ranks. */
static void begin(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	in_messages = 0;
	began = MPI_Wtime();
}

/* Rank 0 prints the time of the slowest rank, and the mean time in messages. */
static void report(double mine, double mine_in_messages)
{
	double slowest, sum;
	MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	MPI_Reduce(&mine_in_messages, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("seconds %.6f\nmessages %.6f\n", slowest, sum / ranks);
}

#endif
