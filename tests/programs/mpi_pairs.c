/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * A known number of messages between the ranks of a job on any nodes, for tests that count them.
 *
 * Each rank sends one message of 256 KiB to each other rank. */
#include "mpi_check.h"

enum { SIZE = 256 << 10 };

int main(int argc, char **argv)
{
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	char *from = malloc(SIZE), *into = malloc(SIZE);
	for (int distance = 1; distance < ranks; distance++) {
		int to = (rank + distance) % ranks, source = (rank - distance + ranks) % ranks;
		memset(from, rank * ranks + to, SIZE);
		MPI_Sendrecv(from, SIZE, MPI_BYTE, to, 1, into, SIZE, MPI_BYTE, source, 1,
		             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		CHECK(into[0] == source * ranks + rank && into[SIZE - 1] == into[0]);
	}
	if (rank == 0)
		printf("%d ranks\n", ranks);
	free(from);
	free(into);
	MPI_Finalize();
	return 0;
}
