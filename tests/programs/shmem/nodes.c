/* Put, get, atomic operations, signals, order, locks, static data and threads between the PEs of
 * several nodes, with random sizes.
 *
 *     nodes SEED ROUNDS [PART...]
 *
 * PE 0 prints the seed and "PART is right" for each part. */

#include <pthread.h>
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 600000, THREADS = 3, ELEMENTS = 3000 };

static int me, n, rounds;
static uint64_t seed;

/* Static data of the program, which are symmetric. */
static long static_counter;
static int static_array[1000];
static long lock, locked_counter;

static void fail(const char *part, int from, long at, long found, long expected) {
    printf("%s: PE %d, from PE %d, at %ld: found %ld instead of %ld\n", part, me, from, at, found,
           expected);
    fflush(stdout);
    shmem_global_exit(1);
}

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* A number that all PEs compute alike. */
static uint64_t number(uint64_t a, uint64_t b, uint64_t c) {
    return mix(mix(mix(seed ^ a) ^ b) ^ c);
}

/* Sizes are small, around the limits of messages, or large. */
static size_t size(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t x = number(a, b, c);
    switch (x % 4) {
    case 0: return (x >> 8) % 32;
    case 1: return 8000 + (x >> 8) % 500;
    case 2: return (x >> 8) % 70000;
    default: return (x >> 8) % BYTES_MAX;
    }
}

static unsigned char byte(uint64_t key, size_t at) { return (unsigned char)(key + at * 7 + at / 251); }

static void fill(unsigned char *to, uint64_t key, size_t bytes) {
    for (size_t at = 0; at < bytes; at++) to[at] = byte(key, at);
}

static void check(const char *part, int from, const unsigned char *found, uint64_t key, size_t bytes) {
    for (size_t at = 0; at < bytes; at++)
        if (found[at] != byte(key, at)) fail(part, from, at, found[at], byte(key, at));
}

/* Each PE puts to all, and gets from all. */
static void data(void) {
    unsigned char *area = shmem_malloc((size_t)n * BYTES_MAX), *own = malloc(BYTES_MAX);
    for (int round = 0; round < rounds; round++) {
        for (int step = 0; step < n; step++) {
            int to = (me + step) % n;
            uint64_t key = number(round, me, to);
            size_t bytes = size(round, me, to), offset = key % 64;
            fill(own, key, bytes);
            if (key & 64) {
                shmem_putmem(area + (size_t)me * BYTES_MAX, own, bytes, to);
                memset(own, 0xff, bytes);
            } else {
                shmem_putmem_nbi(area + (size_t)me * BYTES_MAX, own, bytes, to);
                shmem_quiet();
            }
            (void)offset;
        }
        shmem_barrier_all();
        for (int from = 0; from < n; from++)
            check("put", from, area + (size_t)from * BYTES_MAX, number(round, from, me),
                  size(round, from, me));
        for (int from = 0; from < n; from++) {
            /* What PE `other` has put there. */
            int other = (from + round) % n;
            size_t bytes = size(round, other, from);
            memset(own, 0xff, bytes);
            if (round & 1) {
                shmem_getmem(own, area + (size_t)other * BYTES_MAX, bytes, from);
            } else {
                shmem_getmem_nbi(own, area + (size_t)other * BYTES_MAX, bytes, from);
                shmem_quiet();
            }
            check("get", from, own, number(round, other, from), bytes);
        }
        shmem_barrier_all();
    }
    free(own);
    shmem_free(area);
}

