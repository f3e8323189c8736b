/* Requesters and delegatees that are killed. The program owns a space, and is its tasks where
 * its first argument begins with "task-".
 *
 * usage: delegate_faults requester_dies | full_queue_goes | chaos SEED SECONDS */
#include "check.h"

#include <limits.h>
#include <pvas.h>
#include <pvas_delegate.h>
#include <stdatomic.h>

extern char **environ;

static char self[PATH_MAX];

static pid_t start(int pvd, int id, const char *role, const char *argument)
{
	char *argv[] = { "delegate_faults", (char *)role, (char *)argument, NULL };
	/* A failed test leaves no tasks. */
	struct pvas_spawn_attr attr = { .fields = PVAS_SPAWN_PDEATHSIG, .pdeathsig = SIGKILL };
	/* A task may still be working for the last one with this ID. */
	for (;;) {
		pid_t pid = pvas_spawn(pvd, id, self, argv, environ, &attr);
		if (pid >= 0)
			return pid;
		int error = errno;
		CHECK_EQ(error, EBUSY);
		usleep(500);
	}
}

static int wait_status(pid_t pid)
{
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void *import(int pvd, int id, const char *name)
{
	void *at;
	CHECK_EQ(pvas_import(pvd, id, name, &at, NULL, 60000), 0);
	return at;
}

/* ---- a requester that dies while it is worked for ------------------------------------ */

enum { LATE = 1, PATTERN = 2, FAR = 3, KEEP = 4 };

struct late {
	atomic_int begun, go_on, finished;
};

/* Continues on an order, and only then writes; the requester has ended by then. */
static long late(const struct pvas_delegate_job *job, void *context)
{
	struct late *late = context;
	char *at = *(char *const *)job->payload, copy[100];
	late->begun = 1;
	while (!late->go_on)
		usleep(500);
	CHECK_EQ(pvas_delegate_cancelled(job), 1);
	memset(at, 1, 100000);
	CHECK_EQ(pvas_delegate_read(job, copy, at + 50000, sizeof copy), 0);
	CHECK_EQ(copy[99], 1);
	late->finished = 1;
	return 0;
}

/* The same, when the operation has long returned, for two requests at once. */
static void *late_answers(void *argument)
{
	const struct pvas_delegate_job **kept = argument;
	struct late *late = (struct late *)kept[2];
	while (!late->go_on)
		usleep(500);
	for (int i = 0; i < 2; i++) {
		char *at = *(char *const *)kept[i]->payload, copy[100];
		CHECK_EQ(pvas_delegate_cancelled(kept[i]), 1);
		memset(at, 1, 100000);
		CHECK_EQ(pvas_delegate_read(kept[i], copy, at + 50000, sizeof copy), 0);
		CHECK_EQ(copy[99], 1);
		usleep(20000);
		late->finished += i;
		CHECK_EQ(pvas_delegate_answer(kept[i], 0), 0);
	}
	return NULL;
}

static long keeps(const struct pvas_delegate_job *job, void *context)
{
	static const struct pvas_delegate_job *kept[3];
	static int count;
	struct late *late = context;
	pthread_t thread;
	CHECK((kept[count++] = pvas_delegate_keep(job)) != NULL);
	if (count < 2)
		return 0;
	kept[2] = context, count = 0;
	CHECK(pthread_create(&thread, NULL, late_answers, kept) == 0);
	CHECK(pthread_detach(thread) == 0);
	late->begun = 1;
	return 0;
}

static int task_late_delegatee(void)
{
	static struct late state;
	CHECK_EQ(pvas_delegate_open(0, 0), 0);
	CHECK_EQ(pvas_delegate_register(LATE, late, &state), 0);
	CHECK_EQ(pvas_delegate_register(KEEP, keeps, &state), 0);
	CHECK_EQ(pvas_export("late", &state, sizeof state), 0);
	while (pvas_delegate_serve(-1) == 1)
		;
	return 1;
}

static int task_late_requester(const char *operation)
{
	pvas_delegatee *zero = pvas_delegate_find(0, -1);
	CHECK(zero);
	char *at = calloc(1, 100000);
	pvas_delegate_submit(zero, atoi(operation), &at, sizeof at, -1);
	pvas_delegate_call(zero, atoi(operation), &at, sizeof at);
	return 1;
}

static void requester_dies(void)
{
	int pvd = pvas_create();
	CHECK(pvd >= 0);
	pid_t zero = start(pvd, 0, "task-late-delegatee", NULL);
	struct late *late = import(pvd, 0, "late");
	for (int round = 0; round < 6; round++) {
		late->begun = late->go_on = late->finished = 0;
		/* One is worked on, and the second dropped; or both are kept. */
		pid_t one = start(pvd, 1, "task-late-requester", round % 2 ? "1" : "4");
		while (!late->begun)
			usleep(500);
		CHECK_EQ(kill(one, SIGKILL), 0);
		CHECK_EQ(wait_status(one), 128 + SIGKILL);
		/* It is gone for all, but its memory is not reused. */
		CHECK_FAILS(pvas_getpid(pvd, 1), ESRCH);
		CHECK_EQ(pvas_ntasks(pvd), 1);
		char *argv[] = { "delegate_faults", "task-nothing", NULL };
		CHECK_FAILS(pvas_spawn(pvd, 1, self, argv, environ, NULL), EBUSY);
		late->go_on = 1;
		pid_t next = start(pvd, 1, "task-nothing", NULL);
		CHECK_EQ(late->finished, 1);
		CHECK_EQ(wait_status(next), 0);
		CHECK_EQ(kill(zero, 0), 0);
	}
	/* The task that works for it dies, too: nothing stays held. */
	late->begun = late->go_on = 0;
	pid_t one = start(pvd, 1, "task-late-requester", "4");
	while (!late->begun)
		usleep(500);
	CHECK_EQ(kill(one, SIGKILL), 0);
	CHECK_EQ(wait_status(one), 128 + SIGKILL);
	CHECK_EQ(kill(zero, SIGKILL), 0);
	CHECK_EQ(wait_status(zero), 128 + SIGKILL);
	CHECK_EQ(wait_status(start(pvd, 1, "task-nothing", NULL)), 0);
	CHECK_EQ(pvas_destroy(pvd), 0);
}

/* ---- a delegatee that dies while others write into its queue -------------------------- */

static int task_full_delegatee(void)
{
	CHECK_EQ(pvas_delegate_open(16, 0), 0);
	for (;;)
		pause();
}

/* Fills the queue, by five ways since each has a share of a quarter, and then tries again and
 * again. Requests are never answered, and left behind. */
static int task_full_requester(void)
{
	static atomic_int full;
	CHECK_EQ(pvas_export("full", &full, sizeof full), 0);
	for (;;) {
		pvas_delegatee *ways[5];
		int error = 0;
		full = 0;
		for (int w = 0; w < 5 && error != ESRCH; w++) {
			if (!(ways[w] = pvas_delegate_find(0, -1)))
				break; /* it ended while we looked */
			do
				error = pvas_delegate_submit(ways[w], LATE, NULL, 0, 0) ? 0 : errno;
			while (!error);
			if (w < 4)
				continue;
			/* This one has its share before it, so it is the queue that is full. */
			full = 1;
			while (error == EAGAIN)
				error = pvas_delegate_submit(ways[w], LATE, NULL, 0, 0) ? 0 : errno;
			CHECK_EQ(error, ESRCH);
		}
	}
}

static void full_queue_goes(void)
{
	int pvd = pvas_create();
	CHECK(pvd >= 0);
	pid_t one = start(pvd, 1, "task-full-requester", NULL);
	atomic_int *full = import(pvd, 1, "full");
	for (int round = 0; round < 30; round++) {
		pid_t zero = start(pvd, 0, "task-full-delegatee", NULL);
		while (!*full)
			CHECK_EQ(waitpid(one, NULL, WNOHANG), 0);
		/* Stopped wherever it is, it goes on when the other has ended: in memory that has
		 * stayed, or it looks before it touches any. */
		int status;
		CHECK_EQ(kill(one, SIGSTOP), 0);
		CHECK_EQ(waitpid(one, &status, WUNTRACED), one);
		CHECK(WIFSTOPPED(status));
		CHECK_EQ(kill(zero, SIGKILL), 0);
		CHECK_EQ(wait_status(zero), 128 + SIGKILL);
		usleep(3000);
		CHECK_EQ(kill(one, SIGCONT), 0);
		while (*full)
			CHECK_EQ(waitpid(one, NULL, WNOHANG), 0);
	}
	CHECK_EQ(pvas_destroy(pvd), 0);
	CHECK_EQ(wait_status(one), 128 + SIGKILL);
}

/* ---- chaos ------------------------------------------------------------------------- */

/* Delegatees are tasks 0 and 1, requesters 2 to 4. */
enum { DELEGATEES = 2, TASKS = 5, BYTES = 20000 };

struct pattern {
	unsigned char *at;
	size_t length;
	unsigned char seed;
};

static long fill(const struct pvas_delegate_job *job)
{
	const struct pattern *pattern = job->payload;
	for (size_t i = 0; i < pattern->length; i++)
		pattern->at[i] = pattern->seed + i;
	return pattern->seed;
}

/* Some are answered later, by another thread. */
static const struct pvas_delegate_job *_Atomic kept[64];

static long pattern(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	if (((const struct pattern *)job->payload)->seed % 2 == 0)
		return fill(job);
	const struct pvas_delegate_job *mine = pvas_delegate_keep(job);
	CHECK(mine);
	for (int i = 0;; i = (i + 1) % 64) {
		const struct pvas_delegate_job *none = NULL;
		if (atomic_compare_exchange_strong(&kept[i], &none, mine))
			return 0;
	}
}

static void *answer(void *unused)
{
	for (int i = 0;; i = (i + 1) % 64) {
		const struct pvas_delegate_job *job = atomic_exchange(&kept[i], NULL);
		if (job)
			CHECK_EQ(pvas_delegate_answer(job, fill(job)), 0);
		else if (i == 0)
			sched_yield();
	}
	return unused;
}

/* As a requester of the other delegatee, within an operation. */
static long far(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	unsigned char byte = *(const unsigned char *)job->payload;
	pvas_delegatee *other = pvas_delegate_find(1, 0);
	if (!other)
		return -errno;
	unsigned char *mine = malloc(100);
	struct pattern asked = { mine, 100, byte };
	long answer = pvas_delegate_call(other, PATTERN, &asked, sizeof asked);
	int error = errno;
	pvas_delegate_release(other);
	if (answer >= 0)
		for (int i = 0; i < 100; i++)
			CHECK_EQ(mine[i], (unsigned char)(byte + i));
	free(mine);
	return answer >= 0 ? answer : -error;
}

static void *serve(void *unused)
{
	while (pvas_delegate_serve(-1) == 1)
		;
	CHECK(!"serves for ever");
	return unused;
}

static int task_delegatee(void)
{
	pthread_t thread;
	CHECK_EQ(pvas_delegate_open(16, 0), 0);
	CHECK_EQ(pvas_delegate_register(PATTERN, pattern, NULL), 0);
	CHECK_EQ(pvas_delegate_register(FAR, far, NULL), 0);
	CHECK(pthread_create(&thread, NULL, answer, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
	serve(NULL);
	return 1;
}

/* The delegatee has ended: its end, or this task's, may cause no other answer. */
static int is_end(long error)
{
	return error == ESRCH || error == ECONNRESET || error == ECONNREFUSED;
}

static unsigned next(unsigned *state)
{
	return *state = *state * 1664525u + 1013904223u, *state >> 8;
}

static void *request(void *argument)
{
	atomic_long *done = argument;
	unsigned state = (unsigned)(getpid() ^ (uintptr_t)&state >> 12);
	unsigned char *buffer = malloc(4 * BYTES);
	for (;;) {
		int id = next(&state) % DELEGATEES;
		pvas_delegatee *delegatee = pvas_delegate_find(id, 100);
		if (!delegatee)
			continue;
		for (long error = 0; !error;) {
			struct pattern asked[4];
			pvas_delegate_request *requests[4];
			int n = 1 + next(&state) % 4;
			for (int i = 0; i < n; i++) {
				asked[i] = (struct pattern){ buffer + i * BYTES, next(&state) % BYTES,
					                     next(&state) };
				memset(asked[i].at, 0, asked[i].length);
				requests[i] = pvas_delegate_submit(delegatee, PATTERN, &asked[i],
				                                   sizeof asked[i], -1);
				error = requests[i] ? error : errno;
			}
			for (int i = 0; i < n; i++) {
				long result;
				if (!requests[i])
					continue;
				int cancelled = next(&state) % 8 == 0;
				if (cancelled)
					CHECK_EQ(pvas_delegate_cancel(requests[i]), 0);
				CHECK_EQ(pvas_delegate_wait(requests[i], &result, -1), 1);
				if (result == -ECANCELED && cancelled)
					continue;
				if (result < 0) {
					error = -result;
					continue;
				}
				CHECK_EQ(result, asked[i].seed);
				for (size_t k = 0; k < asked[i].length; k++)
					CHECK_EQ(asked[i].at[k], (unsigned char)(asked[i].seed + k));
				++*done;
			}
			if (id == 0 && !error) {
				unsigned char byte = next(&state);
				long answer = pvas_delegate_call(delegatee, FAR, &byte, 1);
				int failed = errno;
				if (answer >= 0)
					CHECK_EQ(answer, byte);
				else
					CHECK(is_end(failed));
			}
			if (error == EAGAIN) /* threads of ours have the share */
				error = 0;
			CHECK(!error || is_end(error));
		}
		pvas_delegate_release(delegatee);
	}
	return NULL;
}

static int task_requester(void)
{
	static atomic_long done;
	pthread_t thread;
	CHECK_EQ(pvas_export("done", &done, sizeof done), 0);
	CHECK(pthread_create(&thread, NULL, request, &done) == 0);
	request(&done);
	return 1;
}

static void chaos(unsigned seed, int seconds)
{
	static const char *const roles[TASKS] = { "task-delegatee", "task-delegatee",
		"task-requester", "task-requester", "task-requester" };
	int pvd = pvas_create(), killed = 0;
	long answered = 0;
	pid_t pids[TASKS];
	CHECK(pvd >= 0);
	for (int id = 0; id < TASKS; id++)
		pids[id] = start(pvd, id, roles[id], NULL);
	for (double end = check_seconds() + seconds; check_seconds() < end;) {
		usleep(next(&seed) % 20000);
		int id = next(&seed) % TASKS;
		/* Whoever has found that something is wrong has ended by itself. */
		for (int other = 0; other < TASKS; other++)
			CHECK_EQ(waitpid(pids[other], NULL, WNOHANG), 0);
		CHECK_EQ(kill(pids[id], SIGKILL), 0);
		CHECK_EQ(wait_status(pids[id]), 128 + SIGKILL);
		pids[id] = start(pvd, id, roles[id], NULL);
		killed++;
	}
	/* In peace they still work, each of them. */
	for (int id = DELEGATEES; id < TASKS; id++) {
		atomic_long *done = import(pvd, id, "done");
		for (long before = *done; *done < before + 100;)
			usleep(1000);
		answered += *done;
	}
	for (int id = 0; id < TASKS; id++)
		CHECK_EQ(waitpid(pids[id], NULL, WNOHANG), 0);
	CHECK_EQ(pvas_destroy(pvd), 0);
	for (int id = 0; id < TASKS; id++)
		CHECK_EQ(wait_status(pids[id]), 128 + SIGKILL);
	printf("%d killed, %ld requests answered of those who lived at the end\n", killed, answered);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 2);
	CHECK(realpath("/proc/self/exe", self) != NULL);
	const char *what = argv[1];
	if (strcmp(what, "task-nothing") == 0)
		return 0;
	if (strcmp(what, "task-late-delegatee") == 0)
		return task_late_delegatee();
	if (strcmp(what, "task-late-requester") == 0)
		return task_late_requester(argv[2]);
	if (strcmp(what, "task-full-delegatee") == 0)
		return task_full_delegatee();
	if (strcmp(what, "task-full-requester") == 0)
		return task_full_requester();
	if (strcmp(what, "task-delegatee") == 0)
		return task_delegatee();
	if (strcmp(what, "task-requester") == 0)
		return task_requester();
	if (strcmp(what, "requester_dies") == 0) {
		requester_dies();
		return 0;
	}
	if (strcmp(what, "full_queue_goes") == 0) {
		full_queue_goes();
		return 0;
	}
	CHECK(strcmp(what, "chaos") == 0 && argc == 4);
	chaos((unsigned)strtoul(argv[2], NULL, 10), atoi(argv[3]));
	return 0;
}
