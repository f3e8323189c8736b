/* All PEs exchange data without end. Each prints its number and its PID first. The test kills one of
 * them. */
#include "../check.h"
#include <shmem.h>

enum { LONGS = 20000 };

int main(void)
{
	static long lock, sum, signalled[LONGS], put[LONGS], local[LONGS];
	static uint64_t signal;

	shmem_init();
	int me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n;
	shmem_barrier_all();
	printf("%d %d\n", me, getpid());
	fflush(stdout);
	for (uint64_t round = 1;; round++) {
		check_parent();
		size_t longs = round % 3 ? 10 : LONGS;
		shmem_long_put_signal(signalled, local, longs, &signal, 1, SHMEM_SIGNAL_ADD, next);
		shmem_long_put_nbi(put, local, LONGS, next);
		shmem_signal_wait_until(&signal, SHMEM_CMP_GE, round);
		shmem_set_lock(&lock);
		shmem_long_p(&sum, shmem_long_g(&sum, 0) + 1, 0);
		shmem_clear_lock(&lock);
		shmem_long_get(local, signalled, LONGS, (me + (int)(round % n)) % n);
		shmem_barrier_all();
	}
}
