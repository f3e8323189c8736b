/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * rma.c - one-sided operations of an MPI between two ranks, in a passive epoch. They are the
 * operations of shmem.c between two PEs, in the same order.
 *
 * usage: rma SAMPLES
 *
 * Prints for each operation its name, its bytes, and the median time of a sample in ns.
 */
#include "cores.h"
#include "times.h"

#include <stdio.h>
#include <string.h>

#include <mpi.h>

enum { SAMPLES_MAX = 2000, LINES = 64, LINE = 128 / sizeof(long), LARGE = 1 << 20 };
enum { TRIPS = 50, PUTS = 512, TIMES = 20, POLLS = 1000 };
/* The window: two flags with a line each, lines, and a large buffer. */
enum { FLAG = 0, READY = LINE, FIRST_LINE = 2 * LINE, LARGE_TARGET = FIRST_LINE + LINES * LINE };
enum { WINDOW = LARGE_TARGET * sizeof(long) + LARGE };

static long *window, number, samples[SAMPLES_MAX], sources[PUTS];
static char large[LARGE];
static int me, rounds;
static MPI_Win win;

static void print(const char *operation, size_t bytes, int each)
{
	sort(samples, rounds);
	if (me == 0)
		printf("%s %zu %.2f\n", operation, bytes, (double)samples[rounds / 2] / each);
}

static void put(const void *source, int bytes, int at)
{
	MPI_Put(source, bytes, MPI_BYTE, 1 - me, at, bytes, MPI_BYTE, win);
}

static void put_number(int at)
{
	put(&number, sizeof number, at);
	MPI_Win_flush(1 - me, win);
}

/* Waits until the other rank has put the number. Some MPIs complete an operation only while its
 * target calls them. */
static void wait_for_number(int at)
{
	for (int polls = 1; *(volatile long *)&window[at] != number; polls++)
		if (polls % POLLS == 0) {
			int is_there;
			MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
			MPI_Win_sync(win);
		}
	MPI_Win_sync(win);
}

/* Half of a round trip of a put of 8 bytes, with a waiting receiver. */
static void puts_of_8_bytes(void)
{
	for (int r = 0; r < rounds; r++) {
		long begin = now_ns();
		for (int i = 0; i < TRIPS; i++)
			for (int turn = 0; turn < 2; turn++) {
				number++;
				if (turn == me)
					put_number(FLAG);
				else
					wait_for_number(FLAG);
			}
		samples[r] = now_ns() - begin;
	}
	print("put", 8, 2 * TRIPS);
}

/* Reads, or atomically increments, lines that their owner has just written. */
static void from_the_owners_cache(const char *operation, int is_add)
{
	long zero = 0, one = 1, got;
	for (int r = 0; r < rounds; r++) {
		number++;
		if (me == 1) {
			for (int i = 0; i < LINES; i++)
				*(volatile long *)&window[FIRST_LINE + i * LINE] = 0;
			MPI_Win_sync(win);
			put_number(READY);
			wait_for_number(READY);
			continue;
		}
		wait_for_number(READY);
		long begin = now_ns();
		for (int i = 0; i < LINES; i++) {
			MPI_Aint at = FIRST_LINE + i * LINE + zero;
			if (is_add)
				MPI_Fetch_and_op(&one, &got, MPI_LONG, 1, at, MPI_SUM, win);
			else
				MPI_Get(&got, 1, MPI_LONG, 1, at, 1, MPI_LONG, win);
			MPI_Win_flush(1, win);
			zero += got;
		}
		samples[r] = now_ns() - begin;
		put_number(READY);
	}
	print(operation, 8, LINES);
}

/* Puts of a large buffer that the sender has just written. */
static void large_puts(void)
{
	int saved = rounds;
	rounds = rounds > 300 ? 300 : rounds;
	for (int r = 0; r < rounds && me == 0; r++) {
		memset(large, r, LARGE);
		long begin = now_ns();
		put(large, LARGE, LARGE_TARGET);
		MPI_Win_flush(1, win);
		samples[r] = now_ns() - begin;
	}
	print("put", LARGE, 1);
	rounds = saved;
	MPI_Barrier(MPI_COMM_WORLD);
}

/* A put that is complete at its target, and many puts before one completion. */
static void completed_puts(void)
{
	for (int r = 0; r < rounds && me == 0; r++) {
		long begin = now_ns();
		for (int i = 0; i < TIMES; i++)
			put_number(LARGE_TARGET);
		samples[r] = now_ns() - begin;
	}
	print("put+quiet", 8, TIMES);
	for (int r = 0; r < rounds && me == 0; r++) {
		long begin = now_ns();
		for (int i = 0; i < PUTS; i++)
			put(&sources[i], sizeof *sources, LARGE_TARGET + i);
		MPI_Win_flush(1, win);
		samples[r] = now_ns() - begin;
	}
	print("put-rate", 8, PUTS);
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int count, char **arguments)
{
	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	rounds = count > 1 ? atoi(arguments[1]) : 200;
	if (rounds < 1 || rounds > SAMPLES_MAX)
		return 2;
	stay_on(me);
	MPI_Win_allocate(WINDOW, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
	memset(window, 0, WINDOW);
	MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
	MPI_Barrier(MPI_COMM_WORLD);
	puts_of_8_bytes();
	from_the_owners_cache("get", 0);
	from_the_owners_cache("fetch-add", 1);
	large_puts();
	completed_puts();
	fflush(stdout);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	MPI_Finalize();
	return 0;
}
