/* The end of the virtual machine, as a task sees it. */
#include "say.h"

#include <signal.h>

static volatile sig_atomic_t terminated;

static void on_term(int signum)
{
	(void)signum;
	terminated = 1;
}

int main(void)
{
	int parent = enroll(), tid, i, result;

	if (parent > 0) {
		tell(parent, 1, 1);
		pause();
		return 0;
	}
	signal(SIGTERM, on_term);
	spawn(1, &tid, "waits");
	hear(tid, 1);
	/* From now on there is a way to it. */
	tell(tid, 2, 1);
	result = pvm_halt();
	for (i = 0; i < 500 && !terminated; i++)
		usleep(10000);
	say("halt %s", result <= 0 ? "returned" : code(result));
	say("told to end %s", yes(terminated));
	for (i = 0; i < 500 && (result = tell(tid, 1, 1)) == 0; i++)
		usleep(10000);
	say("send fails %s", yes(result < 0));
	say("no daemon %s", code(pvm_mytid()));
	say("spawn %s", code(pvm_spawn("x", NULL, 0, NULL, 1, &tid)));
	say("exit %s", code(pvm_exit()));
	return 0;
}
