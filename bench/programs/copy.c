/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * copy.c - the time in which one core copies data in another core's cache, by copy loop.
 *
 *     copy CPU CPU LOOPS REPETITIONS MICROSECONDS SOURCES DESTINATIONS OFFSET SIZE...
 *
 * Two threads, each bound to its CPU, send messages to each other alternately, like the ranks of
 * a ping-pong. Only the copy is timed: the receiver copies directly from the sender's buffer.
 * LOOPS is "all", "best" (the promising ones, for the limit of the machine), or names with commas.
 * SOURCES are, with commas:
 *
 *     fresh       the other core has just written every word
 *     unchanged   written long ago; this core has copied it before, so both caches hold it
 *     cold        in no cache
 *
 * DESTINATIONS are "warm" (copied to before: in this core's cache as far as it fits) and
 * "cold" (in no cache). Both buffers begin OFFSET bytes after the start of a page. Each
 * exchange lasts about MICROSECONDS. All loops run alternately, REPETITIONS times. Each
 * repetition prints a line:
 *
 *     SOURCE DESTINATION SIZE LOOP COPY_NS COPY_AND_READ_NS DISTANCE_BEFORE_NS DISTANCE_AFTER_NS
 *
 * COPY_AND_READ adds reading a word of each line of the destination: non-temporal stores
 * leave it out of the cache, which the program pays for afterwards. Times are means of the
 * middle half. Small messages are timed several at once, from neighbouring buffers. Every
 * loop is checked word for word before it counts. The distance is the time from one core's
 * write to the other's read.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 64, PAGE = 4096, EXCHANGES_MIN = 4, EXCHANGES_MAX = 2000 };
enum { TIMED_MIN = 16384, TOGETHER_MAX = 16 };
enum { HAND_OVERS = 400, BATCHES = 5 };

static void fail(const char *what, const char *which)
{
	fprintf(stderr, "copy: %s: %s\n", what, which);
	exit(1);
}

/* ---- loops: each copies whole blocks to a destination that begins a cache line ---- */

#define BARRIER __asm__ volatile("" ::: "memory") /* GCC would replace a loop by memcpy */
#define EACH_LINE(bytes, what) \
	for (int l_ = 0; l_ < (bytes); l_ += LINE) \
		what
#define NONE(s, d, bytes)
#define T0_512(s, d, bytes) EACH_LINE(bytes, _mm_prefetch((s) + 512 + l_, _MM_HINT_T0))
#define T0_2K(s, d, bytes) EACH_LINE(bytes, _mm_prefetch((s) + 2048 + l_, _MM_HINT_T0))
#define NTA_512(s, d, bytes) EACH_LINE(bytes, _mm_prefetch((s) + 512 + l_, _MM_HINT_NTA))
#define W_512(s, d, bytes) EACH_LINE(bytes, __builtin_prefetch((d) + 512 + l_, 1))
#define T0_W_512(s, d, bytes) T0_512(s, d, bytes); W_512(s, d, bytes)

static void rep_movsb(char *d, const char *s, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
}

static void rep_movsq(char *d, const char *s, size_t n)
{
	n /= 8;
	__asm__ volatile("rep movsq" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
}

/* Prefetches the next page, then copies a page. */
static void rep_movsb_t0(char *d, const char *s, size_t n)
{
	const char *end = s + n;
	for (size_t step; n; d += step, s += step, n -= step) {
		step = n < PAGE ? n : PAGE;
		for (const char *p = s + PAGE; p < s + 2 * PAGE && p < end; p += LINE)
			_mm_prefetch(p, _MM_HINT_T0);
		rep_movsb(d, s, step);
	}
}

static void libc(char *d, const char *s, size_t n)
{
	memcpy(d, s, n);
}

/* Blocks by `count` registers of `type`; `n` is a multiple of all block sizes. */
#define LOOP(name, target_, type, count, load, store, ahead, end) \
	__attribute__((target(target_))) static void name(char *d, const char *s, size_t n) \
	{ \
		enum { BLOCK = count * sizeof(type) }; \
		for (; n; d += BLOCK, s += BLOCK, n -= BLOCK) { \
			type r_[count]; \
			ahead(s, d, BLOCK); \
			_Pragma("GCC unroll 8") for (int k = 0; k < count; k++) \
				r_[k] = load((const void *)(s + k * sizeof(type))); \
			_Pragma("GCC unroll 8") for (int k = 0; k < count; k++) \
				store((void *)(d + k * sizeof(type)), r_[k]); \
			BARRIER; \
		} \
		end; \
	}
#define LOAD_GPR(p) (*(const uint64_t *)(p))
#define STORE_GPR(p, v) (*(uint64_t *)(p) = (v))
#define STORE_NTI(p, v) _mm_stream_si64(p, (long long)(v))
#define GPR(name, store, ahead, end) \
	LOOP(name, "sse2", uint64_t, 8, LOAD_GPR, store, ahead, end)
#define SSE(name, store, ahead, end) \
	LOOP(name, "sse2", __m128i, 4, _mm_loadu_si128, store, ahead, end)
#define AVX2(name, store, ahead, end) \
	LOOP(name, "avx2", __m256i, 8, _mm256_loadu_si256, store, ahead, end)
#define AVX512(name, store, ahead, end) \
	LOOP(name, "avx512f", __m512i, 4, _mm512_loadu_si512, store, ahead, end)

GPR(gpr, STORE_GPR, NONE, )
GPR(gpr_t0, STORE_GPR, T0_512, )
GPR(gpr_t0_w, STORE_GPR, T0_W_512, )
GPR(nti, STORE_NTI, NONE, _mm_sfence())
GPR(nti_t0, STORE_NTI, T0_512, _mm_sfence())
GPR(nti_t0_2k, STORE_NTI, T0_2K, _mm_sfence())
GPR(nti_nta, STORE_NTI, NTA_512, _mm_sfence())
SSE(sse, _mm_store_si128, NONE, )
SSE(sse_nt, _mm_stream_si128, NONE, _mm_sfence())
SSE(sse_nt_t0, _mm_stream_si128, T0_512, _mm_sfence())
AVX2(avx2, _mm256_store_si256, NONE, )
AVX2(avx2_t0, _mm256_store_si256, T0_512, )
AVX2(avx2_t0_2k, _mm256_store_si256, T0_2K, )
AVX2(avx2_nta, _mm256_store_si256, NTA_512, )
AVX2(avx2_w, _mm256_store_si256, W_512, )
AVX2(avx2_t0_w, _mm256_store_si256, T0_W_512, )
AVX2(avx2_nt, _mm256_stream_si256, NONE, _mm_sfence())
AVX2(avx2_nt_t0, _mm256_stream_si256, T0_512, _mm_sfence())
AVX512(avx512, _mm512_store_si512, NONE, )
AVX512(avx512_t0, _mm512_store_si512, T0_512, )
AVX512(avx512_nt, _mm512_stream_si512, NONE, _mm_sfence())
AVX512(avx512_nt_t0, _mm512_stream_si512, T0_512, _mm_sfence())

static const struct loop {
	const char *name;
	void (*copy)(char *, const char *, size_t);
	int worth_a_try, level; /* level: 0 x86-64, 2 AVX2, 5 AVX-512 */
} loops[] = {
	{ "movsb", rep_movsb, 1, 0 },
	{ "movsb+t0", rep_movsb_t0, 0, 0 },
	{ "movsq", rep_movsq, 0, 0 },
	{ "memcpy", libc, 1, 0 },
	{ "gpr", gpr, 0, 0 },
	{ "gpr+t0", gpr_t0, 0, 0 },
	{ "gpr+t0+w", gpr_t0_w, 0, 0 },
	{ "sse", sse, 0, 0 },
	{ "avx2", avx2, 0, 2 },
	{ "avx2+t0", avx2_t0, 1, 2 },
	{ "avx2+t0-2k", avx2_t0_2k, 0, 2 },
	{ "avx2+nta", avx2_nta, 0, 2 },
	{ "avx2+w", avx2_w, 0, 2 },
	{ "avx2+t0+w", avx2_t0_w, 0, 2 },
	{ "avx512", avx512, 1, 5 },
	{ "avx512+t0", avx512_t0, 0, 5 },
	{ "movnti", nti, 0, 0 },
	{ "movnti+t0", nti_t0, 1, 0 },
	{ "movnti+t0-2k", nti_t0_2k, 0, 0 },
	{ "movnti+nta", nti_nta, 0, 0 },
	{ "sse-nt", sse_nt, 0, 0 },
	{ "sse-nt+t0", sse_nt_t0, 0, 0 },
	{ "avx2-nt", avx2_nt, 0, 2 },
	{ "avx2-nt+t0", avx2_nt_t0, 0, 2 },
	{ "avx512-nt", avx512_nt, 0, 5 },
	{ "avx512-nt+t0", avx512_nt_t0, 1, 5 },
};
enum { LOOPS = sizeof loops / sizeof *loops, WHOLE = 256 };

static int runs_here(const struct loop *loop)
{
	return loop->level == 0 || (loop->level == 2 && __builtin_cpu_supports("avx2")) ||
	       (loop->level == 5 && __builtin_cpu_supports("avx512f"));
}

/* Copies any number of bytes: the loop gets what it can take, `rep movsb` both ends. */
static void copy(const struct loop *loop, char *d, const char *s, size_t n)
{
	if (loop->copy == rep_movsb || loop->copy == libc) {
		loop->copy(d, s, n);
		return;
	}
	size_t head = -(uintptr_t)d % LINE;
	head = head < n ? head : n;
	size_t body = (n - head) / WHOLE * WHOLE, tail = n - head - body;
	if (head)
		rep_movsb(d, s, head);
	if (body)
		loop->copy(d + head, s + head, body);
	if (tail)
		rep_movsb(d + head + body, s + head + body, tail);
}

/* ---- the two sides, taking turns ---- */

enum source { FRESH, UNCHANGED, COLD, SOURCES };
static const char *const source_names[] = { "fresh", "unchanged", "cold" };

static struct side {
	int cpu;
	char *send, *receive;
	uint64_t sum; /* of the words read, so that the reads are not optimized away */
} sides[2];

/* The next work of both; written by side 0 while side 1 waits for its turn. */
static struct {
	const struct loop *loop;
	enum source source;
	int cold_destination, exchanges, together;
	size_t size, stride;
} job;

static _Alignas(256) _Atomic uint64_t turn; /* side 0 increments even values, side 1 odd ones */
static _Alignas(256) void (*work)(int side, uint64_t *value); /* NULL: the end */
static double copy_ns[2][EXCHANGES_MAX], read_ns[2][EXCHANGES_MAX];
static double ns_per_tick;

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static uint64_t ticks(void)
{
	unsigned cpu;
	_mm_lfence();
	uint64_t t = __rdtscp(&cpu);
	_mm_lfence();
	return t;
}

static void calibrate(void)
{
	int64_t begin = now_ns();
	uint64_t first = ticks();
	while (now_ns() - begin < 20000000)
		;
	ns_per_tick = (double)(now_ns() - begin) / (double)(ticks() - first);
}

/* Waits until `turn` is `value`. */
static void await(uint64_t value)
{
	for (long spins = 0; atomic_load_explicit(&turn, memory_order_acquire) != value; spins++) {
		_mm_pause();
		if (spins > 100000) /* another thread has the other processor */
			sched_yield();
	}
}

static void hand_over(uint64_t value)
{
	atomic_store_explicit(&turn, value + 1, memory_order_release);
}

static void flush(const char *from, size_t size)
{
	for (size_t at = 0; at < size; at += LINE)
		_mm_clflush(from + at);
	_mm_mfence();
}

static uint64_t word(int side, int exchange, size_t at)
{
	return ((uint64_t)(exchange + 2) << 40) + ((uint64_t)side << 36) + at;
}

static void write_message(int side, int exchange)
{
	for (int k = 0; k < job.together; k++) {
		uint64_t *to = (uint64_t *)(sides[side].send + (size_t)k * job.stride);
		for (size_t at = 0; at < job.size / 8; at++)
			to[at] = word(side, exchange, at);
	}
}

static void check_message(int side, int exchange, size_t step)
{
	for (int k = 0; k < job.together; k++) {
		const uint64_t *from = (uint64_t *)(sides[side].receive + (size_t)k * job.stride);
		for (size_t at = 0; at < job.size / 8; at += step)
			if (from[at] != word(!side, exchange, at))
				fail("copied wrongly by", job.loop->name);
	}
}

static void prepare_to_send(int side, int exchange)
{
	if (job.source == FRESH || exchange == 0)
		write_message(side, job.source == FRESH ? exchange : 0);
	if (job.source == COLD)
		flush(sides[side].send, (size_t)job.together * job.stride);
}

static void prepare_to_receive(int side)
{
	if (job.cold_destination)
		flush(sides[side].receive, (size_t)job.together * job.stride);
}

static void receive(int side, int exchange)
{
	struct side *me = &sides[side];
	const char *from = sides[!side].send;
	uint64_t begin = ticks();
	for (int k = 0; k < job.together; k++)
		copy(job.loop, me->receive + (size_t)k * job.stride, from + (size_t)k * job.stride,
		     job.size);
	uint64_t copied = ticks();
	for (int k = 0; k < job.together; k++)
		for (size_t at = 0; at < job.size; at += LINE)
			me->sum += *(volatile uint64_t *)(me->receive + (size_t)k * job.stride + at);
	uint64_t end = ticks();
	copy_ns[side][exchange] = (double)(copied - begin) * ns_per_tick / job.together;
	read_ns[side][exchange] = (double)(end - begin) * ns_per_tick / job.together;
	int whole = exchange == 0; /* word for word once; then a few */
	check_message(side, job.source == FRESH ? exchange : 0, whole ? 1 : job.size / 24);
}

static void exchanges(int side, uint64_t *value)
{
	for (int e = 0; e < job.exchanges; e++, *value += 2) {
		prepare_to_receive(side);
		if (side == 0) {
			prepare_to_send(0, e);
			hand_over(*value);
			await(*value + 2);
			receive(0, e);
		} else {
			await(*value + 1);
			receive(1, e);
			prepare_to_send(1, e);
			hand_over(*value + 1);
		}
	}
}

static void hand_overs(int side, uint64_t *value)
{
	for (int i = 0; i < HAND_OVERS; i++, ++*value) {
		if ((*value & 1) == (uint64_t)side)
			hand_over(*value);
		else
			await(*value + 1);
	}
}

static void bind_to(int cpu)
{
	cpu_set_t only;
	CPU_ZERO(&only);
	CPU_SET(cpu, &only);
	if (sched_setaffinity(0, sizeof only, &only))
		fail("sched_setaffinity", "no such processor for us");
}

static char *new_buffer(size_t size)
{
	char *buffer = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
	if (!buffer)
		fail("buffers", "no memory");
	memset(buffer, 1, size);
	return buffer;
}

/* Side 1 does the work of side 0: it reads `work` and `job` after side 0 has set them. */
static void *serve(void *unused)
{
	uint64_t value = 0;
	bind_to(sides[1].cpu);
	for (;;) {
		await(value + 1);
		value += 2;
		hand_over(value - 1);
		if (!work)
			return unused;
		work(1, &value);
	}
}

/* Runs the work on both sides; returns when both are done. */
static void both(void (*what)(int, uint64_t *))
{
	static uint64_t value;
	work = what;
	hand_over(value);
	await(value + 2);
	value += 2;
	if (what)
		what(0, &value);
}

/* The fastest of some batches was not interrupted. */
static double distance_ns(void)
{
	double fastest = 1e12;
	for (int batch = 0; batch < BATCHES; batch++) {
		int64_t begin = now_ns();
		both(hand_overs);
		double each = (double)(now_ns() - begin) / (HAND_OVERS + 2);
		fastest = each < fastest ? each : fastest;
	}
	return fastest;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Mean of the middle half of both sides' times. */
static double usual(double ns[2][EXCHANGES_MAX])
{
	static double all[2 * EXCHANGES_MAX];
	int n = 2 * job.exchanges;
	for (int side = 0; side < 2; side++)
		memcpy(all + side * job.exchanges, ns[side], (size_t)job.exchanges * sizeof *all);
	qsort(all, (size_t)n, sizeof *all, by_value);
	double sum = 0;
	for (int i = n / 4; i < n - n / 4; i++)
		sum += all[i];
	return sum / (n - n / 4 - n / 4);
}

static int named(const char *list, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = list; (at = strstr(at, name)); at += length)
		if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length]))
			return 1;
	return 0;
}

