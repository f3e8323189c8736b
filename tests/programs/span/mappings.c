/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * mappings.c - whether threads see one memory map, wherever they run.
 *
 *	mappings ROUNDS
 *
 * Memory that is mapped anew, by whatever call, holds zeros for all threads, and what stood
 * there never comes back; what was unmapped or protected nobody can use. Prints `right`, or what
 * was seen that cannot be.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, PAGES = 12, PAGE = 4096, WORDS = PAGE / sizeof(uint64_t) };

#define READ_WRITE (PROT_READ | PROT_WRITE)

static int rounds;
static pthread_barrier_t barrier;
static atomic_int done;
/* Reserved for this thread between rounds: no other maps there. */
static char *memory;

static void check(int is_right, const char *otherwise)
{
	if (is_right)
		return;
	printf("%s\n", otherwise);
	exit(1);
}

static _Atomic uint64_t *word(char *from, int page, int at)
{
	return (_Atomic uint64_t *)(from + (size_t)page * PAGE) + at;
}

/* Returns true if this thread, on its node, can write and read there, by the kernel's
 * answer. */
static int can_write(void *at)
{
	return syscall(SYS_clock_gettime, CLOCK_MONOTONIC, at) == 0;
}

static int can_read(void *at)
{
	return syscall(SYS_nanosleep, at, NULL) == 0 || errno != EFAULT;
}

static void map_fixed(int protection, int flags)
{
	flags |= MAP_PRIVATE | MAP_ANONYMOUS;
	check(mmap(memory, PAGES * PAGE, protection, flags, -1, 0) == memory, "mmap at an address");
}

/* Ways to have zeros where others use memory at that moment. */
static void discard(void)
{
	check(madvise(memory, PAGES * PAGE, MADV_DONTNEED) == 0, "madvise");
}

static void map_over(void)
{
	map_fixed(READ_WRITE, MAP_FIXED);
}

static void map_over_to_read(void)
{
	map_fixed(PROT_READ, MAP_FIXED);
}

/* And over memory without access, for a while. */
static void map_over_closed(void)
{
	map_fixed(PROT_NONE, MAP_FIXED);
	check(mprotect(memory, PAGES * PAGE, READ_WRITE) == 0, "mprotect");
}

static void map_again(void)
{
	check(munmap(memory, PAGES * PAGE) == 0, "munmap");
	map_fixed(READ_WRITE, MAP_FIXED_NOREPLACE);
}

static const struct {
	const char *name;
	void (*renew)(void);
	/* Others may read meanwhile. */
	int can_be_used;
} ways[] = {
	{"madvise(MADV_DONTNEED): what stood there is seen", discard, 1},
	{"mmap over memory: what stood there is seen", map_over, 1},
	{"mmap over memory, to read: what stood there is seen", map_over_to_read, 1},
	{"mmap over memory, closed: what stood there is seen", map_over_closed, 0},
	{"munmap and mmap: what stood there is seen", map_again, 0},
};

enum { WAYS = sizeof ways / sizeof *ways };

static void check_zero(int page, const char *otherwise)
{
	for (int at = 0; at < WORDS; at++)
		check(atomic_load(word(memory, page, at)) == 0, otherwise);
}

/* Looks until it is done; zeros never go away again. */
static void look(int me, int way)
{
	char was_zero[PAGES] = {0};

	while (!atomic_load(&done))
		for (int page = 0; page < PAGES; page++) {
			_Atomic uint64_t *at = word(memory, page, me);
			/* Half of them have the page to write it, which moves it. */
			int moves = me % 2 == 0 && ways[way].renew != map_over_to_read;
			uint64_t value = moves ? atomic_fetch_add(at, 0) : atomic_load(at);

			check(value == 0 || !was_zero[page], ways[way].name);
			was_zero[page] = value == 0;
		}
}

