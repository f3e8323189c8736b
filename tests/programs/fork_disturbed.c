/* pvas_fork while things happen.
 *
 * signals: handlers of the waiting parent do not run on the stack that its child uses.
 * kills:   children are SIGKILLed at random instants, also while their program is loaded; the
 *          owner's malloc is never left locked, and IDs become free again.
 * unheard: the kernel does not say that the child has ended, as happens to one that is killed
 *          in execve(2) while the word to clear is copy-on-write. The parent goes on.
 * orphan:  the owner is killed before its child calls pvas_execve, which then fails. */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <pvas.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void scribble(int signal)
{
	volatile char big[16384];
	(void)signal;
	for (size_t i = 0; i < sizeof big; i++)
		big[i] = 0x5a;
}

__attribute__((noinline)) static int stack_holds(void)
{
	volatile char mine[8192];
	for (size_t i = 0; i < sizeof mine; i++)
		mine[i] = 1;
	for (int round = 0; round < 2000; round++)
		for (size_t i = 0; i < sizeof mine; i++)
			if (mine[i] != 1)
				return 7;
	return 0;
}

static int signals(void)
{
	struct sigaction action = {.sa_handler = scribble, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, 500}, {0, 500}};
	int status, pvd = pvas_create();
	CHECK(pvd >= 0 && sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < 5; i++) {
		pid_t pid = pvas_fork(pvd, 0);
		if (pid == 0)
			_exit(stack_holds());
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	}
	return 0;
}

static volatile int done;
static char children[64];

static void *kill_children(void *unused)
{
	unsigned seed = 1;
	while (!done) {
		char list[256];
		int fd = open(children, O_RDONLY);
		ssize_t size = fd < 0 ? 0 : read(fd, list, sizeof list - 1);
		close(fd);
		if (size <= 0)
			continue;
		list[size] = 0;
		for (volatile int wait = rand_r(&seed) % 20000; wait > 0; wait--)
			;
		if (atoi(list) > 1)
			kill(atoi(list), SIGKILL);
	}
	return unused;
}

static int kills(void)
{
	char *program[] = {"true", NULL};
	pthread_t killer;
	int status, pvd = pvas_create();
	CHECK(pvd >= 0);
	snprintf(children, sizeof children, "/proc/self/task/%d/children", getpid());
	CHECK(pthread_create(&killer, NULL, kill_children, NULL) == 0);
	for (int i = 0; i < 1000; i++) {
		pid_t pid = pvas_fork(pvd, 0);
		if (pid == 0) {
			pvas_execve("/bin/true", program, NULL);
			_exit(9);
		}
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
		free(malloc(100 + i % 5000));
	}
	done = 1;
	return 0;
}

static int unheard(void)
{
	static int elsewhere;
	int status, pvd = pvas_create();
	CHECK(pvd >= 0);
	for (int i = 0; i < 5; i++) {
		pid_t pid = pvas_fork(pvd, 0);
		if (pid == 0) {
			syscall(SYS_set_tid_address, &elsewhere);
			_exit(3);
		}
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		CHECK_EQ(status, 3 << 8);
	}
	return 0;
}

static int orphan(void)
{
	char *program[] = {"true", NULL}, result = 0;
	int status, ends[2];
	CHECK(pipe(ends) == 0);
	pid_t owner = fork();
	CHECK(owner >= 0);
	if (owner == 0) {
		int pvd = pvas_create();
		CHECK(pvd >= 0);
		if (pvas_fork(pvd, 0) == 0) {
			alarm(30); /* where it would wait for ever */
			pid_t parent = getppid();
			kill(parent, SIGKILL);
			while (getppid() == parent)
				usleep(1000);
			CHECK_FAILS(pvas_execve("/bin/true", program, NULL), ESRCH);
			CHECK(strcmp(pvas_error(), "the process that created the space has ended") == 0);
			CHECK(write(ends[1], "x", 1) == 1);
		}
		_exit(0);
	}
	close(ends[1]);
	CHECK(waitpid(owner, &status, 0) == owner && WIFSIGNALED(status));
	CHECK(read(ends[0], &result, 1) == 1);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} cases[] = {{"signals", signals}, {"kills", kills}, {"unheard", unheard}, {"orphan", orphan}};
	CHECK_EQ(argc, 2);
	for (int i = 0; i < 4; i++)
		if (strcmp(argv[1], cases[i].name) == 0)
			return cases[i].run();
	return 2;
}
