/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * ends.c - how a program with threads on several nodes ends.
 *
 *	ends wait|exit|fault|last
 *
 * wait: never. exit: a thread calls exit(5). fault: a thread touches what is not there. last:
 * the first thread ends before the others, which return.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4 };

static char what;
static pthread_barrier_t barrier;

static void *thread(void *argument)
{
	size_t me = (size_t)argument;

	pthread_barrier_wait(&barrier);
	if (what == 'e' && me == THREADS - 1)
		exit(5);
	if (what == 'f' && me == THREADS - 1)
		*(volatile int *)(me * 8) = 1;
	if (what == 'l') {
		usleep(1000 * me);
		return NULL;
	}
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	what = argc == 2 ? argv[1][0] : 'w';
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (size_t me = 0; me < THREADS; me++)
		pthread_create(&threads[me], NULL, thread, (void *)me);
	pthread_barrier_wait(&barrier);
	printf("all are there\n");
	fflush(stdout);
	if (what == 'l')
		pthread_exit(NULL);
	pthread_join(threads[0], NULL);
	return 1;
}