static void strided(void) {
    int *area = shmem_malloc((size_t)n * ELEMENTS * sizeof *area);
    int *own = malloc(ELEMENTS * sizeof *own);
    for (int round = 0; round < rounds; round++) {
        for (int at = 0; at < n * ELEMENTS; at++) area[at] = -1;
        shmem_barrier_all();
        for (int to = 0; to < n; to++) {
            uint64_t x = number(round + 1000, me, to);
            ptrdiff_t target = 1 + x % 5, source = 1 + (x >> 8) % 5;
            size_t count = 1 + (x >> 16) % (ELEMENTS / 5);
            for (int at = 0; at < ELEMENTS; at++) own[at] = (int)x + at;
            shmem_int_iput(area + me * ELEMENTS, own, target, source, count, to);
        }
        shmem_barrier_all();
        for (int from = 0; from < n; from++) {
            uint64_t x = number(round + 1000, from, me);
            ptrdiff_t target = 1 + x % 5, source = 1 + (x >> 8) % 5;
            ptrdiff_t count = 1 + (x >> 16) % (ELEMENTS / 5);
            for (ptrdiff_t at = 0; at < ELEMENTS; at++) {
                int is_written = at % target == 0 && at / target < count;
                int expected = is_written ? (int)x + (int)(at / target * source) : -1;
                int found = area[from * ELEMENTS + at];
                if (found != expected) fail("iput", from, at, found, expected);
            }
            /* Of the elements that PE `me` has put there. */
            x = number(round + 1000, me, from);
            target = 1 + x % 5, source = 1 + (x >> 8) % 5, count = 1 + (x >> 16) % (ELEMENTS / 5);
            memset(own, 0xff, ELEMENTS * sizeof *own);
            shmem_int_iget(own, area + me * ELEMENTS, 3, target, count < 900 ? count : 900, from);
            for (ptrdiff_t at = 0; at < count && at < 900; at++)
                if (own[at * 3] != (int)x + (int)(at * source))
                    fail("iget", from, at, own[at * 3], (int)x + (int)(at * source));
        }
        shmem_barrier_all();
    }
    free(own);
    shmem_free(area);
}

static void atomics(void) {
    static long sum, bits, swapped, compared;
    static int small;
    static unsigned long seen;
    int adds = 20 * rounds;
    long *fetched = malloc((size_t)adds * sizeof *fetched);
    for (int at = 0; at < adds; at++) {
        for (int to = 0; to < n; to++) {
            shmem_long_atomic_add(&sum, 3, to);
            shmem_int_atomic_inc(&small, to);
        }
        /* All counts of PE 0 are taken once. */
        fetched[at] = shmem_ulong_atomic_fetch_inc(&seen, 0);
        if (at > 0 && fetched[at] <= fetched[at - 1]) fail("order", 0, at, fetched[at], -1);
    }
    shmem_quiet();
    shmem_barrier_all();
    if (sum != 3L * adds * n) fail("add", -1, 0, sum, 3L * adds * n);
    if (small != adds * n) fail("inc", -1, 0, small, (long)adds * n);
    if (shmem_ulong_atomic_fetch(&seen, 0) != (unsigned long)adds * n)
        fail("fetch_inc", 0, 0, shmem_ulong_atomic_fetch(&seen, 0), (long)adds * n);
    unsigned long *word = (unsigned long *)&bits;
    for (int to = 0; to < n; to++) {
        if (shmem_ulong_atomic_fetch_or(word, 1UL << me, to) >> me & 1) fail("or", to, 0, 1, 0);
    }
    shmem_barrier_all();
    if (bits != (1L << n) - 1) fail("or", -1, 0, bits, (1L << n) - 1);
    shmem_barrier_all();
    for (int to = 0; to < n; to++) shmem_ulong_atomic_xor(word, 1UL << me, to);
    shmem_barrier_all();
    if (bits != 0) fail("xor", -1, 0, bits, 0);
    /* A number that is swapped in is swapped out by somebody, or is there at the end. */
    long all = shmem_long_atomic_swap(&swapped, me + 1, n - 1);
    for (int to = 0; to < n; to++) shmem_long_atomic_add(&compared, all, to);
    shmem_barrier_all();
    long last = shmem_long_atomic_fetch(&swapped, n - 1);
    if (compared + last != (long)n * (n + 1) / 2) fail("swap", -1, 0, compared + last, n);
    shmem_barrier_all();
    compared = -1;
    shmem_barrier_all();
    long former = shmem_long_atomic_compare_swap(&compared, -1, me, 0);
    shmem_barrier_all();
    long winner = shmem_long_atomic_fetch(&compared, 0);
    if (winner == me ? former != -1 : former != winner) fail("cswap", 0, 0, former, winner);
    long nbi = -7;
    shmem_long_atomic_fetch_nbi(&nbi, &compared, 0);
    shmem_quiet();
    if (nbi != winner) fail("fetch_nbi", 0, 0, nbi, winner);
    free(fetched);
}

