/* Every collective operation of MPI-3: blocking, non-blocking and (from MPI-4 on) persistent;
 * in place where the standard has it; of several types and of sizes on both sides of all
 * thresholds; each element of each result checked, and the elements behind it.
 *
 * usage: mpi_collectives */
#include "mpi_check.h"

/* A type, and how to reach an element. */
struct kind {
	const char *name;
	MPI_Datatype type;
	size_t size;
	void (*put)(void *buffer, size_t i, int value);
	int (*get)(const void *buffer, size_t i);
};

#define ACCESS(name, type)                                                           \
	static void put_##name(void *buffer, size_t i, int value)                    \
	{                                                                            \
		((type *)buffer)[i] = (type)value;                                   \
	}                                                                            \
	static int get_##name(const void *buffer, size_t i)                          \
	{                                                                            \
		return (int)((const type *)buffer)[i];                               \
	}
ACCESS(byte, unsigned char)
ACCESS(int, int)
ACCESS(long, long long)
ACCESS(float, float)
ACCESS(double, double)

enum mode { BLOCKING, NON_BLOCKING, PERSISTENT };
static const char *const mode_name[] = { "", "non-blocking ", "persistent " };

static struct kind kind;
static enum mode mode;
static int count; /* elements a rank */
static void *out, *in;

#if MPI_VERSION >= 4
#define START_PERSISTENT(Name, ...)                                                  \
	do {                                                                         \
		MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, &request_);            \
		MPI_Start(&request_);                                                \
		MPI_Wait(&request_, MPI_STATUS_IGNORE);                              \
		MPI_Request_free(&request_);                                         \
	} while (0)
static const enum mode last_mode = PERSISTENT;
#else
#define START_PERSISTENT(Name, ...) abort()
static const enum mode last_mode = NON_BLOCKING;
#endif

/* MPI_Name, MPI_Iname or MPI_Name_init. */
#define RUN(Name, name, ...)                                                         \
	do {                                                                         \
		MPI_Request request_;                                                \
		if (mode == BLOCKING) {                                              \
			MPI_##Name(__VA_ARGS__);                                     \
		} else if (mode == NON_BLOCKING) {                                   \
			MPI_I##name(__VA_ARGS__, &request_);                         \
			MPI_Wait(&request_, MPI_STATUS_IGNORE);                      \
		} else {                                                             \
			START_PERSISTENT(Name, __VA_ARGS__);                         \
		}                                                                    \
	} while (0)

enum { UNTOUCHED = 77 };

/* Element i of rank `from`'s data for `to`: small, so that sums fit into a byte. */
static int value(int from, int to, int i)
{
	return (from * 31 + to * 17 + i * 7 + count) % 13;
}

static void is(const char *what, int at, int wanted)
{
	int got = kind.get(in, (size_t)at);
	if (got == wanted)
		return;
	fprintf(stderr, "rank %d of %d: %s%s of %d %s: element %d is %d, not %d\n", rank, ranks,
	        mode_name[mode], what, count, kind.name, at, got, wanted);
	MPI_Abort(MPI_COMM_WORLD, 9);
}

/* Makes all of `in` untouched. */
static void clear(void)
{
	for (int i = 0; i < (count + 3) * ranks; i++)
		kind.put(in, (size_t)i, UNTOUCHED);
}

/* out[block r][i] = value(rank, r, i). */
static void fill_out(void)
{
	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < count; i++)
			kind.put(out, (size_t)(r * count + i), value(rank, r, i));
}

/* A block of `in` that begins at `at` holds what `from` sent to `to`. */
static void holds(const char *what, int at, int n, int from, int to)
{
	for (int i = 0; i < n; i++)
		is(what, at + i, value(from, to, i));
}

