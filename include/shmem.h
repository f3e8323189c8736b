/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * shmem.h - OpenSHMEM 1.5, with the additions of 1.6: one-sided communication between the
 * *processing elements* (PEs) of a job.
 *
 * A PE reads and writes *symmetric objects* of the other PEs: memory from shmem_malloc and
 * static data of the program. The address of the caller's object names the object of each
 * PE. Inside a node all PEs are tasks of one address space. There a put or a get is a store,
 * a load or a copy, and shmem_ptr never returns NULL for a symmetric object.
 *
 * Functions have the signatures of the specification. Each function shmem_X has a second
 * name pshmem_X, so that a profiling library can replace shmem_X. The macros of the type
 * tables (NAGAYA_SHMEM_*) declare the typed functions. C11 programs have type-generic macros
 * and C++ programs have overloads: shmem_put(dest, source, n, pe).
 *
 * An invalid argument ends the job with one line that names the PE and the function, unless
 * the specification gives a return value for it.
 *
 * Linux 5.15 or newer, x86-64. Compile with oshcc or oshc++, or link with -lnagaya-shmem
 * (pkg-config nagaya-shmem). See nagaya-shmem(7).
 */
#ifndef NAGAYA_SHMEM_H
#define NAGAYA_SHMEM_H

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#include <complex>
#endif

/* ---- Constants ------------------------------------------------------------------ */

#define SHMEM_MAJOR_VERSION 1
#define SHMEM_MINOR_VERSION 5
#define SHMEM_MAX_NAME_LEN 256 /* bytes, with the terminating zero */
#define SHMEM_VENDOR_STRING "Nagaya"

/* Thread levels of shmem_init_thread. */
#define SHMEM_THREAD_SINGLE 0
#define SHMEM_THREAD_FUNNELED 1
#define SHMEM_THREAD_SERIALIZED 2
#define SHMEM_THREAD_MULTIPLE 3

/* Comparisons of the wait and test functions. */
#define SHMEM_CMP_EQ 0
#define SHMEM_CMP_NE 1
#define SHMEM_CMP_GT 2
#define SHMEM_CMP_GE 3
#define SHMEM_CMP_LT 4
#define SHMEM_CMP_LE 5

/* Updates of the signal in put-with-signal functions. */
#define SHMEM_SIGNAL_SET 0
#define SHMEM_SIGNAL_ADD 1

/* Hints for shmem_malloc_with_hints. */
#define SHMEM_MALLOC_ATOMICS_REMOTE (1L << 0)
#define SHMEM_MALLOC_SIGNAL_REMOTE (1L << 1)

/* Options of contexts, of sessions, and masks of their configurations. */
#define SHMEM_CTX_SERIALIZED (1L << 0)
#define SHMEM_CTX_PRIVATE (1L << 1)
#define SHMEM_CTX_NOSTORE (1L << 2)
#define SHMEM_CTX_SESSION_BATCH (1L << 0)
#define SHMEM_CTX_SESSION_TOTAL_OPS (1L << 0)
#define SHMEM_TEAM_NUM_CONTEXTS (1L << 0)

/* Work arrays of the active-set functions: initial value, and lengths in elements. */
#define SHMEM_SYNC_VALUE 0L
#define SHMEM_SYNC_SIZE 64
#define SHMEM_BARRIER_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_BCAST_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_COLLECT_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALL_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_ALLTOALLS_SYNC_SIZE SHMEM_SYNC_SIZE
#define SHMEM_REDUCE_MIN_WRKDATA_SIZE 1

/* Deprecated names of constants. */
#define _SHMEM_MAJOR_VERSION SHMEM_MAJOR_VERSION
#define _SHMEM_MINOR_VERSION SHMEM_MINOR_VERSION
#define _SHMEM_MAX_NAME_LEN SHMEM_MAX_NAME_LEN
#define _SHMEM_VENDOR_STRING SHMEM_VENDOR_STRING
#define _SHMEM_CMP_EQ SHMEM_CMP_EQ
#define _SHMEM_CMP_NE SHMEM_CMP_NE
#define _SHMEM_CMP_GT SHMEM_CMP_GT
#define _SHMEM_CMP_GE SHMEM_CMP_GE
#define _SHMEM_CMP_LT SHMEM_CMP_LT
#define _SHMEM_CMP_LE SHMEM_CMP_LE
#define _SHMEM_SYNC_VALUE SHMEM_SYNC_VALUE
#define _SHMEM_BARRIER_SYNC_SIZE SHMEM_BARRIER_SYNC_SIZE
#define _SHMEM_BCAST_SYNC_SIZE SHMEM_BCAST_SYNC_SIZE
#define _SHMEM_COLLECT_SYNC_SIZE SHMEM_COLLECT_SYNC_SIZE
#define _SHMEM_REDUCE_SYNC_SIZE SHMEM_REDUCE_SYNC_SIZE
#define _SHMEM_REDUCE_MIN_WRKDATA_SIZE SHMEM_REDUCE_MIN_WRKDATA_SIZE