/* In a ring: data, then a signal; the receiver checks the data as soon as the signal is there. */
static void signals(void) {
    unsigned char *area = shmem_malloc(BYTES_MAX), *own = malloc(BYTES_MAX);
    static uint64_t signal, taken;
    int next = (me + 1) % n, before = (me + n - 1) % n;
    for (int round = 1; round <= 5 * rounds; round++) {
        size_t bytes = size(round + 2000, me, next);
        uint64_t key = number(round + 2000, me, next);
        fill(own, key, bytes);
        int kind = round & 1 ? SHMEM_SIGNAL_SET : SHMEM_SIGNAL_ADD;
        uint64_t value = round & 1 ? (uint64_t)round : 1;
        if (round & 2)
            shmem_putmem_signal(area, own, bytes, &signal, value, kind, next);
        else
            shmem_putmem_signal_nbi(area, own, bytes, &signal, value, kind, next);
        shmem_signal_wait_until(&signal, SHMEM_CMP_GE, round);
        check("put_signal", before, area, number(round + 2000, before, me),
              size(round + 2000, before, me));
        shmem_uint64_p(&taken, round, before);
        shmem_uint64_wait_until(&taken, SHMEM_CMP_GE, round);
        shmem_quiet();
    }
    free(own);
    shmem_barrier_all();
    shmem_free(area);
}

/* The same by puts and a fence, of several sizes before and after it. */
static void fences(void) {
    unsigned char *area = shmem_malloc(3 * BYTES_MAX), *own = malloc(3 * BYTES_MAX);
    static long flag, taken;
    int next = (me + 1) % n, before = (me + n - 1) % n;
    for (long round = 1; round <= 5 * rounds; round++) {
        for (int part = 0; part < 3; part++) {
            size_t bytes = size(round + 3000, me, part);
            fill(own + part * BYTES_MAX, number(round + 3000, me, part), bytes);
            shmem_putmem(area + part * BYTES_MAX, own + part * BYTES_MAX, bytes, next);
        }
        shmem_fence();
        shmem_long_p(&flag, round, next);
        shmem_long_wait_until(&flag, SHMEM_CMP_EQ, round);
        for (int part = 0; part < 3; part++)
            check("fence", before, area + part * BYTES_MAX, number(round + 3000, before, part),
                  size(round + 3000, before, part));
        shmem_long_p(&taken, round, before);
        shmem_long_wait_until(&taken, SHMEM_CMP_EQ, round);
    }
    /* A large put after the fence shows that the small ones before it have taken effect. */
    long *small = shmem_calloc(2, sizeof *small), *large = shmem_calloc(100000, sizeof *large);
    long *source = malloc(100000 * sizeof *source);
    for (long round = 1; round <= 10 * rounds; round++) {
        for (long at = 0; at < 100000; at++) source[at] = round;
        shmem_long_p(&small[0], round, next);
        shmem_long_p(&small[1], round, next);
        shmem_fence();
        shmem_long_put(large, source, 100000, next);
        shmem_long_wait_until(&large[99999], SHMEM_CMP_GE, round);
        for (int at = 0; at < 2; at++) {
            long found = *(volatile long *)&small[at];
            if (found < round) fail("early", before, at, found, round);
        }
        shmem_long_p(&taken, round + 1000000, before);
        shmem_long_wait_until(&taken, SHMEM_CMP_EQ, round + 1000000);
    }
    free(source);
    free(own);
    shmem_barrier_all();
    shmem_free(large);
    shmem_free(small);
    shmem_free(area);
}

