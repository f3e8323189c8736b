/* What the MPI programs share: who we are, and a check that says where it failed and ends the
 * job. */
#ifndef MPI_CHECK_H
#define MPI_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In MPI_COMM_WORLD. */
static int rank, ranks;

/* MPI_Init, at this level of threads. */
__attribute__((unused)) static void begin(int *argc, char ***argv, int threads)
{
	int provided;
	MPI_Init_thread(argc, argv, threads, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (provided < threads) {
		fprintf(stderr, "this MPI has thread level %d, not %d\n", provided, threads);
		MPI_Abort(MPI_COMM_WORLD, 8);
	}
}

#define CHECK(condition)                                                             \
	do {                                                                         \
		if (!(condition)) {                                                  \
			fprintf(stderr, "rank %d: %s:%d: not so: %s\n", rank,        \
			        __FILE__, __LINE__, #condition);                     \
			MPI_Abort(MPI_COMM_WORLD, 9);                                \
		}                                                                    \
	} while (0)

/* The value at index i of message `salt`: differs between neighbours and messages. */
__attribute__((unused)) static int word(int salt, size_t i)
{
	return (int)((unsigned)i * 2654435761u + (unsigned)salt * 40503u);
}

__attribute__((unused)) static void fill(int *buffer, size_t count, int salt)
{
	for (size_t i = 0; i < count; i++)
		buffer[i] = word(salt, i);
}

/* The number of leading words that are as fill() made them: `count` if all are. */
__attribute__((unused)) static size_t right(const int *buffer, size_t count, int salt)
{
	size_t i = 0;
	while (i < count && buffer[i] == word(salt, i))
		i++;
	return i;
}

#endif
