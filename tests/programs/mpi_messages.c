/* Point-to-point messages of all sizes from 1 byte to 4 MiB, every byte checked.
 *
 * usage: mpi_messages [FILE]
 * With FILE, the ranks say "ready" when they are done and stay until that file exists. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST (4 << 20)

static int rank;

static void fill(unsigned char *buffer, int size, unsigned salt)
{
	for (int i = 0; i < size; i++)
		buffer[i] = (unsigned char)((i * 2654435761u >> 11) + salt);
}

static void check(const unsigned char *buffer, int size, unsigned salt, const char *how)
{
	for (int i = 0; i < size; i++)
		if (buffer[i] != (unsigned char)((i * 2654435761u >> 11) + salt)) {
			fprintf(stderr, "rank %d: %s of %d bytes: byte %d is wrong\n", rank, how,
			        size, i);
			MPI_Abort(MPI_COMM_WORLD, 9);
		}
	if (buffer[size] != 0xee) {
		fprintf(stderr, "rank %d: %s of %d bytes went too far\n", rank, how, size);
		MPI_Abort(MPI_COMM_WORLD, 9);
	}
}

int main(int argc, char **argv)
{
	int ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	unsigned char *out = malloc(MOST + 1), *in = malloc(MOST + 1);
	for (int base = 1; base <= MOST; base *= 2)
		for (int delta = -1; delta <= 1; delta++) {
			int size = base + delta;
			if (size < 1 || size > MOST)
				continue;
			unsigned salt = (unsigned)(size % 251);
			MPI_Request requests[2];

			/* Round a ring, each in its turn. */
			fill(out, size, salt + (unsigned)rank);
			memset(in, 0xee, (size_t)size + 1);
			if (rank % 2 == 0)
				MPI_Send(out, size, MPI_BYTE, next, 1, MPI_COMM_WORLD);
			MPI_Recv(in, size, MPI_BYTE, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			if (rank % 2)
				MPI_Send(out, size, MPI_BYTE, next, 1, MPI_COMM_WORLD);
			check(in, size, salt + (unsigned)previous, "send");

			/* All at once, the receive posted first; freshly written. */
			fill(out, size, salt + 7 + (unsigned)rank);
			memset(in, 0xee, (size_t)size + 1);
			MPI_Irecv(in, size, MPI_BYTE, previous, 2, MPI_COMM_WORLD, &requests[0]);
			MPI_Isend(out, size, MPI_BYTE, next, 2, MPI_COMM_WORLD, &requests[1]);
			MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
			check(in, size, salt + 7 + (unsigned)previous, "isend");

			fill(out, size, salt + 19 + (unsigned)rank);
			memset(in, 0xee, (size_t)size + 1);
			MPI_Sendrecv(out, size, MPI_BYTE, next, 3, in, size, MPI_BYTE, previous, 3,
			             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			check(in, size, salt + 19 + (unsigned)previous, "sendrecv");
		}

	/* Every third double of a matrix, received as one piece. */
	int blocks = 30000;
	double *matrix = malloc(sizeof(double) * 3 * (size_t)blocks);
	double *column = malloc(sizeof(double) * (size_t)blocks);
	MPI_Datatype stride;
	MPI_Type_vector(blocks, 1, 3, MPI_DOUBLE, &stride);
	MPI_Type_commit(&stride);
	for (int i = 0; i < 3 * blocks; i++)
		matrix[i] = i + rank;
	MPI_Sendrecv(matrix, 1, stride, next, 4, column, blocks, MPI_DOUBLE, previous, 4,
	             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < blocks; i++)
		if (column[i] != 3 * i + previous)
			MPI_Abort(MPI_COMM_WORLD, 8);
	MPI_Type_free(&stride);

	/* Buffers that come from mmap and go, again and again. */
	for (int round = 0; round < 20; round++) {
		unsigned char *fresh = malloc(MOST + 1 + (size_t)round * 4096);
		fill(out, MOST, (unsigned)(round + rank));
		memset(fresh, 0xee, MOST + 1);
		MPI_Sendrecv(out, MOST, MPI_BYTE, next, 5, fresh, MOST, MPI_BYTE, previous, 5,
		             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check(fresh, MOST, (unsigned)(round + previous), "fresh");
		free(fresh);
	}

	MPI_Barrier(MPI_COMM_WORLD);
	if (argc > 1) {
		printf("ready\n");
		fflush(stdout);
		while (access(argv[1], F_OK) != 0)
			usleep(10000);
	}
	if (rank == 0)
		printf("messages arrived\n");
	MPI_Finalize();
	return 0;
}
