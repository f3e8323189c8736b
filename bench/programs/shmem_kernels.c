/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * shmem_kernels.c - two kernels of PGAS programs, by calls of OpenSHMEM 1.4: random updates of a
 * distributed table, as in HPCC RandomAccess (GUPS), and an integer sort with one exchange of all
 * keys, as in ISx. Both check their results.
 *
 * usage: shmem_kernels ROUNDS
 *
 * Prints the name of each kernel, its bytes, and the median of its rounds in ns: of one update, by
 * put and get or by atomic operations; of the exchange of the keys, and of the whole sort. All PEs
 * wait for each other at the start and the end of a round, and PE 0 measures.
 */
#include "cores.h"
#include "times.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shmem.h>

enum { ROUNDS_MAX = 100, TABLE = 1 << 20, UPDATES = 1 << 14 };
enum { KEYS = 1 << 19, ROOM = KEYS + KEYS / 4, WIDTH = 1 << 20 };

static long samples[2][ROUNDS_MAX];
static int me, n, rounds;

static void print(const char *kernel, long *of, size_t bytes, int each)
{
	sort(of, rounds);
	if (me == 0)
		printf("%s %zu %.2f\n", kernel, bytes, (double)of[rounds / 2] / each);
}

static void fail(const char *what)
{
	fprintf(stderr, "shmem_kernels: PE %d: %s\n", me, what);
	shmem_global_exit(1);
}

/* xorshift64 (Marsaglia, 2003). */
static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

/* Each PE changes random words of the table by an exclusive or. Without atomic operations few of
 * the updates may get lost, which HPCC allows up to 1 %. */
static void update(unsigned long *table, int is_atomic, uint64_t seed)
{
	uint64_t state = seed * 1000003 + (uint64_t)me + 1;

	for (int i = 0; i < UPDATES; i++) {
		unsigned long random = next(&state);
		int pe = (int)(random >> 40) % n;
		unsigned long *word = &table[random % TABLE];

		if (is_atomic)
			shmem_ulong_atomic_xor(word, random, pe);
		else
			shmem_ulong_p(word, shmem_ulong_g(word, pe) ^ random, pe);
	}
	shmem_barrier_all();
}

static void updates(const char *kernel, unsigned long *table, int is_atomic)
{
	long wrong = 0;

	memset(table, 0, TABLE * sizeof *table);
	for (int r = 0; r < rounds; r++) {
		shmem_barrier_all();
		long begin = now_ns();
		update(table, is_atomic, (uint64_t)r + 1);
		samples[0][r] = now_ns() - begin;
		/* The same updates again restore the table. */
		update(table, is_atomic, (uint64_t)r + 1);
	}
	for (int i = 0; i < TABLE; i++)
		wrong += table[i] != 0;
	if (wrong > (is_atomic ? 0 : (long)UPDATES * rounds / 50))
		fail("updates of the table got lost");
	print(kernel, samples[0], sizeof *table, UPDATES);
}

static int taken; /* Keys that this PE has got, or will get. */

/* Sends each key to the PE that sorts its range. */
static void exchange(const int *keys, int *sorted, int *got, int *starts)
{
	int at[n];

	memset(starts, 0, (size_t)(n + 1) * sizeof *starts);
	for (int i = 0; i < KEYS; i++)
		starts[keys[i] / WIDTH + 1]++;
	for (int pe = 0; pe < n; pe++) {
		starts[pe + 1] += starts[pe];
		at[pe] = starts[pe];
	}
	for (int i = 0; i < KEYS; i++)
		sorted[at[keys[i] / WIDTH]++] = keys[i];
	for (int step = 0; step < n; step++) {
		int pe = (me + step) % n, count = starts[pe + 1] - starts[pe];
		int offset = shmem_int_atomic_fetch_add(&taken, count, pe);

		if (offset + count > ROOM)
			fail("a range has too many keys");
		shmem_int_put(got + offset, sorted + starts[pe], (size_t)count, pe);
	}
	shmem_barrier_all();
}

/* Counts the keys of this PE's range, and writes them in order. */
static void sort_range(int *keys, int *counts)
{
	int at = 0;

	memset(counts, 0, WIDTH * sizeof *counts);
	for (int i = 0; i < taken; i++)
		counts[keys[i] - me * WIDTH]++;
	for (int key = 0; key < WIDTH; key++)
		for (int i = 0; i < counts[key]; i++)
			keys[at++] = me * WIDTH + key;
}

static void sorts(int *got)
{
	static long all, sum, work[SHMEM_REDUCE_MIN_WRKDATA_SIZE], words[SHMEM_REDUCE_SYNC_SIZE];
	int *keys = malloc(KEYS * sizeof *keys), *sorted = malloc(KEYS * sizeof *sorted);
	int *counts = malloc(WIDTH * sizeof *counts), starts[n + 1];
	uint64_t state = (uint64_t)me + 1;

	if (!keys || !sorted || !counts)
		fail("no memory");
	for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		words[i] = SHMEM_SYNC_VALUE;
	for (int r = 0; r < rounds; r++) {
		for (int i = 0; i < KEYS; i++)
			keys[i] = (int)((next(&state) >> 20) % ((uint64_t)n * WIDTH));
		taken = 0;
		shmem_barrier_all();
		long begin = now_ns();
		exchange(keys, sorted, got, starts);
		samples[0][r] = now_ns() - begin;
		sort_range(got, counts);
		shmem_barrier_all();
		samples[1][r] = now_ns() - begin;
		for (int i = 1; i < taken; i++)
			if (got[i - 1] > got[i])
				fail("keys are not in order");
		all = taken;
		shmem_long_sum_to_all(&sum, &all, 1, 0, 0, n, work, words);
		if (sum != (long)KEYS * n)
			fail("keys got lost");
		shmem_barrier_all();
	}
	print("exchange", samples[0], KEYS * sizeof *keys, 1);
	print("sort", samples[1], KEYS * sizeof *keys, 1);
	free(keys);
	free(sorted);
	free(counts);
}

int main(int count, char **arguments)
{
	shmem_init();
	me = shmem_my_pe(), n = shmem_n_pes();
	rounds = count > 1 ? atoi(arguments[1]) : 5;
	if (rounds < 1 || rounds > ROUNDS_MAX)
		return 2;
	stay_on(me);
	unsigned long *table = shmem_malloc(TABLE * sizeof *table);
	int *got = shmem_malloc(ROOM * sizeof *got);
	if (!table || !got)
		fail("no symmetric memory");
	updates("gups", table, 0);
	updates("gups-atomic", table, 1);
	sorts(got);
	fflush(stdout);
	shmem_barrier_all();
	shmem_finalize();
	return 0;
}
