/* A profiling library: stands before shmem_long_put, shmem_barrier_all and shmem_init, and counts. */
#include <pshmem.h>
#include <stdio.h>

static int inits, puts_, barriers;

void shmem_init(void)
{
	inits++;
	pshmem_init();
}

void shmem_long_put(long *dest, const long *source, size_t nelems, int pe)
{
	puts_++;
	pshmem_long_put(dest, source, nelems, pe);
}

void shmem_barrier_all(void)
{
	barriers++;
	pshmem_barrier_all();
}

void shmem_finalize(void)
{
	int me = pshmem_my_pe();
	pshmem_finalize();
	printf("PE %d: %d init, %d put, %d barrier\n", me, inits, puts_, barriers);
}
