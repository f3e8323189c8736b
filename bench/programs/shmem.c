/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * shmem.c - single operations of an OpenSHMEM library, by calls of version 1.4, and the limits of
 * the machine where a PE can access another one's memory (shmem_ptr).
 *
 * usage: shmem SAMPLES [limits]
 *
 * Prints for each operation its name, its bytes, and the median time of a sample in ns. With
 * `limits` the operations between two PEs are plain loads, stores and copies. PE 0 and PE 1
 * measure them; all PEs take part in collective operations.
 */
#include "cores.h"
#include "times.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <shmem.h>

enum { SAMPLES_MAX = 2000, LINES = 64, LINE = 128 / sizeof(long), LARGE = 1 << 20 };
enum { TRIPS = 50, PUTS = 512, NUMBERS = 1024, TIMES = 20 };
enum { WORK = NUMBERS + SHMEM_REDUCE_MIN_WRKDATA_SIZE };

static long flag, lines[LINES * LINE], ready, number, inputs[NUMBERS], outputs[NUMBERS], work[WORK];
static long sync_words[2][SHMEM_REDUCE_SYNC_SIZE], spread_words[SHMEM_BCAST_SYNC_SIZE];
static long samples[SAMPLES_MAX];
static int me, n, rounds, limits;

static void print(const char *operation, size_t bytes, int each)
{
	sort(samples, rounds);
	if (me == 0)
		printf("%s %zu %.2f\n", operation, bytes, (double)samples[rounds / 2] / each);
}

/* The limits' view of an object of the other PE. */
static void *theirs(void *object)
{
	return shmem_ptr(object, 1 - me);
}

/* Half of a round trip of a put of 8 bytes, with a waiting receiver. */
static void puts_of_8_bytes(void)
{
	volatile long *mine = &flag, *other = limits ? theirs(&flag) : NULL;
	for (int r = 0; r < rounds; r++) {
		long begin = now_ns();
		for (int i = 0; i < TRIPS; i++)
			for (int turn = 0; turn < 2; turn++) {
				number++;
				if (turn == me && limits)
					*other = number;
				else if (turn == me)
					shmem_long_p(&flag, number, 1 - me);
				else if (limits)
					while (*mine != number)
						;
				else
					shmem_long_wait_until(&flag, SHMEM_CMP_EQ, number);
			}
		samples[r] = now_ns() - begin;
	}
	print("put", 8, 2 * TRIPS);
}

/* Reads, or atomically increments, lines that their owner has just written. The next address
 * depends on the value, so that accesses do not overlap. */
static void from_the_owners_cache(const char *operation, int is_add)
{
	long *other = limits ? theirs(lines) : NULL, zero = 0;
	for (int r = 0; r < rounds; r++) {
		number++;
		if (me == 1) {
			for (int i = 0; i < LINES; i++)
				*(volatile long *)&lines[i * LINE] = 0;
			shmem_long_p(&ready, number, 0);
			shmem_long_wait_until(&ready, SHMEM_CMP_EQ, number);
			continue;
		}
		shmem_long_wait_until(&ready, SHMEM_CMP_EQ, number);
		long begin = now_ns();
		for (int i = 0; i < LINES; i++) {
			long at = i * LINE + zero;
			if (limits && is_add)
				zero += atomic_fetch_add((_Atomic long *)&other[at], 0);
			else if (limits)
				zero += *(volatile long *)&other[at];
			else if (is_add)
				zero += shmem_long_atomic_fetch_add(&lines[at], 0, 1);
			else
				zero += shmem_long_g(&lines[at], 1);
		}
		samples[r] = now_ns() - begin;
		shmem_long_p(&ready, number, 1);
	}
	print(operation, 8, LINES);
}

/* Puts of a large buffer that the sender has just written. */
static void large_puts(char *target, char *source)
{
	int saved = rounds;
	rounds = rounds > 300 ? 300 : rounds;
	char *other = limits ? theirs(target) : NULL;
	for (int r = 0; r < rounds && me == 0; r++) {
		memset(source, r, LARGE);
		long begin = now_ns();
		if (limits)
			memcpy(other, source, LARGE);
		else {
			shmem_putmem(target, source, LARGE, 1);
			shmem_quiet();
		}
		samples[r] = now_ns() - begin;
	}
	print("put", LARGE, 1);
	rounds = saved;
}

/* A put that is complete at its target, and many puts before one completion. */
static void completed_puts(void)
{
	for (int r = 0; r < rounds && me == 0; r++) {
		long begin = now_ns();
		for (int i = 0; i < TIMES; i++) {
			shmem_putmem(inputs, outputs, 8, 1);
			shmem_quiet();
		}
		samples[r] = now_ns() - begin;
	}
	print("put+quiet", 8, TIMES);
	for (int r = 0; r < rounds && me == 0; r++) {
		long begin = now_ns();
		for (int i = 0; i < PUTS; i++)
			shmem_putmem_nbi(&inputs[i], outputs, 8, 1);
		shmem_quiet();
		samples[r] = now_ns() - begin;
	}
	print("put-rate", 8, PUTS);
}

static void reduce(int count, int turn)
{
	shmem_long_sum_to_all(outputs, inputs, count, 0, 0, n, work, sync_words[turn % 2]);
}

static void collectives(void)
{
	static const struct { const char *name; int count; } all[] = {
		{"barrier", 0}, {"reduce", 1}, {"reduce", NUMBERS}, {"broadcast", 1}, {"broadcast", NUMBERS},
	};
	for (size_t a = 0; a < sizeof all / sizeof *all; a++) {
		size_t count = (size_t)all[a].count;
		for (int r = 0; r < rounds; r++) {
			shmem_barrier_all();
			long begin = now_ns();
			for (int i = 0; i < TIMES; i++)
				if (count == 0)
					shmem_barrier_all();
				else if (all[a].name[0] == 'r')
					reduce((int)count, i);
				else {
					shmem_broadcast64(outputs, inputs, count, 0, 0, 0, n, spread_words);
					shmem_barrier_all(); /* else the root would run ahead */
				}
			samples[r] = now_ns() - begin;
		}
		print(all[a].name, count * sizeof(long), TIMES);
	}
}

int main(int count, char **arguments)
{
	shmem_init();
	me = shmem_my_pe(), n = shmem_n_pes();
	rounds = count > 1 ? atoi(arguments[1]) : 200;
	limits = count > 2 && strcmp(arguments[2], "limits") == 0;
	if (rounds < 1 || rounds > SAMPLES_MAX)
		return 2;
	stay_on(me);
	for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		sync_words[0][i] = sync_words[1][i] = SHMEM_SYNC_VALUE;
	for (int i = 0; i < SHMEM_BCAST_SYNC_SIZE; i++)
		spread_words[i] = SHMEM_SYNC_VALUE;
	char *target = shmem_malloc(LARGE), *source = shmem_malloc(LARGE);
	memset(target, 1, LARGE);
	shmem_barrier_all();
	if (me < 2 && n >= 2) {
		puts_of_8_bytes();
		from_the_owners_cache("get", 0);
		from_the_owners_cache("fetch-add", 1);
		large_puts(target, source);
		if (!limits)
			completed_puts();
	}
	shmem_barrier_all();
	if (!limits)
		collectives();
	fflush(stdout);
	shmem_barrier_all();
	shmem_finalize();
	return 0;
}
