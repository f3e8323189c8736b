/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * addresses.c - memory at addresses that the program wishes or demands, used by all nodes.
 *
 * Hints, MAP_32BIT, MAP_FIXED and MAP_FIXED_NOREPLACE at addresses from the lowest to nearly the
 * highest, as sanitizers and garbage collectors ask for them; on each node a thread reads what
 * the one before it wrote there, and a child does. Prints `right`.
 */
#include "check.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define PAGE 4096ul
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define READ_WRITE (PROT_READ | PROT_WRITE)

/* AddressSanitizer's shadow, ThreadSanitizer's heap and traces, ZGC's views, a hint of V8's, and a
 * place that only MAP_32BIT would choose. */
static uint64_t places[] = { 0x7fff8000,     0x02008fff7000, 0x7b0000000000, 0x600000000000,
			     0x040000000000, 0x080000000000, 0x100000000000, 0x3a2b00000000,
			     0x20000000,     0x200000 };
#define PLACES (sizeof places / sizeof *places)

static void *at(uint64_t address) { return (void *)(uintptr_t)address; }

static void look(uint64_t wanted, uint64_t written)
{
	for (unsigned place = 0; place < PLACES; place++) {
		volatile uint64_t *word = at(places[place] + 3 * PAGE);

		CHECK(*word == (wanted ? places[place] + wanted : 0));
		*word = places[place] + written;
	}
}

static void *visit(void *argument)
{
	uint64_t turn = (uintptr_t)argument;
	int node = (int)(turn - 1) % (nagaya_nodes() > 0 ? nagaya_nodes() : 1);

	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate(node) == 0);
	look(turn - 1, turn);
	return NULL;
}

static void fixed(void)
{
	int status;

	for (unsigned place = 0; place < PLACES; place++)
		CHECK(mmap(at(places[place]), 16 * PAGE, READ_WRITE, PRIVATE | MAP_FIXED_NOREPLACE, -1,
			   0) == at(places[place]));
	for (uint64_t turn = 1; turn <= 4; turn++) {
		pthread_t thread;

		CHECK(pthread_create(&thread, NULL, visit, (void *)(uintptr_t)turn) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		look(4, 7);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	look(4, 8);
	/* What is there is replaced, or is an error; what is given back is zeros later. */
	for (unsigned place = 0; place < PLACES; place++) {
		void *here = at(places[place]);

		CHECK(mmap(here, PAGE, PROT_READ, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED &&
		      errno == EEXIST);
		CHECK(mmap(here, 16 * PAGE, READ_WRITE, PRIVATE | MAP_FIXED, -1, 0) == here);
	}
	look(0, 9);
	for (unsigned place = 0; place < PLACES; place++) {
		CHECK(munmap(at(places[place]), 16 * PAGE) == 0);
		CHECK(mprotect(at(places[place]), PAGE, PROT_READ) == -1 && errno == ENOMEM);
	}
}

static void wishes(void)
{
	char *low = mmap(NULL, 8 * PAGE, READ_WRITE, PRIVATE | MAP_32BIT, -1, 0), *other;

	CHECK(low != MAP_FAILED && (uintptr_t)low + 8 * PAGE <= 1ul << 31);
	low[5] = 1;
	CHECK(munmap(low, 8 * PAGE) == 0);
	/* A hint is followed where nothing is, from a whole page on. */
	CHECK(mmap(at(0x123456789000), PAGE, READ_WRITE, PRIVATE, -1, 0) == at(0x123456789000));
	CHECK(mmap(at(0x12345678a001), PAGE, READ_WRITE, PRIVATE, -1, 0) == at(0x12345678a000));
	CHECK(mmap(at(5), PAGE, READ_WRITE, PRIVATE, -1, 0) != MAP_FAILED);
	other = mmap(at(0x123456789000), PAGE, READ_WRITE, PRIVATE, -1, 0);
	CHECK(other != MAP_FAILED && other != at(0x123456789000));
	other[0] = 1;
	CHECK(mmap(at(~0xffful), PAGE, READ_WRITE, PRIVATE, -1, 0) != MAP_FAILED);
	/* What cannot be. */
	CHECK(mmap(at(0x12345678c001), PAGE, READ_WRITE, PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED &&
	      errno == EINVAL);
	CHECK(mmap(at(0x7fffffffe000), 4 * PAGE, READ_WRITE, PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED &&
	      errno == ENOMEM);
	CHECK(mmap(NULL, 1ul << 47, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0) == MAP_FAILED &&
	      errno == ENOMEM);
	CHECK(munmap(at(0x123456789001), PAGE) == -1 && errno == EINVAL);
}

int main(void)
{
	wishes();
	fixed();
	fixed();
	printf("right\n");
	return 0;
}
