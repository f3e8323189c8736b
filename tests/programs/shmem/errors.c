/* Each case is an error that ends the job with one line. PE 0 makes it; the others wait. */
#include "../check.h"
#include <shmem.h>

static long word;

int main(int argc, char **argv)
{
	long on_stack = 0;
	const char *error = argc > 1 ? argv[1] : "";

	if (strcmp(error, "uninitialised") == 0)
		shmem_barrier_all();
	shmem_init();
	int n = shmem_n_pes();
	long *heap = shmem_malloc(sizeof(long[4]));
	CHECK(heap != NULL);
	if (shmem_my_pe() == 0) {
		if (strcmp(error, "pe") == 0)
			shmem_long_p(&word, 1, n);
		if (strcmp(error, "negative") == 0)
			shmem_long_g(&word, -1);
		if (strcmp(error, "stack") == 0)
			shmem_long_put(&on_stack, &word, 1, n - 1);
		if (strcmp(error, "null") == 0)
			shmem_putmem(NULL, &word, 8, n - 1);
		if (strcmp(error, "end") == 0)
			shmem_putmem(heap, heap, (size_t)1 << 40, n - 1);
		if (strcmp(error, "atomic") == 0)
			shmem_long_atomic_inc((long *)((char *)heap + 1), n - 1);
		if (strcmp(error, "comparison") == 0)
			shmem_long_wait_until(&word, 17, 1);
		if (strcmp(error, "signal") == 0)
			shmem_long_put_signal(&word, heap, 1, (uint64_t *)heap, 1, 9, n - 1);
		if (strcmp(error, "free") == 0)
			shmem_free(heap + 1);
		if (strcmp(error, "context") == 0)
			shmem_ctx_long_p(SHMEM_CTX_INVALID, &word, 1, 0);
		if (strcmp(error, "exit") == 0)
			shmem_global_exit(42);
		if (strcmp(error, "leave") == 0)
			_exit(3);
		if (strcmp(error, "fail") == 0)
			exit(3);
		if (strcmp(error, "segv") == 0)
			*(volatile int *)8 = 1;
	}
	if (strcmp(error, "sizes") == 0)
		shmem_malloc(shmem_my_pe() + 1000);
	if (strcmp(error, "twice") == 0) {
		shmem_finalize();
		shmem_init();
	}
	shmem_long_wait_until(&word, SHMEM_CMP_EQ, 12345);
	return 0;
}
