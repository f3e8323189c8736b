// A task waits, and takes a signal whose handler computes for long; the other task meanwhile
// fetches pages that live with it, and prints how long each took at most, in ms: `handler`.

#define _GNU_SOURCE
#include <jia.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 8192, PAGES = 8, HANDLER_MS = 900, BEGIN_MS = 100 };

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void compute(int signal)
{
	(void)signal;
	double end = now_ms() + HANDLER_MS;
	while (now_ms() < end)
		;
}

int main(int argc, char **argv)
{
	jia_init(argc, argv);
	volatile char *pages = (char *)jia_alloc2p(PAGES * PAGE, 0);
	if (jiapid == 0) {
		const struct itimerval timer = { .it_value = { 0, BEGIN_MS * 1000 } };
		signal(SIGALRM, compute);
		setitimer(ITIMER_REAL, &timer, NULL);
	}
	jia_barrier();
	double longest = 0;
	if (jiapid == 1) {
		usleep(2 * BEGIN_MS * 1000);
		for (int page = 0; page < PAGES; page++) {
			double begin = now_ms();
			(void)pages[page * PAGE];
			double took = now_ms() - begin;
			longest = took > longest ? took : longest;
		}
	}
	jia_barrier();
	if (jiapid == 1)
		printf("%.0f\n", longest);
	jia_exit();
}
