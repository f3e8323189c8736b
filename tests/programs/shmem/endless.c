/* All PEs exchange data without end: puts, atomics, signals, locks, barriers and waits. Each prints
 * its PID first. The test kills one of them. */
#include "../check.h"
#include <shmem.h>

int main(void)
{
	static long lock, sum, at[1000], local[1000];
	static uint64_t signal;

	shmem_init();
	int me = shmem_my_pe(), next = (me + 1) % shmem_n_pes();
	shmem_barrier_all();
	printf("%d\n", getpid());
	fflush(stdout);
	for (uint64_t round = 1;; round++) {
		check_parent();
		shmem_long_put_signal(at, local, 1000, &signal, 1, SHMEM_SIGNAL_ADD, next);
		shmem_signal_wait_until(&signal, SHMEM_CMP_GE, round);
		shmem_set_lock(&lock);
		shmem_long_p(&sum, shmem_long_g(&sum, 0) + 1, 0);
		shmem_quiet();
		shmem_clear_lock(&lock);
		shmem_long_atomic_inc(&sum, next);
		void *block = shmem_malloc(1000 + round % 100);
		shmem_barrier_all();
		shmem_free(block);
	}
}