static void rooted(void)
{
	for (int last = 0; last <= 1; last++) {
		int root = last * (ranks - 1);
		clear();
		for (int i = 0; rank == root && i < count; i++)
			kind.put(in, (size_t)i, value(root, 0, i));
		RUN(Bcast, bcast, in, count, kind.type, root, MPI_COMM_WORLD);
		holds("bcast", 0, count, root, 0);
		is("bcast", count, UNTOUCHED);

		clear();
		fill_out();
		RUN(Gather, gather, out, count, kind.type, in, count, kind.type, root, MPI_COMM_WORLD);
		for (int r = 0; r < ranks; r++)
			if (rank == root)
				holds("gather", r * count, count, r, 0);
			else
				is("gather", r * count, UNTOUCHED);

		clear();
		for (int i = 0; i < count; i++)
			kind.put(in, (size_t)(rank * count + i), value(rank, 0, i));
		if (rank == root)
			RUN(Gather, gather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, count, kind.type,
			    root, MPI_COMM_WORLD);
		else
			RUN(Gather, gather, out, count, kind.type, NULL, 0, MPI_DATATYPE_NULL, root,
			    MPI_COMM_WORLD);
		for (int r = 0; rank == root && r < ranks; r++)
			holds("gather in place", r * count, count, r, 0);

		clear();
		RUN(Scatter, scatter, out, count, kind.type, in, count, kind.type, root,
		    MPI_COMM_WORLD);
		holds("scatter", 0, count, root, rank);
		is("scatter", count, UNTOUCHED);

		clear();
		if (rank == root)
			RUN(Scatter, scatter, out, count, kind.type, MPI_IN_PLACE, 0,
			    MPI_DATATYPE_NULL, root, MPI_COMM_WORLD);
		else
			RUN(Scatter, scatter, NULL, 0, MPI_DATATYPE_NULL, in, count, kind.type, root,
			    MPI_COMM_WORLD);
		if (rank != root)
			holds("scatter in place", 0, count, root, rank);

		/* A block of rank r is r shorter, and one element lies between blocks. */
		int counts[ranks], places[ranks], from[ranks];
		for (int r = 0; r < ranks; r++) {
			counts[r] = count > r ? count - r : 0;
			places[r] = r * (count + 1);
			from[r] = r * count;
		}
		clear();
		RUN(Gatherv, gatherv, out, counts[rank], kind.type, in, counts, places, kind.type,
		    root, MPI_COMM_WORLD);
		for (int r = 0; rank == root && r < ranks; r++) {
			holds("gatherv", places[r], counts[r], r, 0);
			is("gatherv", places[r] + counts[r], UNTOUCHED);
		}
		clear();
		RUN(Scatterv, scatterv, out, counts, from, kind.type, in, counts[rank], kind.type,
		    root, MPI_COMM_WORLD);
		holds("scatterv", 0, counts[rank], root, rank);
		is("scatterv", counts[rank], UNTOUCHED);
	}
}

