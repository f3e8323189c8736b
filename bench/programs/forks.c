/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * forks.c - a program that does little else than fork: each round starts threads and forks
 * children that end at once. Prints the microseconds of a round.
 *
 *	forks ROUNDS FORKS THREADS
 */
#include "times.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS_MAX = 64 };

static void *end_at_once(void *none)
{
	return none;
}

static void play_round(int forks, int threads)
{
	pthread_t thread[THREADS_MAX];

	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, end_at_once, NULL))
			exit(1);
	for (int i = 0; i < forks; i++) {
		int status;
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			exit(1);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
}

int main(int argc, char **argv)
{
	int rounds = argc == 4 ? atoi(argv[1]) : 0, threads = argc == 4 ? atoi(argv[3]) : 0;

	if (rounds < 1 || threads > THREADS_MAX) {
		fprintf(stderr, "usage: forks ROUNDS FORKS THREADS\n");
		return 2;
	}
	long begin = now_ns();

	for (int round = 0; round < rounds; round++)
		play_round(atoi(argv[2]), threads);
	printf("%.1f\n", (double)(now_ns() - begin) / 1000 / rounds);
	return 0;
}
