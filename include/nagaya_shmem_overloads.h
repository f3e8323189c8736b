/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * nagaya_shmem_overloads.h - OpenSHMEM's type-generic interface as overloads for C++. shmem.h
 * includes it. shmem_put(dest, source, n, pe) calls shmem_int_put if dest is an int *, and
 * shmem_put(ctx, dest, source, n, pe) calls shmem_ctx_int_put.
 */
#ifndef NAGAYA_SHMEM_OVERLOADS_H
#define NAGAYA_SHMEM_OVERLOADS_H

/* The distinct types of each table in shmem.h. The fixed-width types, size_t and ptrdiff_t are
 * other names for them. */
#define NAGAYA_SHMEM_DISTINCT_AMO_TYPES(X) \
	X(int, int) \
	X(long, long) \
	X(longlong, long long) \
	X(uint, unsigned int) \
	X(ulong, unsigned long) \
	X(ulonglong, unsigned long long)
#define NAGAYA_SHMEM_DISTINCT_EXTENDED_AMO_TYPES(X) \
	X(float, float) \
	X(double, double) \
	NAGAYA_SHMEM_DISTINCT_AMO_TYPES(X)
#define NAGAYA_SHMEM_DISTINCT_SYNC_TYPES(X) \
	X(short, short) \
	X(ushort, unsigned short) \
	NAGAYA_SHMEM_DISTINCT_AMO_TYPES(X)
#define NAGAYA_SHMEM_DISTINCT_RMA_TYPES(X) \
	X(longdouble, long double) \
	X(char, char) \
	X(schar, signed char) \
	X(short, short) \
	X(uchar, unsigned char) \
	X(ushort, unsigned short) \
	NAGAYA_SHMEM_DISTINCT_EXTENDED_AMO_TYPES(X)
#define NAGAYA_SHMEM_DISTINCT_BITWISE_AMO_TYPES(X) \
	X(uint, unsigned int) \
	X(ulong, unsigned long) \
	X(ulonglong, unsigned long long) \
	X(int32, int) \
	X(int64, long)
#define NAGAYA_SHMEM_DISTINCT_BITWISE_REDUCTION_TYPES(X) \
	X(uchar, unsigned char) \
	X(ushort, unsigned short) \
	X(int8, signed char) \
	X(int16, short) \
	NAGAYA_SHMEM_DISTINCT_BITWISE_AMO_TYPES(X)

/* Overload OP for the typed function shmem_NAME_OP. PARAMETERS and ARGUMENTS are lists in
 * parentheses. */
#define NAGAYA_SHMEM_LIST(...) __VA_ARGS__
#define NAGAYA_SHMEM_OVERLOAD(RESULT, NAME, OP, PARAMETERS, ARGUMENTS) \
	static inline RESULT shmem_##OP PARAMETERS { return shmem_##NAME##_##OP ARGUMENTS; }
/* The same, and an overload with a context. */
#define NAGAYA_SHMEM_BOTH(RESULT, NAME, OP, PARAMETERS, ARGUMENTS) \
	NAGAYA_SHMEM_OVERLOAD(RESULT, NAME, OP, PARAMETERS, ARGUMENTS) \
	static inline RESULT shmem_##OP(shmem_ctx_t ctx, NAGAYA_SHMEM_LIST PARAMETERS) \
	{ \
		return shmem_ctx_##NAME##_##OP(ctx, NAGAYA_SHMEM_LIST ARGUMENTS); \
	}

