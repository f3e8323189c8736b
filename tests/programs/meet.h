/* Steps of the tasks of one run: named memory of another task, and meetings of all. A program sets
 * `me` and `tasks`, and task 0 exports "arrived" (begin_to_meet). */
#ifndef MEET_H
#define MEET_H

#include "check.h"

#include <pvas.h>
#include <stdatomic.h>

#define PAGE 4096ul
#define WAIT_MS 60000

static int me, tasks;
static _Atomic int arrived; /* task 0's counts */

/* The memory that the task has exported by this name. Waits for it. */
__attribute__((unused)) static void *of(int task, const char *name)
{
	void *address;
	if (pvas_import(PVAS_SELF, task, name, &address, NULL, WAIT_MS)) {
		fprintf(stderr, "%d: %s of %d: %s\n", me, name, task, pvas_error());
		_exit(1);
	}
	return address;
}

__attribute__((unused)) static void tell(const char *name, const void *address, size_t size)
{
	CHECK_EQ(pvas_export(name, address, size), 0);
}

/* Sets `me` and `tasks`. */
__attribute__((unused)) static void begin_to_meet(void)
{
	me = pvas_getid();
	CHECK(me >= 0);
	tasks = atoi(getenv("NAGAYA_TASKS"));
	if (me == 0)
		tell("arrived", &arrived, sizeof arrived);
}

__attribute__((unused)) static void meet(void)
{
	static int step;
	_Atomic int *count = me ? of(0, "arrived") : &arrived;
	step++;
	atomic_fetch_add(count, 1);
	while (atomic_load(count) < step * tasks) {
		usleep(500);
		check_parent();
	}
}

/* Task 0, at whose count the others look, stays until they have gone. */
__attribute__((unused)) static void part(void)
{
	meet();
	for (int task = 1; !me && task < tasks; task++)
		while (pvas_getpid(PVAS_SELF, task) >= 0 || errno == EREMOTE)
			usleep(500);
}

#endif
