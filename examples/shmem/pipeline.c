/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pipeline.c - blocks travel from PE to PE. Each PE adds its number to every element. A signal
 * arrives after the data of its block, and credits limit the blocks that are under way.
 *
 *     oshcc -o pipeline pipeline.c && oshrun -n 4 ./pipeline
 */
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 1000, ELEMENTS = 4096, SLOTS = 4 };

/* Blocks that have arrived here, and free slots of the next PE. */
static uint64_t arrived, credits = SLOTS;

int main(void)
{
	shmem_init();
	int me = shmem_my_pe(), n = shmem_n_pes();
	long(*slots)[ELEMENTS] = shmem_malloc(sizeof(long[SLOTS][ELEMENTS]));
	long *block = malloc(sizeof(long[ELEMENTS]));
	long added = (long)n * (n - 1) / 2, wrong = 0;

	if (slots == NULL || block == NULL)
		shmem_global_exit(1);
	for (uint64_t i = 0; i < BLOCKS; i++) {
		long *slot = slots[i % SLOTS];
		if (me > 0)
			shmem_signal_wait_until(&arrived, SHMEM_CMP_GT, i);
		for (int k = 0; k < ELEMENTS; k++)
			block[k] = me > 0 ? slot[k] + me : (long)i;
		if (me > 0)
			shmem_signal_add(&credits, 1, me - 1);
		if (me < n - 1) {
			shmem_signal_wait_until(&credits, SHMEM_CMP_GT, i);
			shmem_put_signal(slot, block, ELEMENTS, &arrived, 1, SHMEM_SIGNAL_ADD, me + 1);
		} else {
			for (int k = 0; k < ELEMENTS; k++)
				wrong += block[k] != (long)i + added;
		}
	}
	shmem_barrier_all();
	if (me == n - 1)
		printf("%d blocks through %d PEs, %ld elements wrong\n", BLOCKS, n, wrong);
	shmem_finalize();
	return wrong != 0;
}
