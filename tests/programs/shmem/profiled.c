/* A program for profile.c. Allocation and finalization synchronize inside the library, and the
 * profiling library must not see that. The generic macro calls the typed function. */
#include <shmem.h>

int main(void)
{
	static long at[4], local[4];
	shmem_init();
	int next = (shmem_my_pe() + 1) % shmem_n_pes();
	void *block = shmem_malloc(100);
	shmem_long_put(at, local, 4, next);
	shmem_put(at, local, 4, next);
	shmem_int_p((int *)at, 1, next);
	shmem_barrier_all();
	shmem_free(block);
	shmem_finalize();
	return 0;
}
