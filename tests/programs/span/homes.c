/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * homes.c - threads that call and hardly compute, and threads that compute and sometimes call.
 *
 * Two of each. Within 20 seconds those that call must all be on node 0 of two, and those that
 * compute on both nodes; and all must stay there for a second: prints "right".
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

	places[me].node = nagaya_node();
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

	places[me].node = nagaya_node();
	while (!end.over) {
		for (int round = 0; round < 2000000; round++)
			places[me].work += round;
		if (write(null, "x", 1) != 1)
			return NULL;
		places[me].node = nagaya_node();
	}
	return NULL;
}

static int are_home(void)
{
	return places[0].node == 0 && places[1].node == 0;
}

static int are_apart(void)
{
	return places[2].node != places[3].node;
}

int main(void)
{
	pthread_t threads[4];
	int good = 0;

	null = open("/dev/null", O_WRONLY);
	for (long me = 0; me < 4; me++)
		pthread_create(&threads[me], NULL, me < 2 ? calls : computes, (void *)me);
	for (int round = 0; round < 200 && good < 10; round++) {
		pause_us(100000);
		good = are_home() && are_apart() ? good + 1 : 0;
	}
	int home = are_home(), apart = are_apart();
	end.over = 1;
	for (int me = 0; me < 4; me++)
		pthread_join(threads[me], NULL);
	puts(good == 10 ? "right" : !home ? "still away" : apart ? "to and fro" : "together");
	return 0;
}
