/* The chapters of OpenSHMEM's specification, without collective operations. Each case runs in all
 * PEs: PE `me` works on the memory of the next PE and checks what the former PE has done. */
#include "../check.h"
#include <shmem.h>
#include <sys/wait.h>

enum { N = 100 };

static int me, n, next, former;
/* Static data: initialised, zero, and of a function. */
static long initialised[N] = {1, 2, 3};
static long zero[N];

static void begin(void)
{
	shmem_init();
	me = shmem_my_pe();
	n = shmem_n_pes();
	next = (me + 1) % n;
	former = (me + n - 1) % n;
}

static void setup(void)
{
	int flag = -1, major = 0, minor = 0, provided = -1;
	char name[SHMEM_MAX_NAME_LEN];

	shmem_query_initialized(&flag);
	CHECK_EQ(flag, 0);
	begin();
	shmem_query_initialized(&flag);
	CHECK_EQ(flag, 1);
	CHECK(me >= 0 && me < n);
	shmem_info_get_version(&major, &minor);
	CHECK_EQ(major, SHMEM_MAJOR_VERSION);
	CHECK_EQ(minor, SHMEM_MINOR_VERSION);
	shmem_info_get_name(name);
	CHECK(strcmp(name, SHMEM_VENDOR_STRING) == 0);
	shmem_query_thread(&provided);
	CHECK(provided >= SHMEM_THREAD_SINGLE && provided <= SHMEM_THREAD_MULTIPLE);
	shmem_pcontrol(1, "any", 2);
	CHECK_EQ(shmem_pe_accessible(next), 1);
	CHECK_EQ(shmem_pe_accessible(n), 0);
	CHECK_EQ(shmem_addr_accessible(zero, next), 1);
	CHECK_EQ(shmem_addr_accessible(&flag, next), 0);
	/* Each call of shmem_init has its shmem_finalize (1.6). */
	shmem_init();
	shmem_finalize();
	CHECK_EQ(shmem_n_pes(), n);
	shmem_finalize();
}

static void memory(void)
{
	begin();
	char *one = shmem_malloc(1000), *two = shmem_calloc(10, 100);
	char *three = shmem_align(4096, 10), *four = shmem_malloc_with_hints(8, 3);
	CHECK(one && two && three && four);
	CHECK_EQ((uintptr_t)three % 4096, 0);
	CHECK_EQ((uintptr_t)one % 16, 0);
	for (int i = 0; i < 1000; i++)
		CHECK_EQ(two[i], 0);
	CHECK(shmem_malloc(0) == NULL);
	CHECK(shmem_calloc(SIZE_MAX, 2) == NULL);
	CHECK(shmem_malloc((size_t)1 << 45) == NULL);
	memset(one, me + 1, 1000);
	one = shmem_realloc(one, 100000);
	CHECK(one != NULL);
	shmem_barrier_all();
	char got[1000];
	shmem_getmem(got, one, sizeof got, next);
	for (int i = 0; i < 1000; i++)
		CHECK_EQ(got[i], next + 1);
	shmem_barrier_all();
	shmem_free(one);
	shmem_free(two);
	shmem_free(three);
	shmem_free(four);
	shmem_free(NULL);
	/* All of the heap is free again, at the same addresses in all PEs. */
	for (int i = 0; i < 50; i++) {
		char *again = shmem_malloc((size_t)900 << 20);
		CHECK(again != NULL);
		shmem_free(again);
	}
	shmem_finalize();
}

