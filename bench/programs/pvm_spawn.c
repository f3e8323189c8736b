/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvm_spawn.c - the time to start a PVM task, and until its death is notified.
 *
 *     pvm_spawn 1 PLACES SPAWNS
 *
 * SPAWNS times: pvm_spawn of this program, until its first message is unpacked; then it is
 * killed (SIGKILL), until the notice of pvm_notify (PvmTaskExit) is received. A line:
 *
 *     SPAWNS TO_FIRST_MESSAGE_NS TO_NOTICE_NS
 *
 * the medians.
 */
#include "pvm_job.h"

#include <signal.h>

enum { SPAWNS_MAX = 1000, TAG_HERE = 1, TAG_DEAD };
static char child[] = "child";

/* The spawned task: sends its PID, and waits to be killed. */
static void be_child(void)
{
	int pid = getpid();
	CHECK(pvm_mytid());
	CHECK(pvm_initsend(PvmDataDefault));
	CHECK(pvm_pkint(&pid, 1, 1));
	CHECK(pvm_send(pvm_parent(), TAG_HERE));
	for (;;)
		pause();
}

static char *program;

static void measure(void)
{
	static double first_message[SPAWNS_MAX], notice[SPAWNS_MAX];
	char *of_child[] = { child, NULL };
	int n = arguments < 1 ? 0 : atoi(argument[0]);
	if (n < 1 || n > SPAWNS_MAX)
		fail("usage: 1 PLACES SPAWNS, up to", SPAWNS_MAX);
	for (int i = 0; i < n; i++) {
		int tid, pid;
		int64_t begin = now_ns();
		if (pvm_spawn(program, of_child, PvmTaskDefault, "", 1, &tid) != 1)
			fail("pvm_spawn", tid);
		CHECK(pvm_recv(tid, TAG_HERE));
		CHECK(pvm_upkint(&pid, 1, 1));
		first_message[i] = (double)(now_ns() - begin);
		CHECK(pvm_notify(PvmTaskExit, TAG_DEAD, 1, &tid));
		begin = now_ns();
		kill(pid, SIGKILL);
		CHECK(pvm_recv(-1, TAG_DEAD));
		notice[i] = (double)(now_ns() - begin);
	}
	qsort(first_message, (size_t)n, sizeof *first_message, by_value);
	qsort(notice, (size_t)n, sizeof *notice, by_value);
	say("%d %.0f %.0f", n, first_message[n / 2], notice[n / 2]);
}

int main(int argc, char **argv)
{
	program = argv[0];
	if (argc > 1 && !strcmp(argv[1], child))
		be_child();
	return job(argc, argv, measure);
}
