/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * text.c - 8 MiB of text of VALUE, which a thread on another node reads, and which is then made
 * writable and written from both. It sleeps for so many ms between, if an argument says so.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef VALUE
#define VALUE 1
#endif
#define STRING(x) #x
#define TEXT(x) STRING(x)

enum { WORDS = 1 << 20, PAGE = 4096 };

__asm__(".section .rodata\n.balign 4096\ntable:\n.fill 1048576, 8, " TEXT(VALUE) "\n.previous\n");
extern volatile unsigned long table[WORDS] __attribute__((visibility("hidden")));

static pthread_barrier_t barrier;
static unsigned long sum, seen[2];

static void meet(void)
{
	pthread_barrier_wait(&barrier);
}

static void *reader(void *argument)
{
	for (long at = 0; at < WORDS; at++)
		sum += table[at];
	usleep((size_t)argument * 1000);
	meet();
	meet();
	seen[0] = table[0] + table[1];
	/* The page is read-only again, and then this thread's to write. */
	meet();
	seen[1] = table[0];
	mprotect((void *)table, PAGE, PROT_READ | PROT_WRITE);
	table[1] = 11;
	meet();
	return NULL;
}

int main(int argc, char **argv)
{
	size_t ms = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, reader, (void *)ms);
	meet();
	mprotect((void *)table, PAGE, PROT_READ | PROT_WRITE);
	table[0] = 7;
	meet();
	mprotect((void *)table, PAGE, PROT_READ);
	meet();
	meet();
	pthread_join(thread, NULL);
	printf("%lu %lu %lu %lu\n", sum, seen[0], seen[1], table[0] + table[1]);
	return 0;
}
