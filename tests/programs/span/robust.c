/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * robust.c - robust mutexes whose owners end, on all nodes: who waits learns of it.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MUTEXES = 3 };

static pthread_mutex_t mutexes[MUTEXES];
static pthread_barrier_t barrier;

struct place {
	int node;
};

static void go(const void *argument)
{
	const struct place *place = argument;

	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate(place->node) == 0);
}

static void *holds(void *argument)
{
	go(argument);
	for (int at = 0; at < MUTEXES; at++)
		CHECK(pthread_mutex_lock(&mutexes[at]) == 0);
	CHECK(pthread_mutex_unlock(&mutexes[1]) == 0);
	pthread_barrier_wait(&barrier);
	usleep(20000);
	return NULL;
}

static void *waits(void *argument)
{
	go(argument);
	pthread_barrier_wait(&barrier);
	CHECK(pthread_mutex_lock(&mutexes[0]) == EOWNERDEAD);
	CHECK(pthread_mutex_consistent(&mutexes[0]) == 0);
	CHECK(pthread_mutex_unlock(&mutexes[0]) == 0);
	CHECK(pthread_mutex_lock(&mutexes[1]) == 0);
	CHECK(pthread_mutex_unlock(&mutexes[1]) == 0);
	CHECK(pthread_mutex_trylock(&mutexes[2]) == EOWNERDEAD);
	CHECK(pthread_mutex_unlock(&mutexes[2]) == 0);
	CHECK(pthread_mutex_lock(&mutexes[2]) == ENOTRECOVERABLE);
	return NULL;
}

int main(void)
{
	int nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;
	pthread_mutexattr_t robust;

	pthread_mutexattr_init(&robust);
	pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
	pthread_barrier_init(&barrier, NULL, 2);
	for (int pair = 0; pair < nodes * nodes; pair++) {
		struct place owner = { pair / nodes }, other = { pair % nodes };
		pthread_t threads[2];

		for (int at = 0; at < MUTEXES; at++)
			pthread_mutex_init(&mutexes[at], &robust);
		CHECK(pthread_create(&threads[0], NULL, holds, &owner) == 0);
		CHECK(pthread_create(&threads[1], NULL, waits, &other) == 0);
		pthread_join(threads[0], NULL);
		pthread_join(threads[1], NULL);
	}
	printf("right\n");
	return 0;
}
