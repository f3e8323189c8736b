/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * The trial of `nagaya info --mpi --try`: messages of growing size to and fro between two
 * ranks, freshly written each time and checked.
 *
 * usage: trial STEP ROUNDS SIZE...
 * After each size rank 0 prints "SIZE MICROSECONDS" (one way, median), and both wait for the file
 * STEP.SIZE: meanwhile the counters are read. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 4 || ranks != 2) {
		fprintf(stderr, "trial: %d ranks and not 2\n", ranks);
		return 1;
	}
	int rounds = atoi(argv[2]);
	double *seconds = malloc((size_t)rounds * sizeof *seconds);
	for (int i = 3; i < argc; i++) {
		int size = atoi(argv[i]);
		char *buffer = malloc((size_t)size), path[4096];
		memset(buffer, 0, (size_t)size);
		MPI_Barrier(MPI_COMM_WORLD);
		for (int round = 0; round < rounds; round++) {
			double start = MPI_Wtime();
			if (rank == 0) {
				memset(buffer, round + 1, (size_t)size);
				MPI_Send(buffer, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
			}
			MPI_Recv(buffer, size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD,
			         MPI_STATUS_IGNORE);
			if (buffer[0] != (char)(round + 1) || buffer[size - 1] != (char)(round + 1)) {
				fprintf(stderr, "trial: a message of %d bytes arrived wrong\n", size);
				MPI_Abort(MPI_COMM_WORLD, 1);
			}
			if (rank == 1)
				MPI_Send(buffer, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
			seconds[round] = MPI_Wtime() - start;
		}
		qsort(seconds, (size_t)rounds, sizeof *seconds, compare);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0) {
			printf("%d %.2f\n", size, seconds[rounds / 2] / 2 * 1e6);
			fflush(stdout);
		}
		snprintf(path, sizeof path, "%s.%d", argv[1], size);
		while (access(path, F_OK) != 0)
			usleep(1000);
		free(buffer);
	}
	MPI_Finalize();
	return 0;
}
