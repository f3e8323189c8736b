/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * crowd.c - many threads that exist at one time.
 *
 *	crowd THREADS
 *
 * Each says that it is there, and waits in read(2) until all are.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int pipes[2];
static _Atomic int there, node_of_last;

static void *waits(void *argument)
{
	static _Thread_local int mine;
	char byte;

	mine = (int)(intptr_t)argument;
	there++;
	if (nagaya_node() > 0)
		node_of_last = nagaya_node();
	CHECK(read(pipes[0], &byte, 1) == 0);
	return (void *)(intptr_t)mine;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 100;
	pthread_t *threads = calloc(count, sizeof(*threads));
	pthread_attr_t attributes;

	CHECK(pipe(pipes) == 0 && pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstacksize(&attributes, 32 << 10) == 0);
	for (int thread = 0; thread < count; thread++) {
		void *mine = (void *)(intptr_t)thread;

		errno = pthread_create(&threads[thread], &attributes, waits, mine);
		CHECK(errno == 0);
	}
	while (there < count)
		usleep(10000);
	CHECK(nagaya_nodes() < 2 || node_of_last > 0);
	close(pipes[1]);
	for (int thread = 0; thread < count; thread++) {
		void *mine;

		CHECK(pthread_join(threads[thread], &mine) == 0 && (intptr_t)mine == thread);
	}
	printf("%d threads\n", count);
	return 0;
}
