/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * busy.c - threads that compute and make no calls, until they are elsewhere.
 *
 *	busy load|order
 *
 * load: four threads that begin on node 0 compute until two of them are on the other node, and
 * they stay where they are then. order: one thread says who it is, and waits in its computing to
 * be sent to node 1, then home again.
 */
#define _GNU_SOURCE
#include "nagaya_span.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4 };

/* A cache line, and a page, each. */
struct place {
	_Alignas(4096) _Atomic int node;
	_Atomic int moves;
};
static struct place places[THREADS];
static _Atomic int over;

static void *computes(void *argument)
{
	struct place *place = argument;

	nagaya_migrate(0);
	place->node = 0;
	while (!over) {
		for (volatile long spin = 0; spin < 3000000; spin++)
			;
		int node = nagaya_node();
		if (node != place->node) {
			place->node = node;
			place->moves++;
		}
	}
	return NULL;
}

static int load(void)
{
	pthread_t threads[THREADS];
	int there = 0, moves = 0;

	for (int me = 0; me < THREADS; me++)
		pthread_create(&threads[me], NULL, computes, &places[me]);
	for (int tenths = 0; tenths < 600 && there != THREADS / 2; tenths++) {
		usleep(100000);
		there = 0;
		for (int me = 0; me < THREADS; me++)
			there += places[me].node == 1;
	}
	if (there != THREADS / 2) {
		printf("%d threads have gone\n", there);
		return 1;
	}
	sleep(3);
	for (int me = 0; me < THREADS; me++)
		moves += places[me].moves;
	over = 1;
	for (int me = 0; me < THREADS; me++)
		pthread_join(threads[me], NULL);
	printf("%d moves\n", moves);
	return 0;
}

static int order(void)
{
	struct timespec now, begin;

	printf("%d:%d\n", (int)getpid(), (int)gettid());
	fflush(stdout);
	for (int node = 1; node >= 0; node--) {
		clock_gettime(CLOCK_MONOTONIC, &begin);
		while (nagaya_node() != node) {
			for (volatile long spin = 0; spin < 1000000; spin++)
				;
			clock_gettime(CLOCK_MONOTONIC, &now);
			if (now.tv_sec - begin.tv_sec > 60)
				return 1;
		}
		printf("on node %d\n", node);
		fflush(stdout);
	}
	return 0;
}

int main(int argc, char **argv)
{
	return argc > 1 && argv[1][0] == 'l' ? load() : order();
}
