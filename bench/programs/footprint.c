/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * footprint.c - an MPI job whose ranks exchange messages with all others and then wait, so that
 * another process can measure its memory.
 *
 *     footprint FILE BYTES
 *
 * Each rank exchanges a few small messages with every other rank, and one of BYTES with
 * those 1, 2, 4 … ranks away, since a library allocates its buffers at first use. (It sends the
 * small ones at the same time: with 64 ranks on two cores, each wait takes long.) Then each
 * prints
 *
 *     PID
 *
 * and all sleep until FILE is removed.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Open MPI allocates the mailbox of a pair after 16 messages. */
enum { SMALL_MESSAGES = 20, SMALL = 64, LOOK_US = 20000 };

static int rank, ranks;

static void fail(const char *what)
{
	fprintf(stderr, "footprint: rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static void small_messages(void)
{
	static char give[SMALL];
	int all = ranks * SMALL_MESSAGES;
	char(*take)[SMALL] = calloc((size_t)all, SMALL);
	MPI_Request *requests = malloc(2 * (size_t)all * sizeof *requests);
	if (!take || !requests)
		fail("no memory for the messages");
	memset(give, rank + 1, SMALL);
	for (int i = 0; i < all; i++)
		MPI_Irecv(take[i], SMALL, MPI_BYTE, i % ranks, 0, MPI_COMM_WORLD, &requests[i]);
	for (int i = 0; i < all; i++)
		MPI_Isend(give, SMALL, MPI_BYTE, i % ranks, 0, MPI_COMM_WORLD, &requests[all + i]);
	MPI_Waitall(2 * all, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < all; i++)
		if (take[i][SMALL - 1] != (char)(i % ranks + 1))
			fail("a message arrived with wrong contents");
	free(requests);
	free(take);
}

static void large_messages(int bytes)
{
	char *give = malloc((size_t)bytes), *take = malloc((size_t)bytes);
	if (!give || !take)
		fail("no memory for the messages");
	memset(give, rank + 1, (size_t)bytes);
	for (int step = 1; step < ranks; step *= 2) {
		int to = (rank + step) % ranks, from = (rank - step + ranks) % ranks;
		MPI_Sendrecv(give, bytes, MPI_BYTE, to, 0, take, bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD,
		             MPI_STATUS_IGNORE);
		if (take[bytes - 1] != (char)(from + 1))
			fail("a message arrived with wrong contents");
	}
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 3 || atoi(argv[2]) <= 0)
		fail("usage: footprint FILE BYTES");
	small_messages();
	large_messages(atoi(argv[2]));
	MPI_Barrier(MPI_COMM_WORLD);
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (access(argv[1], F_OK) == 0)
		usleep(LOOK_US);
	MPI_Finalize();
	return 0;
}