/* ---- Handles and structures ----------------------------------------------------- */

typedef struct shmem_team *shmem_team_t;
typedef struct shmem_ctx *shmem_ctx_t;

#define SHMEM_TEAM_INVALID ((shmem_team_t)0)
#define SHMEM_TEAM_WORLD ((shmem_team_t)1)
#define SHMEM_TEAM_SHARED ((shmem_team_t)2)
#define SHMEM_CTX_INVALID ((shmem_ctx_t)0)
#define SHMEM_CTX_DEFAULT ((shmem_ctx_t)1)

typedef struct {
	int num_contexts; /* contexts of the team that exist at the same time */
} shmem_team_config_t;

typedef struct {
	size_t total_ops; /* operations of the session */
} shmem_ctx_session_config_t;

/* ---- Tables of types ------------------------------------------------------------ */

/* Each table calls X(P, NAME, TYPE) for its rows. P is the prefix: shmem or pshmem. */

/* "Standard RMA Types and Names" */
#define NAGAYA_SHMEM_RMA_TYPES(X, P) \
	X(P, float, float) \
	X(P, double, double) \
	X(P, longdouble, long double) \
	X(P, char, char) \
	X(P, schar, signed char) \
	X(P, short, short) \
	X(P, int, int) \
	X(P, long, long) \
	X(P, longlong, long long) \
	X(P, uchar, unsigned char) \
	X(P, ushort, unsigned short) \
	X(P, uint, unsigned int) \
	X(P, ulong, unsigned long) \
	X(P, ulonglong, unsigned long long) \
	X(P, int8, int8_t) \
	X(P, int16, int16_t) \
	X(P, int32, int32_t) \
	X(P, int64, int64_t) \
	X(P, uint8, uint8_t) \
	X(P, uint16, uint16_t) \
	X(P, uint32, uint32_t) \
	X(P, uint64, uint64_t) \
	X(P, size, size_t) \
	X(P, ptrdiff, ptrdiff_t)

/* "Standard AMO Types and Names" */
#define NAGAYA_SHMEM_AMO_TYPES(X, P) \
	X(P, int, int) \
	X(P, long, long) \
	X(P, longlong, long long) \
	X(P, uint, unsigned int) \
	X(P, ulong, unsigned long) \
	X(P, ulonglong, unsigned long long) \
	X(P, int32, int32_t) \
	X(P, int64, int64_t) \
	X(P, uint32, uint32_t) \
	X(P, uint64, uint64_t) \
	X(P, size, size_t) \
	X(P, ptrdiff, ptrdiff_t)

/* "Extended AMO Types and Names" */
#define NAGAYA_SHMEM_EXTENDED_AMO_TYPES(X, P) \
	X(P, float, float) \
	X(P, double, double) \
	NAGAYA_SHMEM_AMO_TYPES(X, P)

/* "Bitwise AMO Types and Names" */
#define NAGAYA_SHMEM_BITWISE_AMO_TYPES(X, P) \
	X(P, uint, unsigned int) \
	X(P, ulong, unsigned long) \
	X(P, ulonglong, unsigned long long) \
	X(P, int32, int32_t) \
	X(P, int64, int64_t) \
	X(P, uint32, uint32_t) \
	X(P, uint64, uint64_t)

/* "Point-to-Point Synchronization Types and Names" */
#define NAGAYA_SHMEM_SYNC_TYPES(X, P) \
	X(P, short, short) \
	X(P, ushort, unsigned short) \
	NAGAYA_SHMEM_AMO_TYPES(X, P)

/* "Reduction Types, Names and Supporting Operations for Team-Based Reductions": the rows of
 * AND, OR and XOR, those of MAX and MIN, and those of SUM and PROD. */
#define NAGAYA_SHMEM_BITWISE_REDUCTION_TYPES(X, P) \
	X(P, uchar, unsigned char) \
	X(P, ushort, unsigned short) \
	X(P, uint, unsigned int) \
	X(P, ulong, unsigned long) \
	X(P, ulonglong, unsigned long long) \
	X(P, int8, int8_t) \
	X(P, int16, int16_t) \
	X(P, int32, int32_t) \
	X(P, int64, int64_t) \
	X(P, uint8, uint8_t) \
	X(P, uint16, uint16_t) \
	X(P, uint32, uint32_t) \
	X(P, uint64, uint64_t) \
	X(P, size, size_t)
