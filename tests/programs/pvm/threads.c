/* Threads that take turns: PVM is no more than one thread's at a time. */
#include "say.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 50 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int child;
static int good[THREADS];

static int echo(int parent)
{
	int n, tag;

	for (;;) {
		pvm_recv(parent, -1);
		pvm_bufinfo(pvm_getrbuf(), NULL, &tag, NULL);
		pvm_upkint(&n, 1, 1);
		if (tag == 99)
			return pvm_exit();
		tell(parent, tag, n + 1);
	}
}

/* Sends and polls for its own answers; buffers are its own while it has the lock. */
static void *talks(void *argument)
{
	int me = (int)(long)argument, i, n, came;

	for (i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		tell(child, me + 1, 1000 * me + i);
		pthread_mutex_unlock(&mutex);
		do {
			pthread_mutex_lock(&mutex);
			came = pvm_nrecv(child, me + 1);
			if (came > 0) {
				pvm_upkint(&n, 1, 1);
				good[me] += n == 1000 * me + i + 1;
			}
			pthread_mutex_unlock(&mutex);
			if (!came)
				usleep(200);
		} while (!came);
	}
	return NULL;
}

/* Another thread than the first enrolls. */
static void *enrolls(void *argument)
{
	*(int *)argument = pvm_mytid();
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	int parent, i, route, tid = 0;

	pthread_create(&threads[0], NULL, enrolls, &tid);
	pthread_join(threads[0], NULL);
	parent = enroll();
	if (parent > 0)
		return echo(parent);
	say("one tid %s", yes(tid == pvm_mytid()));
	spawn(1, &child, "echo");
	for (route = PvmDontRoute; route <= PvmRouteDirect; route += 2) {
		pvm_setopt(PvmRoute, route);
		memset(good, 0, sizeof good);
		for (i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, talks, (void *)(long)i);
		for (i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		say("route %d: %d %d %d %d", route, good[0], good[1], good[2], good[3]);
	}
	for (i = 0; i < 5; i++)
		say("main thread %s", code(pvm_nrecv(-1, -1)));
	tell(child, 99, 0);
	return pvm_exit();
}
