/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * The measurement of `nagaya tune --mpi`: messages to and fro, and streams of 64 messages, between
 * two ranks. The buffers are freshly written where that is a part of a program's work: from 4 KiB.
 *
 * usage: transports WAY SIZE...
 * With the WAY provider, Nagaya's provider must be loaded. For each size rank 0 prints
 * "SIZE ONE-WAY STREAM": medians in microseconds for a message. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64, FRESH = 4096, ROUNDS_MAX = 2000 };

static double samples[ROUNDS_MAX];

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(int count)
{
	qsort(samples, (size_t)count, sizeof *samples, compare);
	return samples[count / 2] * 1e6;
}

static void touch(char *buffer, int size, int round)
{
	if (size >= FRESH)
		memset(buffer, round, (size_t)size);
}

/* One way of a message to and fro. */
static double one_way(char *buffer, int size, int rank, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		touch(buffer, size, round);
		double start = MPI_Wtime();
		if (rank == 0)
			MPI_Send(buffer, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(buffer, size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 1)
			MPI_Send(buffer, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
		samples[round] = (MPI_Wtime() - start) / 2;
	}
	return median(rounds);
}

/* The time of a message in a stream, which an empty message answers. */
static double stream(char *buffer, int size, int rank, int rounds)
{
	MPI_Request requests[WINDOW];
	for (int round = 0; round < rounds; round++) {
		double start = MPI_Wtime();
		for (int i = 0; i < WINDOW; i++) {
			char *at = buffer + (size_t)i * (size_t)size;
			if (rank == 0)
				MPI_Isend(at, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
			else
				MPI_Irecv(at, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[i]);
		}
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
		if (rank == 0)
			MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
		samples[round] = (MPI_Wtime() - start) / WINDOW;
	}
	return median(rounds);
}

/* An MPI may ignore the settings that select a provider: then its library is not loaded. */
static int has_provider(void)
{
	char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");
	int found = 0;
	while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL)
		found = strstr(line, "/libnagaya") != NULL && strstr(line, "fi.so") != NULL;
	if (maps != NULL)
		fclose(maps);
	return found;
}

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2) {
		fprintf(stderr, "transports: %d ranks and not 2\n", ranks);
		return 1;
	}
	if (argc < 2 || (strcmp(argv[1], "provider") == 0 && !has_provider())) {
		if (rank == 0)
			fprintf(stderr, "this build of the MPI does not load libfabric's providers\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (int i = 2; i < argc; i++) {
		int size = atoi(argv[i]);
		int rounds = size <= 4096 ? ROUNDS_MAX : size <= 65536 ? 400 : 60;
		int streams = size <= 4096 ? 200 : size <= 65536 ? 40 : 8;
		char *buffer = malloc((size_t)size * WINDOW);
		if (buffer == NULL) {
			fprintf(stderr, "transports: no memory for %d messages of %d bytes\n", WINDOW, size);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
		memset(buffer, 0, (size_t)size * WINDOW);
		one_way(buffer, size, rank, 20);
		MPI_Barrier(MPI_COMM_WORLD);
		double way = one_way(buffer, size, rank, rounds);
		stream(buffer, size, rank, 2);
		MPI_Barrier(MPI_COMM_WORLD);
		double each = stream(buffer, size, rank, streams);
		if (rank == 0) {
			printf("%d %.3f %.4f\n", size, way, each);
			fflush(stdout);
		}
		free(buffer);
	}
	MPI_Finalize();
	return 0;
}
