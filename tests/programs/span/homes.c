/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * homes.c - threads that call and hardly compute, and threads that compute and sometimes call.
 *
 * Two of each, so that one of each begins on node 1 of two. Those that call must all be on node 0
 * within 20 seconds, those that compute stay where they are: prints "right".
 */
#define _GNU_SOURCE
#include "nagaya_span.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct {
	_Alignas(4096) atomic_int node;
	int before;
	atomic_ulong work;
} places[4];
static struct {
	_Alignas(4096) atomic_int over;
} end;
static int null;

static void pause_us(long us)
{
	nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

static void *calls(void *argument)
{
	long me = (long)argument;

	places[me].node = places[me].before = nagaya_node();
	while (!end.over) {
		if (write(null, "x", 1) != 1)
			return NULL;
		pause_us(300);
		places[me].node = nagaya_node();
	}
	return NULL;
}

static void *computes(void *argument)
{
	long me = (long)argument;

	places[me].node = places[me].before = nagaya_node();
	while (!end.over) {
		for (int round = 0; round < 2000000; round++)
			places[me].work += round;
		if (write(null, "x", 1) != 1)
			return NULL;
		places[me].node = nagaya_node();
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[4];
	int begun_elsewhere = 0, away = 1;

	null = open("/dev/null", O_WRONLY);
	for (long me = 0; me < 4; me++)
		pthread_create(&threads[me], NULL, me < 2 ? calls : computes, (void *)me);
	for (int round = 0; round < 200 && away; round++) {
		pause_us(100000);
		away = places[0].node != 0 || places[1].node != 0;
	}
	/* Those that compute have had time to go, too. */
	for (int round = 0; round < 10; round++)
		pause_us(100000);
	end.over = 1;
	for (int me = 0; me < 4; me++) {
		pthread_join(threads[me], NULL);
		begun_elsewhere += places[me].before != 0;
		if (me >= 2 && places[me].node != places[me].before)
			return printf("%d went from %d to %d\n", me, places[me].before, places[me].node), 1;
	}
	puts(away ? "still away" : begun_elsewhere == 2 ? "right" : "all began here");
	return 0;
}
