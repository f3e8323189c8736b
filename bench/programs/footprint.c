/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * footprint.c - an MPI job that has exchanged messages with everybody and then stands still,
 * so that somebody else can look at its memory.
 *
 *     footprint FILE BYTES
 *
 * Each rank exchanges a few small messages and one of BYTES with every other rank: a library
 * makes its buffers when they are first needed. Then each prints
 *
 *     PID
 *
 * and all sleep until FILE is gone.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL_MESSAGES = 20, SMALL = 64, LOOK_US = 20000 }; /* Open MPI makes a pair's mailbox after 16 */

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int bytes = argc == 3 ? atoi(argv[2]) : 0;
	char *give = malloc((size_t)bytes + SMALL), *take = malloc((size_t)bytes + SMALL);
	if (bytes <= 0 || !give || !take) {
		fprintf(stderr, "footprint: usage: footprint FILE BYTES\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (int step = 1; step < ranks; step++) {
		int to = (rank + step) % ranks, from = (rank - step + ranks) % ranks;
		for (int i = 0; i <= SMALL_MESSAGES; i++) {
			int size = i < SMALL_MESSAGES ? SMALL : bytes;
			memset(give, rank, (size_t)size);
			MPI_Sendrecv(give, size, MPI_BYTE, to, 0, take, size, MPI_BYTE, from, 0,
			             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			if (take[size - 1] != (char)from) {
				fprintf(stderr, "footprint: a message arrived with wrong contents\n");
				MPI_Abort(MPI_COMM_WORLD, 1);
			}
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (access(argv[1], F_OK) == 0)
		usleep(LOOK_US);
	MPI_Finalize();
	return 0;
}