static void renewed(int me)
{
	for (int round = 0; round < rounds * WAYS; round++) {
		int way = round % WAYS, actor = round / WAYS % THREADS;

		pthread_barrier_wait(&barrier);
		for (int page = 0; page < PAGES; page++)
			atomic_store(word(memory, page, me), round + 1);
		atomic_store(&done, 0);
		pthread_barrier_wait(&barrier);
		if (me == actor) {
			ways[way].renew();
			atomic_store(&done, 1);
		} else if (ways[way].can_be_used) {
			look(me, way);
		}
		pthread_barrier_wait(&barrier);
		for (int page = 0; page < PAGES; page++)
			check_zero((page + me) % PAGES, ways[way].name);
		pthread_barrier_wait(&barrier);
		if (me == actor && ways[way].renew == map_over_to_read) {
			check(!can_write(memory), "written where one may only read");
			mprotect(memory, PAGES * PAGE, READ_WRITE);
		}
	}
}

static void protect(int me, int actor, int protection, const char *name)
{
	pthread_barrier_wait(&barrier);
	if (me == actor)
		check(mprotect(memory, PAGES * PAGE, protection) == 0, "mprotect");
	pthread_barrier_wait(&barrier);
	for (int page = 0; page < PAGES; page++) {
		void *at = memory + page * PAGE + (8 + 2 * me) * sizeof(uint64_t);

		check(can_read(at) == (protection != PROT_NONE), name);
		check(can_write(at) == ((protection & PROT_WRITE) != 0), name);
	}
}

