/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * histogram.c - random numbers are counted in a table that is divided among the PEs. Each
 * count is one atomic addition in the memory of its owner.
 *
 *     oshcc -o histogram histogram.c && oshrun -n 4 ./histogram [NUMBERS]
 */
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BINS_PER_PE = 1024 };

static uint64_t next_number(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

int main(int argc, char **argv)
{
	long numbers = argc > 1 ? atol(argv[1]) : 1000000;
	static long sum, total;

	shmem_init();
	int me = shmem_my_pe(), n = shmem_n_pes();
	long *bins = shmem_calloc(BINS_PER_PE, sizeof *bins);
	if (bins == NULL) {
		fprintf(stderr, "the symmetric heap has no room\n");
		shmem_global_exit(1);
	}

	uint64_t state = 88172645463325252u + me;
	for (long i = 0; i < numbers; i++) {
		uint64_t bin = next_number(&state) % (BINS_PER_PE * (uint64_t)n);
		shmem_atomic_inc(&bins[bin % BINS_PER_PE], bin / BINS_PER_PE);
	}
	shmem_barrier_all();

	for (int bin = 0; bin < BINS_PER_PE; bin++)
		sum += bins[bin];
	shmem_sum_reduce(SHMEM_TEAM_WORLD, &total, &sum, 1);
	if (me == 0)
		printf("%ld numbers of %d PEs, counted %ld\n", numbers * n, n, total);
	int is_right = total == numbers * n;
	shmem_free(bins);
	shmem_finalize();
	return is_right ? 0 : 1;
}
