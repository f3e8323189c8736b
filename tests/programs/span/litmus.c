/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * litmus.c - whether threads see one memory, wherever they run.
 *
 *	litmus ROUNDS
 *
 * Store buffering, message passing, independent reads of independent writes, coherence of one
 * word, and atomic sums; then mutex, condition variable, barrier, rwlock and semaphore. With
 * plain stores and loads of x86, and a fence where x86 needs one. Prints `right`, or what was
 * seen that cannot be.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 4 };

/* A page each. */
static struct {
	_Alignas(4096) atomic_int value;
} x, y, seen[THREADS];

static int rounds;
static int results[THREADS][2];
static const char *wrong;

static void fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

static int get(atomic_int *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

static void put(atomic_int *word, int value)
{
	atomic_store_explicit(word, value, memory_order_release);
}

/* Each thread's part of a shape; `round` is the value that is written. */
static void store_buffering(int me, int round)
{
	if (me > 1)
		return;
	put(me == 0 ? &x.value : &y.value, round);
	fence();
	results[me][0] = get(me == 0 ? &y.value : &x.value);
}

static void message_passing(int me, int round)
{
	if (me == 0) {
		put(&x.value, round);
		put(&y.value, round);
	} else if (me == 1) {
		results[1][0] = get(&y.value);
		results[1][1] = get(&x.value);
	}
}

static void independent_reads(int me, int round)
{
	if (me == 0)
		put(&x.value, round);
	else if (me == 1)
		put(&y.value, round);
	else {
		results[me][0] = get(me == 2 ? &x.value : &y.value);
		results[me][1] = get(me == 2 ? &y.value : &x.value);
	}
}

static void coherence(int me, int round)
{
	if (me == 0) {
		put(&x.value, 2 * round);
		put(&x.value, 2 * round + 1);
	} else {
		results[me][0] = get(&x.value);
		results[me][1] = get(&x.value);
	}
}

static void sums(int me, int round)
{
	(void)round;
	atomic_fetch_add(&x.value, 1);
	atomic_fetch_add(&seen[me].value, 1);
}

static int stored(int round)
{
	return results[0][0] >= round || results[1][0] >= round;
}

static int passed(int round)
{
	return results[1][0] < round || results[1][1] >= round;
}

static int agreed(int round)
{
	int x_first = results[2][0] >= round && results[2][1] < round;
	int y_first = results[3][0] >= round && results[3][1] < round;

	return !(x_first && y_first);
}

static int coherent(int round)
{
	(void)round;
	for (int me = 1; me < THREADS; me++)
		if (results[me][0] > results[me][1])
			return 0;
	return 1;
}

static int summed(int round)
{
	return get(&x.value) == THREADS * round;
}

static const struct {
	const char *name;
	void (*part)(int me, int round);
	int (*is_right)(int round);
} shapes[] = {
	{"store buffering", store_buffering, stored},
	{"message passing", message_passing, passed},
	{"independent reads", independent_reads, agreed},
	{"coherence", coherence, coherent},
	{"sums", sums, summed},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

static pthread_barrier_t barrier;

static void *shape_thread(void *argument)
{
	int me = (int)(size_t)argument;

	for (int shape = 0; shape < SHAPES; shape++) {
		pthread_barrier_wait(&barrier);
		if (me == 0) {
			put(&x.value, 0);
			put(&y.value, 0);
		}
		pthread_barrier_wait(&barrier);
		for (int round = 1; round <= rounds; round++) {
			pthread_barrier_wait(&barrier);
			shapes[shape].part(me, round);
			pthread_barrier_wait(&barrier);
			if (me == 0 && !shapes[shape].is_right(round))
				wrong = shapes[shape].name;
		}
	}
	return NULL;
}

/* The objects of pthreads, each with a count that only they protect. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;
static int turn, count, written[2], taken;

static void *lock_thread(void *argument)
{
	int me = (int)(size_t)argument;

	for (int round = 0; round < rounds; round++) {
		pthread_mutex_lock(&mutex);
		count++;
		pthread_mutex_unlock(&mutex);

		pthread_mutex_lock(&mutex);
		while (turn % THREADS != me)
			pthread_cond_wait(&changed, &mutex);
		turn++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&mutex);

		if (me == 0) {
			pthread_rwlock_wrlock(&rwlock);
			written[0]++;
			written[1]++;
			pthread_rwlock_unlock(&rwlock);
			sem_post(&semaphore);
		} else {
			pthread_rwlock_rdlock(&rwlock);
			if (written[0] != written[1])
				wrong = "rwlock";
			pthread_rwlock_unlock(&rwlock);
		}
		if (me == 1) {
			sem_wait(&semaphore);
			taken++;
		}
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void all(void *(*body)(void *))
{
	pthread_t threads[THREADS];

	for (size_t me = 0; me < THREADS; me++)
		if (pthread_create(&threads[me], NULL, body, (void *)me) != 0) {
			printf("no thread\n");
			exit(1);
		}
	for (size_t me = 0; me < THREADS; me++)
		pthread_join(threads[me], NULL);
}

int main(int argc, char **argv)
{
	struct timespec soon;

	if (argc != 2 || (rounds = atoi(argv[1])) < 1) {
		fprintf(stderr, "usage: litmus ROUNDS\n");
		return 2;
	}
	pthread_barrier_init(&barrier, NULL, THREADS);
	sem_init(&semaphore, 0, 0);
	all(shape_thread);
	all(lock_thread);
	if (count != THREADS * rounds || turn != THREADS * rounds)
		wrong = "mutex";
	if (written[0] != rounds || taken != rounds)
		wrong = "semaphore";
	/* Waits end in time, too. */
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec += 20000000;
	if (soon.tv_nsec >= 1000000000) {
		soon.tv_sec++;
		soon.tv_nsec -= 1000000000;
	}
	if (sem_timedwait(&semaphore, &soon) != -1 || errno != ETIMEDOUT)
		wrong = "a wait with a limit";
	printf("%s\n", wrong == NULL ? "right" : wrong);
	return wrong != NULL;
}
