/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * shares.c - threads that share memory well, badly and not at all.
 *
 *	shares alone|apart|one ROUNDS
 *
 * alone: two threads compute, and share nothing. apart: each counts in a variable of its own, but
 * both variables are in one page. one: both count in one variable.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A page that has nothing else. */
static struct {
	_Alignas(4096) atomic_long first;
	_Alignas(64) atomic_long second;
	char rest[4096 - 128];
} counts;
static volatile uint64_t results[2];
static pthread_barrier_t barrier;
static long rounds;
static char what;

__attribute__((noinline)) static void count_first(void)
{
	atomic_fetch_add(&counts.first, 1);
}

__attribute__((noinline)) static void count_second(void)
{
	atomic_fetch_add(&counts.second, 1);
}

static void *work(void *argument)
{
	int me = (int)(size_t)argument;
	uint64_t random = me + 1;

	pthread_barrier_wait(&barrier);
	for (long round = 0; round < rounds; round++) {
		for (int step = 0; step < 20000; step++)
			random = random * 6364136223846793005 + 1442695040888963407;
		if (write(1, ".", 1) != 1)
			exit(1);
		if (what == 'a')
			continue;
		usleep(200);
		if (what == 'o' || me == 0)
			count_first();
		else
			count_second();
	}
	results[me] = random;
	return (void *)atomic_load(what == 'o' || me == 0 ? &counts.first : &counts.second);
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	void *count[2];

	if (argc != 3 || (rounds = atol(argv[2])) < 1) {
		fprintf(stderr, "usage: shares alone|apart|one ROUNDS\n");
		return 2;
	}
	what = argv[1][0] == 'a' && argv[1][1] == 'p' ? 'p' : argv[1][0];
	pthread_barrier_init(&barrier, NULL, 2);
	for (size_t me = 0; me < 2; me++)
		pthread_create(&threads[me], NULL, work, (void *)me);
	for (size_t me = 0; me < 2; me++)
		pthread_join(threads[me], &count[me]);
	printf("%ld\n", (long)count[0] + (long)count[1]);
	return 0;
}