#define NAGAYA_SHMEM_ORDERED_REDUCTION_TYPES(X, P) NAGAYA_SHMEM_RMA_TYPES(X, P)
#define NAGAYA_SHMEM_SUM_REDUCTION_TYPES(X, P) \
	NAGAYA_SHMEM_RMA_TYPES(X, P) \
	NAGAYA_SHMEM_COMPLEX_TYPES(X, P)
#if defined(__STDC_NO_COMPLEX__) && !defined(__cplusplus)
#define NAGAYA_SHMEM_COMPLEX_TYPES(X, P)
#else
__extension__ typedef double _Complex nagaya_shmem_complexd;
__extension__ typedef float _Complex nagaya_shmem_complexf;
#define NAGAYA_SHMEM_COMPLEX_TYPES(X, P) \
	X(P, complexd, nagaya_shmem_complexd) \
	X(P, complexf, nagaya_shmem_complexf)
#endif

/* "Reduction Types, Names and Supporting Operations for Active-Set-Based Reductions" */
#define NAGAYA_SHMEM_BITWISE_TO_ALL_TYPES(X, P) \
	X(P, short, short) \
	X(P, int, int) \
	X(P, long, long) \
	X(P, longlong, long long)
#define NAGAYA_SHMEM_ORDERED_TO_ALL_TYPES(X, P) \
	NAGAYA_SHMEM_BITWISE_TO_ALL_TYPES(X, P) \
	X(P, float, float) \
	X(P, double, double) \
	X(P, longdouble, long double)
#define NAGAYA_SHMEM_SUM_TO_ALL_TYPES(X, P) \
	NAGAYA_SHMEM_ORDERED_TO_ALL_TYPES(X, P) \
	NAGAYA_SHMEM_COMPLEX_TYPES(X, P)

/* Types of deprecated functions: shmem_NAME_wait, and atomics without "atomic" in the name. */
#define NAGAYA_SHMEM_OLD_WAIT_TYPES(X, P) NAGAYA_SHMEM_BITWISE_TO_ALL_TYPES(X, P)
#define NAGAYA_SHMEM_OLD_AMO_TYPES(X, P) \
	X(P, int, int) \
	X(P, long, long) \
	X(P, longlong, long long)
#define NAGAYA_SHMEM_OLD_EXTENDED_AMO_TYPES(X, P) \
	X(P, float, float) \
	X(P, double, double) \
	NAGAYA_SHMEM_OLD_AMO_TYPES(X, P)

#if defined(__cplusplus) && __cplusplus >= 201103L
#define NAGAYA_SHMEM_NORETURN [[noreturn]]
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define NAGAYA_SHMEM_NORETURN _Noreturn
#else
#define NAGAYA_SHMEM_NORETURN
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Declarations, for both prefixes -------------------------------------------- */

/* Setup, threads, queries, memory, teams, contexts, order, locks, signals, and functions
 * without types. */
#define NAGAYA_SHMEM_FUNCTIONS(P) \
	void P##_init(void); \
	void P##_finalize(void); \
	int P##_init_thread(int requested, int *provided); \
	void P##_query_thread(int *provided); \
	void P##_query_initialized(int *initialized); \
	NAGAYA_SHMEM_NORETURN void P##_global_exit(int status); \
	int P##_my_pe(void); \
	int P##_n_pes(void); \
	int P##_pe_accessible(int pe); \
	int P##_addr_accessible(const void *addr, int pe); \
	void *P##_ptr(const void *dest, int pe); \
	void *P##_team_ptr(shmem_team_t team, const void *dest, int pe); \
	void P##_info_get_version(int *major, int *minor); \
	void P##_info_get_name(char *name); \
	void P##_pcontrol(int level, ...); \
\
	void *P##_malloc(size_t size); \
	void *P##_malloc_with_hints(size_t size, long hints); \
	void *P##_calloc(size_t count, size_t size); \
	void *P##_align(size_t alignment, size_t size); \
	void *P##_realloc(void *ptr, size_t size); \
	void P##_free(void *ptr); \
\
	int P##_team_my_pe(shmem_team_t team); \
	int P##_team_n_pes(shmem_team_t team); \
	int P##_team_get_config(shmem_team_t team, long config_mask, shmem_team_config_t *config); \
	int P##_team_translate_pe(shmem_team_t src_team, int src_pe, shmem_team_t dest_team); \
	int P##_team_split_strided(shmem_team_t parent_team, int start, int stride, int size, \
		const shmem_team_config_t *config, long config_mask, shmem_team_t *new_team); \
	int P##_team_split_2d(shmem_team_t parent_team, int xrange, \
		const shmem_team_config_t *xaxis_config, long xaxis_mask, shmem_team_t *xaxis_team, \
		const shmem_team_config_t *yaxis_config, long yaxis_mask, shmem_team_t *yaxis_team); \
	void P##_team_destroy(shmem_team_t team); \
