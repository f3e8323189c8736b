/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * processors.c - how many processors there are, as programs ask for it: N lines of it, which
 * agree.
 *
 *	processors N
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static int wanted;

static void says(const char *file)
{
	char line[32] = "", expected[32] = "0\n";
	FILE *open = fopen(file, "r");

	if (wanted > 1)
		snprintf(expected, sizeof expected, "0-%d\n", wanted - 1);
	CHECK(open != NULL && fgets(line, sizeof line, open) != NULL);
	CHECK(strcmp(line, expected) == 0);
	CHECK(fgets(line, sizeof line, open) == NULL && feof(open));
	fclose(open);
}

static void *one_is_kept(void *mask)
{
	cpu_set_t set;

	CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
	CHECK(CPU_EQUAL(&set, (cpu_set_t *)mask));
	return NULL;
}

/* On this node. */
static void counts(void)
{
	cpu_set_t set, one;
	pthread_t thread;
	unsigned cpu, by_call;

	CHECK(sysconf(_SC_NPROCESSORS_ONLN) == wanted);
	CHECK(sysconf(_SC_NPROCESSORS_CONF) == wanted);
	CHECK(get_nprocs() == wanted && get_nprocs_conf() == wanted);
	says("/sys/devices/system/cpu/online");
	says("/sys/devices/system/cpu/possible");
	says("/sys/devices/system/cpu/present");
	CHECK(sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == wanted);
	CHECK(CPU_ISSET(0, &set) && CPU_ISSET(wanted - 1, &set));
	CHECK(sched_getaffinity(gettid(), sizeof one, &one) == 0 && CPU_EQUAL(&set, &one));
	CHECK(syscall(SYS_sched_getaffinity, 0, 4, &one) == -1 && errno == EINVAL);
	CHECK(sched_getaffinity(1 << 30, sizeof one, &one) == -1 && errno == ESRCH);
	CHECK(getcpu(&cpu, NULL) == 0 && CPU_ISSET(cpu, &set));
	CHECK(syscall(SYS_getcpu, &by_call, NULL, NULL) == 0 && CPU_ISSET(by_call, &set));
	/* The mask is stored, also for new threads. */
	CPU_ZERO(&one);
	CHECK(sched_setaffinity(0, sizeof one, &one) == -1 && errno == EINVAL);
	CPU_SET(wanted - 1, &one);
	CHECK(pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0);
	one_is_kept(&one);
	CHECK(pthread_create(&thread, NULL, one_is_kept, &one) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
	one_is_kept(&set);
}

/* Each node has its own numbers for its processors. */
static void names(int nodes)
{
	int node_of[CPU_SETSIZE];

	memset(node_of, -1, sizeof node_of);
	for (int node = 0; node < nodes; node++)
		for (int round = 0; round < 100; round++) {
			unsigned cpu;

			CHECK(nagaya_migrate(node) == 0 && getcpu(&cpu, NULL) == 0);
			CHECK(cpu < (unsigned)wanted);
			CHECK(node_of[cpu] == -1 || node_of[cpu] == node);
			node_of[cpu] = node;
			sched_yield();
		}
}

int main(int argc, char **argv)
{
	int nodes = nagaya_nodes();

	(void)argc;
	wanted = atoi(argv[1]);
	for (int node = 0; node < nodes || node == 0; node++) {
		if (nodes > 1)
			CHECK(nagaya_migrate(node) == 0);
		counts();
	}
	if (nodes > 1)
		names(nodes);
	puts("right");
	return 0;
}
