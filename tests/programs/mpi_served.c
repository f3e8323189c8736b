/* The last rank waits in a barrier while one-sided operations of the others need its answers.
 * (Only the first element is checked: on 2 ranks MPICH 4.0 changes no other, with Nagaya and
 * without.)
 *
 * usage: mpi_served */
#include "mpi_check.h"
#include <sys/resource.h>

static long naps(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw;
}

int main(int argc, char **argv)
{
	enum { TIMES = 30000, ELEMENTS = 10 };
	int *sums, ones[ELEMENTS], before[ELEMENTS], last;
	long napped;
	MPI_Win win;
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	last = ranks - 1;
	MPI_Win_allocate(sizeof ones, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &sums, &win);
	for (int i = 0; i < ELEMENTS; i++)
		ones[i] = 1;
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	for (int i = 0; i < ELEMENTS; i++)
		sums[i] = 0;
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
	napped = naps();
	MPI_Win_lock_all(0, win);
	for (int i = 0; rank < last && i < TIMES; i++) {
		MPI_Get_accumulate(ones, ELEMENTS, MPI_INT, before, ELEMENTS, MPI_INT, last, 0,
				   ELEMENTS, MPI_INT, MPI_SUM, win);
		MPI_Win_flush(last, win);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	napped = naps() - napped;
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	if (rank == last && sums[0] != last * TIMES)
		printf("the sum is %d\n", sums[0]);
	else if (rank == last && napped > TIMES / 4)
		printf("the last rank napped %ld times\n", napped);
	else if (rank == last)
		printf("all were served\n");
	MPI_Win_unlock(rank, win);
	MPI_Win_free(&win);
	MPI_Finalize();
	return 0;
}