\
	int P##_ctx_create(long options, shmem_ctx_t *ctx); \
	int P##_team_create_ctx(shmem_team_t team, long options, shmem_ctx_t *ctx); \
	int P##_ctx_get_team(shmem_ctx_t ctx, shmem_team_t *team); \
	void P##_ctx_destroy(shmem_ctx_t ctx); \
	void P##_ctx_session_start(shmem_ctx_t ctx, long options, \
		const shmem_ctx_session_config_t *config, long config_mask); \
	void P##_ctx_session_stop(shmem_ctx_t ctx); \
\
	void P##_fence(void); \
	void P##_ctx_fence(shmem_ctx_t ctx); \
	void P##_quiet(void); \
	void P##_ctx_quiet(shmem_ctx_t ctx); \
	void P##_pe_quiet(const int *target_pes, size_t npes); \
	void P##_ctx_pe_quiet(shmem_ctx_t ctx, const int *target_pes, size_t npes); \
	void P##_barrier_all(void); \
	void P##_sync_all(void); \
	int P##_team_sync(shmem_team_t team); \
\
	void P##_set_lock(long *lock); \
	void P##_clear_lock(long *lock); \
	int P##_test_lock(long *lock); \
\
	uint64_t P##_signal_fetch(const uint64_t *sig_addr); \
	void P##_signal_add(uint64_t *sig_addr, uint64_t signal, int pe); \
	void P##_ctx_signal_add(shmem_ctx_t ctx, uint64_t *sig_addr, uint64_t signal, int pe); \
	void P##_signal_set(uint64_t *sig_addr, uint64_t signal, int pe); \
	void P##_ctx_signal_set(shmem_ctx_t ctx, uint64_t *sig_addr, uint64_t signal, int pe); \
	uint64_t P##_signal_wait_until(uint64_t *sig_addr, int cmp, uint64_t cmp_value); \
\
	int P##_broadcastmem(shmem_team_t team, void *dest, const void *source, size_t nelems, \
		int PE_root); \
	int P##_collectmem(shmem_team_t team, void *dest, const void *source, size_t nelems); \
	int P##_fcollectmem(shmem_team_t team, void *dest, const void *source, size_t nelems); \
	int P##_alltoallmem(shmem_team_t team, void *dest, const void *source, size_t nelems); \
	int P##_alltoallsmem(shmem_team_t team, void *dest, const void *source, ptrdiff_t dst, \
		ptrdiff_t sst, size_t nelems);

/* Contiguous put and get under the names PUT and GET, with their nonblocking forms and those
 * with a signal. */
#define NAGAYA_SHMEM_BLOCKS(P, PUT, GET, ELEMENT) \
	void P##_##PUT(ELEMENT *dest, const ELEMENT *source, size_t nelems, int pe); \
	void P##_ctx_##PUT(shmem_ctx_t ctx, ELEMENT *dest, const ELEMENT *source, size_t nelems, \
		int pe); \
	void P##_##PUT##_nbi(ELEMENT *dest, const ELEMENT *source, size_t nelems, int pe); \
	void P##_ctx_##PUT##_nbi(shmem_ctx_t ctx, ELEMENT *dest, const ELEMENT *source, \
		size_t nelems, int pe); \
	void P##_##PUT##_signal(ELEMENT *dest, const ELEMENT *source, size_t nelems, \
		uint64_t *sig_addr, uint64_t signal, int sig_op, int pe); \
	void P##_ctx_##PUT##_signal(shmem_ctx_t ctx, ELEMENT *dest, const ELEMENT *source, \
		size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe); \
	void P##_##PUT##_signal_nbi(ELEMENT *dest, const ELEMENT *source, size_t nelems, \
		uint64_t *sig_addr, uint64_t signal, int sig_op, int pe); \
	void P##_ctx_##PUT##_signal_nbi(shmem_ctx_t ctx, ELEMENT *dest, const ELEMENT *source, \
		size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe); \
	void P##_##GET(ELEMENT *dest, const ELEMENT *source, size_t nelems, int pe); \
	void P##_ctx_##GET(shmem_ctx_t ctx, ELEMENT *dest, const ELEMENT *source, size_t nelems, \
		int pe); \
	void P##_##GET##_nbi(ELEMENT *dest, const ELEMENT *source, size_t nelems, int pe); \
	void P##_ctx_##GET##_nbi(shmem_ctx_t ctx, ELEMENT *dest, const ELEMENT *source, \
		size_t nelems, int pe);

