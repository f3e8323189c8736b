/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * kernel_sort.c - a distributed bucket sort of whole numbers, whose messages are MPI_Allreduce,
 * MPI_Alltoall and MPI_Alltoallv.
 *
 *	kernel_sort KEYS ITERATIONS
 *
 * Each rank has KEYS keys. An iteration makes new keys, counts them by bucket, adds the counts of
 * all ranks, gives each rank a range of buckets with about the same number of keys, sends each key
 * to the owner of its bucket, and sorts there by counting.
 *
 * After each iteration the keys of a rank must be in order and above those of the rank before, and
 * no key may be lost: number, sum and sum of squares over all ranks are those of the keys made.
 */
#include "kernel.h"

enum { KEY_BITS = 20, BUCKET_BITS = 10, BUCKETS = 1 << BUCKET_BITS };

static long keys, received;
static uint32_t *made, *grouped, *arrived, *sorted, *counts;

static uint32_t bucket(uint32_t key)
{
	return key >> (KEY_BITS - BUCKET_BITS);
}

/* Keys near the middle are more frequent: each is the mean of four random numbers. */
static void make_keys(long iteration)
{
	uint64_t state = 88172645463325252u + (uint64_t)rank * 7919 + (uint64_t)iteration * 104729;
	for (long at = 0; at < keys; at++) {
		uint32_t sum = 0;
		for (int of = 0; of < 4; of++) {
			state ^= state << 13, state ^= state >> 7, state ^= state << 17;
			sum += (uint32_t)(state >> 40) & ((1u << KEY_BITS) - 1);
		}
		made[at] = sum / 4;
	}
}

/* Groups the keys by bucket; returns the count of each bucket in `mine`. */
static void group(int *mine)
{
	static long place[BUCKETS];
	memset(mine, 0, BUCKETS * sizeof *mine);
	for (long at = 0; at < keys; at++)
		mine[bucket(made[at])]++;
	for (long b = 0, sum = 0; b < BUCKETS; sum += mine[b++])
		place[b] = sum;
	for (long at = 0; at < keys; at++)
		grouped[place[bucket(made[at])]++] = made[at];
}

/* Computes the rank that owns each bucket, from the counts of all ranks. */
static void divide(const int *all, int *owner)
{
	long sum = 0;
	for (int b = 0; b < BUCKETS; b++) {
		owner[b] = (int)(sum / keys);
		if (owner[b] >= ranks)
			owner[b] = ranks - 1;
		sum += all[b];
	}
}

static void exchange(const int *mine, const int *owner)
{
	int *to = room((size_t)ranks * 4 * sizeof *to);
	int *from = to + ranks, *to_place = from + ranks, *from_place = to_place + ranks;
	for (int b = 0; b < BUCKETS; b++)
		to[owner[b]] += mine[b];
	MESSAGE(MPI_Alltoall(to, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD));
	received = 0;
	for (int r = 0, sent = 0; r < ranks; sent += to[r], received += from[r], r++)
		to_place[r] = sent, from_place[r] = (int)received;
	if (received > 2 * keys + BUCKETS)
		fail("%ld keys for one rank", received);
	MESSAGE(MPI_Alltoallv(grouped, to, to_place, MPI_UINT32_T, arrived, from, from_place,
			      MPI_UINT32_T, MPI_COMM_WORLD));
	free(to);
}

static void sort_arrived(void)
{
	memset(counts, 0, sizeof *counts << KEY_BITS);
	for (long at = 0; at < received; at++)
		counts[arrived[at]]++;
	for (uint32_t key = 0, at = 0; key < 1u << KEY_BITS; key++)
		for (uint32_t n = counts[key]; n > 0; n--)
			sorted[at++] = key;
}

/* Adds count, sum and sum of squares of `all` keys to `sums`. */
static void add(const uint32_t *all, long count, uint64_t sums[3])
{
	sums[0] += (uint64_t)count;
	for (long at = 0; at < count; at++)
		sums[1] += all[at], sums[2] += (uint64_t)all[at] * all[at];
}

/* Checks order and completeness; returns the sum of all keys. */
static uint64_t check(void)
{
	uint64_t sums[2][3] = { { 0 } }, all[2][3];
	uint32_t bounds[2] = { received ? sorted[0] : UINT32_MAX, received ? sorted[received - 1] : 0 };
	uint32_t *of_all = room((size_t)ranks * sizeof bounds);
	add(made, keys, sums[0]);
	add(sorted, received, sums[1]);
	MPI_Allreduce(sums, all, 6, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	if (memcmp(all[0], all[1], sizeof all[0]))
		fail("keys were lost or changed");
	for (long at = 1; at < received; at++)
		if (sorted[at - 1] > sorted[at])
			fail("key %ld is not in order", at);
	MPI_Allgather(bounds, 2, MPI_UINT32_T, of_all, 2, MPI_UINT32_T, MPI_COMM_WORLD);
	for (uint32_t r = 0, highest = 0; r < (uint32_t)ranks; r++) {
		if (of_all[2 * r] < highest)
			fail("keys of rank %u are below those of a rank before", r);
		if (of_all[2 * r + 1] > highest)
			highest = of_all[2 * r + 1];
	}
	free(of_all);
	return all[0][1];
}

static void iterate(void)
{
	static int mine[BUCKETS], all[BUCKETS], owner[BUCKETS];
	group(mine);
	MESSAGE(MPI_Allreduce(mine, all, BUCKETS, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
	divide(all, owner);
	exchange(mine, owner);
	sort_arrived();
}

int main(int argc, char **argv)
{
	long numbers[2];
	uint64_t sum = 0;
	start(argc, argv, "kernel_sort KEYS ITERATIONS", numbers, 2);
	keys = numbers[0];
	size_t bytes = (size_t)keys * sizeof *made;
	made = room(bytes), grouped = room(bytes);
	arrived = room(2 * bytes + BUCKETS * sizeof *made);
	sorted = room(2 * bytes + BUCKETS * sizeof *made);
	counts = room(sizeof *counts << KEY_BITS);
	/* The first iteration is not measured: it touches the memory for the first time. */
	double seconds = 0, messages = 0;
	for (long iteration = 0; iteration <= numbers[1]; iteration++) {
		make_keys(iteration);
		begin();
		iterate();
		if (iteration > 0)
			seconds += MPI_Wtime() - began, messages += in_messages;
		sum += check();
	}
	report(seconds, messages);
	if (rank == 0)
		printf("result sum of keys %llu\n", (unsigned long long)sum);
	MPI_Finalize();
	return 0;
}
