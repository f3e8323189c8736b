/* Sleeps deep in its own functions: a debugger finds them by name and line. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct place {
	int depth;
	const char *name;
};

static volatile int go_on = 1;

static __attribute__((noinline)) void where_it_sleeps(struct place *place)
{
	printf("up\n");
	fflush(stdout);
	while (go_on)
		usleep(100000); /* here it sleeps */
	place->depth--;
}

static __attribute__((noinline)) int one_above(int depth)
{
	struct place place = {depth * 7, "the deepest place"};
	where_it_sleeps(&place);
	return place.depth;
}

static void *in_a_thread(void *unused)
{
	while (go_on)
		usleep(100000);
	return unused;
}

int main(void)
{
	pthread_t thread;
	char *heap = malloc(50 << 20);
	for (int i = 0; i < 50 << 20; i += 4096)
		heap[i] = 1;
	pthread_create(&thread, NULL, in_a_thread, NULL);
	return one_above(6);
}
