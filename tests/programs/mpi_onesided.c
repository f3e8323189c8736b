/* One-sided communication: each kind of window, each way of synchronisation, each call; small
 * and large; every word checked.
 *
 * usage: mpi_onesided */
#include "mpi_check.h"

#define WORDS 40000 /* of a window */

static MPI_Win window;
static int *memory;               /* our part of it */
static MPI_Aint origin[64];       /* what each rank's part begins at, in units of its own */
static MPI_Aint unit;             /* that a displacement counts in words */
static const char *kind;
static int next, previous, *out, *in;

static MPI_Aint at(int target, int index)
{
	return origin[target] + unit * index;
}

static void holds(const char *what, const int *words, int count, int salt)
{
	size_t first = right(words, (size_t)count, salt);
	if (first == (size_t)count)
		return;
	fprintf(stderr, "rank %d: %s window, %s of %d words: word %zu is %d, not %d\n", rank, kind,
	        what, count, first, words[first], word(salt, first));
	MPI_Abort(MPI_COMM_WORLD, 9);
}

static void fences(int count)
{
	MPI_Win_fence(0, window);
	memset(memory, 0, sizeof(int) * WORDS);
	fill(out, (size_t)count, rank);
	memset(in, 0, sizeof(int) * (size_t)count);
	MPI_Win_fence(0, window);
	MPI_Put(out, count, MPI_INT, next, at(next, 0), count, MPI_INT, window);
	MPI_Win_fence(0, window);
	holds("put", memory, count, previous);
	MPI_Win_fence(0, window);
	MPI_Get(in, count, MPI_INT, next, at(next, 0), count, MPI_INT, window);
	MPI_Win_fence(0, window);
	holds("get", in, count, rank);

	for (int i = 0; i < count; i++) {
		memory[i] = i;
		out[i] = rank + 1;
	}
	MPI_Win_fence(0, window);
	for (int r = 0; r < ranks; r++)
		MPI_Accumulate(out, count, MPI_INT, r, at(r, 0), count, MPI_INT, MPI_SUM, window);
	MPI_Win_fence(0, window);
	for (int i = 0; i < count; i++)
		CHECK(memory[i] == i + ranks * (ranks + 1) / 2);
}

/* Every second word of the target. */
static void strides(void)
{
	int count = WORDS / 2;
	MPI_Datatype stride;
	MPI_Type_vector(count, 1, 2, MPI_INT, &stride);
	MPI_Type_commit(&stride);
	MPI_Win_fence(0, window);
	memset(memory, 0, sizeof(int) * WORDS);
	fill(out, (size_t)count, rank);
	MPI_Win_fence(0, window);
	MPI_Put(out, count, MPI_INT, next, at(next, 0), 1, stride, window);
	MPI_Win_fence(0, window);
	for (int i = 0; i < WORDS; i++)
		CHECK(memory[i] == (i % 2 ? 0 : word(previous, (size_t)(i / 2))));
	MPI_Win_fence(0, window);
	memset(in, 0, sizeof(int) * (size_t)count);
	MPI_Get(in, count, MPI_INT, next, at(next, 0), 1, stride, window);
	MPI_Win_fence(0, window);
	holds("strided get", in, count, rank);
	MPI_Type_free(&stride);
}

