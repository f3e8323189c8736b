// A program that uses MPI and shared memory in the same processes.

#include <jia.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	jia_init(argc, argv);
	int rank, sum = 0;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	int *cell = (int *)jia_alloc(sizeof *cell);
	jia_barrier();
	jia_lock(0);
	*cell += rank + 1;
	jia_unlock(0);
	jia_barrier();
	int mine = *cell * (rank == jiapid);
	MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	int is_first = jiapid == 0;
	jia_exit();
	MPI_Barrier(MPI_COMM_WORLD);
	if (is_first)
		printf("sum %d\n", sum);
	MPI_Finalize();
	return 0;
}