/* Puts and gets of contiguous, strided and block-strided elements, and of one element. */
#define MOVES(NAME, TYPE) \
	do { \
		TYPE *at = shmem_calloc(4 * N, sizeof(TYPE)), local[4 * N]; \
		CHECK(at != NULL); \
		for (int i = 0; i < 4 * N; i++) \
			local[i] = (TYPE)(me * 7 + i); \
		shmem_##NAME##_put(at, local, N, next); \
		shmem_##NAME##_put_nbi(at + N, local, 0, next); \
		shmem_##NAME##_iput(at + N, local, 2, 1, N / 2, next); \
		shmem_##NAME##_ibput(at + 2 * N, local, 5, 3, 3, N / 5, next); \
		shmem_##NAME##_p(at + 3 * N, local[3], next); \
		shmem_quiet(); \
		shmem_barrier_all(); \
		for (int i = 0; i < N; i++) { \
			CHECK(at[i] == (TYPE)(former * 7 + i)); \
			CHECK(at[N + i] == (TYPE)(i % 2 ? 0 : former * 7 + i / 2)); \
			CHECK(at[2 * N + i] == (TYPE)(i % 5 < 3 ? former * 7 + i / 5 * 3 + i % 5 : 0)); \
		} \
		CHECK(at[3 * N] == (TYPE)(former * 7 + 3)); \
		CHECK(at[3 * N + 1] == 0); \
		/* Back: the next PE has this one's. */ \
		memset(local, 0, sizeof local); \
		shmem_##NAME##_get(local, at, N, next); \
		shmem_##NAME##_iget(local + N, at, 1, 2, N / 2, next); \
		shmem_##NAME##_ibget(local + 2 * N, at, 3, 5, 2, N / 5, next); \
		shmem_##NAME##_get_nbi(local + 3 * N, at, N / 2, next); \
		shmem_quiet(); \
		for (int i = 0; i < N; i++) \
			CHECK(local[i] == (TYPE)(me * 7 + i)); \
		for (int i = 0; i < N / 2; i++) { \
			CHECK(local[N + i] == (TYPE)(me * 7 + 2 * i)); \
			CHECK(local[3 * N + i] == (TYPE)(me * 7 + i)); \
		} \
		for (int i = 0; i < N / 5 * 3; i++) \
			CHECK(local[2 * N + i] == (TYPE)(i % 3 < 2 ? me * 7 + i / 3 * 5 + i % 3 : 0)); \
		CHECK(shmem_##NAME##_g(at + 5, next) == (TYPE)(me * 7 + 5)); \
		CHECK(shmem_ctx_##NAME##_g(SHMEM_CTX_DEFAULT, at + 6, next) == (TYPE)(me * 7 + 6)); \
		shmem_barrier_all(); \
		shmem_free(at); \
	} while (0);
#define MOVES_ROW(P, NAME, TYPE) MOVES(NAME, TYPE)

static void moves(void)
{
	begin();
	NAGAYA_SHMEM_RMA_TYPES(MOVES_ROW, 0)
	shmem_finalize();
}

static void sizes(void)
{
	begin();
	char *at = shmem_calloc(2, 1 << 20), *local = malloc(1 << 20);
	for (int i = 0; i < 1 << 20; i++)
		local[i] = (char)(i * 31 + me);
#define SIZE(BITS) \
	shmem_put##BITS(at, local, 1000, next); \
	shmem_fence(); \
	shmem_ctx_iput##BITS(SHMEM_CTX_DEFAULT, at + (1 << 20), local, 3, 1, 10, next); \
	shmem_barrier_all(); \
	for (int i = 0; i < 1000 * BITS / 8; i++) \
		CHECK_EQ(at[i], (char)(i * 31 + former)); \
	for (int i = 0; i < 10 * BITS / 8; i++) \
		CHECK_EQ(at[(1 << 20) + i % (BITS / 8) + i / (BITS / 8) * 3 * (BITS / 8)], \
			(char)(i * 31 + former)); \
	shmem_barrier_all();
	SIZE(8)
	SIZE(16)
	SIZE(32)
	SIZE(64)
	SIZE(128)
	/* A large one, which the gate copies. */
	shmem_putmem(at, local, 1 << 20, next);
	shmem_barrier_all();
	for (int i = 0; i < 1 << 20; i++)
		CHECK_EQ(at[i], (char)(i * 31 + former));
	shmem_barrier_all();
	memset(local, 0, 1 << 20);
	shmem_getmem_nbi(local, at, 1 << 20, next);
	shmem_quiet();
	for (int i = 0; i < 1 << 20; i++)
		CHECK_EQ(local[i], (char)(i * 31 + me));
	shmem_barrier_all();
	shmem_finalize();
}

static void statics(void)
{
	static int inner = 5;

	begin();
	CHECK_EQ(initialised[2], 3);
	shmem_barrier_all();
	shmem_long_p(&initialised[2], 100 + me, next);
	shmem_long_p(&zero[7], 200 + me, next);
	shmem_int_atomic_add(&inner, 10, next);
	shmem_barrier_all();
	CHECK_EQ(initialised[2], 100 + former);
	CHECK_EQ(zero[7], 200 + former);
	CHECK_EQ(inner, 15);
	/* shmem_ptr gives the address of the next PE's object, if the PE shares memory with this one. */
	long *there = shmem_ptr(zero, next);
	int is_near = shmem_team_translate_pe(SHMEM_TEAM_WORLD, next, SHMEM_TEAM_SHARED) >= 0;
	CHECK(is_near ? there != NULL && (n == 1 || there != zero) : there == NULL);
	if (is_near)
		CHECK_EQ(there[7], 200 + me);
	int on_stack;
	CHECK(shmem_ptr(&on_stack, next) == NULL);
	shmem_barrier_all();
	shmem_finalize();
}

static void signals(void)
{
	static uint64_t arrived, count, last;
	static long data[N];

	begin();
	for (int round = 1; round <= 1000; round++) {
		long local[N];
		for (int i = 0; i < N; i++)
			local[i] = round * 1000L + me;
		if (round % 2)
			shmem_long_put_signal(data, local, N, &arrived, round, SHMEM_SIGNAL_SET, next);
		else
			shmem_long_put_signal_nbi(data, local, N, &arrived, 1, SHMEM_SIGNAL_ADD, next);
		CHECK_EQ(shmem_signal_wait_until(&arrived, SHMEM_CMP_EQ, round), round);
		for (int i = 0; i < N; i++)
			CHECK_EQ(data[i], round * 1000L + former);
		CHECK_EQ(shmem_signal_fetch(&arrived), round);
		/* The former PE may send the next round. */
		shmem_signal_add(&count, 1, former);
		shmem_signal_wait_until(&count, SHMEM_CMP_GE, round);
	}
	shmem_signal_set(&last, 7, next);
	shmem_signal_wait_until(&last, SHMEM_CMP_EQ, 7);
	shmem_finalize();
}

#define ATOMIC(NAME, TYPE) \
	do { \
		static TYPE sum, word; \
		TYPE old = 0; \
		for (int i = 0; i < 500; i++) { \
			shmem_##NAME##_atomic_add(&sum, 2, next); \
			shmem_##NAME##_atomic_inc(&sum, 0); \
			shmem_##NAME##_atomic_fetch_inc(&sum, next); \
			shmem_##NAME##_atomic_fetch_add_nbi(&old, &sum, 1, next); \
		} \
		shmem_barrier_all(); \
		CHECK_EQ(sum, 500 * 4 + (me == 0 ? 500 * n : 0)); \
		CHECK_EQ(shmem_##NAME##_atomic_fetch(&sum, me), sum); \
		shmem_barrier_all(); \
		shmem_##NAME##_atomic_set(&word, 5, next); \
		CHECK_EQ(shmem_##NAME##_atomic_swap(&word, 6, next), 5); \
		CHECK_EQ(shmem_##NAME##_atomic_compare_swap(&word, 5, 9, next), 6); \
		CHECK_EQ(shmem_##NAME##_atomic_compare_swap(&word, 6, 9, next), 6); \
		CHECK_EQ(shmem_##NAME##_atomic_fetch_add(&word, 1, next), 9); \
		shmem_##NAME##_atomic_compare_swap_nbi(&old, &word, 10, 11, next); \
		shmem_quiet(); \
		CHECK_EQ(old, 10); \
		shmem_barrier_all(); \
		CHECK_EQ(word, 11); \
		sum = word = 0; \
		shmem_barrier_all(); \
	} while (0);
#define ATOMIC_ROW(P, NAME, TYPE) ATOMIC(NAME, TYPE)
#define BITWISE_ROW(P, NAME, TYPE) \
	do { \
		static TYPE word = 0x0f; \
		CHECK_EQ(shmem_##NAME##_atomic_fetch_and(&word, 0x3c, next), 0x0f); \
		CHECK_EQ(shmem_##NAME##_atomic_fetch_or(&word, 0x30, next), 0x0c); \
		shmem_##NAME##_atomic_xor(&word, 0x21, next); \
		shmem_barrier_all(); \
		CHECK_EQ(word, 0x1d); \
	} while (0);

static void atomics(void)
{
	static double real = 1.5;

	begin();
	NAGAYA_SHMEM_AMO_TYPES(ATOMIC_ROW, 0)
	NAGAYA_SHMEM_BITWISE_AMO_TYPES(BITWISE_ROW, 0)
	CHECK(shmem_double_atomic_swap(&real, 2.5, next) == 1.5);
	shmem_barrier_all();
	CHECK(real == 2.5);
	shmem_finalize();
}

static void waits(void)
{
	static long words[8];
	static int flag;
	int status[8] = {0, 1};
	long values[8];
	size_t indices[8];

	begin();
	for (int i = 0; i < 8; i++)
		values[i] = i + 1;
	CHECK_EQ(shmem_long_test(&words[0], SHMEM_CMP_NE, 0), 0);
	CHECK_EQ(shmem_long_test_any(words, 8, status, SHMEM_CMP_GT, 0), SIZE_MAX);
	CHECK_EQ(shmem_long_test_some(words, 8, indices, status, SHMEM_CMP_GT, 0), 0);
	CHECK_EQ(shmem_long_test_all(words, 8, NULL, SHMEM_CMP_EQ, 0), 1);
	CHECK_EQ(shmem_long_test_all(words, 0, NULL, SHMEM_CMP_EQ, 1), 1);
	CHECK_EQ(shmem_long_wait_until_any(words, 0, NULL, SHMEM_CMP_EQ, 1), SIZE_MAX);
	shmem_barrier_all();
	if (me != 0)
		usleep(20000);
	for (int i = 7; i >= 0; i--)
		shmem_long_p(&words[i], i + 1, next);
	size_t one = shmem_long_wait_until_any(words, 8, status, SHMEM_CMP_NE, 0);
	CHECK(one < 8 && one != 1 && words[one] == (long)one + 1);
	size_t found = shmem_long_wait_until_some(words, 8, indices, status, SHMEM_CMP_NE, 0);
	CHECK(found >= 1 && found <= 7);
	shmem_long_wait_until_all_vector(words, 8, NULL, SHMEM_CMP_EQ, values);
	CHECK_EQ(shmem_long_test_all_vector(words, 8, NULL, SHMEM_CMP_GE, values), 1);
	CHECK_EQ(shmem_long_test_some_vector(words, 8, indices, status, SHMEM_CMP_LE, values), 7);
	shmem_long_wait_until_all(words, 8, NULL, SHMEM_CMP_LT, 9);
	/* Repeated searches find each object (fairness). */
	int seen = 0;
	for (int i = 0; i < 8; i++)
		seen |= 1 << shmem_long_test_any(words, 8, NULL, SHMEM_CMP_GT, 0);
	CHECK_EQ(seen, 255);
	/* A long wait, in which the waiter sleeps. */
	shmem_barrier_all();
	if (me == 0)
		usleep(300000);
	shmem_int_atomic_set(&flag, 3, next);
	if (next != 0 || n == 1)
		shmem_int_wait_until(&flag, SHMEM_CMP_EQ, 3);
	shmem_barrier_all();
	shmem_finalize();
}

static void locks(void)
{
	static long lock, counter, plain;

	begin();
	for (int i = 0; i < 200; i++) {
		if (i % 2)
			shmem_set_lock(&lock);
		else
			while (shmem_test_lock(&lock))
				sched_yield();
		/* Not atomic: the lock protects it. */
		long value = shmem_long_g(&plain, 0);
		shmem_long_p(&plain, value + 1, 0);
		shmem_quiet();
		shmem_clear_lock(&lock);
	}
	shmem_long_atomic_add(&counter, 200, 0);
	shmem_barrier_all();
	if (me == 0)
		CHECK_EQ(plain, counter);
	shmem_finalize();
}

static void contexts(void)
{
	static long word;
	shmem_ctx_t ctx;
	shmem_team_t team;

	begin();
	for (int i = 0; i < 50; i++) {
		CHECK_EQ(shmem_ctx_create(i % 8, &ctx), 0);
		CHECK(ctx != SHMEM_CTX_INVALID && ctx != SHMEM_CTX_DEFAULT);
		shmem_ctx_long_p(ctx, &word, i, next);
		shmem_ctx_fence(ctx);
		shmem_ctx_quiet(ctx);
		CHECK_EQ(shmem_ctx_long_g(ctx, &word, next), i);
		CHECK_EQ(shmem_ctx_get_team(ctx, &team), 0);
		CHECK(team == SHMEM_TEAM_WORLD);
		shmem_ctx_destroy(ctx);
	}
	team = SHMEM_TEAM_WORLD;
	CHECK(shmem_ctx_get_team(SHMEM_CTX_INVALID, &team) != 0);
	CHECK(team == SHMEM_TEAM_INVALID);
	int pe = next;
	shmem_pe_quiet(&pe, 1);
	shmem_ctx_pe_quiet(SHMEM_CTX_DEFAULT, &pe, 1);
	shmem_ctx_session_start(SHMEM_CTX_DEFAULT, SHMEM_CTX_SESSION_BATCH, NULL, 0);
	shmem_ctx_session_stop(SHMEM_CTX_DEFAULT);
	shmem_barrier_all();
	shmem_finalize();
}

static void *add(void *sum)
{
	for (int i = 0; i < 1000; i++)
		shmem_long_atomic_inc(sum, next);
	return NULL;
}

static void threads(void)
{
	static long sum;
	pthread_t all[4];
	int provided;

	CHECK_EQ(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided), 0);
	CHECK_EQ(provided, SHMEM_THREAD_MULTIPLE);
	me = shmem_my_pe();
	n = shmem_n_pes();
	next = (me + 1) % n;
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&all[i], NULL, add, &sum), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(all[i], NULL), 0);
	shmem_barrier_all();
	CHECK_EQ(sum, 4000);
	shmem_finalize();
}

/* Names of versions before 1.5. */
static void deprecated(void)
{
	static long word, flag;

	start_pes(0);
	me = _my_pe();
	n = _num_pes();
	next = (me + 1) % n;
	CHECK_EQ(shmem_long_finc(&word, next), 0);
	CHECK_EQ(shmem_long_fadd(&word, 4, next), 1);
	CHECK_EQ(shmem_long_cswap(&word, 5, 8, next), 5);
	CHECK_EQ(shmem_long_swap(&word, 9, next), 8);
	shmem_long_add(&word, 1, next);
	shmem_long_inc(&word, next);
	shmem_barrier_all();
	CHECK_EQ(shmem_long_fetch(&word, me), 11);
	shmem_long_p(&flag, 1, next);
	shmem_wait(&flag, 0);
	shmem_long_wait(&flag, 0);
	long *at = shmalloc(100);
	CHECK(at != NULL && (at = shrealloc(at, 1000)) != NULL);
	shfree(at);
	shfree(shmemalign(64, 10));
	shmem_set_cache_inv();
	shmem_clear_cache_inv();
	shmem_clear_cache_line_inv(at);
	shmem_udcflush();
	shmem_barrier_all();
	/* The end of the program leaves the job. */
}

/* A program that ends without shmem_finalize, and late PEs that use the memory of others then. */
static void unfinished(void)
{
	static long word, done;
	int status;

	begin();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		exit(0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* PE 0 ends first. The others wait for each other, and notice if it has not left in order. */
	if (me == n - 1)
		usleep(200000);
	else if (me > 0)
		shmem_long_wait_until(&done, SHMEM_CMP_NE, 0);
	if (me > 1)
		shmem_long_p(&done, 1, me - 1);
	shmem_long_p(&word, 5, former);
	CHECK_EQ(shmem_long_g(&word, former), 5);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		{"setup", setup},
		{"memory", memory},
		{"moves", moves},
		{"sizes", sizes},
		{"statics", statics},
		{"signals", signals},
		{"atomics", atomics},
		{"waits", waits},
		{"locks", locks},
		{"contexts", contexts},
		{"threads", threads},
		{"deprecated", deprecated},
		{"unfinished", unfinished},
		{NULL, NULL},
	};
	return check_main(cases, argc, argv);
}
