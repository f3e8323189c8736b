/* An MPI program of which one rank ends badly: while the others wait for it, or while large
 * messages fly.
 *
 * usage: mpi_ends abort|segv|exit|kill   rank 1 ends in this way, the others wait
 *        mpi_ends fly                    all exchange large messages until somebody is killed */
#include <signal.h>

#include "mpi_check.h"

#define WORDS 100000

static void fly(void)
{
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	int *out = malloc(sizeof(int) * WORDS), *in = malloc(sizeof(int) * WORDS);
	for (int round = 0;; round++) {
		fill(out, WORDS, round + rank);
		MPI_Sendrecv(out, WORDS, MPI_INT, next, 1, in, WORDS, MPI_INT, previous, 1,
		             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		/* A rank that dies may leave less than it promised, but never anything wrong. */
		CHECK(right(in, WORDS, round + previous) == WORDS);
		if (round == 3) {
			printf("flying %d\n", getpid());
			fflush(stdout);
		}
	}
}

int main(int argc, char **argv)
{
	int message = 0;
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Barrier(MPI_COMM_WORLD);
	if (strcmp(argv[1], "fly") == 0)
		fly();
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
