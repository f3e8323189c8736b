/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * bound.c - threads that are bound to processors go to a node that has them, and stay: by
 * themselves, by others, as they begin, and as their maker is.
 *
 *	bound FIRST...
 *
 * The first processor of each node, and how many there are.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NODES_MAX = 8, ROUNDS = 20 };

static int nodes, first[NODES_MAX + 1];
static cpu_set_t all;

/* The last of this node's. */
static cpu_set_t one_of(int node)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(first[node + 1] - 1, &set);
	return set;
}

/* I am there, and so it was said. */
static void check(int node, const cpu_set_t *set)
{
	cpu_set_t now;
	unsigned cpu;

	CHECK(nagaya_node() == node);
	CHECK(pthread_getaffinity_np(pthread_self(), sizeof now, &now) == 0);
	CHECK(CPU_EQUAL(&now, set));
	CHECK(getcpu(&cpu, NULL) == 0);
	CHECK((int)cpu >= first[node] && (int)cpu < first[node + 1]);
}

static void *is_there(void *node)
{
	cpu_set_t set = one_of((int)(intptr_t)node);

	check((int)(intptr_t)node, &set);
	return NULL;
}

/* A thread binds itself to each node, and its new threads start there. */
static void *by_itself(void *none)
{
	cpu_set_t set;

	for (int round = 0; round < ROUNDS; round++) {
		int node = round % nodes;
		pthread_t thread;

		set = one_of(node);
		CHECK(pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0);
		check(node, &set);
		CHECK(pthread_create(&thread, NULL, is_there, (void *)(intptr_t)node) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		check(node, &set);
		/* Nobody has to go from where he may be. */
		CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
		check(node, &all);
		CPU_ZERO(&set);
		CHECK(sched_setaffinity(0, sizeof set, &set) == -1 && errno == EINVAL);
		CPU_SET(first[nodes], &set);
		CHECK(sched_setaffinity(0, sizeof set, &set) == -1 && errno == EINVAL);
		CPU_SET(first[node], &set);
		CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
		CPU_CLR(first[nodes], &set);
		check(node, &set);
	}
	return none;
}

/* As they begin: their maker binds them when they have begun. */
static void by_attribute(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t threads[NODES_MAX];

		for (int node = 0; node < nodes; node++) {
			cpu_set_t set = one_of(node);
			pthread_attr_t attributes;

			pthread_attr_init(&attributes);
			pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
			CHECK(pthread_create(&threads[node], &attributes, is_there,
					     (void *)(intptr_t)node) == 0);
		}
		for (int node = 0; node < nodes; node++)
			CHECK(pthread_join(threads[node], NULL) == 0);
	}
}

static _Atomic int ends;

static void *computes(void *where)
{
	while (!ends)
		*(_Atomic int *)where = nagaya_node();
	return NULL;
}

static void *waits(void *where)
{
	while (!ends) {
		*(_Atomic int *)where = nagaya_node();
		usleep(1000);
	}
	return NULL;
}

/* By other threads, on all nodes, while they compute and while they wait; also if the next
 * order arrives before they have moved. */
static void by_others(void *(*work)(void *))
{
	static _Atomic int where;
	pthread_t thread;

	ends = 0;
	CHECK(pthread_create(&thread, NULL, work, (void *)&where) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		int node = round * 2 % nodes;
		cpu_set_t before = one_of((node + 1) % nodes), set = one_of(node), now;

		CHECK(pthread_setaffinity_np(thread, sizeof before, &before) == 0);
		if (round % 2)
			usleep(round * 100);
		CHECK(pthread_setaffinity_np(thread, sizeof set, &set) == 0);
		CHECK(pthread_getaffinity_np(thread, sizeof now, &now) == 0);
		CHECK(CPU_EQUAL(&now, &set));
		/* For so long it is seen elsewhere no more. */
		for (int there = 0, spins = 0; there < 20; spins++) {
			CHECK(spins < 20000);
			usleep(1000);
			there = where == node ? there + 1 : 0;
		}
	}
	ends = 1;
	CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
	pthread_t thread;
	cpu_set_t set;

	nodes = argc - 2;
	CHECK(nodes == nagaya_nodes() && nodes <= NODES_MAX);
	for (int at = 0; at <= nodes; at++)
		first[at] = atoi(argv[at + 1]);
	CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
	by_itself(NULL);
	CHECK(pthread_create(&thread, NULL, by_itself, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	/* From the first node, which gets the notice before the starting node. */
	set = one_of(0);
	CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
	CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
	by_attribute();
	by_others(computes);
	by_others(waits);
	puts("right");
	return 0;
}
