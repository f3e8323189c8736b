/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * late.c - the time of sends to a rank that has posted the receive, but computes.
 *
 *	late COMPUTE_US ROUNDS
 *
 * Rank 1 posts a receive, computes for COMPUTE_US, and waits for the message. Rank 0 sends it 20 us
 * after the receive was posted. A line has the size, the median time of MPI_Send, and that of
 * MPI_Isend with MPI_Wait, in us. Every message is checked.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 1 << 10, MOST = 256 << 10, ROUNDS_MAX = 1000 };

static void compute(double us)
{
	double begin = MPI_Wtime();
	while ((MPI_Wtime() - begin) * 1e6 < us)
		;
}

static int order(const void *a, const void *b)
{
	double one = *(const double *)a, other = *(const double *)b;
	return (one > other) - (one < other);
}

/* Sends a message; the time of that in us. */
static double give(char *data, int size, int waits)
{
	MPI_Recv(NULL, 0, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	compute(20);
	double begin = MPI_Wtime();
	if (waits) {
		MPI_Request request;
		MPI_Isend(data, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else {
		MPI_Send(data, size, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
	}
	return (MPI_Wtime() - begin) * 1e6;
}

static void take(char *data, int size, double compute_us, char content)
{
	MPI_Request request;
	MPI_Irecv(data, size, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &request);
	MPI_Send(NULL, 0, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
	compute(compute_us);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	for (int at = 0; at < size; at++)
		if (data[at] != content) {
			fprintf(stderr, "late: byte %d of %d is wrong\n", at, size);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
}

int main(int argc, char **argv)
{
	static double times[2][ROUNDS_MAX];
	static char data[MOST];
	int rank;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	double compute_us = argc > 1 ? atof(argv[1]) : 200;
	int rounds = argc > 2 ? atoi(argv[2]) : 41;
	if (rounds < 1 || rounds > ROUNDS_MAX)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (int size = LEAST; size <= MOST; size *= 2) {
		for (int waits = 0; waits < 2; waits++)
			for (int round = 0; round < rounds; round++) {
				char content = (char)(size / LEAST + waits + 2 * round);
				MPI_Barrier(MPI_COMM_WORLD);
				if (rank == 0)
					memset(data, content, (size_t)size);
				MPI_Barrier(MPI_COMM_WORLD);
				if (rank == 0)
					times[waits][round] = give(data, size, waits);
				else
					take(data, size, compute_us, content);
			}
		qsort(times[0], (size_t)rounds, sizeof times[0][0], order);
		qsort(times[1], (size_t)rounds, sizeof times[1][0], order);
		if (rank == 0)
			printf("%d %.2f %.2f\n", size, times[0][rounds / 2], times[1][rounds / 2]);
	}
	MPI_Finalize();
	return 0;
}
