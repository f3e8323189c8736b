/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * ring.c - each PE puts its number into the memory of the next PE.
 *
 *     oshcc -o ring ring.c && oshrun -n 4 ./ring
 */
#include <shmem.h>
#include <stdio.h>

/* Static data is symmetric: the address names the variable of each PE. */
static int got = -1;

int main(void)
{
	shmem_init();
	int me = shmem_my_pe(), n = shmem_n_pes();
	shmem_p(&got, me, (me + 1) % n);
	shmem_barrier_all();
	printf("PE %d got %d\n", me, got);
	shmem_finalize();
	return 0;
}