static void to_all(void)
{
	RUN(Barrier, barrier, MPI_COMM_WORLD);

	clear();
	fill_out();
	RUN(Allgather, allgather, out, count, kind.type, in, count, kind.type, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++)
		holds("allgather", r * count, count, r, 0);
	is("allgather", ranks * count, UNTOUCHED);

	clear();
	for (int i = 0; i < count; i++)
		kind.put(in, (size_t)(rank * count + i), value(rank, 0, i));
	RUN(Allgather, allgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, count, kind.type,
	    MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++)
		holds("allgather in place", r * count, count, r, 0);

	int counts[ranks], places[ranks];
	for (int r = 0; r < ranks; r++) {
		counts[r] = count > r ? count - r : 0;
		places[r] = r * (count + 1);
	}
	clear();
	RUN(Allgatherv, allgatherv, out, counts[rank], kind.type, in, counts, places, kind.type,
	    MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++) {
		holds("allgatherv", places[r], counts[r], r, 0);
		is("allgatherv", places[r] + counts[r], UNTOUCHED);
	}

	clear();
	RUN(Alltoall, alltoall, out, count, kind.type, in, count, kind.type, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++)
		holds("alltoall", r * count, count, r, rank);
	is("alltoall", ranks * count, UNTOUCHED);

	clear();
	memcpy(in, out, kind.size * (size_t)(ranks * count));
	RUN(Alltoall, alltoall, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, count, kind.type,
	    MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++)
		holds("alltoall in place", r * count, count, r, rank);

	/* To rank r go `counts[r]` elements, so each gets the same number from all. */
	int from[ranks], mine[ranks];
	for (int r = 0; r < ranks; r++) {
		from[r] = r * count;
		mine[r] = counts[rank];
	}
	clear();
	RUN(Alltoallv, alltoallv, out, counts, from, kind.type, in, mine, places, kind.type,
	    MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++) {
		holds("alltoallv", places[r], mine[r], r, rank);
		is("alltoallv", places[r] + mine[r], UNTOUCHED);
	}

	/* In bytes, and to odd ranks as pairs of halves: types differ between pairs. */
	MPI_Datatype types[ranks], mine_types[ranks], bytes;
	int from_bytes[ranks], places_bytes[ranks];
	MPI_Type_contiguous((int)kind.size, MPI_BYTE, &bytes);
	MPI_Type_commit(&bytes);
	for (int r = 0; r < ranks; r++) {
		types[r] = r % 2 ? bytes : kind.type;
		mine_types[r] = rank % 2 ? bytes : kind.type;
		from_bytes[r] = from[r] * (int)kind.size;
		places_bytes[r] = places[r] * (int)kind.size;
	}
	clear();
	RUN(Alltoallw, alltoallw, out, counts, from_bytes, types, in, mine, places_bytes,
	    mine_types, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++) {
		holds("alltoallw", places[r], mine[r], r, rank);
		is("alltoallw", places[r] + mine[r], UNTOUCHED);
	}
	MPI_Type_free(&bytes);
}

/* The sum or maximum of block 0 of ranks `first` to `last`, at i. */
static int reduced(int block, int i, int first, int last, int maximum)
{
	int result = 0;
	for (int r = first; r <= last; r++) {
		int v = value(r, block, i);
		result = maximum ? (v > result ? v : result) : result + v;
	}
	return result;
}

