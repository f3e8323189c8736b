/* An MPI program of which one rank ends badly while the others wait for it.
 *
 * usage: mpi_ends abort|segv|exit|kill */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int rank, message = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 1) {
		if (strcmp(argv[1], "abort") == 0)
			MPI_Abort(MPI_COMM_WORLD, 33);
		if (strcmp(argv[1], "segv") == 0)
			*(volatile int *)8 = 1;
		if (strcmp(argv[1], "exit") == 0)
			_exit(5);
		raise(SIGKILL);
	}
	/* Never sent. */
	MPI_Recv(&message, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	return 0;
}
