/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * montecarlo.c - pi by random points in a square: threads that compute and rarely synchronize.
 *
 *	montecarlo THREADS POINTS
 *
 * A lock distributes the points in portions; each portion has its own seed, so that the result
 * does not depend on the threads.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PORTIONS = 64, THREADS_MAX = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int next_portion;
static uint64_t points, inside;

static double draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (double)(*state >> 11) / (double)(1ULL << 53);
}

static void *throw(void *none)
{
	uint64_t found = 0;

	for (;;) {
		pthread_mutex_lock(&lock);
		int portion = next_portion++;

		if (portion >= PORTIONS)
			inside += found;
		pthread_mutex_unlock(&lock);
		if (portion >= PORTIONS)
			return none;
		uint64_t state = 0x9e3779b97f4a7c15u * (uint64_t)(portion + 1);

		for (uint64_t at = 0; at < points / PORTIONS; at++) {
			double x = draw(&state), y = draw(&state);

			found += x * x + y * y < 1.0;
		}
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS_MAX];
	int count = argc == 3 ? atoi(argv[1]) : 0;

	points = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
	if (count < 1 || count > THREADS_MAX || points < PORTIONS) {
		fprintf(stderr, "usage: montecarlo THREADS POINTS\n");
		return 2;
	}
	for (int at = 0; at < count; at++)
		if (pthread_create(&threads[at], NULL, throw, NULL))
			return 1;
	for (int at = 0; at < count; at++)
		pthread_join(threads[at], NULL);
	printf("%.6f\n", 4.0 * (double)inside / (double)(points / PORTIONS * PORTIONS));
	return 0;
}
