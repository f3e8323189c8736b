/* The least that ranks do together: they add their numbers.
 *
 * usage: mpi_sum */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int rank, ranks, sum = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("the sum of %d ranks is %d\n", ranks, sum);
	MPI_Finalize();
	return 0;
}
