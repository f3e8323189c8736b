// Calls that make no sense, each of which ends the job with one line: `misuse NAME`.

#include <jia.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// This task's number, before it has joined.
static int number(void)
{
	const char *names[] = { "NAGAYA_JOB_RANK", "PMIX_RANK", "PMI_RANK" };
	for (int i = 0; i < 3; i++)
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	if (strcmp(name, "early") == 0)
		jia_barrier();
	if (strcmp(name, "absent") == 0 && number() == 1)
		sleep(30);
	if (strcmp(name, "stopped") == 0 && number() == 1) {
		kill(getppid(), SIGSTOP);
		sleep(100);
	}
	printf("begun\n");
	jia_init(argc, argv);
	int *cell = (int *)jia_alloc(4);
	jia_barrier();
	int last = jiapid == jiahosts - 1;
	if (strcmp(name, "sizes") == 0)
		jia_alloc(last ? 5 : 4);
	if (strcmp(name, "homes") == 0)
		jia_alloc2p(4, last);
	if (strcmp(name, "count") == 0 && last)
		jia_alloc(4);
	if (strcmp(name, "lacking") == 0 && jiapid == 0) {
		// Memory that the second task does not allocate is there.
		int *cells = (int *)jia_alloc3(1 << 20, 1, 0);
		for (int i = 0; i < 1 << 18; i += 1024)
			cells[i] = 1;
	}
	if (strcmp(name, "flood") == 0) {
		static char letter[1 << 20];
		if (jiapid == 0)
			for (int i = 0; i < 4000; i++) {
				jia_send(letter, sizeof letter, 1, 0);
				printf("sent\n");
				fflush(stdout);
			}
		pause();
	}
	if (strcmp(name, "leaving") == 0 && jiapid == 0)
		*(volatile int *)jia_alloc2p(4, 1);
	if (strcmp(name, "leaving") == 0)
		jia_exit();
	if (strcmp(name, "unlock") == 0)
		jia_unlock(3);
	if (strcmp(name, "twice") == 0) {
		jia_lock(3 + jiapid);
		jia_lock(3 + jiapid);
	}
	if (strcmp(name, "barrier") == 0) {
		jia_lock(3 + jiapid);
		jia_barrier();
	}
	if (strcmp(name, "negative") == 0)
		jia_lock(-1);
	if (strcmp(name, "host") == 0)
		jia_alloc2p(1, jiahosts);
	if (strcmp(name, "option") == 0)
		jia_config(17, 1);
	if (strcmp(name, "again") == 0)
		jia_init(argc, argv);
	if (strcmp(name, "error") == 0 && jiapid == jiahosts - 1)
		jia_error("cell %d of %s", 7, "a kind");
	if (strcmp(name, "exit") == 0 && jiapid == jiahosts - 1)
		exit(0);
	if (strcmp(name, "beyond") == 0 && jiapid == jiahosts - 1)
		*(int *)((char *)cell + (1 << 20)) = 1;
	// The others wait for a task that does not come.
	jia_lock(0);
	*cell += 1;
	jia_unlock(0);
	jia_barrier();
	jia_exit();
	if (strcmp(name, "late") == 0)
		jia_barrier();
	printf("ended\n");
	return 0;
}
