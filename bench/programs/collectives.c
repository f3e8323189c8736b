/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * collectives.c - the time of MPI's collective operations.
 *
 *     collectives MILLISECONDS OPERATIONS SIZE...
 *
 * For each of OPERATIONS (names below, with commas) and each SIZE (bytes, a multiple of 4)
 * the operation is repeated for about MILLISECONDS; rank 0 prints
 *
 *     OPERATION SIZE ITERATIONS US
 *
 * SIZE is the number of bytes per pair of ranks. For bcast, reduce and allreduce it is the whole
 * vector; for the rest it is a block, and there is one block per rank. Sizes with more than 64 MB
 * of blocks are left out. An iteration begins when all ranks have written their buffers and left
 * a barrier. Its time is that of the slowest rank. US is the mean of the middle half of the
 * iterations.
 *
 * Every result is checked word for word in the first iteration, and by its last word in the
 * others. A wrong word ends the program with status 1.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS_MIN = 2, ITERATIONS_MAX = 400, BLOCKS_MAX = 64 << 20 };

static int rank, ranks;
static uint32_t *give, *take;

static void fail(const char *what, const char *which)
{
	fprintf(stderr, "collectives: rank %d: %s: %s\n", rank, what, which);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

/* Returns word `at` of a rank's send buffer. */
static uint32_t word(int giver, int iteration, size_t at)
{
	return (uint32_t)giver * 1000003u + (uint32_t)iteration * 7919u + (uint32_t)at;
}

static uint32_t sum_of_words(int iteration, size_t at)
{
	uint32_t sum = 0;
	for (int r = 0; r < ranks; r++)
		sum += word(r, iteration, at);
	return sum;
}

enum shape { NOTHING, VECTOR, BLOCKS };

/* Send and receive buffers of a rank, the operation, and word `at` of the expected result. */
static void barrier(int n)
{
	(void)n;
	MPI_Barrier(MPI_COMM_WORLD);
}
static void bcast(int n)
{
	MPI_Bcast(rank ? take : give, n, MPI_UINT32_T, 0, MPI_COMM_WORLD);
}
static void reduce(int n)
{
	MPI_Reduce(give, take, n, MPI_UINT32_T, MPI_SUM, 0, MPI_COMM_WORLD);
}
static void allreduce(int n)
{
	MPI_Allreduce(give, take, n, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
}
static void allgather(int n)
{
	MPI_Allgather(give, n, MPI_UINT32_T, take, n, MPI_UINT32_T, MPI_COMM_WORLD);
}
static void alltoall(int n)
{
	MPI_Alltoall(give, n, MPI_UINT32_T, take, n, MPI_UINT32_T, MPI_COMM_WORLD);
}
static void gather(int n)
{
	MPI_Gather(give, n, MPI_UINT32_T, take, n, MPI_UINT32_T, 0, MPI_COMM_WORLD);
}
static void scatter(int n)
{
	MPI_Scatter(give, n, MPI_UINT32_T, take, n, MPI_UINT32_T, 0, MPI_COMM_WORLD);
}

static uint32_t from_root(int n, int i, size_t at) { (void)n; return word(0, i, at); }
static uint32_t summed(int n, int i, size_t at) { (void)n; return sum_of_words(i, at); }
static uint32_t gathered(int n, int i, size_t at)
{
	return word((int)(at / (size_t)n), i, at % (size_t)n);
}
static uint32_t exchanged(int n, int i, size_t at)
{
	size_t mine = (size_t)rank * (size_t)n;
	return word((int)(at / (size_t)n), i, mine + at % (size_t)n);
}
static uint32_t scattered(int n, int i, size_t at)
{
	return word(0, i, (size_t)rank * (size_t)n + at);
}

static const struct operation {
	const char *name;
	void (*run)(int words);
	uint32_t (*expected)(int words, int iteration, size_t at);
	enum shape given, taken;
	int root_gives_only, root_takes_only;
} operations[] = {
	{ "barrier", barrier, NULL, NOTHING, NOTHING, 0, 0 },
	{ "bcast", bcast, from_root, VECTOR, VECTOR, 1, 0 },
	{ "reduce", reduce, summed, VECTOR, VECTOR, 0, 1 },
	{ "allreduce", allreduce, summed, VECTOR, VECTOR, 0, 0 },
	{ "allgather", allgather, gathered, VECTOR, BLOCKS, 0, 0 },
	{ "alltoall", alltoall, exchanged, BLOCKS, BLOCKS, 0, 0 },
	{ "gather", gather, gathered, VECTOR, BLOCKS, 0, 1 },
	{ "scatter", scatter, scattered, BLOCKS, VECTOR, 1, 0 },
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static size_t words_of(enum shape shape, int n)
{
	return shape == NOTHING ? 0 : shape == VECTOR ? (size_t)n : (size_t)n * (size_t)ranks;
}

/* Returns the time of one iteration on this rank, in s. */
static double once(const struct operation *op, int n, int iteration)
{
	size_t given = words_of(op->given, n), taken = words_of(op->taken, n);
	if (!op->root_gives_only || rank == 0)
		for (size_t at = 0; at < given; at++)
			give[at] = word(rank, iteration, at);
	MPI_Barrier(MPI_COMM_WORLD);
	double begin = MPI_Wtime();
	op->run(n);
	double time = MPI_Wtime() - begin;
	int takes = taken && (!op->root_takes_only || rank == 0);
	if (takes && (op->run != bcast || rank != 0))
		for (size_t at = iteration ? taken - 1 : 0; at < taken; at++)
			if (take[at] != op->expected(n, iteration, at))
				fail("wrong result", op->name);
	return time;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void measure(const struct operation *op, size_t size, int milliseconds)
{
	static double mine[ITERATIONS_MAX], slowest[ITERATIONS_MAX];
	int n = (int)(size / sizeof(uint32_t)), iterations;
	double begin = MPI_Wtime();
	once(op, n, 0);
	double fit = milliseconds / 1e3 / (MPI_Wtime() - begin + 1e-7);
	iterations = fit < ITERATIONS_MIN ? ITERATIONS_MIN : fit > ITERATIONS_MAX ? ITERATIONS_MAX : (int)fit;
	MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
	for (int i = 0; i < iterations; i++)
		mine[i] = once(op, n, i + 1);
	MPI_Reduce(mine, slowest, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (rank != 0)
		return;
	qsort(slowest, (size_t)iterations, sizeof *slowest, by_value);
	double sum = 0;
	int from = iterations / 4, to = iterations - iterations / 4;
	for (int i = from; i < to; i++)
		sum += slowest[i];
	printf("%s %zu %d %.3f\n", op->name, size, iterations, sum / (to - from) * 1e6);
	fflush(stdout);
}

static int named(const char *list, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = list; (at = strstr(at, name)); at += length)
		if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length]))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	size_t largest = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 4)
		fail("usage", "collectives MILLISECONDS OPERATIONS SIZE...");
	for (int a = 3; a < argc; a++) {
		size_t size = (size_t)atol(argv[a]);
		if (size == 0 || size % sizeof(uint32_t) || size > 1 << 28)
			fail("a size must be a positive multiple of 4", argv[a]);
		largest = size > largest ? size : largest;
	}
	size_t room = largest * (size_t)ranks;
	if (room > BLOCKS_MAX)
		room = largest > BLOCKS_MAX ? largest : BLOCKS_MAX;
	give = malloc(room);
	take = malloc(room);
	if (!give || !take)
		fail("malloc", "no memory for the buffers");
	for (const struct operation *op = operations; op < operations + OPERATIONS; op++) {
		if (!named(argv[2], op->name))
			continue;
		if (op->given == NOTHING) {
			measure(op, 0, atoi(argv[1]));
			continue;
		}
		for (int a = 3; a < argc; a++) {
			size_t size = (size_t)atol(argv[a]);
			int has_blocks = op->given == BLOCKS || op->taken == BLOCKS;
			if (!has_blocks || size * (size_t)ranks <= BLOCKS_MAX)
				measure(op, size, atoi(argv[1]));
		}
	}
	MPI_Finalize();
	return 0;
}
