/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * drives.c - threads that wait for other nodes all the time, so that they drive their node's
 * engine.
 *
 *	drives THREADS CALLS [exit | execute]
 *
 * Each thread makes system calls, whose results it checks, locks a mutex, and changes shared
 * memory; a handler interrupts them. Without a third argument the program then prints the sum. With
 * one it prints a word first. It ends, or executes true(1), when the threads have made so many
 * calls together, and does not wait for them.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS_MAX = 64, SIGNALS = 50 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(4096) atomic_long calls_made;
static _Alignas(4096) long sum;
static atomic_long handled;
static long calls;
static pid_t parent, process;

static void handle(int signal)
{
	(void)signal;
	if (getpid() != process)
		abort();
	atomic_fetch_add(&handled, 1);
}

static void *work(void *none)
{
	for (long at = 0; at < calls; at++) {
		if (syscall(SYS_getppid) != parent || syscall(SYS_getpid) != process)
			abort();
		atomic_fetch_add(&calls_made, 1);
		if (at % 4)
			continue;
		pthread_mutex_lock(&mutex);
		sum++;
		pthread_mutex_unlock(&mutex);
	}
	return none;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[1]) : 0;
	const char *end = argc > 3 ? argv[3] : "";
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_RESTART };
	pthread_t all[THREADS_MAX];

	calls = argc > 2 ? atol(argv[2]) : 0;
	parent = getppid();
	process = getpid();
	if (threads < 1 || threads > THREADS_MAX || sigaction(SIGUSR1, &action, NULL))
		return 2;
	if (*end)
		puts("there");
	fflush(stdout);
	for (int at = 0; at < threads; at++)
		if (pthread_create(&all[at], NULL, work, NULL))
			return 1;
	if (!*end)
		for (int at = 0; at < SIGNALS; at++) {
			pthread_kill(all[at % threads], SIGUSR1);
			usleep(1000);
		}
	while (*end && atomic_load(&calls_made) < calls)
		usleep(1000);
	if (!strcmp(end, "execute"))
		execlp("true", "true", (char *)NULL);
	if (*end)
		_exit(7);
	for (int at = 0; at < threads; at++)
		pthread_join(all[at], NULL);
	printf("%ld calls, sum %ld\n", atomic_load(&calls_made), sum);
	return 0;
}
