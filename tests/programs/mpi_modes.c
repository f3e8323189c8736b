/* Point-to-point communication beyond send and receive: synchronous, persistent, probed,
 * matched, cancelled, replaced, of datatypes with holes; small and large; every word checked.
 *
 * usage: mpi_modes */
#include "mpi_check.h"

#define MOST (1 << 18) /* words: 1 MiB */

static int next, previous;
static int *out, *in;

static void clear(int count)
{
	memset(in, 0, sizeof(int) * (size_t)count);
}

static void arrived(const char *how, int count, int salt)
{
	size_t first = right(in, (size_t)count, salt);
	if (first == (size_t)count)
		return;
	fprintf(stderr, "rank %d: %s of %d words: word %zu is wrong\n", rank, how, count, first);
	MPI_Abort(MPI_COMM_WORLD, 9);
}

static void synchronous(int count)
{
	MPI_Request request;
	fill(out, (size_t)count, rank);
	clear(count);
	MPI_Issend(out, count, MPI_INT, next, 1, MPI_COMM_WORLD, &request);
	MPI_Recv(in, count, MPI_INT, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	arrived("issend", count, previous);

	/* Not complete before it is received. */
	int done = 1;
	MPI_Issend(out, count, MPI_INT, next, 2, MPI_COMM_WORLD, &request);
	for (int i = 0; i < 100; i++) {
		MPI_Test(&request, &done, MPI_STATUS_IGNORE);
		CHECK(!done);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	clear(count);
	MPI_Recv(in, count, MPI_INT, previous, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	arrived("late issend", count, previous);
}

static void probed(int count)
{
	MPI_Request request;
	MPI_Status status;
	MPI_Message message;
	int got, there = 0;
	fill(out, (size_t)count, rank + 1);

	MPI_Isend(out, count, MPI_INT, next, 3, MPI_COMM_WORLD, &request);
	MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
	MPI_Get_count(&status, MPI_INT, &got);
	CHECK(status.MPI_SOURCE == previous && status.MPI_TAG == 3 && got == count);
	clear(count);
	MPI_Recv(in, got, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	arrived("probed", count, previous + 1);

	MPI_Isend(out, count, MPI_INT, next, 4, MPI_COMM_WORLD, &request);
	MPI_Mprobe(previous, 4, MPI_COMM_WORLD, &message, &status);
	MPI_Get_count(&status, MPI_INT, &got);
	CHECK(got == count);
	clear(count);
	MPI_Mrecv(in, got, MPI_INT, &message, &status);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	arrived("mrecv", count, previous + 1);

	MPI_Request both[2];
	MPI_Isend(out, count, MPI_INT, next, 5, MPI_COMM_WORLD, &both[0]);
	while (!there)
		MPI_Improbe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &there, &message, &status);
	clear(count);
	MPI_Imrecv(in, count, MPI_INT, &message, &both[1]);
	MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
	arrived("imrecv", count, previous + 1);
}

static void persistent(int count)
{
	MPI_Request both[2];
	MPI_Send_init(out, count, MPI_INT, next, 6, MPI_COMM_WORLD, &both[0]);
	MPI_Recv_init(in, count, MPI_INT, previous, 6, MPI_COMM_WORLD, &both[1]);
	for (int round = 0; round < 5; round++) {
		fill(out, (size_t)count, rank + round);
		clear(count);
		MPI_Startall(2, both);
		MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
		arrived("persistent", count, previous + round);
	}
	MPI_Request_free(&both[0]);
	MPI_Request_free(&both[1]);
}

static void replaced(int count)
{
	fill(in, (size_t)count, rank + 2);
	MPI_Sendrecv_replace(in, count, MPI_INT, next, 7, previous, 7, MPI_COMM_WORLD,
	                     MPI_STATUS_IGNORE);
	arrived("sendrecv_replace", count, previous + 2);
}

/* A receive without a message can be withdrawn; the next message then goes elsewhere. */
static void cancelled(int count)
{
	MPI_Request request, send;
	MPI_Status status;
	int gone;
	int *never = malloc(sizeof(int) * (size_t)count);
	MPI_Irecv(never, count, MPI_INT, previous, 8, MPI_COMM_WORLD, &request);
	MPI_Cancel(&request);
	MPI_Wait(&request, &status);
	MPI_Test_cancelled(&status, &gone);
	CHECK(gone);
	free(never);
	MPI_Barrier(MPI_COMM_WORLD);
	fill(out, (size_t)count, rank + 3);
	clear(count);
	MPI_Isend(out, count, MPI_INT, next, 8, MPI_COMM_WORLD, &send);
	MPI_Recv(in, count, MPI_INT, previous, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Wait(&send, MPI_STATUS_IGNORE);
	arrived("after cancel", count, previous + 3);
}

/* Too long for its buffer: an error. (Open MPI still writes behind the buffer, without
 * Nagaya too.) */
static void truncated(int count)
{
	MPI_Request send;
	fill(out, (size_t)count, rank);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Isend(out, count, MPI_INT, next, 9, MPI_COMM_WORLD, &send);
	int class = MPI_SUCCESS;
	int error = MPI_Recv(in, count / 2, MPI_INT, previous, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Error_class(error, &class);
	CHECK(class == MPI_ERR_TRUNCATE);
	MPI_Wait(&send, MPI_STATUS_IGNORE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void exchange(const void *from, int n, MPI_Datatype type, void *to, int m,
                     MPI_Datatype as)
{
	MPI_Sendrecv(from, n, type, next, 10, to, m, as, previous, 10, MPI_COMM_WORLD,
	             MPI_STATUS_IGNORE);
}

/* Columns of a matrix, blocks of random lengths, members of a structure. */
static void with_holes(void)
{
	int blocks = MOST / 4;
	MPI_Datatype column;
	MPI_Type_vector(blocks, 1, 3, MPI_INT, &column);
	MPI_Type_commit(&column);
	int *matrix = malloc(sizeof(int) * 3 * (size_t)blocks);

	/* Strided to dense, dense to strided, strided to strided. */
	fill(matrix, 3 * (size_t)blocks, rank);
	clear(blocks);
	exchange(matrix, 1, column, in, blocks, MPI_INT);
	for (int i = 0; i < blocks; i++)
		CHECK(in[i] == word(previous, 3 * (size_t)i));
	fill(out, (size_t)blocks, rank);
	memset(matrix, 0, sizeof(int) * 3 * (size_t)blocks);
	exchange(out, blocks, MPI_INT, matrix, 1, column);
	for (int i = 0; i < 3 * blocks; i++)
		CHECK(matrix[i] == (i % 3 ? 0 : word(previous, (size_t)(i / 3))));
	int *other = calloc(3 * (size_t)blocks, sizeof(int));
	fill(matrix, 3 * (size_t)blocks, rank + 5);
	exchange(matrix, 1, column, other, 1, column);
	for (int i = 0; i < 3 * blocks; i++)
		CHECK(other[i] == (i % 3 ? 0 : word(previous + 5, (size_t)i)));
	MPI_Type_free(&column);
	free(other);
	free(matrix);

	/* Blocks of 1 to 5 words, 7 apart, in falling order. */
	int pieces = 10000;
	int *lengths = malloc(sizeof(int) * (size_t)pieces);
	int *places = malloc(sizeof(int) * (size_t)pieces);
	int words = 0;
	for (int i = 0; i < pieces; i++) {
		lengths[i] = 1 + i % 5;
		places[i] = 7 * (pieces - 1 - i);
		words += lengths[i];
	}
	MPI_Datatype indexed;
	MPI_Type_indexed(pieces, lengths, places, MPI_INT, &indexed);
	MPI_Type_commit(&indexed);
	fill(out, 7 * (size_t)pieces, rank);
	clear(words);
	exchange(out, 1, indexed, in, words, MPI_INT);
	int at = 0;
	for (int i = 0; i < pieces; i++)
		for (int j = 0; j < lengths[i]; j++)
			CHECK(in[at++] == word(previous, (size_t)(places[i] + j)));
	MPI_Type_free(&indexed);
	free(lengths);
	free(places);

	struct record {
		char tag;
		double value;
		int counts[3];
	};
	int records = 20000, member[3] = { 1, 1, 3 };
	MPI_Aint offset[3] = { offsetof(struct record, tag), offsetof(struct record, value),
		               offsetof(struct record, counts) };
	MPI_Datatype types[3] = { MPI_CHAR, MPI_DOUBLE, MPI_INT }, bare, record;
	MPI_Type_create_struct(3, member, offset, types, &bare);
	MPI_Type_create_resized(bare, 0, sizeof(struct record), &record);
	MPI_Type_commit(&record);
	struct record *mine = calloc((size_t)records, sizeof(*mine));
	struct record *theirs = calloc((size_t)records, sizeof(*theirs));
	for (int i = 0; i < records; i++)
		mine[i] = (struct record){ (char)(i + rank), i * 0.5 + rank, { i, rank, -i } };
	exchange(mine, records, record, theirs, records, record);
	for (int i = 0; i < records; i++)
		CHECK(theirs[i].tag == (char)(i + previous) &&
		      theirs[i].value == i * 0.5 + previous && theirs[i].counts[0] == i &&
		      theirs[i].counts[1] == previous && theirs[i].counts[2] == -i);
	MPI_Type_free(&record);
	MPI_Type_free(&bare);
	free(mine);
	free(theirs);
}

/* Many large messages under way at once, received in another order, from unaligned buffers. */
static void many(void)
{
	enum { MANY = 32, WORDS = 20000 };
	MPI_Request requests[2 * MANY];
	char *from = malloc(MANY * (WORDS * sizeof(int) + 3));
	char *to = malloc(MANY * (WORDS * sizeof(int) + 3));
	size_t step = WORDS * sizeof(int) + 3;
	for (int i = 0; i < MANY; i++) {
		fill(out, WORDS, rank * MANY + i);
		memcpy(from + (size_t)i * step, out, WORDS * sizeof(int));
		MPI_Isend(from + (size_t)i * step, WORDS, MPI_INT, next, 100 + i, MPI_COMM_WORLD,
		          &requests[i]);
	}
	for (int i = MANY - 1; i >= 0; i--)
		MPI_Irecv(to + (size_t)i * step, WORDS, MPI_INT, previous, 100 + i, MPI_COMM_WORLD,
		          &requests[MANY + i]);
	MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < MANY; i++) {
		memcpy(in, to + (size_t)i * step, WORDS * sizeof(int));
		arrived("one of many", WORDS, previous * MANY + i);
	}
	free(from);
	free(to);
}

/* Buffers that no process can write to, or that lie in shared and file mappings. */
static void of_all_memory(void)
{
	static const char text[100000] = "constant";
	static int zeroed[50000];
	int words = 50000;
	char *copy = malloc(sizeof(text));
	MPI_Sendrecv(text, sizeof(text), MPI_CHAR, next, 11, copy, sizeof(text), MPI_CHAR, previous,
	             11, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	CHECK(memcmp(text, copy, sizeof(text)) == 0);
	free(copy);
	int stack[50000];
	fill(stack, (size_t)words, rank);
	MPI_Sendrecv(stack, words, MPI_INT, next, 12, zeroed, words, MPI_INT, previous, 12,
	             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	CHECK(right(zeroed, (size_t)words, previous) == (size_t)words);
	int *alone;
	MPI_Alloc_mem((MPI_Aint)sizeof(int) * words, MPI_INFO_NULL, &alone);
	MPI_Sendrecv(stack, words, MPI_INT, next, 13, alone, words, MPI_INT, previous, 13,
	             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	CHECK(right(alone, (size_t)words, previous) == (size_t)words);
	MPI_Free_mem(alone);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	next = (rank + 1) % ranks;
	previous = (rank + ranks - 1) % ranks;
	out = malloc(sizeof(int) * MOST);
	in = malloc(sizeof(int) * MOST);
	const int counts[] = { 2, 900, 30000, MOST };
	for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
		synchronous(counts[c]);
		probed(counts[c]);
		persistent(counts[c]);
		replaced(counts[c]);
		cancelled(counts[c]);
		truncated(counts[c]);
		/* A probe for anybody's message must not see the next round's. */
		MPI_Barrier(MPI_COMM_WORLD);
	}
	with_holes();
	many();
	of_all_memory();
	if (rank == 0)
		printf("all modes work\n");
	MPI_Finalize();
	return 0;
}
