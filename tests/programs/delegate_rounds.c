/* Task 0 serves calls; each other task calls for some hundred milliseconds, and checks what the
 * delegatee did to its memory. Any of them may be killed.
 *
 * usage: delegate_rounds */
#include "check.h"

#include <pvas.h>
#include <pvas_delegate.h>

enum { HELLO, TWICE, FINISHED };
enum { ROUNDS = 200, COUNT = 20000, TASKS_MAX = 16, SILENCE_MAX_S = 5 };

static int me, tasks;

/* ---- the delegatee --------------------------------------------------------------- */

static pid_t callers[TASKS_MAX];
static double last_call;

static long hello(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	callers[job->requester] = *(const pid_t *)job->payload;
	return 0;
}

static long twice(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	int *numbers = *(int *const *)job->payload;
	last_call = check_seconds();
	for (int i = 0; i < COUNT; i++)
		numbers[i] *= 2;
	return job->requester;
}

static long finished(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	callers[job->requester] = -1;
	return 0;
}

/* Some task has not finished, and is alive, or has not begun. */
static int is_awaited(void)
{
	for (int task = 1; task < tasks; task++) {
		int has_begun = callers[task] > 0;
		if (has_begun && kill(callers[task], 0) == 0)
			return 1;
		if (callers[task] == 0 && check_seconds() - last_call < SILENCE_MAX_S)
			return 1;
	}
	return 0;
}

static void serve(void)
{
	CHECK_EQ(pvas_delegate_open(0, 0), 0);
	CHECK_EQ(pvas_delegate_register(HELLO, hello, NULL), 0);
	CHECK_EQ(pvas_delegate_register(TWICE, twice, NULL), 0);
	CHECK_EQ(pvas_delegate_register(FINISHED, finished, NULL), 0);
	last_call = check_seconds();
	while (is_awaited())
		CHECK(pvas_delegate_serve(20) >= 0);
	CHECK_EQ(pvas_delegate_close(), 0);
	CHECK(write(1, "served\n", 7) == 7);
}

/* ---- the requesters -------------------------------------------------------------- */

static void call(void)
{
	static int numbers[COUNT], *at = numbers;
	pid_t pid = getpid();
	pvas_delegatee *zero = pvas_delegate_find(0, 30000);
	CHECK(zero);
	CHECK_EQ(pvas_delegate_call(zero, HELLO, &pid, sizeof pid), 0);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < COUNT; i++)
			numbers[i] = me + round * i;
		CHECK_EQ(pvas_delegate_call(zero, TWICE, &at, sizeof at), me);
		for (int i = 0; i < COUNT; i++)
			CHECK_EQ(numbers[i], 2 * (me + round * i));
		usleep(2000);
	}
	CHECK_EQ(pvas_delegate_call(zero, FINISHED, NULL, 0), 0);
	CHECK(write(1, "calls answered\n", 15) == 15);
}

int main(void)
{
	me = pvas_getid(), tasks = atoi(getenv("NAGAYA_TASKS"));
	CHECK(me >= 0 && tasks <= TASKS_MAX);
	if (me == 0)
		serve();
	else
		call();
	return 0;
}
