/* The collective operations that libnagaya-coll.so has, against the MPI's own, which are
 * given the same in the simplest form: both leave the same bytes behind.
 *
 * usage: mpi_coll random SEED ROUNDS   random operations on random communicators
 *        mpi_coll place                prints whether an operator was handed a peer's memory
 *        mpi_coll progress             ranks that wait let the MPI bring messages to their end
 *        mpi_coll behind               ranks that never wait in an operation make progress, too
 *        mpi_coll ahead                a rank that need not wait does not disturb the others
 *        mpi_coll threads              several threads, each on a communicator of its own
 *        mpi_coll churn                communicators come and go
 *        mpi_coll errors               wrong calls get the errors of the MPI
 *        mpi_coll forever              operations of all sizes until a rank is killed */
#include <pthread.h>
#include <stdint.h>

#include "mpi_check.h"

/* A generator of random numbers, the same on all ranks, and one that differs. */
static uint64_t common, private;

static uint32_t draw(uint64_t *state, uint32_t limit)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) % limit;
}
static int pick(int limit)
{
	return (int)draw(&common, (uint32_t)limit);
}

/* 2 x 2 matrices modulo a prime: the order matters. */
struct matrix {
	int at[4];
};
enum { PRIME = 10007 };

static void multiply(void *left, void *right, int *count, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *count; i++) {
		const int *a = ((struct matrix *)left)[i].at;
		int *b = ((struct matrix *)right)[i].at, c[4];
		for (int k = 0; k < 4; k++)
			c[k] = (a[k & 2] * b[k & 1] + a[(k & 2) | 1] * b[(k & 1) | 2]) % PRIME;
		memcpy(b, c, sizeof(c));
	}
}

/* Types that stand for three numbers in a row, and take more or less room for them. */
enum { TRIPLES = 7 };
static MPI_Datatype triple[TRIPLES], matrices;
static MPI_Op product;

static void make_types(void)
{
	int two_one[2] = { 2, 1 }, places[2] = { 0, 3 }, backwards[3] = { 2, 1, 0 };
	MPI_Datatype with_gap;
	MPI_Type_contiguous(3, MPI_INT, &triple[0]);
	MPI_Type_indexed(2, two_one, places, MPI_INT, &triple[1]);
	MPI_Type_create_indexed_block(3, 1, backwards, MPI_INT, &triple[2]);
	MPI_Type_vector(3, 1, 2, MPI_INT, &with_gap);
	MPI_Type_create_resized(with_gap, 0, 28, &triple[3]);
	MPI_Type_free(&with_gap);
	MPI_Type_dup(triple[0], &triple[4]);
#if MPI_VERSION >= 4
	/* Made with large counts: MPI_Type_get_envelope refuses them. */
	MPI_Count places_c[3] = { 1, 2, 0 };
	MPI_Type_contiguous_c(3, MPI_INT, &triple[5]);
	MPI_Type_create_indexed_block_c(3, 1, places_c, MPI_INT, &triple[6]);
#else
	MPI_Type_dup(triple[1], &triple[5]);
	MPI_Type_dup(triple[2], &triple[6]);
#endif
	for (int t = 0; t < TRIPLES; t++)
		MPI_Type_commit(&triple[t]);
	MPI_Type_contiguous(4, MPI_INT, &matrices);
	MPI_Type_commit(&matrices);
	MPI_Op_create(multiply, 0, &product);
}

/* Room for `count` triples a rank of any of these types, and a wall behind. */
enum { ROOM = 28, WALL = 64, MOST = 300000 };

/* For our operation and for the MPI's own; and what the latter is given, and gives, in a row. */
static char *out[2], *in[2], *flat[2];
static size_t room;

static void fill_all(void)
{
	for (size_t i = 0; i < room; i++) {
		/* Small numbers of all types: sums are exact in any order, and fit (Open MPI adds
		 * small integers with saturation, but not the last few). */
		out[0][i] = i % 4 == 0 ? (char)draw(&private, 10) : 0;
		in[0][i] = i % 4 == 0 ? (char)draw(&private, 10) : 0;
	}
	memcpy(out[1], out[0], room);
	memcpy(in[1], in[0], room);
}

static void as_truths(void)
{
	for (size_t i = 0; i < room; i++) {
		out[0][i] = (char)draw(&private, 2);
		in[0][i] = (char)draw(&private, 2);
	}
	memcpy(out[1], out[0], room);
	memcpy(in[1], in[0], room);
}

