/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * sanitized.c - threads that share little, to be compiled with sanitizers.
 *
 *	sanitized		prints the sum of what four threads wrote
 *	sanitized OFFSET	and then writes so far behind the end of ten bytes
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *work(void *argument)
{
	long sum = 0;

	(void)argument;
	for (int round = 0; round < 50; round++) {
		unsigned char *memory = malloc(1000 * (round + 1));

		memset(memory, 1, 1000 * (round + 1));
		for (int at = 0; at < 1000; at++)
			sum += memory[at * (round + 1)];
		free(memory);
	}
	return (void *)sum;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	long sum = 0;

	for (int at = 0; at < 4; at++)
		pthread_create(&threads[at], NULL, work, NULL);
	for (int at = 0; at < 4; at++) {
		void *result;

		pthread_join(threads[at], &result);
		sum += (long)result;
	}
	printf("%ld\n", sum);
	fflush(stdout);
	if (argc > 1) {
		volatile char *ten = calloc(10, 1);

		ten[10 + atoi(argv[1])] = 1;
		free((void *)ten);
	}
	return 0;
}