static void reductions(void)
{
	for (int maximum = 0; maximum <= 1; maximum++) {
		MPI_Op op = maximum ? MPI_MAX : MPI_SUM;
		int all = ranks - 1, root = all;
		clear();
		fill_out();
		RUN(Reduce, reduce, out, in, count, kind.type, op, root, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			is("reduce", i, rank == root ? reduced(0, i, 0, all, maximum) : UNTOUCHED);

		/* MPICH 4.0.2 reads from MPI_IN_PLACE where the root is not rank 0. */
		root = 0;
		clear();
		memcpy(in, out, kind.size * (size_t)count);
		if (rank == root)
			RUN(Reduce, reduce, MPI_IN_PLACE, in, count, kind.type, op, root,
			    MPI_COMM_WORLD);
		else
			RUN(Reduce, reduce, in, NULL, count, kind.type, op, root, MPI_COMM_WORLD);
		for (int i = 0; rank == root && i < count; i++)
			is("reduce in place", i, reduced(0, i, 0, all, maximum));

		clear();
		RUN(Allreduce, allreduce, out, in, count, kind.type, op, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			is("allreduce", i, reduced(0, i, 0, all, maximum));
		is("allreduce", count, UNTOUCHED);

		clear();
		memcpy(in, out, kind.size * (size_t)count);
		RUN(Allreduce, allreduce, MPI_IN_PLACE, in, count, kind.type, op, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			is("allreduce in place", i, reduced(0, i, 0, all, maximum));

		int counts[ranks];
		for (int r = 0; r < ranks; r++)
			counts[r] = count;
		clear();
		RUN(Reduce_scatter, reduce_scatter, out, in, counts, kind.type, op, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			is("reduce_scatter", i, reduced(rank, i, 0, all, maximum));
		is("reduce_scatter", count, UNTOUCHED);

		clear();
		RUN(Reduce_scatter_block, reduce_scatter_block, out, in, count, kind.type, op,
		    MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			is("reduce_scatter_block", i, reduced(rank, i, 0, all, maximum));
		is("reduce_scatter_block", count, UNTOUCHED);

		clear();
		memcpy(in, out, kind.size * (size_t)(ranks * count));
		RUN(Reduce_scatter_block, reduce_scatter_block, MPI_IN_PLACE, in, count, kind.type,
		    op, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			is("reduce_scatter_block in place", i, reduced(rank, i, 0, all, maximum));

		clear();
		RUN(Scan, scan, out, in, count, kind.type, op, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			is("scan", i, reduced(0, i, 0, rank, maximum));

		clear();
		memcpy(in, out, kind.size * (size_t)count);
		RUN(Scan, scan, MPI_IN_PLACE, in, count, kind.type, op, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			is("scan in place", i, reduced(0, i, 0, rank, maximum));

		clear();
		RUN(Exscan, exscan, out, in, count, kind.type, op, MPI_COMM_WORLD);
		for (int i = 0; rank > 0 && i < count; i++)
			is("exscan", i, reduced(0, i, 0, rank - 1, maximum));
	}
}

/* On a ring: each has the one before and the one behind. */
static void neighbours(MPI_Comm ring)
{
	int side[2] = { (rank + ranks - 1) % ranks, (rank + 1) % ranks };
	clear();
	fill_out();
	RUN(Neighbor_allgather, neighbor_allgather, out, count, kind.type, in, count, kind.type,
	    ring);
	for (int s = 0; s < 2; s++)
		holds("neighbor_allgather", s * count, count, side[s], 0);
	is("neighbor_allgather", 2 * count, UNTOUCHED);

	int counts[2] = { count, count }, places[2] = { 0, count + 2 }, from[2];
	for (int s = 0; s < 2; s++)
		from[s] = side[s] * count;
	clear();
	RUN(Neighbor_allgatherv, neighbor_allgatherv, out, count, kind.type, in, counts, places,
	    kind.type, ring);
	for (int s = 0; s < 2; s++)
		holds("neighbor_allgatherv", places[s], count, side[s], 0);
	is("neighbor_allgatherv", count, UNTOUCHED);

	/* Block s of `out` goes to neighbour s; block 0 and 1 are of ranks 0 and 1. */
	clear();
	RUN(Neighbor_alltoall, neighbor_alltoall, out, count, kind.type, in, count, kind.type,
	    ring);
	for (int s = 0; s < 2; s++)
		holds("neighbor_alltoall", s * count, count, side[s], 1 - s);

	clear();
	RUN(Neighbor_alltoallv, neighbor_alltoallv, out, counts, from, kind.type, in, counts,
	    places, kind.type, ring);
	for (int s = 0; s < 2; s++)
		holds("neighbor_alltoallv", places[s], count, side[s], rank);

	MPI_Datatype types[2] = { kind.type, kind.type };
	MPI_Aint from_bytes[2], places_bytes[2];
	for (int s = 0; s < 2; s++) {
		from_bytes[s] = (MPI_Aint)kind.size * from[s];
		places_bytes[s] = (MPI_Aint)kind.size * places[s];
	}
	clear();
	RUN(Neighbor_alltoallw, neighbor_alltoallw, out, counts, from_bytes, types, in, counts,
	    places_bytes, types, ring);
	for (int s = 0; s < 2; s++)
		holds("neighbor_alltoallw", places[s], count, side[s], rank);
}

/* a, then b: keeps a's first and b's last. Not commutative. */
static void chain(void *a, void *b, int *n, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *n; i++)
		((int *)b)[2 * i] = ((int *)a)[2 * i];
}

/* Operations other than those on numbers: user-defined, of pairs, on parts of the ranks, on
 * strides. */
static void special(void)
{
	int n = 20000;
	MPI_Op op;
	MPI_Datatype pair, stride;
	MPI_Op_create(chain, 0, &op);
	MPI_Type_contiguous(2, MPI_INT, &pair);
	MPI_Type_commit(&pair);
	int *a = out, *b = in;
	for (int i = 0; i < n; i++)
		a[2 * i] = a[2 * i + 1] = rank * n + i;
	MPI_Allreduce(a, b, n, pair, op, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		CHECK(b[2 * i] == i && b[2 * i + 1] == (ranks - 1) * n + i);
	MPI_Op_free(&op);

	for (int i = 0; i < n; i++) {
		a[2 * i] = (rank + i) % ranks;
		a[2 * i + 1] = rank;
	}
	MPI_Allreduce(a, b, n, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		CHECK(b[2 * i] == ranks - 1 && (b[2 * i + 1] + i) % ranks == ranks - 1);

	MPI_Type_vector(n, 1, 3, MPI_INT, &stride);
	MPI_Type_commit(&stride);
	for (int i = 0; i < 3 * n; i++)
		b[i] = rank == 0 ? i : -1;
	MPI_Bcast(b, 1, stride, 0, MPI_COMM_WORLD);
	for (int i = 0; i < 3 * n; i++)
		CHECK(b[i] == (rank == 0 || i % 3 == 0 ? i : -1));
	MPI_Type_free(&stride);
	MPI_Type_free(&pair);

	MPI_Comm half, between;
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	int sum, wanted = 0;
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
	for (int r = rank % 2; r < ranks; r += 2)
		wanted += r;
	CHECK(sum == wanted);

	/* Between the halves each gets the other's result. */
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &between);
	fill(a, (size_t)n, rank);
	int others = (ranks + rank % 2) / 2;
	MPI_Allgather(a, n, MPI_INT, b, n, MPI_INT, between);
	for (int r = 0; r < others; r++)
		CHECK(right(b + r * n, (size_t)n, 2 * r + 1 - rank % 2) == (size_t)n);
	wanted = ranks * (ranks - 1) / 2 - wanted;
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, between);
	CHECK(sum == wanted);
	MPI_Comm_free(&between);
	MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	const struct kind kinds[] = {
		{ "bytes", MPI_UNSIGNED_CHAR, 1, put_byte, get_byte },
		{ "ints", MPI_INT, sizeof(int), put_int, get_int },
		{ "longs", MPI_LONG_LONG, sizeof(long long), put_long, get_long },
		{ "floats", MPI_FLOAT, sizeof(float), put_float, get_float },
		{ "doubles", MPI_DOUBLE, sizeof(double), put_double, get_double },
	};
	const int counts[] = { 1, 700, 30000 };
	out = malloc(sizeof(double) * (size_t)(30003 * ranks));
	in = malloc(sizeof(double) * (size_t)(30003 * ranks));

	MPI_Comm cart, graph;
	int periodic = 1;
	MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &cart);
	int side[2] = { (rank + ranks - 1) % ranks, (rank + 1) % ranks };
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, side, MPI_UNWEIGHTED, 2, side,
	                               MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
	for (mode = BLOCKING; mode <= last_mode; mode++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
			for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
				count = counts[c];
				kind = kinds[k];
				/* Types matter to the blocking ones: these have separate paths. */
				if (mode != BLOCKING && kind.type != MPI_INT)
					continue;
				rooted();
				to_all();
				reductions();
				neighbours(cart);
				neighbours(graph);
			}
	special();
	MPI_Comm_free(&cart);
	MPI_Comm_free(&graph);
	if (rank == 0)
		printf("collectives agree\n");
	MPI_Finalize();
	return 0;
}
