/* Rank 0 ends an access epoch before a barrier. Rank 1 tests for the end of its exposure epoch once
 * after the barrier, and prints how often the test failed.
 *
 * usage: mpi_epochs, on 2 ranks */
#include "mpi_check.h"

static void epochs(void)
{
	enum { TIMES = 1000 };
	int *window, late = 0, other = 1 - rank;
	MPI_Group all, peer;
	MPI_Win win;
	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_incl(all, 1, &other, &peer);
	for (int i = 0; i < TIMES; i++) {
		int ended = 0;
		if (rank == 0) {
			MPI_Win_start(peer, 0, win);
			MPI_Put(&i, 1, MPI_INT, other, 0, 1, MPI_INT, win);
			MPI_Win_complete(win);
			MPI_Barrier(MPI_COMM_WORLD);
			continue;
		}
		MPI_Win_post(peer, 0, win);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_test(win, &ended);
		if (!ended) {
			late++;
			MPI_Win_wait(win);
		}
		CHECK(*window == i);
	}
	MPI_Group_free(&peer);
	MPI_Group_free(&all);
	MPI_Win_free(&win);
	if (rank == 1)
		printf("%d ends seen late\n", late);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	epochs();
	MPI_Finalize();
	return 0;
}