/* Strided and block-strided put or get under the names STRIDED and BLOCKS. */
#define NAGAYA_SHMEM_STRIDES(P, STRIDED, BLOCKS, ELEMENT) \
	void P##_##STRIDED(ELEMENT *dest, const ELEMENT *source, ptrdiff_t dst, ptrdiff_t sst, \
		size_t nelems, int pe); \
	void P##_ctx_##STRIDED(shmem_ctx_t ctx, ELEMENT *dest, const ELEMENT *source, \
		ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe); \
	void P##_##BLOCKS(ELEMENT *dest, const ELEMENT *source, ptrdiff_t dst, ptrdiff_t sst, \
		size_t bsize, size_t nblocks, int pe); \
	void P##_ctx_##BLOCKS(shmem_ctx_t ctx, ELEMENT *dest, const ELEMENT *source, \
		ptrdiff_t dst, ptrdiff_t sst, size_t bsize, size_t nblocks, int pe);

/* Elements of SIZE bits. */
#define NAGAYA_SHMEM_SIZE(P, SIZE) \
	NAGAYA_SHMEM_BLOCKS(P, put##SIZE, get##SIZE, void) \
	NAGAYA_SHMEM_STRIDES(P, iput##SIZE, ibput##SIZE, void) \
	NAGAYA_SHMEM_STRIDES(P, iget##SIZE, ibget##SIZE, void)
#define NAGAYA_SHMEM_SIZES(P) \
	NAGAYA_SHMEM_SIZE(P, 8) \
	NAGAYA_SHMEM_SIZE(P, 16) \
	NAGAYA_SHMEM_SIZE(P, 32) \
	NAGAYA_SHMEM_SIZE(P, 64) \
	NAGAYA_SHMEM_SIZE(P, 128) \
	NAGAYA_SHMEM_BLOCKS(P, putmem, getmem, void)

/* Put and get of one type. */
#define NAGAYA_SHMEM_RMA(P, NAME, TYPE) \
	NAGAYA_SHMEM_BLOCKS(P, NAME##_put, NAME##_get, TYPE) \
	NAGAYA_SHMEM_STRIDES(P, NAME##_iput, NAME##_ibput, TYPE) \
	NAGAYA_SHMEM_STRIDES(P, NAME##_iget, NAME##_ibget, TYPE) \
	void P##_##NAME##_p(TYPE *dest, TYPE value, int pe); \
	void P##_ctx_##NAME##_p(shmem_ctx_t ctx, TYPE *dest, TYPE value, int pe); \
	TYPE P##_##NAME##_g(const TYPE *source, int pe); \
	TYPE P##_ctx_##NAME##_g(shmem_ctx_t ctx, const TYPE *source, int pe);

/* Atomic operation OP with one operand, and its fetching forms: shmem_NAME_OP. */
#define NAGAYA_SHMEM_ATOMIC_OP(P, NAME, TYPE, OP) \
	void P##_##NAME##_##OP(TYPE *dest, TYPE value, int pe); \
	void P##_ctx_##NAME##_##OP(shmem_ctx_t ctx, TYPE *dest, TYPE value, int pe); \
	TYPE P##_##NAME##_fetch_##OP(TYPE *dest, TYPE value, int pe); \
	TYPE P##_ctx_##NAME##_fetch_##OP(shmem_ctx_t ctx, TYPE *dest, TYPE value, int pe); \
	void P##_##NAME##_fetch_##OP##_nbi(TYPE *fetch, TYPE *dest, TYPE value, int pe); \
	void P##_ctx_##NAME##_fetch_##OP##_nbi(shmem_ctx_t ctx, TYPE *fetch, TYPE *dest, \
		TYPE value, int pe);

#define NAGAYA_SHMEM_AMO(P, NAME, TYPE) \
	NAGAYA_SHMEM_ATOMIC_OP(P, NAME##_atomic, TYPE, add) \
	void P##_##NAME##_atomic_inc(TYPE *dest, int pe); \
	void P##_ctx_##NAME##_atomic_inc(shmem_ctx_t ctx, TYPE *dest, int pe); \
	TYPE P##_##NAME##_atomic_fetch_inc(TYPE *dest, int pe); \
	TYPE P##_ctx_##NAME##_atomic_fetch_inc(shmem_ctx_t ctx, TYPE *dest, int pe); \
	void P##_##NAME##_atomic_fetch_inc_nbi(TYPE *fetch, TYPE *dest, int pe); \
	void P##_ctx_##NAME##_atomic_fetch_inc_nbi(shmem_ctx_t ctx, TYPE *fetch, TYPE *dest, int pe); \
	TYPE P##_##NAME##_atomic_compare_swap(TYPE *dest, TYPE cond, TYPE value, int pe); \
	TYPE P##_ctx_##NAME##_atomic_compare_swap(shmem_ctx_t ctx, TYPE *dest, TYPE cond, \
		TYPE value, int pe); \
	void P##_##NAME##_atomic_compare_swap_nbi(TYPE *fetch, TYPE *dest, TYPE cond, TYPE value, \
		int pe); \
	void P##_ctx_##NAME##_atomic_compare_swap_nbi(shmem_ctx_t ctx, TYPE *fetch, TYPE *dest, \
		TYPE cond, TYPE value, int pe);

#define NAGAYA_SHMEM_EXTENDED_AMO(P, NAME, TYPE) \
	TYPE P##_##NAME##_atomic_fetch(const TYPE *source, int pe); \
	TYPE P##_ctx_##NAME##_atomic_fetch(shmem_ctx_t ctx, const TYPE *source, int pe); \
	void P##_##NAME##_atomic_fetch_nbi(TYPE *fetch, const TYPE *source, int pe); \
	void P##_ctx_##NAME##_atomic_fetch_nbi(shmem_ctx_t ctx, TYPE *fetch, const TYPE *source, \
		int pe); \
	void P##_##NAME##_atomic_set(TYPE *dest, TYPE value, int pe); \
	void P##_ctx_##NAME##_atomic_set(shmem_ctx_t ctx, TYPE *dest, TYPE value, int pe); \
	TYPE P##_##NAME##_atomic_swap(TYPE *dest, TYPE value, int pe); \
	TYPE P##_ctx_##NAME##_atomic_swap(shmem_ctx_t ctx, TYPE *dest, TYPE value, int pe); \
	void P##_##NAME##_atomic_swap_nbi(TYPE *fetch, TYPE *dest, TYPE value, int pe); \
	void P##_ctx_##NAME##_atomic_swap_nbi(shmem_ctx_t ctx, TYPE *fetch, TYPE *dest, \
		TYPE value, int pe);

#define NAGAYA_SHMEM_BITWISE_AMO(P, NAME, TYPE) \
	NAGAYA_SHMEM_ATOMIC_OP(P, NAME##_atomic, TYPE, and) \
	NAGAYA_SHMEM_ATOMIC_OP(P, NAME##_atomic, TYPE, or) \
	NAGAYA_SHMEM_ATOMIC_OP(P, NAME##_atomic, TYPE, xor)

/* Point-to-point synchronization. `status` may be NULL; a nonzero element excludes its
 * variable. */
#define NAGAYA_SHMEM_SYNC(P, NAME, TYPE) \
	void P##_##NAME##_wait_until(TYPE *ivar, int cmp, TYPE cmp_value); \
	void P##_##NAME##_wait_until_all(TYPE *ivars, size_t nelems, const int *status, int cmp, \
		TYPE cmp_value); \
	size_t P##_##NAME##_wait_until_any(TYPE *ivars, size_t nelems, const int *status, int cmp, \
		TYPE cmp_value); \
	size_t P##_##NAME##_wait_until_some(TYPE *ivars, size_t nelems, size_t *indices, \
		const int *status, int cmp, TYPE cmp_value); \
	void P##_##NAME##_wait_until_all_vector(TYPE *ivars, size_t nelems, const int *status, \
		int cmp, const TYPE *cmp_values); \
	size_t P##_##NAME##_wait_until_any_vector(TYPE *ivars, size_t nelems, const int *status, \
		int cmp, const TYPE *cmp_values); \
	size_t P##_##NAME##_wait_until_some_vector(TYPE *ivars, size_t nelems, size_t *indices, \
		const int *status, int cmp, const TYPE *cmp_values); \
	int P##_##NAME##_test(TYPE *ivar, int cmp, TYPE cmp_value); \
	int P##_##NAME##_test_all(TYPE *ivars, size_t nelems, const int *status, int cmp, \
		TYPE cmp_value); \
	size_t P##_##NAME##_test_any(TYPE *ivars, size_t nelems, const int *status, int cmp, \
		TYPE cmp_value); \
	size_t P##_##NAME##_test_some(TYPE *ivars, size_t nelems, size_t *indices, \
		const int *status, int cmp, TYPE cmp_value); \
	int P##_##NAME##_test_all_vector(TYPE *ivars, size_t nelems, const int *status, int cmp, \
		const TYPE *cmp_values); \
	size_t P##_##NAME##_test_any_vector(TYPE *ivars, size_t nelems, const int *status, int cmp, \
		const TYPE *cmp_values); \
	size_t P##_##NAME##_test_some_vector(TYPE *ivars, size_t nelems, size_t *indices, \
		const int *status, int cmp, const TYPE *cmp_values);

