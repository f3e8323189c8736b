/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * fills.c - two threads that fill memory, and read each other's.
 *
 *	fills MEGABYTES ROUNDS
 *
 * Each fills so much; then both read all of the other's, so many times. Prints `right`.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint64_t *memory[2];
static size_t words;
static int rounds;
static pthread_barrier_t barrier;

static void *work(void *argument)
{
	size_t me = (size_t)argument, other = 1 - me;

	memory[me] = mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t at = 0; at < words; at += 64)
		memory[me][at] = me << 40 | at;
	pthread_barrier_wait(&barrier);
	for (int round = 0; round < rounds; round++)
		for (size_t at = 0; at < words; at += 64)
			if (memory[other][at] != (other << 40 | at)) {
				printf("wrong\n");
				exit(3);
			}
	pthread_barrier_wait(&barrier);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2];

	if (argc != 3 || (words = strtoul(argv[1], NULL, 10) << 17) == 0) {
		fprintf(stderr, "usage: fills MEGABYTES ROUNDS\n");
		return 2;
	}
	rounds = atoi(argv[2]);
	pthread_barrier_init(&barrier, NULL, 2);
	for (size_t me = 0; me < 2; me++)
		pthread_create(&threads[me], NULL, work, (void *)me);
	for (size_t me = 0; me < 2; me++)
		pthread_join(threads[me], NULL);
	printf("right\n");
	return 0;
}
