/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * nagaya_shmem_generic.h - the type-generic interface of OpenSHMEM for C11. shmem.h includes
 * it. shmem_put(dest, source, n, pe) calls shmem_int_put if dest points to int, and
 * shmem_put(ctx, dest, source, n, pe) calls shmem_ctx_int_put.
 */
#ifndef NAGAYA_SHMEM_GENERIC_H
#define NAGAYA_SHMEM_GENERIC_H

/* The function P NAME S for the type to which POINTER points. The fixed-width types, size_t
 * and ptrdiff_t are among the rows under other names. */
#define NAGAYA_SHMEM_OF_RMA(POINTER, P, S) \
	_Generic(*(POINTER), \
		float: P##float##S, \
		double: P##double##S, \
		long double: P##longdouble##S, \
		char: P##char##S, \
		signed char: P##schar##S, \
		short: P##short##S, \
		int: P##int##S, \
		long: P##long##S, \
		long long: P##longlong##S, \
		unsigned char: P##uchar##S, \
		unsigned short: P##ushort##S, \
		unsigned int: P##uint##S, \
		unsigned long: P##ulong##S, \
		unsigned long long: P##ulonglong##S)
#define NAGAYA_SHMEM_OF_AMO(POINTER, P, S) \
	_Generic(*(POINTER), \
		int: P##int##S, \
		long: P##long##S, \
		long long: P##longlong##S, \
		unsigned int: P##uint##S, \
		unsigned long: P##ulong##S, \
		unsigned long long: P##ulonglong##S)
#define NAGAYA_SHMEM_OF_EXTENDED_AMO(POINTER, P, S) \
	_Generic(*(POINTER), \
		float: P##float##S, \
		double: P##double##S, \
		int: P##int##S, \
		long: P##long##S, \
		long long: P##longlong##S, \
		unsigned int: P##uint##S, \
		unsigned long: P##ulong##S, \
		unsigned long long: P##ulonglong##S)
#define NAGAYA_SHMEM_OF_BITWISE_AMO(POINTER, P, S) \
	_Generic(*(POINTER), \
		unsigned int: P##uint##S, \
		unsigned long: P##ulong##S, \
		unsigned long long: P##ulonglong##S, \
		int: P##int32##S, \
		long: P##int64##S)
#define NAGAYA_SHMEM_OF_SYNC(POINTER, P, S) \
	_Generic(*(POINTER), \
		short: P##short##S, \
		unsigned short: P##ushort##S, \
		int: P##int##S, \
		long: P##long##S, \
		long long: P##longlong##S, \
		unsigned int: P##uint##S, \
		unsigned long: P##ulong##S, \
		unsigned long long: P##ulonglong##S)
#define NAGAYA_SHMEM_OF_BITWISE_REDUCTION(POINTER, P, S) \
	_Generic(*(POINTER), \
		unsigned char: P##uchar##S, \
		unsigned short: P##ushort##S, \
		unsigned int: P##uint##S, \
		unsigned long: P##ulong##S, \
		unsigned long long: P##ulonglong##S, \
		signed char: P##int8##S, \
		short: P##int16##S, \
		int: P##int32##S, \
		long: P##int64##S)
#ifdef __STDC_NO_COMPLEX__
#define NAGAYA_SHMEM_OF_COMPLEX(P, S)
#else
#define NAGAYA_SHMEM_OF_COMPLEX(P, S) \
	, double _Complex: P##complexd##S, float _Complex: P##complexf##S
#endif
#define NAGAYA_SHMEM_OF_SUM_REDUCTION(POINTER, P, S) \
	_Generic(*(POINTER), \
		float: P##float##S, \
		double: P##double##S, \
		long double: P##longdouble##S, \
		char: P##char##S, \
		signed char: P##schar##S, \
		short: P##short##S, \
		int: P##int##S, \
		long: P##long##S, \
		long long: P##longlong##S, \
		unsigned char: P##uchar##S, \
		unsigned short: P##ushort##S, \
		unsigned int: P##uint##S, \
		unsigned long: P##ulong##S, \
		unsigned long long: P##ulonglong##S \
		NAGAYA_SHMEM_OF_COMPLEX(P, S))

/* Functions with an optional first argument of type shmem_ctx_t: the count of arguments tells
 * the two forms apart. N is the count without it. */
#define NAGAYA_SHMEM_PICK_2(a, b, c, chosen, ...) chosen
#define NAGAYA_SHMEM_PICK_3(a, b, c, d, chosen, ...) chosen
#define NAGAYA_SHMEM_PICK_4(a, b, c, d, e, chosen, ...) chosen
#define NAGAYA_SHMEM_PICK_5(a, b, c, d, e, f, chosen, ...) chosen
#define NAGAYA_SHMEM_PICK_6(a, b, c, d, e, f, g, chosen, ...) chosen
#define NAGAYA_SHMEM_PICK_7(a, b, c, d, e, f, g, h, chosen, ...) chosen
#define NAGAYA_SHMEM_WITH(TABLE, S, ctx, pointer, ...) \
	NAGAYA_SHMEM_OF_##TABLE(pointer, shmem_ctx_, S)(ctx, pointer, __VA_ARGS__)
#define NAGAYA_SHMEM_WITHOUT(TABLE, S, pointer, ...) \
	NAGAYA_SHMEM_OF_##TABLE(pointer, shmem_, S)(pointer, __VA_ARGS__)
#define NAGAYA_SHMEM_GENERIC(N, TABLE, S, ...) \
	NAGAYA_SHMEM_PICK_##N(__VA_ARGS__, NAGAYA_SHMEM_WITH, NAGAYA_SHMEM_WITHOUT, 0) \
	(TABLE, S, __VA_ARGS__)
#define shmem_put(...) NAGAYA_SHMEM_GENERIC(4, RMA, _put, __VA_ARGS__)
#define shmem_put_nbi(...) NAGAYA_SHMEM_GENERIC(4, RMA, _put_nbi, __VA_ARGS__)
#define shmem_put_signal(...) NAGAYA_SHMEM_GENERIC(7, RMA, _put_signal, __VA_ARGS__)
#define shmem_put_signal_nbi(...) NAGAYA_SHMEM_GENERIC(7, RMA, _put_signal_nbi, __VA_ARGS__)
#define shmem_p(...) NAGAYA_SHMEM_GENERIC(3, RMA, _p, __VA_ARGS__)
#define shmem_get(...) NAGAYA_SHMEM_GENERIC(4, RMA, _get, __VA_ARGS__)
#define shmem_get_nbi(...) NAGAYA_SHMEM_GENERIC(4, RMA, _get_nbi, __VA_ARGS__)
#define shmem_g(...) NAGAYA_SHMEM_GENERIC(2, RMA, _g, __VA_ARGS__)
#define shmem_iput(...) NAGAYA_SHMEM_GENERIC(6, RMA, _iput, __VA_ARGS__)
#define shmem_iget(...) NAGAYA_SHMEM_GENERIC(6, RMA, _iget, __VA_ARGS__)
#define shmem_ibput(...) NAGAYA_SHMEM_GENERIC(7, RMA, _ibput, __VA_ARGS__)
#define shmem_ibget(...) NAGAYA_SHMEM_GENERIC(7, RMA, _ibget, __VA_ARGS__)
#define shmem_atomic_add(...) NAGAYA_SHMEM_GENERIC(3, AMO, _atomic_add, __VA_ARGS__)
#define shmem_atomic_fetch_add(...) NAGAYA_SHMEM_GENERIC(3, AMO, _atomic_fetch_add, __VA_ARGS__)
#define shmem_atomic_fetch_add_nbi(...) \
	NAGAYA_SHMEM_GENERIC(4, AMO, _atomic_fetch_add_nbi, __VA_ARGS__)
#define shmem_atomic_inc(...) NAGAYA_SHMEM_GENERIC(2, AMO, _atomic_inc, __VA_ARGS__)
#define shmem_atomic_fetch_inc(...) NAGAYA_SHMEM_GENERIC(2, AMO, _atomic_fetch_inc, __VA_ARGS__)
#define shmem_atomic_fetch_inc_nbi(...) \
	NAGAYA_SHMEM_GENERIC(3, AMO, _atomic_fetch_inc_nbi, __VA_ARGS__)
#define shmem_atomic_compare_swap(...) \
	NAGAYA_SHMEM_GENERIC(4, AMO, _atomic_compare_swap, __VA_ARGS__)
#define shmem_atomic_compare_swap_nbi(...) \
	NAGAYA_SHMEM_GENERIC(5, AMO, _atomic_compare_swap_nbi, __VA_ARGS__)
#define shmem_atomic_fetch(...) NAGAYA_SHMEM_GENERIC(2, EXTENDED_AMO, _atomic_fetch, __VA_ARGS__)
#define shmem_atomic_fetch_nbi(...) \
	NAGAYA_SHMEM_GENERIC(3, EXTENDED_AMO, _atomic_fetch_nbi, __VA_ARGS__)
#define shmem_atomic_set(...) NAGAYA_SHMEM_GENERIC(3, EXTENDED_AMO, _atomic_set, __VA_ARGS__)
#define shmem_atomic_swap(...) NAGAYA_SHMEM_GENERIC(3, EXTENDED_AMO, _atomic_swap, __VA_ARGS__)
#define shmem_atomic_swap_nbi(...) \
	NAGAYA_SHMEM_GENERIC(4, EXTENDED_AMO, _atomic_swap_nbi, __VA_ARGS__)
#define shmem_atomic_and(...) NAGAYA_SHMEM_GENERIC(3, BITWISE_AMO, _atomic_and, __VA_ARGS__)
#define shmem_atomic_fetch_and(...) \
	NAGAYA_SHMEM_GENERIC(3, BITWISE_AMO, _atomic_fetch_and, __VA_ARGS__)
#define shmem_atomic_fetch_and_nbi(...) \
	NAGAYA_SHMEM_GENERIC(4, BITWISE_AMO, _atomic_fetch_and_nbi, __VA_ARGS__)
#define shmem_atomic_or(...) NAGAYA_SHMEM_GENERIC(3, BITWISE_AMO, _atomic_or, __VA_ARGS__)
#define shmem_atomic_fetch_or(...) \
	NAGAYA_SHMEM_GENERIC(3, BITWISE_AMO, _atomic_fetch_or, __VA_ARGS__)
#define shmem_atomic_fetch_or_nbi(...) \
	NAGAYA_SHMEM_GENERIC(4, BITWISE_AMO, _atomic_fetch_or_nbi, __VA_ARGS__)
#define shmem_atomic_xor(...) NAGAYA_SHMEM_GENERIC(3, BITWISE_AMO, _atomic_xor, __VA_ARGS__)
#define shmem_atomic_fetch_xor(...) \
	NAGAYA_SHMEM_GENERIC(3, BITWISE_AMO, _atomic_fetch_xor, __VA_ARGS__)
#define shmem_atomic_fetch_xor_nbi(...) \
	NAGAYA_SHMEM_GENERIC(4, BITWISE_AMO, _atomic_fetch_xor_nbi, __VA_ARGS__)
#define shmem_signal_add(...) \
	NAGAYA_SHMEM_PICK_3(__VA_ARGS__, shmem_ctx_signal_add, shmem_signal_add, 0)(__VA_ARGS__)
#define shmem_signal_set(...) \
	NAGAYA_SHMEM_PICK_3(__VA_ARGS__, shmem_ctx_signal_set, shmem_signal_set, 0)(__VA_ARGS__)

/* Functions without a context. */
#define shmem_wait_until(...) NAGAYA_SHMEM_WITHOUT(SYNC, _wait_until, __VA_ARGS__)
#define shmem_wait_until_all(...) NAGAYA_SHMEM_WITHOUT(SYNC, _wait_until_all, __VA_ARGS__)
#define shmem_wait_until_any(...) NAGAYA_SHMEM_WITHOUT(SYNC, _wait_until_any, __VA_ARGS__)
#define shmem_wait_until_some(...) NAGAYA_SHMEM_WITHOUT(SYNC, _wait_until_some, __VA_ARGS__)
#define shmem_wait_until_all_vector(...) \
	NAGAYA_SHMEM_WITHOUT(SYNC, _wait_until_all_vector, __VA_ARGS__)
#define shmem_wait_until_any_vector(...) \
	NAGAYA_SHMEM_WITHOUT(SYNC, _wait_until_any_vector, __VA_ARGS__)
#define shmem_wait_until_some_vector(...) \
	NAGAYA_SHMEM_WITHOUT(SYNC, _wait_until_some_vector, __VA_ARGS__)
#define shmem_test(...) NAGAYA_SHMEM_WITHOUT(SYNC, _test, __VA_ARGS__)
#define shmem_test_all(...) NAGAYA_SHMEM_WITHOUT(SYNC, _test_all, __VA_ARGS__)
#define shmem_test_any(...) NAGAYA_SHMEM_WITHOUT(SYNC, _test_any, __VA_ARGS__)
#define shmem_test_some(...) NAGAYA_SHMEM_WITHOUT(SYNC, _test_some, __VA_ARGS__)
#define shmem_test_all_vector(...) NAGAYA_SHMEM_WITHOUT(SYNC, _test_all_vector, __VA_ARGS__)
#define shmem_test_any_vector(...) NAGAYA_SHMEM_WITHOUT(SYNC, _test_any_vector, __VA_ARGS__)
#define shmem_test_some_vector(...) NAGAYA_SHMEM_WITHOUT(SYNC, _test_some_vector, __VA_ARGS__)

/* Collective functions of a team. */
#define NAGAYA_SHMEM_TEAM(TABLE, S, team, dest, ...) \
	NAGAYA_SHMEM_OF_##TABLE(dest, shmem_, S)(team, dest, __VA_ARGS__)
#define shmem_broadcast(...) NAGAYA_SHMEM_TEAM(RMA, _broadcast, __VA_ARGS__)
#define shmem_collect(...) NAGAYA_SHMEM_TEAM(RMA, _collect, __VA_ARGS__)
#define shmem_fcollect(...) NAGAYA_SHMEM_TEAM(RMA, _fcollect, __VA_ARGS__)
#define shmem_alltoall(...) NAGAYA_SHMEM_TEAM(RMA, _alltoall, __VA_ARGS__)
#define shmem_alltoalls(...) NAGAYA_SHMEM_TEAM(RMA, _alltoalls, __VA_ARGS__)
#define shmem_and_reduce(...) NAGAYA_SHMEM_TEAM(BITWISE_REDUCTION, _and_reduce, __VA_ARGS__)
#define shmem_or_reduce(...) NAGAYA_SHMEM_TEAM(BITWISE_REDUCTION, _or_reduce, __VA_ARGS__)
#define shmem_xor_reduce(...) NAGAYA_SHMEM_TEAM(BITWISE_REDUCTION, _xor_reduce, __VA_ARGS__)
#define shmem_max_reduce(...) NAGAYA_SHMEM_TEAM(RMA, _max_reduce, __VA_ARGS__)
#define shmem_min_reduce(...) NAGAYA_SHMEM_TEAM(RMA, _min_reduce, __VA_ARGS__)
#define shmem_sum_reduce(...) NAGAYA_SHMEM_TEAM(SUM_REDUCTION, _sum_reduce, __VA_ARGS__)
#define shmem_prod_reduce(...) NAGAYA_SHMEM_TEAM(SUM_REDUCTION, _prod_reduce, __VA_ARGS__)
#define shmem_sum_inscan(...) NAGAYA_SHMEM_TEAM(SUM_REDUCTION, _sum_inscan, __VA_ARGS__)
#define shmem_sum_exscan(...) NAGAYA_SHMEM_TEAM(SUM_REDUCTION, _sum_exscan, __VA_ARGS__)
/* One argument is a team, four are a deprecated active set. */
#define NAGAYA_SHMEM_PICK_SYNC(a, b, c, d, chosen, ...) chosen
#define shmem_sync(...) \
	NAGAYA_SHMEM_PICK_SYNC(__VA_ARGS__, shmem_sync, 0, 0, shmem_team_sync, 0)(__VA_ARGS__)

/* Deprecated. */
#define NAGAYA_SHMEM_OF_OLD_AMO(POINTER, P, S) \
	_Generic(*(POINTER), \
		int: P##int##S, \
		long: P##long##S, \
		long long: P##longlong##S)
#define NAGAYA_SHMEM_OF_OLD_EXTENDED_AMO(POINTER, P, S) \
	_Generic(*(POINTER), \
		float: P##float##S, \
		double: P##double##S, \
		int: P##int##S, \
		long: P##long##S, \
		long long: P##longlong##S)
#define shmem_add(...) NAGAYA_SHMEM_WITHOUT(OLD_AMO, _add, __VA_ARGS__)
#define shmem_inc(...) NAGAYA_SHMEM_WITHOUT(OLD_AMO, _inc, __VA_ARGS__)
#define shmem_fadd(...) NAGAYA_SHMEM_WITHOUT(OLD_AMO, _fadd, __VA_ARGS__)
#define shmem_finc(...) NAGAYA_SHMEM_WITHOUT(OLD_AMO, _finc, __VA_ARGS__)
#define shmem_cswap(...) NAGAYA_SHMEM_WITHOUT(OLD_AMO, _cswap, __VA_ARGS__)
#define shmem_fetch(...) NAGAYA_SHMEM_WITHOUT(OLD_EXTENDED_AMO, _fetch, __VA_ARGS__)
#define shmem_set(...) NAGAYA_SHMEM_WITHOUT(OLD_EXTENDED_AMO, _set, __VA_ARGS__)
#define shmem_swap(...) NAGAYA_SHMEM_WITHOUT(OLD_EXTENDED_AMO, _swap, __VA_ARGS__)

#endif /* NAGAYA_SHMEM_GENERIC_H */
