/* MPI and OpenSHMEM in one program, initialised in either order: the argument is "mpi" or "shmem",
 * the one that begins. The ranks are the PEs. */
#include "../check.h"
#include <mpi.h>
#include <shmem.h>

int main(int argc, char **argv)
{
	static long from = -1;
	int shmem_first = argc > 1 && strcmp(argv[1], "shmem") == 0, rank, size, number, sum;

	if (shmem_first)
		shmem_init();
	MPI_Init(&argc, &argv);
	if (!shmem_first)
		shmem_init();
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	CHECK_EQ(rank, shmem_my_pe());
	CHECK_EQ(size, shmem_n_pes());
	int next = (rank + 1) % size, former = (rank + size - 1) % size;
	for (int i = 0; i < 100; i++) {
		shmem_long_p(&from, rank * 1000 + i, next);
		shmem_barrier_all();
		CHECK_EQ(from, former * 1000 + i);
		MPI_Sendrecv(&rank, 1, MPI_INT, next, 0, &number, 1, MPI_INT, former, 0, MPI_COMM_WORLD,
			MPI_STATUS_IGNORE);
		CHECK_EQ(number, former);
		MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		CHECK_EQ(sum, size * (size - 1) / 2);
	}
	if (shmem_first) {
		MPI_Finalize();
		shmem_finalize();
	} else {
		shmem_finalize();
		MPI_Finalize();
	}
	if (rank == 0)
		puts("both");
	return 0;
}