static void measure(size_t size, const char *which, int repetitions, int microseconds)
{
	static const char *const destinations[] = { "warm", "cold" };
	int fit[LOOPS] = { 0 };
	job.size = size;
	job.stride = (size + PAGE - 1) / PAGE * PAGE;
	job.together = size >= TIMED_MIN ? 1 : (int)(TIMED_MIN / size);
	job.together = job.together > TOGETHER_MAX ? TOGETHER_MAX : job.together;
	double before = distance_ns();
	for (int r = -1; r < repetitions; r++) /* the first one warms up, and sets the number of iterations */
		for (int l = 0; l < LOOPS; l++) {
			job.loop = &loops[l];
			int wanted = !strcmp(which, "all") || named(which, job.loop->name) ||
			             (!strcmp(which, "best") && job.loop->worth_a_try);
			if (!wanted || !runs_here(job.loop))
				continue;
			job.exchanges = r < 0 ? EXCHANGES_MIN : fit[l];
			int64_t begin = now_ns();
			both(exchanges);
			if (r < 0) {
				double each = (double)(now_ns() - begin) / EXCHANGES_MIN;
				double n = microseconds * 1e3 / each;
				fit[l] = n < EXCHANGES_MIN ? EXCHANGES_MIN : n > EXCHANGES_MAX ? EXCHANGES_MAX : (int)n;
				continue;
			}
			double copied = usual(copy_ns), read = usual(read_ns), after = distance_ns();
			printf("%s %s %zu %s %.1f %.1f %.1f %.1f\n", source_names[job.source],
			       destinations[job.cold_destination], size, job.loop->name, copied, read, before,
			       after);
			before = after;
		}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc < 10)
		fail("usage", "copy CPU CPU all|best|LOOPS REPETITIONS MICROSECONDS "
		              "fresh,unchanged,cold warm,cold OFFSET SIZE...");
	size_t offset = (size_t)atol(argv[8]), largest = 0;
	for (int a = 9; a < argc; a++) {
		size_t size = (size_t)atol(argv[a]);
		if (size < 256 || size % 8 || size > 1ul << 32)
			fail("a size must be a multiple of 8 from 256 up", argv[a]);
		largest = size > largest ? size : largest;
	}
	largest = largest < TOGETHER_MAX * PAGE ? TOGETHER_MAX * PAGE : largest;
	for (int side = 0; side < 2; side++) {
		sides[side].cpu = atoi(argv[1 + side]);
		sides[side].send = new_buffer(largest + offset) + offset;
		sides[side].receive = new_buffer(largest + offset) + offset;
	}
	calibrate();
	pthread_t server;
	if (pthread_create(&server, NULL, serve, NULL))
		fail("pthread_create", "no thread");
	bind_to(sides[0].cpu);
	for (job.source = 0; job.source < SOURCES; job.source++)
		for (job.cold_destination = 0; job.cold_destination < 2; job.cold_destination++)
			for (int a = 9; a < argc; a++)
				if (named(argv[6], source_names[job.source]) &&
				    named(argv[7], job.cold_destination ? "cold" : "warm"))
					measure((size_t)atol(argv[a]), argv[3], atoi(argv[4]), atoi(argv[5]));
	both(NULL);
	pthread_join(server, NULL);
	return 0;
}
