/* What happens to a task that changes its rights. Most cases say "ready", then stay until they are
 * killed.
 *
 * usage: rights CASE */
#include "check.h"

#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

#define NOBODY 65534

static void stay(void)
{
	write(1, "ready\n", 6);
	for (;;)
		pause();
}

static void idles(void)
{
	stay();
}

static int death_signal(void)
{
	int signal = -1;
	CHECK_EQ(prctl(PR_GET_PDEATHSIG, &signal), 0);
	return signal;
}

/* ---- rights that come back ---------------------------------------------------------- */

static void user_and_back(void)
{
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(seteuid(NOBODY), 0);
		CHECK_EQ(geteuid(), NOBODY);
		CHECK_EQ(seteuid(0), 0);
	}
	stay();
}

static void user_left(void)
{
	CHECK_EQ(seteuid(NOBODY), 0);
	stay();
}

static void group_and_back(void)
{
	CHECK_EQ(setegid(NOBODY), 0);
	CHECK_EQ(setegid(0), 0);
	CHECK_EQ(setregid(-1, NOBODY), 0);
	CHECK_EQ(setregid(-1, 0), 0);
	stay();
}

static void user_of_files(void)
{
	CHECK_EQ(setfsuid(NOBODY), 0);
	CHECK_EQ(setfsuid(0), NOBODY);
	CHECK_EQ(setfsgid(NOBODY), 0);
	CHECK_EQ(setfsgid(0), NOBODY);
	stay();
}

/* libc's syscall() has the number in a register. */
static void by_number(void)
{
	CHECK_EQ(syscall(SYS_setresuid, -1, NOBODY, -1), 0);
	stay();
}

static void *waits(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void start(void *(*function)(void *))
{
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, function, NULL), 0);
}

/* libc makes all threads change their IDs. */
static void with_threads(void)
{
	for (int i = 0; i < 3; i++)
		start(waits);
	CHECK_EQ(seteuid(NOBODY), 0);
	stay();
}

static void *leaves(void *unused)
{
	CHECK_EQ(seteuid(NOBODY), 0);
	return unused;
}

/* The thread that has asked for it ends. */
static void from_a_thread(void)
{
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, leaves, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(geteuid(), NOBODY);
	stay();
}

/* ---- rights that are given up -------------------------------------------------------- */

static void user_dropped(void)
{
	CHECK_EQ(setgid(NOBODY), 0);
	CHECK_EQ(setuid(NOBODY), 0);
	CHECK_EQ(geteuid(), NOBODY);
	stay();
}

/* ---- the program's own death signal -------------------------------------------------- */

static void own_signal(void)
{
	CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGTERM), 0);
	CHECK_EQ(death_signal(), SIGTERM);
	CHECK_FAILS(prctl(PR_SET_PDEATHSIG, 65), EINVAL);
	CHECK_FAILS(prctl(PR_GET_PDEATHSIG, (void *)8), EFAULT);
	CHECK_EQ(death_signal(), SIGTERM);
	/* The kernel clears it here. */
	if (geteuid() == 0) {
		CHECK_EQ(seteuid(NOBODY), 0);
		CHECK_EQ(death_signal(), 0);
		CHECK_EQ(seteuid(0), 0);
	}
	CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGUSR1), 0);
	CHECK_EQ(prctl(PR_SET_PDEATHSIG, 0), 0);
	CHECK_EQ(death_signal(), 0);
	signal(SIGTERM, SIG_IGN);
	stay();
}

/* A child that is no task has a signal of its own, and keeps it. */
static void signal_of_a_child(void)
{
	CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGTERM), 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK_EQ(death_signal(), 0);
		CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGUSR1), 0);
		CHECK_EQ(death_signal(), SIGUSR1);
		if (geteuid() == 0) {
			CHECK_EQ(setgid(NOBODY), 0);
			CHECK_EQ(setuid(NOBODY), 0);
			CHECK_EQ(death_signal(), 0);
		}
		_exit(0);
	}
	int status = -1;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	CHECK_EQ(death_signal(), SIGTERM);
}

static const struct check_case cases[] = {
	{"idles", idles},
	{"user_and_back", user_and_back},
	{"user_left", user_left},
	{"group_and_back", group_and_back},
	{"user_of_files", user_of_files},
	{"by_number", by_number},
	{"with_threads", with_threads},
	{"from_a_thread", from_a_thread},
	{"user_dropped", user_dropped},
	{"own_signal", own_signal},
	{"signal_of_a_child", signal_of_a_child},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return check_main(cases, argc, argv);
}
