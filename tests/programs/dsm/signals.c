// A task takes signals while it waits, whose handler reads a page of the other task: `signals
// ROUNDS`. In each round, task 1 writes its page and then lets task 0 wait.

#define _GNU_SOURCE
#include <jia.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static volatile long *page;
static volatile int taken, waits, round_now;

static void read_page(int signal)
{
	(void)signal;
	if (!waits)
		return;
	// Task 1 may have passed the barrier already, and written again.
	long is = *page;
	if (is != round_now && is != round_now + 1)
		_exit(3);
	taken++;
}

static void every(long us)
{
	const struct itimerval timer = {{0, us}, {0, us}};
	setitimer(ITIMER_REAL, &timer, NULL);
}

int main(int argc, char **argv)
{
	int rounds = atoi(argv[1]), rounds_taken = 0;

	jia_init(argc, argv);
	page = (long *)jia_alloc3(sizeof *page, 8192, 1);
	if (jiapid == 0) {
		signal(SIGALRM, read_page);
		every(700);
	}
	for (int round = 1; round <= rounds; round++) {
		if (jiapid == 1)
			*page = round;
		jia_barrier();
		if (jiapid == 1)
			usleep(5000);
		int before = taken;
		round_now = round;
		waits = 1;
		jia_barrier();
		waits = 0;
		rounds_taken += taken > before;
	}
	every(0);
	if (jiapid == 0 && rounds_taken < rounds / 2)
		jia_error("signals: taken in %d of %d rounds", rounds_taken, rounds);
	jia_exit();
	if (jiapid == 0)
		printf("signals is right\n");
	return 0;
}