static void as_doubles(void)
{
	for (size_t i = 0; i < room / 8; i++) {
		((double *)out[0])[i] = draw(&private, 1000);
		((double *)in[0])[i] = draw(&private, 1000);
	}
	memcpy(out[1], out[0], room);
	memcpy(in[1], in[0], room);
}

static void as_floats(void)
{
	for (size_t i = 0; i < room / 4; i++) {
		((float *)out[0])[i] = (float)draw(&private, 1000);
		((float *)in[0])[i] = (float)draw(&private, 1000);
	}
	memcpy(out[1], out[0], room);
	memcpy(in[1], in[0], room);
}

/* The MPI's own: the library has no operations that do not block. */
#define MPIS(Name, ...)                                                              \
	do {                                                                         \
		MPI_Request request_;                                                \
		MPI_##Name(__VA_ARGS__, &request_);                                  \
		MPI_Wait(&request_, MPI_STATUS_IGNORE);                              \
	} while (0)

static int pack(const void *from, int count, MPI_Datatype type, void *to)
{
	int at = 0;
	PMPI_Pack(from, count, type, to, (int)room, &at, MPI_COMM_SELF);
	return at;
}

static void unpack(const void *from, void *to, int count, MPI_Datatype type)
{
	int at = 0;
	PMPI_Unpack(from, (int)room, &at, to, count, type, MPI_COMM_SELF);
}

/* Counts on both sides of all thresholds, small ones more often. */
static int some_count(int most)
{
	int count = 1 << pick(19);
	count += pick(count) - count / 4;
	return count > most ? most : count;
}