static void protected(int me)
{
	for (int round = 0; round < rounds; round++) {
		int actor = round % THREADS;

		for (int page = 0; page < PAGES; page++)
			atomic_store(word(memory, page, me), round);
		protect(me, actor, PROT_NONE, "mprotect: not closed everywhere");
		protect(me, (actor + 1) % THREADS, PROT_READ, "mprotect: not to be read everywhere");
		for (int page = 0; page < PAGES; page++)
			for (int other = 0; other < THREADS; other++)
				check(atomic_load(word(memory, page, other)) == (uint64_t)round,
				      "mprotect: something else stands there");
		protect(me, actor, READ_WRITE, "mprotect: not open everywhere");

		pthread_barrier_wait(&barrier);
		if (me == actor)
			munmap(memory, PAGES * PAGE);
		pthread_barrier_wait(&barrier);
		for (int page = 0; page < PAGES; page++)
			check(!can_read(memory + page * PAGE), "munmap: read");
		check(mprotect(memory, PAGES * PAGE, READ_WRITE) != 0 && errno == ENOMEM,
		      "mprotect where nothing is");
		pthread_barrier_wait(&barrier);
		if (me == actor) {
			map_fixed(READ_WRITE, MAP_FIXED_NOREPLACE);
			void *again = mmap(memory + PAGE, PAGE, READ_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
			check(again == MAP_FAILED && errno == EEXIST, "mmap where something is");
		}
		pthread_barrier_wait(&barrier);
	}
}

static char *heap;

static void heaps(int me)
{
	for (int round = 0; round < rounds; round++) {
		int actor = round % THREADS;

		pthread_barrier_wait(&barrier);
		if (me == actor)
			heap = sbrk(PAGES * PAGE);
		pthread_barrier_wait(&barrier);
		char *first = (char *)(((uintptr_t)heap + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
		for (int page = 0; page < PAGES - 1; page++) {
			check(atomic_fetch_add(word(first, page, me), 1) == 0, "brk: no zeros");
			check(atomic_load(word(first, page, 100 + me)) == 0, "brk: no zeros");
		}
		pthread_barrier_wait(&barrier);
		if (me == (actor + 1) % THREADS)
			sbrk(-PAGES * PAGE);
		pthread_barrier_wait(&barrier);
		check(!can_read(first + PAGE), "brk: read behind the end");
	}
}

static char *grown;

static void grows(int me)
{
	enum { MORE = 3 * PAGES };

	for (int round = 0; round < rounds; round++) {
		int actor = round % THREADS;

		pthread_barrier_wait(&barrier);
		if (me == actor)
			grown = mmap(NULL, PAGES * PAGE, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_barrier_wait(&barrier);
		char *old = grown;
		for (int page = me; page < PAGES; page += THREADS)
			memset(old + page * PAGE, 'a' + page, PAGE);
		pthread_barrier_wait(&barrier);
		if (me == (actor + 1) % THREADS) {
			int flags = round % 2 == 0 ? MREMAP_MAYMOVE : MREMAP_MAYMOVE | MREMAP_FIXED;
			grown = mremap(old, PAGES * PAGE, MORE * PAGE, flags, memory + 2 * PAGES * PAGE);
			check(grown != MAP_FAILED, "mremap");
		}
		pthread_barrier_wait(&barrier);
		check(grown == old || !can_read(old), "mremap: the old is still there");
		for (int page = 0; page < MORE; page++)
			for (int at = 0; at < PAGE; at += 64)
				check(grown[page * PAGE + at] == (page < PAGES ? 'a' + page : 0),
				      "mremap: something else stands there");
		pthread_barrier_wait(&barrier);
		if (me == actor) {
			check(mremap(grown, MORE * PAGE, PAGE, 0) == grown, "mremap to less");
			check(!can_read(grown + PAGE) && can_read(grown), "mremap to less");
			munmap(grown, PAGE);
			/* Else `old` may stand there next time. */
			if (round % 2 == 1)
				mmap(grown, MORE * PAGE, PROT_NONE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		}
	}
}

/* Each thread maps memory, and passes it filled to others, which unmap it. */
static _Atomic(char *) hands[2 * THREADS];

static void take(char *from)
{
	uint64_t pages = *(uint64_t *)from, tag = ((uint64_t *)from)[1];

	for (uint64_t page = 1; page < pages; page++)
		check(*(uint64_t *)(from + page * PAGE) == tag + page, "storm: something else stands there");
	munmap(from, pages * PAGE);
}

static void storm(int me)
{
	uint32_t random = me + 1;

	for (int round = 0; round < 10 * rounds; round++) {
		random = random * 1664525 + 1013904223;
		uint64_t pages = 1 + (random >> 24) % 24, tag = ((uint64_t)me << 32 | round) << 8;
		int protection = random >> 16 & 1 ? READ_WRITE : PROT_NONE;
		char *new = mmap(NULL, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (protection == PROT_NONE)
			mprotect(new, pages * PAGE, READ_WRITE);
		for (uint64_t at = 0; at < pages * WORDS; at++)
			check(((uint64_t *)new)[at] == 0, "storm: no zeros");
		for (uint64_t page = 1; page < pages; page++)
			*(uint64_t *)(new + page * PAGE) = tag + page;
		((uint64_t *)new)[0] = pages;
		((uint64_t *)new)[1] = tag;
		char *old = atomic_exchange(&hands[(random >> 8) % (2 * THREADS)], new);
		if (old != NULL)
			take(old);
	}
	pthread_barrier_wait(&barrier);
	for (int hand = me; hand < 2 * THREADS; hand += THREADS) {
		char *old = atomic_exchange(&hands[hand], NULL);

		if (old != NULL)
			take(old);
	}
}

static void (*const parts[])(int) = {renewed, protected, heaps, grows, storm};

static void *thread(void *argument)
{
	for (size_t part = 0; part < sizeof parts / sizeof *parts; part++) {
		parts[part]((int)(size_t)argument);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	if (argc != 2 || (rounds = atoi(argv[1])) < 1) {
		fprintf(stderr, "usage: mappings ROUNDS\n");
		return 2;
	}
	/* The heap is malloc's no more. */
	void *rest = malloc(100 << 10);
	/* Private memory, with room behind it to grow. */
	memory = mmap(NULL, 16 * PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(memory, PAGES * PAGE, READ_WRITE);
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (size_t me = 0; me < THREADS; me++)
		pthread_create(&threads[me], NULL, thread, (void *)me);
	for (size_t me = 0; me < THREADS; me++)
		pthread_join(threads[me], NULL);
	free(rest);
	printf("right\n");
}
