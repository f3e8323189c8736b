/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * packed.c - two threads that are better off on one node, or on two.
 *
 *	packed together|apart|alone|migrates|phases|visits
 *
 * together: both count in words of one page, until one has moved and they are on one node again.
 * alone: each counts in a page of its own, until they have been on two nodes for three seconds and
 * none went anywhere. apart: they count together as above, and then alone until they are on two.
 * phases: that again and again for five seconds; all that they count is there. migrates: they
 * have asked to be where they are, and count together for two seconds. visits: as apart, but while
 * they count together, each uses a shared mapping on other nodes, so it comes home by itself.
 */
#define _GNU_SOURCE
#include "nagaya_span.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* A page each. */
static struct {
	_Alignas(4096) atomic_long counts[2];
} shared, own[2];
static struct {
	_Alignas(4096) atomic_int node;
	atomic_int moves;
	atomic_long rounds;
} places[2];
static struct {
	_Alignas(4096) atomic_int together;
	atomic_int over;
	int migrates;
	atomic_int visits;
} how;
static atomic_long *mapping;

static void *work(void *argument)
{
	long me = (long)argument;

	if (how.migrates)
		nagaya_migrate(me);
	places[me].node = nagaya_node();
	while (!how.over) {
		for (int round = 0; round < 20000; round++)
			if (how.together)
				shared.counts[me]++;
			else
				own[me].counts[0]++;
		places[me].rounds += 20000;
		int node = nagaya_node();
		if (how.visits && node)
			++*mapping;
		if (node != places[me].node) {
			places[me].node = node;
			places[me].moves++;
		}
	}
	return NULL;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Whether it came to that within a minute and a half. */
static int comes(int together)
{
	how.together = together;
	for (double until = now() + 90; now() < until; usleep(20000))
		if ((places[0].node == places[1].node) == together)
			return 1;
	printf("not %s\n", together ? "packed" : "spread");
	return 0;
}

/* Whether one of them has moved within a minute and a half: both nodes are tried. */
static int moves(void)
{
	for (double until = now() + 90; now() < until; usleep(1000))
		if (places[0].moves + places[1].moves)
			return 1;
	return !puts("not tried");
}

/* Whether they are on two nodes, and stay there for a while. */
static int stays(void)
{
	int before = -1;

	for (double begin = now(), since = begin; now() < begin + 90; usleep(20000)) {
		int moves = places[0].moves + places[1].moves;

		if (moves != before || places[0].node == places[1].node || places[1].node < 0) {
			before = moves;
			since = now();
		} else if (now() > since + 3) {
			return 1;
		}
	}
	return !puts("they do not stay");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pthread_t threads[2];
	int right = 1;

	how.together = strcmp(what, "alone") != 0;
	how.migrates = !strcmp(what, "migrates");
	how.visits = !strcmp(what, "visits");
	mapping = mmap(NULL, sizeof *mapping, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (mapping == MAP_FAILED)
		return 1;
	for (long me = 0; me < 2; me++) {
		places[me].node = -1 - me;
		pthread_create(&threads[me], NULL, work, (void *)me);
	}
	if (!strcmp(what, "together")) {
		right = moves() && comes(1);
	} else if (!strcmp(what, "apart")) {
		right = moves() && comes(1) && comes(0);
	} else if (!strcmp(what, "visits")) {
		right = moves() && comes(1);
		how.visits = 0;
		right = right && comes(0);
	} else if (!strcmp(what, "phases")) {
		for (double until = now() + 5; now() < until; usleep(300000))
			how.together = !how.together;
	} else if (!strcmp(what, "alone")) {
		right = stays();
	} else {
		sleep(2);
		right = places[0].node == 0 && places[1].node == 1;
		if (!right || places[0].moves + places[1].moves)
			right = !puts("they have gone");
	}
	how.over = 1;
	for (int me = 0; me < 2; me++) {
		pthread_join(threads[me], NULL);
		if (shared.counts[me] + own[me].counts[0] != places[me].rounds)
			right = 0;
	}
	puts(right ? "right" : "wrong");
	return !right;
}