static void one_round(MPI_Comm comm, int round, int most)
{
	const struct {
		MPI_Datatype type;
		MPI_Op op;
		void (*fill)(void);
	} reductions[] = {
		{ MPI_INT, MPI_SUM, fill_all },          { MPI_DOUBLE, MPI_SUM, as_doubles },
		{ MPI_FLOAT, MPI_SUM, as_floats },       { MPI_FLOAT, MPI_MAX, as_floats },
		{ MPI_LONG, MPI_MIN, fill_all },         { MPI_UNSIGNED, MPI_MAX, fill_all },
		{ MPI_SHORT, MPI_PROD, fill_all },       { MPI_INT, MPI_PROD, fill_all },
		{ MPI_BYTE, MPI_BXOR, fill_all },        { MPI_UNSIGNED_CHAR, MPI_BAND, fill_all },
		{ MPI_INT, MPI_LOR, fill_all },          { MPI_C_BOOL, MPI_LAND, as_truths },
		{ MPI_2INT, MPI_MAXLOC, fill_all },      { MPI_FLOAT_INT, MPI_MINLOC, fill_all },
		{ MPI_C_DOUBLE_COMPLEX, MPI_SUM, as_doubles },
		{ MPI_INT8_T, MPI_SUM, fill_all },       { matrices, product, fill_all },
	};
	enum { REDUCTIONS = sizeof(reductions) / sizeof(*reductions) };
	static const char *const names[] = { "barrier",   "bcast",     "reduce",
	                                     "allreduce", "allgather", "alltoall" };
	int here, size, operation = pick(6), which = pick(REDUCTIONS);
	MPI_Comm_rank(comm, &here);
	MPI_Comm_size(comm, &size);
	int root = pick(size), in_place = pick(3) == 0;
	int count = some_count(most / (operation >= 4 ? size : 2));
	/* Types may differ between ranks, and between what is given and taken. */
	MPI_Datatype give = triple[draw(&private, TRIPLES)], take = triple[draw(&private, TRIPLES)];
	int plain = pick(3), gives = count, takes = count;
	if (plain) {
		give = take = plain == 1 ? MPI_INT : MPI_DOUBLE;
	} else if (draw(&private, 4) == 0) {
		give = MPI_INT;
		gives = 3 * count;
	}
	if (operation == 2 || operation == 3)
		reductions[which].fill();
	else
		fill_all();
	if (reductions[which].type == matrices)
		for (size_t i = 0; i < room / 4; i++)
			((int *)out[1])[i] = ((int *)out[0])[i] = ((int *)in[1])[i] =
				((int *)in[0])[i] = (int)draw(&private, PRIME);
	switch (operation) {
	case 0:
		MPI_Barrier(comm);
		return;
	case 1: {
		int n = here == root ? gives : takes;
		MPI_Datatype type = here == root ? give : take;
		MPI_Bcast(in[0], n, type, root, comm);
		int bytes = pack(in[1], n, type, flat[0]);
		MPIS(Ibcast, flat[0], bytes, MPI_BYTE, root, comm);
		unpack(flat[0], in[1], n, type);
		break;
	}
	case 2:
	case 3: {
		/* The MPI's own, which it is for this type, takes nothing in place: MPICH 4's then
		 * fails at times. */
		MPI_Datatype type = reductions[which].type;
		MPI_Op op = reductions[which].op;
		int everybody = operation == 3, is_here = in_place && (everybody || here == root);
		is_here = is_here && type != MPI_FLOAT_INT;
		void *from = is_here ? in[0] : out[0];
		memcpy(flat[0], from, room);
		if (is_here)
			from = MPI_IN_PLACE;
		if (everybody) {
			MPI_Allreduce(from, in[0], count, type, op, comm);
			MPIS(Iallreduce, flat[0], in[1], count, type, op, comm);
		} else {
			MPI_Reduce(from, in[0], count, type, op, root, comm);
			MPIS(Ireduce, flat[0], in[1], count, type, op, root, comm);
		}
		break;
	}
	default: {
		/* Nor does it mix types: Intel MPI's is then wrong at times. */
		int everybody = operation == 5;
		MPI_Aint lower, extent;
		PMPI_Type_get_extent(take, &lower, &extent);
		int bytes, blocks = everybody ? size : 1;
		if (in_place) {
			char *from = everybody ? in[1] : in[1] + here * takes * extent;
			bytes = pack(from, takes * blocks, take, flat[0]) / blocks;
		} else {
			bytes = pack(out[1], gives * blocks, give, flat[0]) / blocks;
		}
		void *from = in_place ? MPI_IN_PLACE : out[0];
		if (everybody) {
			MPI_Alltoall(from, gives, give, in[0], takes, take, comm);
			MPIS(Ialltoall, flat[0], bytes, MPI_BYTE, flat[1], bytes, MPI_BYTE, comm);
		} else {
			MPI_Allgather(from, gives, give, in[0], takes, take, comm);
			MPIS(Iallgather, flat[0], bytes, MPI_BYTE, flat[1], bytes, MPI_BYTE, comm);
		}
		unpack(flat[1], in[1], takes * size, take);
	}
	}
	if (memcmp(in[0], in[1], room) || memcmp(out[0], out[1], room)) {
		size_t at = 0;
		while (in[0][at] == in[1][at] && out[0][at] == out[1][at])
			at++;
		fprintf(stderr, "rank %d of %d, round %d: %s of %d (%s, root %d, which %d, plain %d)"
		                ": byte %zu is not so\n",
		        here, size, round, names[operation], count,
		        in_place ? "in place" : "apart", root, which, plain, at);
		MPI_Abort(MPI_COMM_WORLD, 9);
	}
}

/* All ranks, half of them, in another order, or what was made of these before. */
static MPI_Comm some_comm(MPI_Comm old)
{
	MPI_Comm comm;
	switch (pick(4)) {
	case 0:
		MPI_Comm_dup(old, &comm);
		break;
	case 1:
		MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm);
		break;
	case 2:
		MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
		break;
	default:
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	}
	return comm;
}

static void at_random(uint64_t seed, int rounds)
{
	common = seed;
	private = seed + 1 + (uint64_t)rank;
	make_types();
	room = (size_t)MOST * ROOM + WALL;
	for (int side = 0; side < 2; side++) {
		out[side] = malloc(room);
		in[side] = malloc(room);
		flat[side] = malloc(room);
	}
	MPI_Comm comm = MPI_COMM_WORLD;
	for (int round = 0; round < rounds; round++) {
		/* Only what may be touched is written and compared: most rounds are small. */
		int most = pick(8) ? 3000 : MOST;
		room = (size_t)most * ROOM + WALL;
		one_round(comm, round, most);
		if (pick(10) == 0) {
			MPI_Comm next = some_comm(comm);
			if (comm != MPI_COMM_WORLD)
				MPI_Comm_free(&comm);
			comm = next;
		}
	}
	if (comm != MPI_COMM_WORLD)
		MPI_Comm_free(&comm);
	for (int t = 0; t < TRIPLES; t++)
		MPI_Type_free(&triple[t]);
	MPI_Type_free(&matrices);
	MPI_Op_free(&product);
	if (rank == 0)
		printf("both agree\n");
}

