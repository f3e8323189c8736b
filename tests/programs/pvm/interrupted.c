/* A worker that is stopped and continued while it enrolls. The daemon is stopped meanwhile, so that
 * the worker waits for it. */
#include "say.h"
#include <signal.h>
#include <sys/types.h>

enum { NUMBER = 1, ENDED };

static void nap_ms(int ms)
{
	usleep(ms * 1000);
}

static int work(void)
{
	pid_t daemon = getppid(), worker = getpid();

	kill(daemon, SIGSTOP);
	if (fork() == 0) {
		nap_ms(200);
		kill(worker, SIGSTOP);
		nap_ms(100);
		kill(worker, SIGCONT);
		nap_ms(100);
		kill(daemon, SIGCONT);
		_exit(0);
	}
	pvm_mytid();
	tell(pvm_parent(), NUMBER, 42);
	pvm_exit();
	return 0;
}

int main(int argc, char **argv __attribute__((unused)))
{
	int worker, tag = 0;

	if (argc > 1)
		return work();
	spawn(1, &worker, "worker");
	pvm_notify(PvmTaskExit, ENDED, 1, &worker);
	pvm_bufinfo(pvm_recv(-1, -1), NULL, &tag, NULL);
	say("the worker has sent its number: %s", yes(tag == NUMBER));
	pvm_exit();
	return 0;
}
