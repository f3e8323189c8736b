/* MPI_THREAD_MULTIPLE: several threads of each rank exchange messages of all sizes at once,
 * with the same thread of the neighbours; every word checked.
 *
 * usage: mpi_threads */
#include <pthread.h>

#include "mpi_check.h"

#define THREADS 4
#define MOST (1 << 17) /* words: 512 KiB */
#define ROUNDS 3

static MPI_Comm of_thread[THREADS];

static void *exchange(void *argument)
{
	int thread = (int)(long)argument;
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	for (int round = 0; round < ROUNDS; round++)
		for (int count = 1; count <= MOST; count *= 8) {
			/* Fresh memory each time: threads' arenas grow and shrink meanwhile. */
			int *out = malloc(sizeof(int) * (size_t)count);
			int *in = calloc((size_t)count, sizeof(int));
			int salt = 100 * thread + round;
			MPI_Request both[2];
			fill(out, (size_t)count, salt + rank);
			/* Some by tag in one communicator, some each in its own. */
			MPI_Comm comm = round % 2 ? of_thread[thread] : MPI_COMM_WORLD;
			MPI_Irecv(in, count, MPI_INT, previous, thread, comm, &both[0]);
			MPI_Isend(out, count, MPI_INT, next, thread, comm, &both[1]);
			MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
			CHECK(right(in, (size_t)count, salt + previous) == (size_t)count);
			if (round % 2) {
				MPI_Allreduce(out, in, count, MPI_INT, MPI_MAX, comm);
				for (int i = 0; i < count; i++)
					CHECK(in[i] >= out[i]);
			}
			free(out);
			free(in);
		}
	return NULL;
}

int main(int argc, char **argv)
{
	begin(&argc, &argv, MPI_THREAD_MULTIPLE);
	pthread_t threads[THREADS];
	for (int t = 0; t < THREADS; t++)
		MPI_Comm_dup(MPI_COMM_WORLD, &of_thread[t]);
	for (long t = 0; t < THREADS; t++)
		pthread_create(&threads[t], NULL, exchange, (void *)t);
	for (int t = 0; t < THREADS; t++)
		pthread_join(threads[t], NULL);
	for (int t = 0; t < THREADS; t++)
		MPI_Comm_free(&of_thread[t]);
	if (rank == 0)
		printf("threads agree\n");
	MPI_Finalize();
	return 0;
}
