/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * A known number of messages between two ranks, for tests that count them.
 *
 * usage: mpi_traffic [differ|idle]
 * Rank 0 sends to rank 1: 10 messages of 1,000 bytes; 5 of 1 MiB through a communicator in which
 * the ranks are reversed; and 3 of 400 bytes by a persistent request. Rank 1 sends itself one of 8
 * bytes. Each rank also calls MPI_Allreduce 7 times, and MPI_Alltoallv and MPI_Alltoallw once. With
 * "differ" the program prints its PID, and with "idle" it sends nothing.
 *
 * With -DLARGE_COUNTS it uses the functions with 64-bit counts. Then rank 0 also sends 2 messages
 * of 100 bytes by a partitioned request, and each rank starts a persistent MPI_Allreduce twice. */
#include "mpi_check.h"

#ifdef LARGE_COUNTS
typedef MPI_Count count_type;
typedef MPI_Aint offset_type;
#define MPI_Send MPI_Send_c
#define MPI_Recv MPI_Recv_c
#define MPI_Send_init MPI_Send_init_c
#define MPI_Sendrecv MPI_Sendrecv_c
#define MPI_Allreduce MPI_Allreduce_c
#define MPI_Alltoallv MPI_Alltoallv_c
#define MPI_Alltoallw MPI_Alltoallw_c
#else
typedef int count_type;
typedef int offset_type;
#endif

enum { SMALL = 1000, LARGE = 1 << 20, PERSISTENT = 400 };

static void pass(char *buffer, int size, int count, int to, MPI_Comm comm)
{
	for (int i = 0; i < count; i++) {
		if (rank == 0) {
			memset(buffer, i + 1, (size_t)size);
			MPI_Send(buffer, size, MPI_BYTE, to, 1, comm);
		} else {
			MPI_Recv(buffer, size, MPI_BYTE, MPI_ANY_SOURCE, 1, comm,
			         MPI_STATUS_IGNORE);
			CHECK(buffer[0] == i + 1 && buffer[size - 1] == i + 1);
		}
	}
}

#ifdef LARGE_COUNTS
static void use_mpi_4(char *buffer)
{
	enum { PARTITIONS = 4, PARTITION = 25 };
	MPI_Request request;
	if (rank == 0)
		MPI_Psend_init(buffer, PARTITIONS, PARTITION, MPI_BYTE, 1, 4, MPI_COMM_WORLD,
		               MPI_INFO_NULL, &request);
	else
		MPI_Precv_init(buffer, PARTITIONS, PARTITION, MPI_BYTE, 0, 4, MPI_COMM_WORLD,
		               MPI_INFO_NULL, &request);
	for (int i = 0; i < 2; i++) {
		MPI_Start(&request);
		if (rank == 0)
			MPI_Pready_range(0, PARTITIONS - 1, request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	MPI_Request_free(&request);

	double mine = rank + 1, sum;
	MPI_Allreduce_init_c(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
	                     &request);
	for (int i = 0; i < 2; i++) {
		sum = 0;
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		CHECK(sum == 3);
	}
	MPI_Request_free(&request);
}
#endif

int main(int argc, char **argv)
{
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	CHECK(ranks == 2);
	if (argc > 1 && strcmp(argv[1], "idle") == 0) {
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Finalize();
		return 0;
	}
	char *buffer = malloc(LARGE);
	pass(buffer, SMALL, 10, 1, MPI_COMM_WORLD);

	MPI_Comm reversed;
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
	pass(buffer, LARGE, 5, 0, reversed);
	MPI_Comm_free(&reversed);

	MPI_Request request;
	if (rank == 0)
		MPI_Send_init(buffer, PERSISTENT / 4, MPI_INT, 1, 2, MPI_COMM_WORLD, &request);
	for (int i = 0; i < 3; i++) {
		if (rank == 0) {
			MPI_Start(&request);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(buffer, PERSISTENT, MPI_BYTE, 0, 2, MPI_COMM_WORLD,
			         MPI_STATUS_IGNORE);
		}
	}
	if (rank == 0)
		MPI_Request_free(&request);

	if (rank == 1) {
		double in = 3, out = 0;
		MPI_Sendrecv(&in, 1, MPI_DOUBLE, 1, 3, &out, 1, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD,
		             MPI_STATUS_IGNORE);
		CHECK(out == 3);
	}

	double sum = 0;
	for (int i = 0; i < 7; i++) {
		double mine = rank + 1;
		MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		CHECK(sum == 3);
	}
	count_type counts[2] = {2, 3}, rooms[2] = {rank == 0 ? 2 : 3, rank == 0 ? 2 : 3};
	offset_type offsets[2] = {0, 3};
	int from[6] = {0}, into[6];
	MPI_Alltoallv(from, counts, offsets, MPI_INT, into, rooms, offsets, MPI_INT,
	              MPI_COMM_WORLD);

	MPI_Datatype both[2] = {MPI_INT, MPI_DOUBLE}, own[2] = {both[rank], both[rank]};
	count_type n[2] = {1, 2}, n_own[2] = {n[rank], n[rank]};
	offset_type at[2] = {0, 8}, at_own[2] = {0, 16};
	double given[3] = {0, 5, 7}, taken[4] = {0};
	MPI_Alltoallw(given, n, at, both, taken, n_own, at_own, own, MPI_COMM_WORLD);
	CHECK(rank == 0 || (taken[0] == 5 && taken[1] == 7 && taken[2] == 5 && taken[3] == 7));
#ifdef LARGE_COUNTS
	use_mpi_4(buffer);
#endif
	if (rank == 0)
		printf("sum %.0f\n", sum);
	if (rank == 0 && argc > 1)
		printf("PID %d\n", (int)getpid());
	free(buffer);
	MPI_Finalize();
	return 0;
}