/* Collective functions of a team. */
#define NAGAYA_SHMEM_COLLECTIVES(P, NAME, TYPE) \
	int P##_##NAME##_broadcast(shmem_team_t team, TYPE *dest, const TYPE *source, \
		size_t nelems, int PE_root); \
	int P##_##NAME##_collect(shmem_team_t team, TYPE *dest, const TYPE *source, size_t nelems); \
	int P##_##NAME##_fcollect(shmem_team_t team, TYPE *dest, const TYPE *source, \
		size_t nelems); \
	int P##_##NAME##_alltoall(shmem_team_t team, TYPE *dest, const TYPE *source, \
		size_t nelems); \
	int P##_##NAME##_alltoalls(shmem_team_t team, TYPE *dest, const TYPE *source, \
		ptrdiff_t dst, ptrdiff_t sst, size_t nelems);

#define NAGAYA_SHMEM_REDUCE(P, NAME, TYPE) \
	int P##_##NAME##_reduce(shmem_team_t team, TYPE *dest, const TYPE *source, \
		size_t nreduce);
#define NAGAYA_SHMEM_BITWISE_REDUCE(P, NAME, TYPE) \
	NAGAYA_SHMEM_REDUCE(P, NAME##_and, TYPE) \
	NAGAYA_SHMEM_REDUCE(P, NAME##_or, TYPE) \
	NAGAYA_SHMEM_REDUCE(P, NAME##_xor, TYPE)
#define NAGAYA_SHMEM_ORDERED_REDUCE(P, NAME, TYPE) \
	NAGAYA_SHMEM_REDUCE(P, NAME##_max, TYPE) \
	NAGAYA_SHMEM_REDUCE(P, NAME##_min, TYPE)
#define NAGAYA_SHMEM_SUM_REDUCE(P, NAME, TYPE) \
	NAGAYA_SHMEM_REDUCE(P, NAME##_sum, TYPE) \
	NAGAYA_SHMEM_REDUCE(P, NAME##_prod, TYPE) \
	int P##_##NAME##_sum_inscan(shmem_team_t team, TYPE *dest, const TYPE *source, \
		size_t nelems); \
	int P##_##NAME##_sum_exscan(shmem_team_t team, TYPE *dest, const TYPE *source, \
		size_t nelems);

/* Deprecated: collective functions of an active set. */
#define NAGAYA_SHMEM_ACTIVE_SET(P, NAME) \
	void P##_##NAME(void *dest, const void *source, size_t nelems, int PE_start, \
		int logPE_stride, int PE_size, long *pSync);
#define NAGAYA_SHMEM_ACTIVE_SET_SIZE(P, SIZE) \
	void P##_broadcast##SIZE(void *dest, const void *source, size_t nelems, int PE_root, \
		int PE_start, int logPE_stride, int PE_size, long *pSync); \
	NAGAYA_SHMEM_ACTIVE_SET(P, collect##SIZE) \
	NAGAYA_SHMEM_ACTIVE_SET(P, fcollect##SIZE) \
	NAGAYA_SHMEM_ACTIVE_SET(P, alltoall##SIZE) \
	void P##_alltoalls##SIZE(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, \
		size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync);
#define NAGAYA_SHMEM_TO_ALL(P, NAME, TYPE) \
	void P##_##NAME##_to_all(TYPE *dest, const TYPE *source, int nreduce, int PE_start, \
		int logPE_stride, int PE_size, TYPE *pWrk, long *pSync);
#define NAGAYA_SHMEM_BITWISE_TO_ALL(P, NAME, TYPE) \
	NAGAYA_SHMEM_TO_ALL(P, NAME##_and, TYPE) \
	NAGAYA_SHMEM_TO_ALL(P, NAME##_or, TYPE) \
	NAGAYA_SHMEM_TO_ALL(P, NAME##_xor, TYPE)
#define NAGAYA_SHMEM_ORDERED_TO_ALL(P, NAME, TYPE) \
	NAGAYA_SHMEM_TO_ALL(P, NAME##_max, TYPE) \
	NAGAYA_SHMEM_TO_ALL(P, NAME##_min, TYPE)
#define NAGAYA_SHMEM_SUM_TO_ALL(P, NAME, TYPE) \
	NAGAYA_SHMEM_TO_ALL(P, NAME##_sum, TYPE) \
	NAGAYA_SHMEM_TO_ALL(P, NAME##_prod, TYPE)

/* Deprecated: waits until the value differs, and atomics without "atomic" in the name. */
#define NAGAYA_SHMEM_OLD_WAIT(P, NAME, TYPE) \
	void P##_##NAME##_wait(TYPE *ivar, TYPE cmp_value);
#define NAGAYA_SHMEM_OLD_AMO(P, NAME, TYPE) \
	void P##_##NAME##_add(TYPE *dest, TYPE value, int pe); \
	void P##_##NAME##_inc(TYPE *dest, int pe); \
	TYPE P##_##NAME##_fadd(TYPE *dest, TYPE value, int pe); \
	TYPE P##_##NAME##_finc(TYPE *dest, int pe); \
	TYPE P##_##NAME##_cswap(TYPE *dest, TYPE cond, TYPE value, int pe);
#define NAGAYA_SHMEM_OLD_EXTENDED_AMO(P, NAME, TYPE) \
	TYPE P##_##NAME##_fetch(const TYPE *source, int pe); \
	void P##_##NAME##_set(TYPE *dest, TYPE value, int pe); \
	TYPE P##_##NAME##_swap(TYPE *dest, TYPE value, int pe);

/* Deprecated functions without types. The caches of x86-64 are coherent, so the cache
 * functions do nothing. */
#define NAGAYA_SHMEM_DEPRECATED(P) \
	void P##_barrier(int PE_start, int logPE_stride, int PE_size, long *pSync); \
	void P##_sync(int PE_start, int logPE_stride, int PE_size, long *pSync); \
	void P##_wait(long *ivar, long cmp_value); \
	void P##_wait_until(long *ivar, int cmp, long cmp_value); \
	void P##_set_cache_inv(void); \
	void P##_set_cache_line_inv(void *dest); \
	void P##_clear_cache_inv(void); \
	void P##_clear_cache_line_inv(void *dest); \
	void P##_udcflush(void); \
	void P##_udcflush_line(void *dest);

#define NAGAYA_SHMEM_DECLARE(P) \
	NAGAYA_SHMEM_FUNCTIONS(P) \
	NAGAYA_SHMEM_SIZES(P) \
	NAGAYA_SHMEM_RMA_TYPES(NAGAYA_SHMEM_RMA, P) \
	NAGAYA_SHMEM_AMO_TYPES(NAGAYA_SHMEM_AMO, P) \
	NAGAYA_SHMEM_EXTENDED_AMO_TYPES(NAGAYA_SHMEM_EXTENDED_AMO, P) \
	NAGAYA_SHMEM_BITWISE_AMO_TYPES(NAGAYA_SHMEM_BITWISE_AMO, P) \
	NAGAYA_SHMEM_SYNC_TYPES(NAGAYA_SHMEM_SYNC, P) \
	NAGAYA_SHMEM_RMA_TYPES(NAGAYA_SHMEM_COLLECTIVES, P) \
	NAGAYA_SHMEM_BITWISE_REDUCTION_TYPES(NAGAYA_SHMEM_BITWISE_REDUCE, P) \
	NAGAYA_SHMEM_ORDERED_REDUCTION_TYPES(NAGAYA_SHMEM_ORDERED_REDUCE, P) \
	NAGAYA_SHMEM_SUM_REDUCTION_TYPES(NAGAYA_SHMEM_SUM_REDUCE, P) \
	NAGAYA_SHMEM_DEPRECATED(P) \
	NAGAYA_SHMEM_ACTIVE_SET_SIZE(P, 32) \
	NAGAYA_SHMEM_ACTIVE_SET_SIZE(P, 64) \
	NAGAYA_SHMEM_BITWISE_TO_ALL_TYPES(NAGAYA_SHMEM_BITWISE_TO_ALL, P) \
	NAGAYA_SHMEM_ORDERED_TO_ALL_TYPES(NAGAYA_SHMEM_ORDERED_TO_ALL, P) \
	NAGAYA_SHMEM_SUM_TO_ALL_TYPES(NAGAYA_SHMEM_SUM_TO_ALL, P) \
	NAGAYA_SHMEM_OLD_WAIT_TYPES(NAGAYA_SHMEM_OLD_WAIT, P) \
	NAGAYA_SHMEM_OLD_AMO_TYPES(NAGAYA_SHMEM_OLD_AMO, P) \
	NAGAYA_SHMEM_OLD_EXTENDED_AMO_TYPES(NAGAYA_SHMEM_OLD_EXTENDED_AMO, P)

NAGAYA_SHMEM_DECLARE(shmem)
NAGAYA_SHMEM_DECLARE(pshmem)

/* Deprecated functions without the prefix shmem_. */
void start_pes(int npes);
int _my_pe(void);
int _num_pes(void);
void *shmalloc(size_t size);
void shfree(void *ptr);
void *shrealloc(void *ptr, size_t size);
void *shmemalign(size_t alignment, size_t size);
void pstart_pes(int npes);
int p_my_pe(void);
int p_num_pes(void);
void *pshmalloc(size_t size);
void pshfree(void *ptr);
void *pshrealloc(void *ptr, size_t size);
void *pshmemalign(size_t alignment, size_t size);

#ifdef __cplusplus
} /* extern "C" */
#endif

#ifdef __cplusplus
#include "nagaya_shmem_overloads.h"
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#include "nagaya_shmem_generic.h"
#endif

#endif /* NAGAYA_SHMEM_H */