enum { WORDS = 100000 };

/* What each rank gives, and whether the operator was handed a peer's. */
static int mine[WORDS], *theirs[64], has_peers;

static void look(void *left, void *right, int *count, MPI_Datatype *type)
{
	int *from = left;
	(void)type;
	for (int r = 0; r < ranks; r++)
		has_peers |= theirs[r] != mine && from >= theirs[r] && from < theirs[r] + WORDS;
	for (int i = 0; i < *count; i++)
		((int *)right)[i] += from[i];
}

static void place(void)
{
	static int sum[WORDS];
	int *here = mine, any;
	MPI_Op op;
	MPI_Op_create(look, 1, &op);
	MPI_Allgather(&here, sizeof(here), MPI_BYTE, theirs, sizeof(here), MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < WORDS; i++)
		mine[i] = rank + i;
	MPI_Allreduce(mine, sum, WORDS, MPI_INT, op, MPI_COMM_WORLD);
	for (int i = 0; i < WORDS; i++)
		CHECK(sum[i] == ranks * i + ranks * (ranks - 1) / 2);
	MPI_Allreduce(&has_peers, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%s\n", any ? "in place" : "by the MPI");
	MPI_Op_free(&op);
}

/* Rank 0 waits in an operation while its message is on its way to rank 1, who comes later. */
static void progress(void)
{
	enum { MANY = 4 << 20 };
	int *data = malloc(sizeof(int) * MANY), sum, one = 1;
	for (int round = 0; round < 6; round++) {
		MPI_Request request;
		if (rank == 0) {
			/* Something that nobody asks for before the end. */
			MPI_Send(&one, 1, MPI_INT, 1, 9, MPI_COMM_WORLD);
			fill(data, MANY, round);
			MPI_Isend(data, MANY, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
		} else if (rank == 1) {
			MPI_Send(&one, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
			MPI_Recv(data, MANY, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			CHECK(right(data, MANY, round) == MANY);
		}
		switch (round % 3) {
		case 0:
			MPI_Barrier(MPI_COMM_WORLD);
			break;
		case 1:
			MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
			CHECK(sum == ranks);
			break;
		case 2:
			MPI_Bcast(&one, 1, MPI_INT, 1, MPI_COMM_WORLD);
		}
		if (rank == 0)
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (rank < 2)
			MPI_Recv(&sum, 1, MPI_INT, 1 - rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	if (rank == 0)
		printf("messages went on\n");
}

/* Rank 0 repeats operations that it never has to wait in, since it comes late to each, and calls
 * nothing else of the MPI: the MPI must deliver its message, and answer for its window, all the
 * same. */
static void behind(void)
{
	enum { MANY = 1 << 18, TIMES = 3000, LATE = 1000 /* microseconds */ };
	int *data = malloc(sizeof(int) * MANY), *window, done = 0;
	MPI_Request message, got;
	MPI_Win win;
	MPI_Win_allocate(sizeof(int) * MANY, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	MPI_Win_lock_all(0, win);
	fill(window, MANY, rank);
	MPI_Win_sync(win);
	MPI_Barrier(MPI_COMM_WORLD);
	int *fetched = malloc(sizeof(int) * MANY);
	if (rank == 0) {
		fill(data, MANY, 7);
		MPI_Isend(data, MANY, MPI_INT, 1, 1, MPI_COMM_WORLD, &message);
	} else if (rank == 1) {
		MPI_Irecv(data, MANY, MPI_INT, 0, 1, MPI_COMM_WORLD, &message);
		MPI_Rget(fetched, MANY, MPI_INT, 0, 0, MANY, MPI_INT, win, &got);
	}
	int arrived = 0, read = 0, times = 0;
	for (; !done && times < TIMES; times++) {
		if (rank == 0)
			usleep(LATE);
		if (rank == 1) {
			if (!arrived)
				MPI_Test(&message, &arrived, MPI_STATUS_IGNORE);
			if (!read)
				MPI_Test(&got, &read, MPI_STATUS_IGNORE);
			done = arrived && read;
		}
		MPI_Bcast(&done, 1, MPI_INT, 1, MPI_COMM_WORLD);
	}
	if (rank == 1 && !(arrived && read))
		fprintf(stderr, "message %s, window %s\n", arrived ? "there" : "missing",
			read ? "read" : "not read");
	CHECK(done);
	if (rank == 1)
		CHECK(right(data, MANY, 7) == MANY && right(fetched, MANY, 0) == MANY);
	if (rank == 0)
		MPI_Wait(&message, MPI_STATUS_IGNORE);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	if (rank == 0)
		printf("messages went on\n");
	free(data);
	free(fetched);
}

/* Roots of broadcasts, and who only gives to a reduction, run ahead of one who is slow. */
static void ahead(void)
{
	enum { SMALL = 40, LARGE = 200000 };
	static int give[LARGE], sum[LARGE];
	for (int slow = 0; slow < ranks; slow++)
		for (int round = 0; round < 200; round++) {
			int count = round % 10 == 9 ? LARGE : SMALL;
			if (rank == slow && round % 20 == 0)
				usleep(2000);
			for (int i = 0; i < count; i++)
				give[i] = rank + round + i;
			if (round % 100 < 50) {
				int root = (slow + 1) % ranks;
				MPI_Bcast(give, count, MPI_INT, root, MPI_COMM_WORLD);
				/* At once, and what comes last first. */
				for (int i = count; i-- > 0;)
					CHECK(give[i] == root + round + i);
			} else {
				MPI_Reduce(give, sum, count, MPI_INT, MPI_SUM, slow, MPI_COMM_WORLD);
				for (int i = 0; i < count && rank == slow; i++)
					CHECK(sum[i] ==
					      ranks * (round + i) + ranks * (ranks - 1) / 2);
			}
		}
	/* Rank 0 has left a communicator, and begins with the next, before the last rank has read
	 * what it showed there. */
	for (int round = 0; round < 30 && ranks > 2; round++) {
		MPI_Comm comm, others;
		int word = rank == 0 ? round : -1, is_last = rank == ranks - 1;
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Comm_split(MPI_COMM_WORLD, is_last, rank, &others);
		MPI_Barrier(comm);
		if (is_last)
			usleep(3000);
		MPI_Bcast(&word, 1, MPI_INT, 0, comm);
		CHECK(word == round);
		MPI_Comm_free(&comm);
		for (int i = 0; i < 8; i++)
			MPI_Allreduce(&rank, &word, 1, MPI_INT, MPI_SUM, others);
		CHECK(is_last || word == (ranks - 1) * (ranks - 2) / 2);
		MPI_Comm_free(&others);
	}
	if (rank == 0)
		printf("nobody is disturbed\n");
}

enum { THREADS = 4 };
static MPI_Comm of_thread[THREADS];

static void *work(void *argument)
{
	int thread = (int)(long)argument;
	MPI_Comm comm = of_thread[thread];
	int *give = malloc(sizeof(int) * 40000), *sum = malloc(sizeof(int) * 40000);
	for (int round = 0; round < 60; round++) {
		int count = round % 7 == 0 ? 40000 : 1 + round, root = round % ranks;
		for (int i = 0; i < count; i++)
			give[i] = thread + rank + i + round;
		MPI_Allreduce(give, sum, count, MPI_INT, MPI_SUM, comm);
		for (int i = 0; i < count; i++)
			CHECK(sum[i] == ranks * (thread + i + round) + ranks * (ranks - 1) / 2);
		MPI_Bcast(give, count, MPI_INT, root, comm);
		for (int i = 0; i < count; i++)
			CHECK(give[i] == thread + root + i + round);
		MPI_Barrier(comm);
	}
	free(give);
	free(sum);
	return NULL;
}

static void threads(void)
{
	pthread_t all[THREADS];
	for (int t = 0; t < THREADS; t++)
		MPI_Comm_dup(MPI_COMM_WORLD, &of_thread[t]);
	for (long t = 0; t < THREADS; t++)
		pthread_create(&all[t], NULL, work, (void *)t);
	for (int t = 0; t < THREADS; t++)
		pthread_join(all[t], NULL);
	for (int t = 0; t < THREADS; t++)
		MPI_Comm_free(&of_thread[t]);
	if (rank == 0)
		printf("threads agree\n");
}

/* KB of memory. */
static long pages(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	long total = 0, kb;
	char line[256];
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Private_Dirty: %ld kB", &kb) == 1)
			total = kb;
	if (file)
		fclose(file);
	return total;
}

/* Each communicator has another set of operations before it goes, and one rank is slow to
 * leave: who has left must not take its seat again while others look. */
static void churn(void)
{
	long before = 0;
	for (int round = 0; round < 2000; round++) {
		MPI_Comm comm, half;
		int one = rank + round, sum, size;
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
		CHECK(sum == ranks * round + ranks * (ranks - 1) / 2);
		if (round % 3 == 0) {
			MPI_Comm_split(comm, rank % 2, rank, &half);
			MPI_Comm_size(half, &size);
			MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, half);
			CHECK(sum == size * round);
			MPI_Comm_free(&half);
		}
		int root = round % ranks, word = rank == root ? round : -1;
		MPI_Bcast(&word, 1, MPI_INT, root, comm);
		CHECK(word == round);
		MPI_Comm_free(&comm);
		if (round == 200)
			before = pages();
	}
	/* A seat has some 9 KB. */
	CHECK(pages() - before < 1800 * 9 / 3);
	if (rank == 0)
		printf("all have gone\n");
}

static int class_of(int error)
{
	int class;
	MPI_Error_class(error, &class);
	return class;
}

static void errors(void)
{
	static int a[5000], b[5000];
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	MPI_Barrier(MPI_COMM_WORLD);
	CHECK(class_of(MPI_Bcast(a, 1, MPI_INT, ranks, MPI_COMM_WORLD)) == MPI_ERR_ROOT);
	CHECK(class_of(MPI_Bcast(a, 1, MPI_INT, -5, MPI_COMM_WORLD)) == MPI_ERR_ROOT);
	CHECK(class_of(MPI_Bcast(a, -1, MPI_INT, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
	CHECK(class_of(MPI_Allreduce(a, b, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD)) == MPI_ERR_OP);
	CHECK(class_of(MPI_Allreduce(a, b, 1, MPI_DOUBLE, MPI_BAND, MPI_COMM_WORLD)) == MPI_ERR_OP);
	CHECK(class_of(MPI_Reduce(a, b, 1, MPI_INT, MPI_SUM, ranks, MPI_COMM_WORLD)) ==
	      MPI_ERR_ROOT);
	CHECK(class_of(MPI_Barrier(MPI_COMM_NULL)) == MPI_ERR_COMM);
	/* More comes than there is room for: no word behind that is touched. */
	for (int count = 1; count <= 5000; count += 4998) {
		b[count - 1] = 77;
		int error = MPI_Bcast(rank ? b : a, rank ? count - 1 : count, MPI_INT, 0,
		                      MPI_COMM_WORLD);
		CHECK(class_of(error) == (rank ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
		CHECK(b[count - 1] == 77);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("errors are told\n");
}

static void forever(void)
{
	enum { MANY = 300000 };
	int *give = malloc(sizeof(int) * MANY), *sum = malloc(sizeof(int) * MANY);
	for (int round = 0;; round++) {
		int count = round % 3 ? 10 : MANY;
		for (int i = 0; i < count; i++)
			give[i] = rank + i + round;
		MPI_Allreduce(give, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			CHECK(sum[i] == ranks * (i + round) + ranks * (ranks - 1) / 2);
		MPI_Bcast(give, count, MPI_INT, round % ranks, MPI_COMM_WORLD);
		CHECK(give[count - 1] == round % ranks + count - 1 + round);
		if (round == 6) {
			printf("going %d\n", getpid());
			fflush(stdout);
		}
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	begin(&argc, &argv,
	      strcmp(what, "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
	if (strcmp(what, "random") == 0)
		at_random(strtoull(argv[2], NULL, 10), atoi(argv[3]));
	else if (strcmp(what, "place") == 0)
		place();
	else if (strcmp(what, "progress") == 0)
		progress();
	else if (strcmp(what, "behind") == 0)
		behind();
	else if (strcmp(what, "ahead") == 0)
		ahead();
	else if (strcmp(what, "threads") == 0)
		threads();
	else if (strcmp(what, "churn") == 0)
		churn();
	else if (strcmp(what, "errors") == 0)
		errors();
	else if (strcmp(what, "forever") == 0)
		forever();
	else
		CHECK(!"a case");
	MPI_Finalize();
	return 0;
}