static void locks(void) {
    int turns = 10 * rounds;
    for (int turn = 0; turn < turns; turn++) {
        if (turn % 3 == 2)
            while (shmem_test_lock(&lock)) {}
        else
            shmem_set_lock(&lock);
        long found = shmem_long_g(&locked_counter, n - 1);
        shmem_long_p(&locked_counter, found + 1, n - 1);
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
    long found = shmem_long_g(&locked_counter, n - 1);
    if (found != (long)turns * n) fail("lock", n - 1, 0, found, (long)turns * n);
}

static void statics(void) {
    for (int to = 0; to < n; to++) {
        shmem_int_p(&static_array[me], me * 3 + 1, to);
        shmem_long_atomic_add(&static_counter, me, to);
    }
    shmem_barrier_all();
    for (int from = 0; from < n; from++)
        if (static_array[from] != from * 3 + 1) fail("static", from, 0, static_array[from], from);
    if (static_counter != (long)n * (n - 1) / 2) fail("static", -1, 0, static_counter, n);
    for (int pe = 0; pe < n; pe++) {
        if (!shmem_addr_accessible(static_array, pe)) fail("accessible", pe, 0, 0, 1);
        int *at = shmem_ptr(static_array, pe);
        if (at != NULL && at[me] != me * 3 + 1) fail("ptr", pe, 0, at[me], me * 3 + 1);
    }
}

static unsigned char *thread_area;
static long thread_sums[THREADS];

static void *thread(void *argument) {
    long number_of = (long)(intptr_t)argument;
    shmem_ctx_t context;
    if (shmem_ctx_create(number_of == 0 ? 0 : SHMEM_CTX_PRIVATE, &context) != 0)
        fail("ctx_create", me, number_of, 1, 0);
    unsigned char *own = malloc(BYTES_MAX), *back = malloc(BYTES_MAX);
    for (int round = 0; round < rounds; round++) {
        int to = (int)(number(round + 4000, me, number_of) % n);
        uint64_t key = number(round + 5000, me, number_of);
        size_t bytes = size(round + 5000, me, number_of);
        unsigned char *place = thread_area + ((size_t)me * THREADS + number_of) * BYTES_MAX;
        fill(own, key, bytes);
        shmem_ctx_putmem_nbi(context, place, own, bytes, to);
        shmem_ctx_long_atomic_add(context, &thread_sums[number_of], round, to);
        shmem_ctx_quiet(context);
        shmem_ctx_getmem_nbi(context, back, place, bytes, to);
        shmem_ctx_quiet(context);
        check("thread", to, back, key, bytes);
    }
    shmem_ctx_destroy(context);
    free(own);
    free(back);
    return NULL;
}

static void threads(void) {
    thread_area = shmem_malloc((size_t)n * THREADS * BYTES_MAX);
    pthread_t all[THREADS];
    for (long at = 0; at < THREADS; at++) pthread_create(&all[at], NULL, thread, (void *)at);
    for (int at = 0; at < THREADS; at++) pthread_join(all[at], NULL);
    shmem_barrier_all();
    for (int at = 0; at < THREADS; at++) {
        long sum = 0;
        for (int pe = 0; pe < n; pe++) sum += shmem_long_atomic_fetch(&thread_sums[at], pe);
        long expected = (long)n * rounds * (rounds - 1) / 2;
        if (sum != expected) fail("thread", -1, at, sum, expected);
    }
    shmem_barrier_all();
    shmem_free(thread_area);
}

/* Transfers across the middle of a large object: a network registers memory by parts of 64 MiB. */
static void large(void) {
    const size_t middle = 64 << 20, bytes = 1 << 20;
    unsigned char *object = shmem_malloc(2 * middle), *own = malloc(bytes), *back = malloc(bytes);
    int to = (me + 1) % n;
    for (size_t at = middle - 4 * bytes; at < middle + 2 * bytes; at += bytes / 2 + 4093) {
        uint64_t key = number(6000, me, at);
        fill(own, key, bytes);
        shmem_putmem_nbi(object + at, own, bytes, to);
        shmem_quiet();
        shmem_getmem(back, object + at, bytes, to);
        check("large", to, back, key, bytes);
        shmem_barrier_all();
        check("large", me, object + at, number(6000, (me + n - 1) % n, at), bytes);
        shmem_barrier_all();
    }
    shmem_free(object);
    free(own);
    free(back);
}

/* A PE that waits serves others meanwhile. It goes on when its own word has come, although another
 * PE sends without end. */
static void stream(void) {
    static long started, stop, target;
    if (n < 2) return;
    for (int round = 1; round <= rounds; round++) {
        if (me == 0) {
            shmem_long_wait_until(&started, SHMEM_CMP_GE, round);
            shmem_long_p(&stop, round, n - 1);
        } else if (me == n - 1) {
            shmem_long_p(&started, round, 0);
            while (shmem_long_atomic_fetch(&stop, me) < round) shmem_long_p(&target, round, 0);
        }
        shmem_barrier_all();
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {{"data", data},       {"strided", strided}, {"atomics", atomics},
             {"signals", signals}, {"fences", fences},   {"locks", locks},
             {"statics", statics}, {"threads", threads},
             {"large", large},     {"stream", stream}};

int main(int count, char **arguments) {
    int provided;
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    me = shmem_my_pe(), n = shmem_n_pes();
    seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    rounds = count > 2 ? atoi(arguments[2]) : 5;
    if (me == 0) printf("seed %llu, %d PEs\n", (unsigned long long)seed, n);
    for (size_t at = 0; at < sizeof parts / sizeof *parts; at++) {
        int is_wanted = count <= 3;
        for (int name = 3; name < count; name++) is_wanted |= !strcmp(arguments[name], parts[at].name);
        if (!is_wanted) continue;
        parts[at].run();
        shmem_barrier_all();
        if (me == 0) printf("%s is right\n", parts[at].name), fflush(stdout);
    }
    shmem_finalize();
    return 0;
}