/* Post, start, complete, wait: with the two neighbours only. */
static void exposure(int count)
{
	MPI_Group everybody, to, from;
	MPI_Comm_group(MPI_COMM_WORLD, &everybody);
	MPI_Group_incl(everybody, 1, &next, &to);
	MPI_Group_incl(everybody, 1, &previous, &from);
	fill(out, (size_t)count, rank + 9);
	MPI_Win_post(from, 0, window);
	MPI_Win_start(to, 0, window);
	MPI_Put(out, count, MPI_INT, next, at(next, 0), count, MPI_INT, window);
	MPI_Win_complete(window);
	MPI_Win_wait(window);
	holds("put in an epoch", memory, count, previous + 9);
	MPI_Group_free(&to);
	MPI_Group_free(&from);
	MPI_Group_free(&everybody);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void locks(int count)
{
	/* A counter that all increment under an exclusive lock, and words behind it. */
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
	memory[0] = 0;
	MPI_Win_unlock(rank, window);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int round = 0; round < 20; round++) {
		int value;
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
		MPI_Get(&value, 1, MPI_INT, 0, at(0, 0), 1, MPI_INT, window);
		MPI_Win_flush(0, window);
		value++;
		MPI_Put(&value, 1, MPI_INT, 0, at(0, 0), 1, MPI_INT, window);
		MPI_Win_unlock(0, window);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
	CHECK(rank != 0 || memory[0] == 20 * ranks);
	MPI_Win_unlock(rank, window);
	MPI_Barrier(MPI_COMM_WORLD);

	fill(out, (size_t)count, rank + 4);
	memset(in, 0, sizeof(int) * (size_t)count);
	MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
	MPI_Put(out, count, MPI_INT, next, at(next, 0), count, MPI_INT, window);
	MPI_Win_flush(next, window);
	MPI_Get(in, count, MPI_INT, next, at(next, 0), count, MPI_INT, window);
	MPI_Win_unlock(next, window);
	holds("get under a lock", in, count, rank + 4);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void atomics(void)
{
	int one = 1, before, old, sum[8], ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
	memset(memory, 0, sizeof(int) * 16);
	MPI_Win_unlock(rank, window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, window);
	for (int round = 0; round < 50; round++) {
		MPI_Fetch_and_op(&one, &before, MPI_INT, 0, at(0, 0), MPI_SUM, window);
		MPI_Win_flush(0, window);
		CHECK(before >= round && before < 50 * ranks);
		MPI_Accumulate(ones, 8, MPI_INT, 0, at(0, 8), 8, MPI_INT, MPI_SUM, window);
		MPI_Win_flush_local(0, window);
	}
	/* One rank changes 0 to its number; the others see that number. */
	int number = rank + 100, none = 0;
	MPI_Compare_and_swap(&number, &none, &old, MPI_INT, 0, at(0, 1), window);
	MPI_Win_flush_all(window);
	int winner = old == 0 ? number : old, most;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Allreduce(&winner, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	CHECK(winner == most && winner >= 100 && winner < 100 + ranks);
	MPI_Get_accumulate(NULL, 0, MPI_INT, sum, 8, MPI_INT, 0, at(0, 8), 8, MPI_INT, MPI_NO_OP,
	                   window);
	MPI_Win_flush(0, window);
	for (int i = 0; i < 8; i++)
		CHECK(sum[i] == 50 * ranks);
	int all;
	MPI_Fetch_and_op(NULL, &all, MPI_INT, 0, at(0, 0), MPI_NO_OP, window);
	MPI_Win_flush(0, window);
	CHECK(all == 50 * ranks);
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* With requests. */
static void requests(int count)
{
	MPI_Request request;
	fill(out, (size_t)count, rank + 6);
	memset(in, 0, sizeof(int) * (size_t)count);
	MPI_Win_lock_all(0, window);
	MPI_Rput(out, count, MPI_INT, next, at(next, 0), count, MPI_INT, window, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Win_flush(next, window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Rget(in, count, MPI_INT, next, at(next, 0), count, MPI_INT, window, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	holds("rget", in, count, rank + 6);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		out[i] = 3;
	MPI_Raccumulate(out, count, MPI_INT, next, at(next, 0), count, MPI_INT, MPI_REPLACE, window,
	                &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
	for (int i = 0; i < count; i++)
		CHECK(memory[i] == 3);
	MPI_Win_unlock(rank, window);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void exercise(const char *of_kind, MPI_Aint begins, MPI_Aint a_word)
{
	const int counts[] = { 1, 1000, WORDS };
	kind = of_kind;
	unit = a_word;
	MPI_Allgather(&begins, 1, MPI_AINT, origin, 1, MPI_AINT, MPI_COMM_WORLD);
	for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		fences(counts[c]);
		exposure(counts[c]);
		locks(counts[c]);
		requests(counts[c]);
	}
	strides();
	atomics();
}

int main(int argc, char **argv)
{
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	CHECK(ranks <= 64);
	next = (rank + 1) % ranks;
	previous = (rank + ranks - 1) % ranks;
	out = malloc(sizeof(int) * WORDS);
	in = malloc(sizeof(int) * WORDS);
	MPI_Aint size = sizeof(int) * WORDS;

	MPI_Win_allocate(size, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
	exercise("allocated", 0, 1);
	MPI_Win_free(&window);

	memory = malloc((size_t)size);
	MPI_Win_create(memory, size, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	exercise("created", 0, 1);
	MPI_Win_free(&window);
	free(memory);

	MPI_Comm node;
	int same;
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
	MPI_Comm_size(node, &same);
	if (same == ranks) {
		MPI_Win_allocate_shared(size, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
		                        &window);
		exercise("shared", 0, 1);
		/* And by loads and stores. */
		MPI_Win_fence(0, window);
		fill(memory, WORDS, rank + 3);
		MPI_Win_fence(0, window);
		MPI_Aint their_size;
		int their_unit, *theirs;
		MPI_Win_shared_query(window, next, &their_size, &their_unit, &theirs);
		CHECK(their_size == size && their_unit == sizeof(int));
		holds("load", theirs, WORDS, next + 3);
		MPI_Win_fence(0, window);
		MPI_Win_free(&window);
	}
	MPI_Comm_free(&node);

	memory = malloc((size_t)size);
	MPI_Aint address;
	MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	MPI_Win_attach(window, memory, size);
	MPI_Get_address(memory, &address);
	exercise("dynamic", address, sizeof(int));
	MPI_Win_detach(window, memory);
	MPI_Win_free(&window);
	free(memory);

	if (rank == 0)
		printf("windows work\n");
	MPI_Finalize();
	return 0;
}
