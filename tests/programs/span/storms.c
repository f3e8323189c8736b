/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * storms.c - many threads at what pthreads have, all at once: `storms CASE ROUNDS`.
 *
 *  - threads: threads that begin and end, many times, with values that they return.
 *  - queue: producers and consumers at a bounded queue.
 *  - wakes: condition variables, told of by signal and by broadcast.
 *  - readers: a rwlock with many readers and some writers.
 *  - barriers: a barrier after barrier, with one thread told that it is the one.
 *  - locals: variables that each thread has its own of, keys with destructors, pthread_once.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 6 };

static long rounds;

static void wrong(const char *what)
{
	printf("wrong: %s\n", what);
	exit(1);
}

static void start(pthread_t *thread, void *(*body)(void *), size_t me)
{
	if (pthread_create(thread, NULL, body, (void *)me) != 0)
		wrong("pthread_create");
}

static void all(void *(*body)(void *))
{
	pthread_t threads[THREADS];

	for (size_t me = 0; me < THREADS; me++)
		start(&threads[me], body, me);
	for (size_t me = 0; me < THREADS; me++)
		pthread_join(threads[me], NULL);
}

static void *doubles(void *argument)
{
	return (void *)(2 * (size_t)argument + 1);
}

static void threads(void)
{
	for (long round = 0; round < rounds; round++) {
		pthread_t some[THREADS];

		for (size_t me = 0; me < THREADS; me++)
			start(&some[me], doubles, me);
		for (size_t me = 0; me < THREADS; me++) {
			void *value;

			if (pthread_join(some[me], &value) != 0 || (size_t)value != 2 * me + 1)
				wrong("pthread_join");
		}
	}
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_room = PTHREAD_COND_INITIALIZER, has_some = PTHREAD_COND_INITIALIZER;

enum { ROOM = 4 };
static long queued[ROOM], made, taken, sum;

static void *produces(void *none)
{
	for (long round = 1; round <= rounds; round++) {
		pthread_mutex_lock(&mutex);
		while (made - taken == ROOM)
			pthread_cond_wait(&has_room, &mutex);
		queued[made++ % ROOM] = round;
		pthread_cond_signal(&has_some);
		pthread_mutex_unlock(&mutex);
	}
	return none;
}

static void *consumes(void *none)
{
	for (long round = 1; round <= rounds; round++) {
		pthread_mutex_lock(&mutex);
		while (made == taken)
			pthread_cond_wait(&has_some, &mutex);
		sum += queued[taken++ % ROOM];
		pthread_cond_signal(&has_room);
		pthread_mutex_unlock(&mutex);
	}
	return none;
}

static void *either(void *me)
{
	return (size_t)me % 2 ? produces(me) : consumes(me);
}

static void queue(void)
{
	all(either);
	if (made != taken || sum != THREADS / 2 * rounds * (rounds + 1) / 2)
		wrong("queue");
}

static pthread_cond_t turned = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static long turn, finished;

static void *takes_turns(void *argument)
{
	size_t me = (size_t)argument;

	pthread_mutex_lock(&mutex);
	for (long round = 0; round < rounds; round++) {
		while (turn != round)
			pthread_cond_wait(&turned, &mutex);
		if (++finished == THREADS) {
			finished = 0;
			turn++;
			pthread_cond_broadcast(&turned);
		}
	}
	if (me == 0)
		pthread_cond_signal(&done);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static void wakes(void)
{
	all(takes_turns);
	if (turn != rounds)
		wrong("wakes");
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long first, second;

static void *reads_or_writes(void *argument)
{
	size_t me = (size_t)argument;

	for (long round = 0; round < rounds; round++) {
		if ((me + (size_t)round) % 4 == 0) {
			pthread_rwlock_wrlock(&rwlock);
			first++;
			second++;
		} else {
			pthread_rwlock_rdlock(&rwlock);
			if (first != second)
				wrong("readers");
		}
		pthread_rwlock_unlock(&rwlock);
	}
	return NULL;
}

static void readers(void)
{
	long writes = 0;

	all(reads_or_writes);
	for (long me = 0; me < THREADS; me++)
		for (long round = 0; round < rounds; round++)
			writes += (me + round) % 4 == 0;
	if (first != writes || second != writes)
		wrong("readers: the count");
}

static pthread_barrier_t barrier;
static long ones;
static long arrived[THREADS];

static void *meets(void *argument)
{
	size_t me = (size_t)argument;

	for (long round = 1; round <= rounds; round++) {
		arrived[me] = round;
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			__atomic_add_fetch(&ones, 1, __ATOMIC_RELAXED);
		for (size_t other = 0; other < THREADS; other++)
			if (arrived[other] < round)
				wrong("barriers");
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void barriers(void)
{
	pthread_barrier_init(&barrier, NULL, THREADS);
	all(meets);
	if (ones != rounds)
		wrong("barriers: the one");
}

static __thread long own = 41;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static long made_once, destroyed;

static void makes_key_destroyed(void *value)
{
	__atomic_add_fetch(&destroyed, *(long *)value, __ATOMIC_RELAXED);
	free(value);
}

static void makes_key(void)
{
	made_once++;
	if (pthread_key_create(&key, makes_key_destroyed) != 0)
		wrong("pthread_key_create");
}

static void *has_locals(void *argument)
{
	long *value = malloc(sizeof *value);

	pthread_once(&once, makes_key);
	*value = (long)(size_t)argument + 1;
	if (pthread_setspecific(key, value) != 0)
		wrong("pthread_setspecific");
	for (long round = 0; round < rounds; round++)
		own++;
	if (own != 41 + rounds || pthread_getspecific(key) != value)
		wrong("locals");
	return NULL;
}

static void locals(void)
{
	all(has_locals);
	if (own != 41 || made_once != 1 || destroyed != THREADS * (THREADS + 1) / 2)
		wrong("locals: the sum");
}

int main(int argc, char **argv)
{
	const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"threads", threads}, {"queue", queue},       {"wakes", wakes},
		     {"readers", readers}, {"barriers", barriers}, {"locals", locals}};

	rounds = argc == 3 ? atol(argv[2]) : 0;
	for (size_t at = 0; rounds > 0 && at < sizeof cases / sizeof *cases; at++)
		if (strcmp(argv[1], cases[at].name) == 0) {
			cases[at].run();
			printf("right\n");
			return 0;
		}
	fprintf(stderr, "usage: storms CASE ROUNDS\n");
	return 2;
}
