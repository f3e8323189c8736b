/* Rank 0 says "begun" once all ranks are there. Then each sends to the next one, for some hundred
 * milliseconds, and checks what it receives. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 200, COUNT = 20000 };

static int out[COUNT], in[COUNT];

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		puts("begun");
		fflush(stdout);
	}
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < COUNT; i++)
			out[i] = rank + round * i;
		MPI_Sendrecv(out, COUNT, MPI_INT, next, 0, in, COUNT, MPI_INT, previous, 0,
		             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int i = 0; i < COUNT; i++)
			if (in[i] != previous + round * i) {
				fprintf(stderr, "rank %d: number %d is wrong\n", rank, i);
				MPI_Abort(MPI_COMM_WORLD, 9);
			}
		usleep(2000);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		puts("messages arrived");
	MPI_Finalize();
	return 0;
}
