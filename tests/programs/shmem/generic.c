/* The type-generic interface: the macros of C11, and the overloads of C++ (generic.cc includes this
 * file). Each PE works on the memory of the next one. Without collective operations. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define NEED(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			shmem_global_exit(1); \
		} \
	} while (0)

static shmem_ctx_t ctx = SHMEM_CTX_DEFAULT;
static int next, former;

#define MOVES(TYPE, NAME) \
	static void moves_##NAME(void) \
	{ \
		static TYPE at[8]; \
		TYPE local[4] = {1, 2, 3, 4}; \
		static uint64_t signal; \
		shmem_put(at, local, 4, next); \
		shmem_put(ctx, at + 4, local, 1, next); \
		shmem_p(at + 5, local[1], next); \
		shmem_p(ctx, at + 6, 3, next); \
		shmem_iput(at, local, 1, 1, 4, next); \
		shmem_ibput(ctx, at, local, 2, 2, 2, 2, next); \
		shmem_put_nbi(at, local, 4, next); \
		shmem_put_signal(ctx, at, local, 4, &signal, 1, SHMEM_SIGNAL_ADD, next); \
		shmem_put_signal_nbi(at, local, 4, &signal, 1, SHMEM_SIGNAL_ADD, next); \
		shmem_quiet(); \
		shmem_barrier_all(); \
		NEED(at[3] == 4 && at[4] == 1 && at[5] == 2 && at[6] == 3 && signal == 2); \
		local[0] = local[1] = 0; \
		shmem_get(local, at, 1, former); \
		shmem_get(ctx, local + 1, at + 1, 1, former); \
		NEED(local[0] == 1 && local[1] == 2); \
		shmem_iget(local, at, 1, 2, 2, former); \
		shmem_ibget(local, at, 2, 2, 1, 2, former); \
		shmem_get_nbi(ctx, local, at, 4, former); \
		shmem_quiet(); \
		NEED(shmem_g(at + 5, former) == 2 && shmem_g(ctx, &at[6], former) == 3); \
		shmem_barrier_all(); \
	}
#define ATOMICS(TYPE, NAME) \
	static void atomics_##NAME(void) \
	{ \
		static TYPE at; \
		TYPE old = 0; \
		shmem_atomic_set(&at, 1, next); \
		shmem_atomic_add(&at, 2, next); \
		shmem_atomic_add(ctx, &at, 2, next); \
		shmem_atomic_inc(&at, next); \
		NEED(shmem_atomic_fetch(&at, next) == 6); \
		NEED(shmem_atomic_fetch_add(ctx, &at, shmem_atomic_fetch_inc(&at, next), next) == 7); \
		NEED(shmem_atomic_compare_swap(&at, 13, 1, next) == 13); \
		NEED(shmem_atomic_swap(ctx, &at, 4, next) == 1); \
		shmem_atomic_fetch_add_nbi(&old, &at, 1, next); \
		shmem_quiet(); \
		NEED(old == 4); \
		shmem_barrier_all(); \
		shmem_wait_until(&at, SHMEM_CMP_EQ, 5); \
		NEED(shmem_test(&at, SHMEM_CMP_GE, 5) == 1); \
		NEED(shmem_wait_until_any(&at, 1, (int *)0, SHMEM_CMP_NE, 0) == 0); \
		NEED(shmem_test_all(&at, 1, (int *)0, SHMEM_CMP_LT, 6) == 1); \
		shmem_barrier_all(); \
	}
#define BITS(TYPE, NAME) \
	static void bits_##NAME(void) \
	{ \
		static TYPE at = 12; \
		shmem_atomic_and(&at, 8, next); \
		shmem_atomic_or(ctx, &at, 1, next); \
		NEED(shmem_atomic_fetch_xor(&at, 3, next) == 9); \
		shmem_barrier_all(); \
		NEED(at == 10); \
	}

#define MOVED(X) \
	X(float, float) X(double, double) X(long double, longdouble) X(char, char) \
	X(signed char, schar) X(short, short) X(unsigned char, uchar) X(unsigned short, ushort)
#define INTEGERS(X) \
	X(int, int) X(long, long) X(long long, longlong) X(unsigned, uint) \
	X(unsigned long, ulong) X(unsigned long long, ulonglong) X(int32_t, int32) \
	X(int64_t, int64) X(uint32_t, uint32) X(uint64_t, uint64) X(size_t, size) X(ptrdiff_t, ptrdiff)
#define BITWISE(X) \
	X(unsigned, uint) X(unsigned long, ulong) X(unsigned long long, ulonglong) X(int32_t, int32) \
	X(int64_t, int64) X(uint64_t, uint64)
MOVED(MOVES)
INTEGERS(MOVES)
INTEGERS(ATOMICS)
BITWISE(BITS)

int main(void)
{
	static uint64_t signal;
	static float real = 1.5f;

	shmem_init();
	int n = shmem_n_pes();
	next = (shmem_my_pe() + 1) % n;
	former = (shmem_my_pe() + n - 1) % n;
#define CALL_MOVES(TYPE, NAME) moves_##NAME();
#define CALL_ATOMICS(TYPE, NAME) atomics_##NAME();
#define CALL_BITS(TYPE, NAME) bits_##NAME();
	MOVED(CALL_MOVES)
	INTEGERS(CALL_MOVES)
	INTEGERS(CALL_ATOMICS)
	BITWISE(CALL_BITS)
	NEED(shmem_atomic_swap(&real, 2.5f, next) == 1.5f);
	shmem_signal_add(&signal, 2, next);
	shmem_signal_add(ctx, &signal, 2, next);
	shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 4);
	shmem_signal_set(ctx, &signal, 9, shmem_my_pe());
	NEED(shmem_signal_fetch(&signal) == 9);
	shmem_barrier_all();
	if (shmem_my_pe() == 0)
		puts("all types");
	shmem_finalize();
	return 0;
}
