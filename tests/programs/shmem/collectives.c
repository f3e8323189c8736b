/* The collective operations of OpenSHMEM on teams and active sets, against results that each PE
 * computes itself. Prints "collectives agree" in PE 0.
 *
 * usage: collectives [SEED | ERROR]
 * ERROR names a wrong call, which PE 0 makes while the others wait. */
#include <complex.h>
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 1 << 20 };

static char *source, *dest;
static uint64_t seed = 1;
static long sync_array[SHMEM_SYNC_SIZE];
static int me, n;

static uint64_t mix(uint64_t x)
{
	x += seed * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* A small number, so that sums of all types are exact. */
static int value(uint64_t round, int pe, size_t i)
{
	return (int)(mix(mix(round) ^ (uint64_t)pe << 32 ^ i) % 5);
}

static void fail(const char *what, size_t i)
{
	fprintf(stderr, "PE %d of %d: %s: element %zu is wrong (seed %lu)\n", me, n, what, i,
		(unsigned long)seed);
	shmem_global_exit(1);
}

/* The sizes in elements of the calls: within and beyond an outbox. The largest is for few types. */
static const size_t sizes[] = {0, 1, 7, 150, 2500, 100000};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* A team, or an active set if `team` is invalid: PEs of the world in their order. */
typedef struct {
	shmem_team_t team;
	int start, stride, log_stride, n, me;
} set_t;

static int world(const set_t *set, int pe) { return set->start + pe * set->stride; }

static uint64_t calls;

#define FOLD_sum(a, b) ((a) + (b))
#define FOLD_prod(a, b) ((a) * (b))
#define FOLD_max(a, b) ((a) > (b) ? (a) : (b))
#define FOLD_min(a, b) ((a) < (b) ? (a) : (b))
#define FOLD_and(a, b) ((a) & (b))
#define FOLD_or(a, b) ((a) | (b))
#define FOLD_xor(a, b) ((a) ^ (b))

/* Fills the source, calls `CALL`, and compares each element with the fold over all PEs. The calls
 * alternate between buffers in place and apart. No barrier is needed before the source is written,
 * since the former call has read it; the dest of the former call is compared first. */
#define CHECK_FOLD(WHAT, TYPE, COUNT, FOLD, IN_PLACE, CALL) \
	do { \
		uint64_t round = ++calls; \
		TYPE *from = (TYPE *)((IN_PLACE) ? dest : source), *to = (TYPE *)dest; \
		for (size_t i = 0; i < (COUNT); i++) \
			from[i] = (TYPE)value(round, me, i); \
		settle(set); \
		CALL; \
		for (size_t i = 0; i < (COUNT); i++) { \
			TYPE all = (TYPE)value(round, world(set, 0), i); \
			for (int pe = 1; pe < set->n; pe++) \
				all = (TYPE)FOLD(all, (TYPE)value(round, world(set, pe), i)); \
			if (to[i] != all) \
				fail(WHAT, i); \
		} \
	} while (0)

/* Waits until the dest of all PEs may be written. */
static void settle(const set_t *set)
{
	if (set->team != SHMEM_TEAM_INVALID)
		shmem_team_sync(set->team);
	else
		shmem_sync(set->start, set->log_stride, set->n, sync_array);
}

#define TEAM_REDUCE(P, NAME, TYPE, OP) \
	CHECK_FOLD(#NAME "_" #OP "_reduce", TYPE, count, FOLD_##OP, in_place, \
		if (shmem_##NAME##_##OP##_reduce(set->team, to, from, count)) \
			fail(#NAME "_" #OP "_reduce", count));
#define SET_REDUCE(P, NAME, TYPE, OP) \
	CHECK_FOLD(#NAME "_" #OP "_to_all", TYPE, count, FOLD_##OP, in_place, \
		shmem_##NAME##_##OP##_to_all(to, from, (int)count, set->start, set->log_stride, \
			set->n, (void *)sync_array, sync_array));

#define TEAM_BITS(P, NAME, TYPE) \
	TEAM_REDUCE(P, NAME, TYPE, and) \
	TEAM_REDUCE(P, NAME, TYPE, or) \
	TEAM_REDUCE(P, NAME, TYPE, xor)
#define TEAM_ORDERED(P, NAME, TYPE) \
	TEAM_REDUCE(P, NAME, TYPE, max) \
	TEAM_REDUCE(P, NAME, TYPE, min)
#define TEAM_SUMS(P, NAME, TYPE) \
	TEAM_REDUCE(P, NAME, TYPE, sum) \
	TEAM_REDUCE(P, NAME, TYPE, prod) \
	TEAM_SCANS(NAME, TYPE)
#define SET_BITS(P, NAME, TYPE) \
	SET_REDUCE(P, NAME, TYPE, and) \
	SET_REDUCE(P, NAME, TYPE, or) \
	SET_REDUCE(P, NAME, TYPE, xor)
#define SET_ORDERED(P, NAME, TYPE) \
	SET_REDUCE(P, NAME, TYPE, max) \
	SET_REDUCE(P, NAME, TYPE, min)
#define SET_SUMS(P, NAME, TYPE) \
	SET_REDUCE(P, NAME, TYPE, sum) \
	SET_REDUCE(P, NAME, TYPE, prod)

#define CHECK_SCAN(NAME, TYPE, WHICH, LAST) \
	do { \
		uint64_t round = ++calls; \
		TYPE *from = (TYPE *)(in_place ? dest : source), *to = (TYPE *)dest; \
		for (size_t i = 0; i < count; i++) \
			from[i] = (TYPE)value(round, me, i); \
		settle(set); \
		if (shmem_##NAME##_sum_##WHICH(set->team, to, from, count)) \
			fail(#NAME "_sum_" #WHICH, count); \
		for (size_t i = 0; i < count; i++) { \
			TYPE all = 0; \
			for (int pe = 0; pe < set->me + LAST; pe++) \
				all = (TYPE)(all + (TYPE)value(round, world(set, pe), i)); \
			if (to[i] != all) \
				fail(#NAME "_sum_" #WHICH, i); \
		} \
	} while (0);
#define TEAM_SCANS(NAME, TYPE) \
	CHECK_SCAN(NAME, TYPE, inscan, 1) \
	CHECK_SCAN(NAME, TYPE, exscan, 0)

/* Reductions and scans of all types. */
static void reduce_team(const set_t *set, size_t count, int in_place)
{
	if (count > 2500) {
		TEAM_ORDERED(, double, double)
		TEAM_SCANS(int, int)
		return;
	}
	NAGAYA_SHMEM_BITWISE_REDUCTION_TYPES(TEAM_BITS, )
	NAGAYA_SHMEM_ORDERED_REDUCTION_TYPES(TEAM_ORDERED, )
	NAGAYA_SHMEM_SUM_REDUCTION_TYPES(TEAM_SUMS, )
}

static void reduce_set(const set_t *set, size_t count, int in_place)
{
	if (count > 2500) {
		SET_REDUCE(, int, int, sum)
		return;
	}
	NAGAYA_SHMEM_BITWISE_TO_ALL_TYPES(SET_BITS, )
	NAGAYA_SHMEM_ORDERED_TO_ALL_TYPES(SET_ORDERED, )
	NAGAYA_SHMEM_SUM_TO_ALL_TYPES(SET_SUMS, )
}

/* Byte `i` of what PE `pe` sends in a round. */
static char byte(uint64_t round, int pe, size_t i)
{
	return (char)mix(mix(round) ^ (uint64_t)pe << 32 ^ i);
}

static void fill(uint64_t round, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		source[i] = byte(round, me, i);
	memset(dest, 0x5a, bytes + 1);
}

static void expect(const char *what, uint64_t round, int pe, size_t from, size_t to, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (dest[to + i] != byte(round, pe, from + i))
			fail(what, to + i);
}

/* Operations on `count` elements of `size` bytes; NAME is that of a function of this size. */
#define TEAM_MOVES(P, NAME, TYPE) \
	move_team(set, count, sizeof(TYPE), (move_t)shmem_##NAME##_broadcast, \
		(gather_t)shmem_##NAME##_collect, (gather_t)shmem_##NAME##_fcollect, \
		(gather_t)shmem_##NAME##_alltoall, (strided_t)shmem_##NAME##_alltoalls);

typedef int (*move_t)(shmem_team_t, void *, const void *, size_t, int);
typedef int (*gather_t)(shmem_team_t, void *, const void *, size_t);
typedef int (*strided_t)(shmem_team_t, void *, const void *, ptrdiff_t, ptrdiff_t, size_t);

/* The bytes that member `pe` passes to collect. */
static size_t part(size_t count, size_t size, int pe) { return count * (size_t)(pe % 3) * size / 2 / size * size; }

static void check_collect(const set_t *set, uint64_t round, size_t count, size_t size)
{
	size_t at = 0;
	for (int pe = 0; pe < set->n; pe++) {
		expect("collect", round, world(set, pe), 0, at, part(count, size, pe));
		at += part(count, size, pe);
	}
}

static void check_blocks(const char *what, const set_t *set, uint64_t round, size_t block, int is_own)
{
	for (int pe = 0; pe < set->n; pe++)
		expect(what, round, world(set, pe), is_own ? (size_t)set->me * block : 0,
			(size_t)pe * block, block);
}

enum { DST = 2, SST = 3 };

static void check_strided(const set_t *set, uint64_t round, size_t count, size_t size)
{
	for (int pe = 0; pe < set->n; pe++)
		for (size_t i = 0; i < count; i++)
			expect("alltoalls", round, world(set, pe),
				((size_t)set->me * count + i) * SST * size,
				((size_t)pe * count + i) * DST * size, size);
}

static void move_team(const set_t *set, size_t count, size_t size, move_t broadcast, gather_t collect,
	gather_t fcollect, gather_t alltoall, strided_t alltoalls)
{
	size_t bytes = count * size, all = bytes * (size_t)set->n;
	int root = (int)(calls % (uint64_t)set->n), bad = 0;
	uint64_t round = ++calls;
	fill(round, bytes);
	settle(set);
	bad |= broadcast(set->team, dest, source, count, root);
	expect("broadcast", round, world(set, root), 0, 0, bytes);
	if (dest[bytes] != 0x5a)
		fail("broadcast", count);
	if (all * SST > BYTES_MAX)
		return;
	fill(++calls, bytes);
	settle(set);
	bad |= fcollect(set->team, dest, source, count);
	check_blocks("fcollect", set, calls, bytes, 0);
	fill(++calls, bytes);
	settle(set);
	bad |= collect(set->team, dest, source, part(count, size, set->me) / size);
	check_collect(set, calls, count, size);
	fill(++calls, all);
	settle(set);
	bad |= alltoall(set->team, dest, source, count);
	check_blocks("alltoall", set, calls, bytes, 1);
	fill(++calls, all * SST);
	settle(set);
	bad |= alltoalls(set->team, dest, source, DST, SST, count);
	check_strided(set, calls, count, size);
	if (bad)
		fail("a result", 0);
}

static void moves_of_team(const set_t *set, size_t count)
{
	if (count <= 2500) {
		NAGAYA_SHMEM_RMA_TYPES(TEAM_MOVES, )
	}
	move_team(set, count, 1, shmem_broadcastmem, shmem_collectmem, shmem_fcollectmem,
		shmem_alltoallmem, shmem_alltoallsmem);
}

#define ACTIVE set->start, set->log_stride, set->n, sync_array
#define SET_MOVES(BITS) \
	do { \
		size_t size = BITS / 8, bytes = count * size, all = bytes * (size_t)set->n; \
		int root = (int)(calls % (uint64_t)set->n); \
		fill(++calls, bytes); \
		settle(set); \
		shmem_broadcast##BITS(dest, source, count, root, ACTIVE); \
		if (set->me != root) \
			expect("broadcast" #BITS, calls, world(set, root), 0, 0, bytes); \
		else if (bytes && dest[0] != 0x5a) \
			fail("dest of the root of broadcast" #BITS, 0); \
		if (all * SST > BYTES_MAX) \
			break; \
		fill(++calls, bytes); \
		settle(set); \
		shmem_fcollect##BITS(dest, source, count, ACTIVE); \
		check_blocks("fcollect" #BITS, set, calls, bytes, 0); \
		fill(++calls, bytes); \
		settle(set); \
		shmem_collect##BITS(dest, source, part(count, size, set->me) / size, ACTIVE); \
		check_collect(set, calls, count, size); \
		fill(++calls, all); \
		settle(set); \
		shmem_alltoall##BITS(dest, source, count, ACTIVE); \
		check_blocks("alltoall" #BITS, set, calls, bytes, 1); \
		fill(++calls, all * SST); \
		settle(set); \
		shmem_alltoalls##BITS(dest, source, DST, SST, count, ACTIVE); \
		check_strided(set, calls, count, size); \
	} while (0)

/* All operations of a set. */
static void all_of_set(const set_t *set)
{
	static uint64_t sets;
	/* PEs outside the set do not count its calls. */
	calls = ++sets << 32;
	if (set->me < 0)
		return;
	int is_team = set->team != SHMEM_TEAM_INVALID;
	for (size_t at = 0; at < SIZES; at++) {
		size_t count = sizes[at];
		for (int in_place = 0; in_place < 2; in_place++)
			(is_team ? reduce_team : reduce_set)(set, count, in_place);
		if (is_team) {
			moves_of_team(set, count);
		} else {
			SET_MOVES(32);
			SET_MOVES(64);
		}
	}
	for (size_t i = 0; i < SHMEM_SYNC_SIZE; i++)
		if (sync_array[i] != SHMEM_SYNC_VALUE)
			fail("pSync", i);
}

/* Results of real numbers are the same bits in all PEs. */
static void reals_are_equal(void)
{
	enum { COUNT = 3000 };
	double *from = (double *)source, *to = (double *)dest;
	for (size_t count = 100; count <= COUNT; count += COUNT - 100) {
		for (size_t i = 0; i < count; i++)
			from[i] = (double)mix((uint64_t)me << 32 ^ i) * 1e-3 - 1e15;
		shmem_double_sum_reduce(SHMEM_TEAM_WORLD, to, from, count);
		double *all = to + count;
		shmem_double_fcollect(SHMEM_TEAM_WORLD, all, to, count);
		for (int pe = 0; pe < n; pe++)
			if (memcmp(all + (size_t)pe * count, to, count * sizeof *to))
				fail("real numbers", (size_t)pe);
	}
}

/* Many operations in a row without a barrier between them, with different roots. */
static void calls_in_a_row(void)
{
	long *from = (long *)source, *to = (long *)dest;
	for (long round = 0; round < 2000; round++) {
		int root = (int)(round % n);
		/* Each round has its own elements, so only the operations order the PEs. */
		long at = round * 2;
		from[at] = round * 100 + me;
		shmem_long_broadcast(SHMEM_TEAM_WORLD, to + at, from + at, 1, root);
		if (to[at] != round * 100 + root)
			fail("broadcast in a row", (size_t)round);
		shmem_long_max_reduce(SHMEM_TEAM_WORLD, to + at + 1, from + at, 1);
		if (to[at + 1] != round * 100 + n - 1)
			fail("reduce in a row", (size_t)round);
		if (round % 7 == 0)
			shmem_barrier_all();
	}
}

/* A put before a barrier is complete after it. */
static void barriers_complete_puts(void)
{
	long *to = (long *)dest;
	for (long round = 1; round < 1000; round++) {
		shmem_long_p(to + me, round, (me + 1) % n);
		if (round % 2)
			shmem_barrier_all();
		else
			shmem_barrier(0, 0, n, sync_array);
		if (to[(me + n - 1) % n] != round)
			fail("barrier", (size_t)round);
		shmem_sync_all();
	}
}

/* Two teams of all PEs, used by two threads at the same time. */
typedef struct {
	shmem_team_t team;
	long *from, *to;
} job_t;

static void *work(void *arguments)
{
	job_t *job = arguments;
	for (long round = 0; round < 500; round++) {
		for (int i = 0; i < 400; i++)
			job->from[i] = round + me * i;
		shmem_long_sum_reduce(job->team, job->to, job->from, 400);
		for (int i = 0; i < 400; i++)
			if (job->to[i] != round * n + (long)n * (n - 1) / 2 * i)
				fail("reduce in a thread", (size_t)round);
		shmem_team_sync(job->team);
	}
	return NULL;
}

static void threads_use_teams(void)
{
	job_t jobs[3];
	pthread_t threads[3];
	for (int t = 0; t < 3; t++) {
		jobs[t].from = (long *)source + 1000 * t;
		jobs[t].to = (long *)dest + 1000 * t;
		if (shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &jobs[t].team))
			fail("split", (size_t)t);
	}
	for (int t = 0; t < 3; t++)
		pthread_create(&threads[t], NULL, work, &jobs[t]);
	for (int t = 0; t < 3; t++)
		pthread_join(threads[t], NULL);
	for (int t = 0; t < 3; t++)
		shmem_team_destroy(jobs[t].team);
}

/* Teams that come and go, more than there can be at the same time. */
static void teams_come_and_go(void)
{
	for (int round = 0; round < 1500; round++) {
		shmem_team_t team;
		int size = n - round % n;
		if (shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, size, NULL, 0, &team))
			fail("split", (size_t)round);
		int number = n - 1 - me;
		if ((team != SHMEM_TEAM_INVALID) != (number < size))
			fail("membership", (size_t)round);
		if (team == SHMEM_TEAM_INVALID)
			continue;
		if (shmem_team_my_pe(team) != number || shmem_team_n_pes(team) != size)
			fail("numbers", (size_t)round);
		if (shmem_team_translate_pe(team, 0, SHMEM_TEAM_WORLD) != n - 1)
			fail("translation", (size_t)round);
		shmem_team_sync(team);
		shmem_team_destroy(team);
		if (shmem_team_my_pe(team) != -1)
			fail("the end of a team", (size_t)round);
	}
}

static void wrong_teams(void)
{
	shmem_team_t team = SHMEM_TEAM_WORLD, other = SHMEM_TEAM_WORLD;
	shmem_team_config_t config = {7};
	int *to = (int *)dest, *from = (int *)source, bad = 0;
	bad |= shmem_team_my_pe(SHMEM_TEAM_INVALID) != -1;
	bad |= shmem_team_n_pes(SHMEM_TEAM_INVALID) != -1;
	bad |= shmem_team_get_config(SHMEM_TEAM_INVALID, SHMEM_TEAM_NUM_CONTEXTS, &config) == 0;
	bad |= shmem_team_translate_pe(SHMEM_TEAM_INVALID, 0, SHMEM_TEAM_WORLD) != -1;
	bad |= shmem_team_translate_pe(SHMEM_TEAM_WORLD, n, SHMEM_TEAM_WORLD) != -1;
	bad |= shmem_team_translate_pe(SHMEM_TEAM_WORLD, me, SHMEM_TEAM_INVALID) != -1;
	bad |= shmem_team_sync(SHMEM_TEAM_INVALID) == 0;
	bad |= shmem_int_sum_reduce(SHMEM_TEAM_INVALID, to, from, 1) == 0;
	bad |= shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &team) == 0;
	bad |= team != SHMEM_TEAM_INVALID;
	team = SHMEM_TEAM_WORLD;
	bad |= shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &team) == 0;
	bad |= team != SHMEM_TEAM_INVALID;
	team = SHMEM_TEAM_WORLD;
	bad |= shmem_team_split_2d(SHMEM_TEAM_WORLD, 0, NULL, 0, &team, NULL, 0, &other) == 0;
	bad |= team != SHMEM_TEAM_INVALID || other != SHMEM_TEAM_INVALID;
	shmem_team_destroy(SHMEM_TEAM_INVALID);
	bad |= shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, &config, SHMEM_TEAM_NUM_CONTEXTS,
		&team) != 0;
	config.num_contexts = 0;
	bad |= shmem_team_get_config(team, SHMEM_TEAM_NUM_CONTEXTS, &config) != 0;
	bad |= config.num_contexts != 7;
	bad |= shmem_team_ptr(team, dest, me) != dest || shmem_team_ptr(team, dest, n) != NULL;
	shmem_team_destroy(team);
	if (bad)
		fail("a wrong team", 0);
}

/* A put to a PE of a team by a context of this team. */
static void contexts_of_teams(const set_t *set)
{
	shmem_ctx_t context;
	shmem_team_t team;
	if (set->me < 0)
		return;
	if (shmem_team_create_ctx(set->team, 0, &context) || shmem_ctx_get_team(context, &team))
		fail("context", 0);
	if (team != set->team)
		fail("team of a context", 0);
	long *to = (long *)dest;
	int next = (set->me + 1) % set->n;
	settle(set);
	shmem_ctx_long_p(context, to, 77 + set->me, next);
	shmem_ctx_quiet(context);
	settle(set);
	if (*to != 77 + (set->me + set->n - 1) % set->n)
		fail("put of a context", 0);
	shmem_ctx_destroy(context);
}

static void strided(set_t *set, shmem_team_t parent, int start, int stride, int size)
{
	*set = (set_t){SHMEM_TEAM_INVALID, start, stride, 0, size, -1};
	if (shmem_team_split_strided(parent, start, stride, size, NULL, 0, &set->team))
		fail("split", 0);
	set->me = shmem_team_my_pe(set->team);
}

static void all_of_teams(void)
{
	set_t set = {SHMEM_TEAM_WORLD, 0, 1, 0, n, me};
	all_of_set(&set);
	contexts_of_teams(&set);
	set.team = SHMEM_TEAM_SHARED;
	if (shmem_team_n_pes(SHMEM_TEAM_SHARED) == n)
		all_of_set(&set);
	strided(&set, SHMEM_TEAM_WORLD, n - 1, -1, n);
	all_of_set(&set);
	contexts_of_teams(&set);
	shmem_team_destroy(set.team);
	strided(&set, SHMEM_TEAM_WORLD, n > 1, 2, n / 2 ? n / 2 : 1);
	all_of_set(&set);
	shmem_team_destroy(set.team);
	shmem_team_t row, column;
	int xrange = n > 3 ? n / 2 : 2;
	if (shmem_team_split_2d(SHMEM_TEAM_WORLD, xrange, NULL, 0, &row, NULL, 0, &column))
		fail("split_2d", 0);
	xrange = xrange > n ? n : xrange;
	int x = me % xrange, y = me / xrange;
	if (shmem_team_my_pe(row) != x || shmem_team_my_pe(column) != y)
		fail("numbers of split_2d", 0);
	set_t rows = {row, y * xrange, 1, 0, shmem_team_n_pes(row), x};
	set_t columns = {column, x, xrange, 0, shmem_team_n_pes(column), y};
	all_of_set(&rows);
	all_of_set(&columns);
	shmem_team_destroy(row);
	shmem_team_destroy(column);
}

static void all_of_active_sets(void)
{
	for (int log_stride = 0; log_stride < 2; log_stride++)
		for (int start = 0; start < 2 && start < n; start++) {
			int stride = 1 << log_stride, size = (n - start + stride - 1) / stride;
			int at = me - start;
			int is_in = at >= 0 && at % stride == 0;
			set_t set = {SHMEM_TEAM_INVALID, start, stride, log_stride, size,
				is_in ? at / stride : -1};
			all_of_set(&set);
			/* The work array is used by another active set now. */
			shmem_barrier_all();
		}
}

/* PE 0 makes an error, or returns if it has another name. */
static void make_error(const char *error)
{
	long on_stack = 0, *from = (long *)source, *to = (long *)dest;
	shmem_team_t team = SHMEM_TEAM_WORLD;
	if (me != 0)
		return;
	if (strcmp(error, "root") == 0)
		shmem_long_broadcast(team, to, from, 1, n);
	if (strcmp(error, "root of set") == 0)
		shmem_broadcast64(to, from, 1, -1, 0, 0, n, sync_array);
	if (strcmp(error, "dest") == 0)
		shmem_long_sum_reduce(team, &on_stack, from, 1);
	if (strcmp(error, "source") == 0)
		shmem_longdouble_fcollect(team, (long double *)to, (long double *)&on_stack, 1);
	if (strcmp(error, "end") == 0)
		shmem_alltoallmem(team, dest, source, (size_t)1 << 40);
	if (strcmp(error, "stride") == 0)
		shmem_int_alltoalls(team, (int *)dest, (int *)source, 1, 0, 1);
	if (strcmp(error, "set") == 0)
		shmem_barrier(0, 1, n, sync_array);
	if (strcmp(error, "outside") == 0)
		shmem_sync(1, 0, n - 1, sync_array);
	if (strcmp(error, "negative") == 0)
		shmem_long_sum_to_all(to, from, -1, 0, 0, n, to, sync_array);
	if (strcmp(error, "destroy") == 0)
		shmem_team_destroy(team);
}

int main(int argc, char **argv)
{
	int level;
	if (shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level) || level != SHMEM_THREAD_MULTIPLE)
		return 1;
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 10);
	me = shmem_my_pe();
	n = shmem_n_pes();
	source = shmem_align(64, BYTES_MAX);
	dest = shmem_align(64, BYTES_MAX);
	if (argc > 1 && seed == 0) {
		make_error(argv[1]);
		shmem_sync_all();
		return 0;
	}
	calls_in_a_row();
	shmem_barrier_all();
	barriers_complete_puts();
	wrong_teams();
	all_of_teams();
	all_of_active_sets();
	shmem_barrier_all();
	reals_are_equal();
	threads_use_teams();
	teams_come_and_go();
	shmem_barrier_all();
	if (me == 0)
		puts("collectives agree");
	shmem_finalize();
	return 0;
}
