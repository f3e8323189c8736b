/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * peersum.c - tasks sum each other's arrays in place, through pointers.
 *
 *     nagaya run -K -n N ./peersum [ELEMENTS]
 *
 * Each task fills an array of doubles and exports it by name. It then imports the array
 * of every task, its own included, and adds it up in place: nothing is copied and
 * no system call reads memory. The sums are compared with the closed form.
 *
 * A task's memory is unmapped when the task ends. So all tasks wait for the readers at a
 * barrier, which is a counter in the export area of task 0.
 */
#define _POSIX_C_SOURCE 200809L

#include <pvas.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NAME              "peersum"
#define ELEMENTS          1000000
#define ELEMENTS_MAX      100000000 /* up to here every partial sum is exact in a double */
#define IMPORT_TIMEOUT_MS 60000

static int complain(const char *what)
{
	fprintf(stderr, "peersum: %s: %s\n", what, pvas_error());
	return 1;
}

/* Element i of task `id`'s array, and the sum of its first `n` elements. */
static double element(int id, size_t i)
{
	return (double)id + (double)i;
}

static double sum_of_elements(int id, size_t n)
{
	return (double)id * (double)n + (double)(n * (n - 1) / 2);
}

static int sum_peer(int peer, size_t n)
{
	const double *array;
	void *addr;
	size_t size;
	double sum = 0;

	/* Waits until the peer has started and has exported its array. */
	if (pvas_import(PVAS_SELF, peer, NAME, &addr, &size, IMPORT_TIMEOUT_MS) < 0)
		return complain("pvas_import");
	if (size != n * sizeof(double)) {
		fprintf(stderr, "peersum: the array of task %d has %zu bytes, not %zu\n",
		        peer, size, n * sizeof(double));
		return 1;
	}
	array = addr;
	for (size_t i = 0; i < n; i++)
		sum += array[i];
	if (sum != sum_of_elements(peer, n)) {
		fprintf(stderr, "peersum: the array of task %d sums to %.17g, not %.17g\n",
		        peer, sum, sum_of_elements(peer, n));
		return 1;
	}
	return 0;
}

/* Returns 0 when every task has come here, or 1 when one ended before. */
static int barrier(int id, int tasks)
{
	const struct timespec pause = {.tv_nsec = 100000};
	atomic_int *arrived = pvas_export_area(PVAS_SELF, 0); /* 0 at the start of task 0 */

	if (arrived == NULL)
		return complain("pvas_export_area");
	atomic_fetch_add(arrived, 1);
	while (atomic_load(arrived) != tasks) {
		/* The order counts: a task may end right after the last one has arrived. */
		if (pvas_ntasks(PVAS_SELF) < tasks && atomic_load(arrived) != tasks) {
			fprintf(stderr, "peersum: a task ended before the barrier\n");
			return 1;
		}
		nanosleep(&pause, NULL);
	}
	/* The counter goes away with task 0, so that one leaves last. */
	while (id == 0 && pvas_ntasks(PVAS_SELF) > 1)
		nanosleep(&pause, NULL);
	return 0;
}

int main(int argc, char **argv)
{
	const char *tasks_text = getenv("NAGAYA_TASKS"); /* nagaya run sets it */
	int id = pvas_getid();
	int tasks = tasks_text ? atoi(tasks_text) : 0;
	long long elements = argc > 1 ? atoll(argv[1]) : ELEMENTS;
	size_t n = (size_t)elements;
	double *array;
	int failed = 0;

	if (id < 0)
		return complain("pvas_getid");
	if (tasks < 1) {
		fprintf(stderr, "peersum: NAGAYA_TASKS is not set; start me with "
		                "'nagaya run -n N ./peersum'\n");
		return 1;
	}
	if (elements < 1 || elements > ELEMENTS_MAX) {
		fprintf(stderr, "peersum: the number of elements must be 1 to %d\n",
		        ELEMENTS_MAX);
		return 1;
	}

	array = malloc(n * sizeof(double));
	if (array == NULL) {
		perror("peersum: malloc");
		return 1;
	}
	for (size_t i = 0; i < n; i++)
		array[i] = element(id, i);
	if (pvas_export(NAME, array, n * sizeof(double)) < 0)
		return complain("pvas_export");

	/* Each begins with its own array, so that they do not all read the same one. */
	for (int k = 0; k < tasks && !failed; k++)
		failed = sum_peer((id + k) % tasks, n);

	/* A task that failed also enters the barrier: others may be reading its array. */
	failed |= barrier(id, tasks);
	if (!failed)
		printf("task %d: the arrays of %d tasks, %zu doubles each, add up as expected\n",
		       id, tasks, n);
	return failed;
}
