/* pvm_getfds: a program that waits by select for its messages and for other things. */
#include "say.h"

#include <pthread.h>
#include <sys/select.h>

enum { ROUNDS = 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Sends what it is asked for, a while later. */
static int child(int parent)
{
	int n;

	while ((n = hear(parent, 1)) >= 0) {
		usleep(2000);
		tell(parent, 2, n);
	}
	return pvm_exit();
}

/* Returns true if a descriptor is readable within `ms`. Afterwards no thread has PVM for
 * itself. */
static int readable(int ms)
{
	struct timeval limit = { ms / 1000, ms % 1000 * 1000 };
	int *fds = NULL, n, i, most = -1;
	fd_set set;

	FD_ZERO(&set);
	pthread_mutex_lock(&mutex);
	n = pvm_getfds(&fds);
	for (i = 0; i < n; i++) {
		FD_SET(fds[i], &set);
		most = fds[i] > most ? fds[i] : most;
	}
	pthread_mutex_unlock(&mutex);
	return select(most + 1, &set, NULL, NULL, &limit) > 0;
}

/* Waits by select for a message of tag 2; its int, or -1. Looks before that: stock PVM may have
 * taken it in while it sent, and then there is nothing to select. */
static int selected(void)
{
	int looks, n = -1, came;

	for (looks = 0; looks < 100; looks++) {
		pthread_mutex_lock(&mutex);
		came = pvm_nrecv(-1, 2);
		if (came > 0)
			pvm_upkint(&n, 1, 1);
		pthread_mutex_unlock(&mutex);
		if (came || !readable(5000))
			return n;
	}
	return -1;
}

static void *selects(void *good)
{
	int i;

	for (i = 0; i < ROUNDS; i++)
		*(int *)good += selected() == i;
	return NULL;
}

int main(void)
{
	int parent = enroll(), tid, i, good = 0, *fds, rest;
	pthread_t thread;

	if (parent > 0)
		return child(parent);
	spawn(1, &tid, "child");
	say("some descriptors %s", yes(pvm_getfds(&fds) > 0));
	for (i = 0; i < ROUNDS; i++) {
		tell(tid, 1, i);
		good += selected() == i;
	}
	say("one thread: %d", good);
	/* A message that another receive has taken in is available without a select. */
	tell(tid, 1, 77);
	tell(tid, 1, 78);
	say("together %d", hear(tid, 2));
	say("and %d", hear(tid, 2));
	say("nothing is left %s", code(pvm_nrecv(-1, -1)));
	/* An earlier message may be reported late, once. */
	for (i = 0; i < 10 && readable(100); i++)
		pvm_nrecv(-1, -1);
	say("nothing to select %s", yes(i < 10));
	for (rest = good = 0, i = PvmDontRoute; i <= PvmRouteDirect; i += 2, good = 0) {
		pthread_create(&thread, NULL, selects, &good);
		pthread_mutex_lock(&mutex);
		pvm_setopt(PvmRoute, i);
		for (rest = 0; rest < ROUNDS; rest++)
			tell(tid, 1, rest);
		pthread_mutex_unlock(&mutex);
		pthread_join(thread, NULL);
		say("another thread, route %d: %d", i, good);
	}
	tell(tid, 1, -1);
	return pvm_exit();
}
