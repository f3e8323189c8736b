/* MPI_Comm_spawn: children that talk with their parents and with each other.
 *
 * usage: mpi_spawn COMMAND [ARGUMENTS]   starts COMMAND ARGUMENTS child, twice two of them
 *        mpi_spawn child                 is such a child */
#include "mpi_check.h"

#define CHILDREN 2
#define WORDS 100000

/* Each parent sends to each child, each child answers each parent; all meet in a sum. */
static void talk(MPI_Comm others, int child)
{
	int theirs;
	int *out = malloc(sizeof(int) * WORDS), *in = malloc(sizeof(int) * WORDS);
	MPI_Comm_remote_size(others, &theirs);
	for (int count = 1; count <= WORDS; count *= 10)
		for (int other = 0; other < theirs; other++) {
			fill(out, (size_t)count, rank + 10 * child);
			memset(in, 0, sizeof(int) * (size_t)count);
			if (!child)
				MPI_Send(out, count, MPI_INT, other, 1, others);
			MPI_Recv(in, count, MPI_INT, other, 1, others, MPI_STATUS_IGNORE);
			if (child)
				MPI_Send(out, count, MPI_INT, other, 1, others);
			CHECK(right(in, (size_t)count, other + 10 * !child) == (size_t)count);
		}

	MPI_Comm everybody;
	int one = 1, sum, number;
	MPI_Intercomm_merge(others, child, &everybody);
	MPI_Comm_rank(everybody, &number);
	CHECK(number == (child ? theirs + rank : rank));
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, everybody);
	CHECK(sum == ranks + theirs);
	for (int i = 0; i < WORDS; i++)
		out[i] = number == 0 ? word(3, (size_t)i) : 0;
	MPI_Bcast(out, WORDS, MPI_INT, 0, everybody);
	CHECK(right(out, WORDS, 3) == WORDS);
	MPI_Comm_free(&everybody);

	/* And among themselves. */
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	fill(out, WORDS, rank);
	MPI_Sendrecv(out, WORDS, MPI_INT, next, 2, in, WORDS, MPI_INT, previous, 2, MPI_COMM_WORLD,
	             MPI_STATUS_IGNORE);
	CHECK(right(in, WORDS, previous) == WORDS);
	free(out);
	free(in);
}

int main(int argc, char **argv)
{
	MPI_Comm parents, children;
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	MPI_Comm_get_parent(&parents);
	if (strcmp(argv[argc - 1], "child") == 0) {
		CHECK(parents != MPI_COMM_NULL);
		CHECK(ranks == CHILDREN);
		talk(parents, 1);
		MPI_Comm_disconnect(&parents);
		MPI_Finalize();
		return 0;
	}
	CHECK(parents == MPI_COMM_NULL);
	char *arguments[argc + 1], child[] = "child";
	int n = 0;
	for (int i = 2; i < argc; i++)
		arguments[n++] = argv[i];
	arguments[n++] = child;
	arguments[n] = NULL;
	for (int round = 0; round < 2; round++) {
		int errors[CHILDREN];
		MPI_Comm_spawn(argv[1], arguments, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD,
		               &children, errors);
		talk(children, 0);
		MPI_Comm_disconnect(&children);
	}
	if (rank == 0)
		printf("children answered\n");
	MPI_Finalize();
	return 0;
}
