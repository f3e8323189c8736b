/* Rank 0 sends large messages in the ways in which it can copy a part of them itself: MPI_Send,
 * MPI_Isend and MPI_Wait, several MPI_Isend and MPI_Waitall. Rank 1 checks them, and the memory
 * around them.
 *
 * usage: mpi_halves ROUNDS SEED [DONE]
 * With ROUNDS 0 it goes on for ever; then both print their PIDs first. With DONE both print "ready"
 * after the rounds and wait for that file. */
#include "mpi_check.h"

enum { MAX = 1 << 20, BURST = 3, GUARD = 16 };

static int area[BURST][MAX + 2 * GUARD];
static unsigned long long state;

static unsigned below(unsigned end)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (unsigned)((state >> 20) % end);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	CHECK(argc >= 3 && ranks == 2);
	long rounds = atol(argv[1]);
	state = strtoull(argv[2], NULL, 10) * 2 + 1;
	if (rounds == 0) {
		printf("%d\n", getpid());
		fflush(stdout);
	}
	for (long round = 0; rounds == 0 || round < rounds; round++) {
		/* Both make the same choices. */
		unsigned way = below(3), messages = way == 2 ? BURST : 1;
		MPI_Request requests[BURST];
		int count[BURST], offset[BURST], salt[BURST];
		for (unsigned i = 0; i < messages; i++) {
			count[i] = 15000 + (int)below(below(2) ? 50000 : MAX - 15000);
			offset[i] = (int)below(GUARD);
			salt[i] = (int)below(1 << 30);
			int *data = area[i] + GUARD + offset[i] - (offset[i] ? GUARD / 2 : 0);
			if (rank == 0)
				fill(data, (size_t)count[i] - GUARD, salt[i]);
			else
				memset(area[i], 0x5a, sizeof area[i]);
			count[i] -= GUARD;
			if (rank == 0 && way == 0)
				MPI_Send(data, count[i], MPI_INT, 1, 7, MPI_COMM_WORLD);
			else if (rank == 0)
				MPI_Isend(data, count[i], MPI_INT, 1, 7, MPI_COMM_WORLD, &requests[i]);
			else
				MPI_Irecv(data, count[i], MPI_INT, 0, 7, MPI_COMM_WORLD, &requests[i]);
		}
		if (rank == 0 && way == 1)
			MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
		else if (rank == 1 || way == 2)
			MPI_Waitall((int)messages, requests, MPI_STATUSES_IGNORE);
		for (unsigned i = 0; rank == 1 && i < messages; i++) {
			int *data = area[i] + GUARD + offset[i] - (offset[i] ? GUARD / 2 : 0);
			CHECK(right(data, (size_t)count[i], salt[i]) == (size_t)count[i]);
			for (int *word = area[i]; word < area[i] + MAX + 2 * GUARD; word++)
				CHECK((word >= data && word < data + count[i]) || *word == 0x5a5a5a5a);
		}
	}
	if (argc > 3) {
		puts("ready");
		fflush(stdout);
		while (access(argv[3], F_OK) != 0)
			usleep(1000);
	}
	if (rank == 0)
		puts("messages are whole");
	MPI_Finalize();
	return 0;
}
