/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * children.c - processes that threads of all nodes start.
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Each thread has its own, and so has its child. */
static __thread int own;

static void ends_with(pid_t child, int wanted)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == wanted);
}

static void *starts(void *argument)
{
	char *shell[] = { "sh", "-c", "exit 3", NULL };
	char line[64];
	pid_t child;
	int value = 41;

	own = 20 + (int)(intptr_t)argument;
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate((int)(intptr_t)argument) == 0);
	CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, shell, environ) == 0);
	ends_with(child, 3);
	CHECK(posix_spawn(&child, "/nowhere", NULL, NULL, shell, environ) == ENOENT);
	CHECK(system("exit 5") == 5 << 8);
	FILE *said = popen("echo said", "r");
	CHECK(said && fgets(line, sizeof(line), said) && strcmp(line, "said\n") == 0);
	CHECK(pclose(said) == 0);
	child = vfork();
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", "exit 7", NULL);
		_exit(1);
	}
	CHECK(value == 41);
	ends_with(child, 7);
	child = vfork();
	if (child == 0)
		_exit(own);
	ends_with(child, 20 + (int)(intptr_t)argument);
	return NULL;
}

int main(void)
{
	int nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;
	pthread_t thread;

	for (int node = 0; node < nodes; node++) {
		CHECK(pthread_create(&thread, NULL, starts, (void *)(intptr_t)node) == 0);
		pthread_join(thread, NULL);
	}
	starts((void *)0);
	printf("right\n");
	return 0;
}