#define NAGAYA_SHMEM_OVERLOADS_RMA(NAME, TYPE) \
	NAGAYA_SHMEM_BOTH(void, NAME, put, (TYPE *dest, const TYPE *source, size_t nelems, \
		int pe), (dest, source, nelems, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, put_nbi, (TYPE *dest, const TYPE *source, size_t nelems, \
		int pe), (dest, source, nelems, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, get, (TYPE *dest, const TYPE *source, size_t nelems, \
		int pe), (dest, source, nelems, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, get_nbi, (TYPE *dest, const TYPE *source, size_t nelems, \
		int pe), (dest, source, nelems, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, put_signal, (TYPE *dest, const TYPE *source, \
		size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe), (dest, \
		source, nelems, sig_addr, signal, sig_op, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, put_signal_nbi, (TYPE *dest, const TYPE *source, \
		size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe), (dest, \
		source, nelems, sig_addr, signal, sig_op, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, iput, (TYPE *dest, const TYPE *source, ptrdiff_t dst, \
		ptrdiff_t sst, size_t nelems, int pe), (dest, source, dst, sst, nelems, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, iget, (TYPE *dest, const TYPE *source, ptrdiff_t dst, \
		ptrdiff_t sst, size_t nelems, int pe), (dest, source, dst, sst, nelems, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, ibput, (TYPE *dest, const TYPE *source, ptrdiff_t dst, \
		ptrdiff_t sst, size_t bsize, size_t nblocks, int pe), (dest, source, dst, sst, \
		bsize, nblocks, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, ibget, (TYPE *dest, const TYPE *source, ptrdiff_t dst, \
		ptrdiff_t sst, size_t bsize, size_t nblocks, int pe), (dest, source, dst, sst, \
		bsize, nblocks, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, p, (TYPE *dest, TYPE value, int pe), (dest, value, pe)) \
	NAGAYA_SHMEM_BOTH(TYPE, NAME, g, (const TYPE *source, int pe), (source, pe))
#define NAGAYA_SHMEM_OVERLOADS_COLLECTIVES(NAME, TYPE) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, broadcast, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems, int PE_root), (team, dest, source, nelems, \
		PE_root)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, collect, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, fcollect, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, alltoall, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, max_reduce, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, min_reduce, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, alltoalls, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems), (team, dest, \
		source, dst, sst, nelems))
#define NAGAYA_SHMEM_OVERLOADS_SUM(NAME, TYPE) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, sum_reduce, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, prod_reduce, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, sum_inscan, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, sum_exscan, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems))
#define NAGAYA_SHMEM_OVERLOADS_BITWISE_REDUCTION(NAME, TYPE) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, and_reduce, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, or_reduce, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, xor_reduce, (shmem_team_t team, TYPE *dest, \
		const TYPE *source, size_t nelems), (team, dest, source, nelems))
#define NAGAYA_SHMEM_OVERLOADS_AMO(NAME, TYPE) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_add, (TYPE *dest, TYPE value, int pe), (dest, \
		value, pe)) \
	NAGAYA_SHMEM_BOTH(TYPE, NAME, atomic_fetch_add, (TYPE *dest, TYPE value, int pe), (dest, \
		value, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_fetch_add_nbi, (TYPE *fetch, TYPE *dest, \
		TYPE value, int pe), (fetch, dest, value, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_inc, (TYPE *dest, int pe), (dest, pe)) \
	NAGAYA_SHMEM_BOTH(TYPE, NAME, atomic_fetch_inc, (TYPE *dest, int pe), (dest, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_fetch_inc_nbi, (TYPE *fetch, TYPE *dest, int pe), \
		(fetch, dest, pe)) \
	NAGAYA_SHMEM_BOTH(TYPE, NAME, atomic_compare_swap, (TYPE *dest, TYPE cond, TYPE value, \
		int pe), (dest, cond, value, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_compare_swap_nbi, (TYPE *fetch, TYPE *dest, \
		TYPE cond, TYPE value, int pe), (fetch, dest, cond, value, pe))
#define NAGAYA_SHMEM_OVERLOADS_EXTENDED_AMO(NAME, TYPE) \
	NAGAYA_SHMEM_BOTH(TYPE, NAME, atomic_fetch, (const TYPE *source, int pe), (source, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_fetch_nbi, (TYPE *fetch, const TYPE *source, \
		int pe), (fetch, source, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_set, (TYPE *dest, TYPE value, int pe), (dest, \
		value, pe)) \
	NAGAYA_SHMEM_BOTH(TYPE, NAME, atomic_swap, (TYPE *dest, TYPE value, int pe), (dest, \
		value, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_swap_nbi, (TYPE *fetch, TYPE *dest, TYPE value, \
		int pe), (fetch, dest, value, pe))
#define NAGAYA_SHMEM_OVERLOADS_BITWISE_AMO(NAME, TYPE) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_and, (TYPE *dest, TYPE value, int pe), (dest, \
		value, pe)) \
	NAGAYA_SHMEM_BOTH(TYPE, NAME, atomic_fetch_and, (TYPE *dest, TYPE value, int pe), (dest, \
		value, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_fetch_and_nbi, (TYPE *fetch, TYPE *dest, \
		TYPE value, int pe), (fetch, dest, value, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_or, (TYPE *dest, TYPE value, int pe), (dest, value, \
		pe)) \
	NAGAYA_SHMEM_BOTH(TYPE, NAME, atomic_fetch_or, (TYPE *dest, TYPE value, int pe), (dest, \
		value, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_fetch_or_nbi, (TYPE *fetch, TYPE *dest, TYPE value, \
		int pe), (fetch, dest, value, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_xor, (TYPE *dest, TYPE value, int pe), (dest, \
		value, pe)) \
	NAGAYA_SHMEM_BOTH(TYPE, NAME, atomic_fetch_xor, (TYPE *dest, TYPE value, int pe), (dest, \
		value, pe)) \
	NAGAYA_SHMEM_BOTH(void, NAME, atomic_fetch_xor_nbi, (TYPE *fetch, TYPE *dest, \
		TYPE value, int pe), (fetch, dest, value, pe))
#define NAGAYA_SHMEM_OVERLOADS_SYNC(NAME, TYPE) \
	NAGAYA_SHMEM_OVERLOAD(void, NAME, wait_until_all, (TYPE *ivars, size_t nelems, \
		const int *status, int cmp, TYPE cmp_value), (ivars, nelems, status, cmp, \
		cmp_value)) \
	NAGAYA_SHMEM_OVERLOAD(size_t, NAME, wait_until_any, (TYPE *ivars, size_t nelems, \
		const int *status, int cmp, TYPE cmp_value), (ivars, nelems, status, cmp, \
		cmp_value)) \
	NAGAYA_SHMEM_OVERLOAD(size_t, NAME, wait_until_some, (TYPE *ivars, size_t nelems, \
		size_t *indices, const int *status, int cmp, TYPE cmp_value), (ivars, nelems, \
		indices, status, cmp, cmp_value)) \
	NAGAYA_SHMEM_OVERLOAD(void, NAME, wait_until_all_vector, (TYPE *ivars, size_t nelems, \
		const int *status, int cmp, const TYPE *cmp_values), (ivars, nelems, status, \
		cmp, cmp_values)) \
	NAGAYA_SHMEM_OVERLOAD(size_t, NAME, wait_until_any_vector, (TYPE *ivars, size_t nelems, \
		const int *status, int cmp, const TYPE *cmp_values), (ivars, nelems, status, \
		cmp, cmp_values)) \
	NAGAYA_SHMEM_OVERLOAD(size_t, NAME, wait_until_some_vector, (TYPE *ivars, size_t nelems, \
		size_t *indices, const int *status, int cmp, const TYPE *cmp_values), (ivars, \
		nelems, indices, status, cmp, cmp_values)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, test_all, (TYPE *ivars, size_t nelems, \
		const int *status, int cmp, TYPE cmp_value), (ivars, nelems, status, cmp, \
		cmp_value)) \
	NAGAYA_SHMEM_OVERLOAD(size_t, NAME, test_any, (TYPE *ivars, size_t nelems, \
		const int *status, int cmp, TYPE cmp_value), (ivars, nelems, status, cmp, \
		cmp_value)) \
	NAGAYA_SHMEM_OVERLOAD(size_t, NAME, test_some, (TYPE *ivars, size_t nelems, \
		size_t *indices, const int *status, int cmp, TYPE cmp_value), (ivars, nelems, \
		indices, status, cmp, cmp_value)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, test_all_vector, (TYPE *ivars, size_t nelems, \
		const int *status, int cmp, const TYPE *cmp_values), (ivars, nelems, status, \
		cmp, cmp_values)) \
	NAGAYA_SHMEM_OVERLOAD(size_t, NAME, test_any_vector, (TYPE *ivars, size_t nelems, \
		const int *status, int cmp, const TYPE *cmp_values), (ivars, nelems, status, \
		cmp, cmp_values)) \
	NAGAYA_SHMEM_OVERLOAD(size_t, NAME, test_some_vector, (TYPE *ivars, size_t nelems, \
		size_t *indices, const int *status, int cmp, const TYPE *cmp_values), (ivars, \
		nelems, indices, status, cmp, cmp_values)) \
	NAGAYA_SHMEM_OVERLOAD(int, NAME, test, (TYPE *ivar, int cmp, TYPE cmp_value), (ivar, \
		cmp, cmp_value))
#define NAGAYA_SHMEM_OVERLOADS_WAIT(NAME, TYPE) \
	NAGAYA_SHMEM_OVERLOAD(void, NAME, wait_until, (TYPE *ivar, int cmp, TYPE cmp_value), \
		(ivar, cmp, cmp_value))
/* Deprecated. */
#define NAGAYA_SHMEM_OVERLOADS_OLD_AMO(NAME, TYPE) \
	NAGAYA_SHMEM_OVERLOAD(void, NAME, add, (TYPE *dest, TYPE value, int pe), (dest, value, \
		pe)) \
	NAGAYA_SHMEM_OVERLOAD(void, NAME, inc, (TYPE *dest, int pe), (dest, pe)) \
	NAGAYA_SHMEM_OVERLOAD(TYPE, NAME, fadd, (TYPE *dest, TYPE value, int pe), (dest, value, \
		pe)) \
	NAGAYA_SHMEM_OVERLOAD(TYPE, NAME, finc, (TYPE *dest, int pe), (dest, pe)) \
	NAGAYA_SHMEM_OVERLOAD(TYPE, NAME, cswap, (TYPE *dest, TYPE cond, TYPE value, int pe), \
		(dest, cond, value, pe))
#define NAGAYA_SHMEM_OVERLOADS_OLD_EXTENDED_AMO(NAME, TYPE) \
	NAGAYA_SHMEM_OVERLOAD(TYPE, NAME, fetch, (const TYPE *source, int pe), (source, pe)) \
	NAGAYA_SHMEM_OVERLOAD(void, NAME, set, (TYPE *dest, TYPE value, int pe), (dest, value, \
		pe)) \
	NAGAYA_SHMEM_OVERLOAD(TYPE, NAME, swap, (TYPE *dest, TYPE value, int pe), (dest, value, \
		pe))

NAGAYA_SHMEM_DISTINCT_RMA_TYPES(NAGAYA_SHMEM_OVERLOADS_RMA)
NAGAYA_SHMEM_DISTINCT_RMA_TYPES(NAGAYA_SHMEM_OVERLOADS_COLLECTIVES)
NAGAYA_SHMEM_DISTINCT_RMA_TYPES(NAGAYA_SHMEM_OVERLOADS_SUM)
NAGAYA_SHMEM_OVERLOADS_SUM(complexd, nagaya_shmem_complexd)
NAGAYA_SHMEM_OVERLOADS_SUM(complexf, nagaya_shmem_complexf)
NAGAYA_SHMEM_DISTINCT_BITWISE_REDUCTION_TYPES(NAGAYA_SHMEM_OVERLOADS_BITWISE_REDUCTION)
NAGAYA_SHMEM_DISTINCT_AMO_TYPES(NAGAYA_SHMEM_OVERLOADS_AMO)
NAGAYA_SHMEM_DISTINCT_EXTENDED_AMO_TYPES(NAGAYA_SHMEM_OVERLOADS_EXTENDED_AMO)
NAGAYA_SHMEM_DISTINCT_BITWISE_AMO_TYPES(NAGAYA_SHMEM_OVERLOADS_BITWISE_AMO)
NAGAYA_SHMEM_DISTINCT_SYNC_TYPES(NAGAYA_SHMEM_OVERLOADS_SYNC)

/* shmem_wait_until for long is the deprecated function of C. */
NAGAYA_SHMEM_OVERLOADS_WAIT(short, short)
NAGAYA_SHMEM_OVERLOADS_WAIT(int, int)
NAGAYA_SHMEM_OVERLOADS_WAIT(longlong, long long)
NAGAYA_SHMEM_OVERLOADS_WAIT(ushort, unsigned short)
NAGAYA_SHMEM_OVERLOADS_WAIT(uint, unsigned int)
NAGAYA_SHMEM_OVERLOADS_WAIT(ulong, unsigned long)
NAGAYA_SHMEM_OVERLOADS_WAIT(ulonglong, unsigned long long)

/* Deprecated: atomics of the older names. */
NAGAYA_SHMEM_OVERLOADS_OLD_AMO(int, int)
NAGAYA_SHMEM_OVERLOADS_OLD_AMO(long, long)
NAGAYA_SHMEM_OVERLOADS_OLD_AMO(longlong, long long)
NAGAYA_SHMEM_OVERLOADS_OLD_EXTENDED_AMO(float, float)
NAGAYA_SHMEM_OVERLOADS_OLD_EXTENDED_AMO(double, double)
NAGAYA_SHMEM_OVERLOADS_OLD_EXTENDED_AMO(int, int)
NAGAYA_SHMEM_OVERLOADS_OLD_EXTENDED_AMO(long, long)
NAGAYA_SHMEM_OVERLOADS_OLD_EXTENDED_AMO(longlong, long long)

static inline int shmem_sync(shmem_team_t team) { return shmem_team_sync(team); }
static inline void shmem_signal_add(shmem_ctx_t ctx, uint64_t *sig_addr, uint64_t signal, int pe)
{
	shmem_ctx_signal_add(ctx, sig_addr, signal, pe);
}
static inline void shmem_signal_set(shmem_ctx_t ctx, uint64_t *sig_addr, uint64_t signal, int pe)
{
	shmem_ctx_signal_set(ctx, sig_addr, signal, pe);
}

/* std::complex has the layout of C's complex types. */
#define NAGAYA_SHMEM_STD_COMPLEX(NAME, REAL, OP) \
	static inline int shmem_##NAME##_##OP(shmem_team_t team, std::complex<REAL> *dest, \
		const std::complex<REAL> *source, size_t nelems) \
	{ \
		return shmem_##NAME##_##OP(team, reinterpret_cast<nagaya_shmem_##NAME *>(dest), \
			reinterpret_cast<const nagaya_shmem_##NAME *>(source), nelems); \
	} \
	static inline int shmem_##OP(shmem_team_t team, std::complex<REAL> *dest, \
		const std::complex<REAL> *source, size_t nelems) \
	{ \
		return shmem_##NAME##_##OP(team, dest, source, nelems); \
	}
#define NAGAYA_SHMEM_STD_COMPLEX_ALL(NAME, REAL) \
	NAGAYA_SHMEM_STD_COMPLEX(NAME, REAL, sum_reduce) \
	NAGAYA_SHMEM_STD_COMPLEX(NAME, REAL, prod_reduce) \
	NAGAYA_SHMEM_STD_COMPLEX(NAME, REAL, sum_inscan) \
	NAGAYA_SHMEM_STD_COMPLEX(NAME, REAL, sum_exscan)
NAGAYA_SHMEM_STD_COMPLEX_ALL(complexd, double)
NAGAYA_SHMEM_STD_COMPLEX_ALL(complexf, float)

#endif /* NAGAYA_SHMEM_OVERLOADS_H */
