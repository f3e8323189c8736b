/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * figure6.c - runs ./parallel as 32 tasks in one space.
 *
 * This is Figure 6 of the PVAS paper with the parts that the figure omits: the argument
 * list, the errors, and the wait for the tasks. The numbers are the figure's.
 */
#define _POSIX_C_SOURCE 200809L

#include <pvas.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESS_NUM 32

int main(void)
{
	char *const arg[] = {"parallel", NULL};
	pid_t pid[PROCESS_NUM];
	int pvd, i, failed;

	pvd = pvas_create(); /* (1) */
	if (pvd < 0) {
		fprintf(stderr, "figure6: %s\n", pvas_error());
		return 1;
	}

	for (i = 0; i < PROCESS_NUM; i++) {
		pid[i] = pvas_fork(pvd, i); /* (2) */
		if (pid[i] == 0) {
			/* We share memory and stack with the parent, so we
			 * may only run a program or leave with _exit. */
			pvas_execve("./parallel", arg, NULL); /* (3) */
			dprintf(STDERR_FILENO, "figure6: %s\n", pvas_error());
			_exit(127);
		} else if (pid[i] > 0) {
			printf("fork pvas process %d\n", pid[i]);
		} else {
			fprintf(stderr, "figure6: %s\n", pvas_error());
		}
	}

	/* Tasks are children like any other. Without this wait,
	 * pvas_destroy would kill those that still run. */
	failed = 0;
	for (i = 0; i < PROCESS_NUM; i++) {
		int status;

		if (pid[i] < 0 || waitpid(pid[i], &status, 0) < 0 ||
		    status != 0)
			failed = 1;
	}

	if (pvas_destroy(pvd) < 0) {                          /* (4) */
		fprintf(stderr, "figure6: %s\n", pvas_error());
		failed = 1;
	}
	return failed;
}
