/* What happens to a task that changes its rights. Most cases say "ready", then stay until they are
 * killed.
 *
 * usage: rights CASE */
#include "check.h"

#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

#define NOBODY 65534

/* Exit status of a case that this kernel cannot run. */
#define NOT_HERE 77

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

static struct __user_cap_data_struct held[2];

static int set_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	return syscall(SYS_capset, &header, held);
}

static void get_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	CHECK_EQ(syscall(SYS_capget, &header, held), 0);
}

/* A filter that permits everything. */
static int confine(void)
{
	struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {1, all};
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Every change can be undone, or concerns only programs that execve starts. */
static void nothing_lost(void)
{
	gid_t groups[NGROUPS_MAX];
	int count = getgroups(NGROUPS_MAX - 1, groups);
	CHECK(count >= 0);
	CHECK_EQ(setuid(getuid()), 0);
	CHECK_EQ(setgid(getgid()), 0);
	CHECK_EQ(setreuid(-1, geteuid()), 0);
	CHECK_EQ(setresuid(getuid(), geteuid(), -1), 0);
	CHECK_EQ(setresgid(-1, -1, getegid()), 0);
	get_capabilities();
	CHECK_EQ(set_capabilities(), 0);
	if (geteuid() == 0) {
		groups[count] = NOBODY;
		CHECK_EQ(setgroups(count + 1, groups), 0);
		CHECK_EQ(setresuid(NOBODY, NOBODY, 0), 0);
		CHECK_EQ(setresuid(0, 0, 0), 0);
		CHECK_EQ(setreuid(NOBODY, 0), 0);
		CHECK_EQ(setreuid(0, 0), 0);
		CHECK_EQ(setresgid(NOBODY, 0, NOBODY), 0);
		CHECK_EQ(setresgid(0, NOBODY, NOBODY), 0);
		CHECK_EQ(setresgid(0, 0, 0), 0);
		get_capabilities();
		unsigned kept = held[0].effective;
		held[0].effective = 0;
		CHECK_EQ(set_capabilities(), 0);
		held[0].effective = kept;
		CHECK_EQ(set_capabilities(), 0);
		CHECK_EQ(prctl(PR_CAPBSET_DROP, CAP_SYS_BOOT, 0, 0, 0), 0);
	} else {
		CHECK_FAILS(setuid(0), EPERM);
		CHECK_FAILS(setresuid(0, 0, 0), EPERM);
		CHECK_FAILS(setgroups(0, NULL), EPERM);
	}
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	/* libseccomp tests so whether the kernel knows filters. */
	CHECK_FAILS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL), EFAULT);
	/* Errors of the kernel. */
	CHECK_FAILS(setuid(-1), EINVAL);
	CHECK_FAILS(syscall(SYS_capset, NULL, held), EFAULT);
	CHECK_FAILS(syscall(SYS_landlock_restrict_self, -1, 0), EBADF);
	write(1, "done\n", 5);
}

static void seccomp_refused(void)
{
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_FAILS(confine(), EPERM);
	CHECK_FAILS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT), EPERM);
	CHECK_FAILS(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL), EPERM);
	CHECK_EQ(prctl(PR_GET_SECCOMP), 0);
	write(1, "refused\n", 8);
}

static void landlock_refused(void)
{
	unsigned long handled = 1; /* LANDLOCK_ACCESS_FS_EXECUTE */
	int rules = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
	if (rules < 0)
		_exit(NOT_HERE);
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_FAILS(syscall(SYS_landlock_restrict_self, rules, 0), EPERM);
	write(1, "refused\n", 8);
}

static void ids_refused(void)
{
	gid_t groups[2] = {NOBODY, 1};
	CHECK_EQ(setgroups(2, groups), 0);
	CHECK_FAILS(setgroups(0, NULL), EPERM);
	CHECK_FAILS(setgroups(1, groups), EPERM);
	CHECK_FAILS(setgid(NOBODY), EPERM);
	CHECK_FAILS(setregid(NOBODY, NOBODY), EPERM);
	CHECK_FAILS(setresgid(NOBODY, NOBODY, NOBODY), EPERM);
	CHECK_FAILS(setuid(NOBODY), EPERM);
	CHECK_FAILS(setreuid(NOBODY, NOBODY), EPERM);
	CHECK_FAILS(setresuid(NOBODY, NOBODY, NOBODY), EPERM);
	CHECK_FAILS(syscall(SYS_setuid, NOBODY), EPERM);
	/* From an ID that it has only for a time. */
	CHECK_EQ(seteuid(NOBODY), 0);
	CHECK_FAILS(setresuid(NOBODY, NOBODY, NOBODY), EPERM);
	CHECK_EQ(seteuid(0), 0);
	uid_t real, effective, saved;
	CHECK_EQ(getresuid(&real, &effective, &saved), 0);
	CHECK(!real && !effective && !saved);
	CHECK_EQ(getgroups(0, NULL), 2);
	write(1, "refused\n", 8);
}

static void capabilities_refused(void)
{
	get_capabilities();
	CHECK(held[0].permitted & 1u << CAP_CHOWN);
	held[0].permitted &= ~(1u << CAP_CHOWN);
	held[0].effective &= ~(1u << CAP_CHOWN);
	CHECK_FAILS(set_capabilities(), EPERM);
	held[0].permitted |= 1u << CAP_CHOWN;
	held[1] = (struct __user_cap_data_struct){0};
	CHECK_FAILS(set_capabilities(), EPERM);
	CHECK_FAILS(unshare(CLONE_NEWUSER), EPERM);
	get_capabilities();
	CHECK(held[0].effective & 1u << CAP_CHOWN);
	write(1, "refused\n", 8);
}

/* libc ends the program if its threads get different answers. */
static void refused_in_all_threads(void)
{
	for (int i = 0; i < 3; i++)
		start(waits);
	CHECK_FAILS(setgid(NOBODY), EPERM);
	CHECK_FAILS(setuid(NOBODY), EPERM);
	CHECK_EQ(geteuid(), 0);
	write(1, "refused\n", 8);
	_exit(0);
}

/* Children that are no tasks drop their rights as elsewhere. */
static void children_drop(void)
{
	int status = -1;
	for (volatile int vforks = 0; vforks < 2; vforks++) {
		pid_t child = vforks ? vfork() : fork();
		if (!child) {
			if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY) || confine())
				_exit(1);
			execlp("id", "id", "-u", NULL);
			_exit(2);
		}
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK_EQ(status, 0);
	}
	CHECK_EQ(geteuid(), 0);
}

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
	{"nothing_lost", nothing_lost},
	{"seccomp_refused", seccomp_refused},
	{"landlock_refused", landlock_refused},
	{"ids_refused", ids_refused},
	{"capabilities_refused", capabilities_refused},
	{"refused_in_all_threads", refused_in_all_threads},
	{"children_drop", children_drop},
	{"own_signal", own_signal},
	{"signal_of_a_child", signal_of_a_child},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return check_main(cases, argc, argv);
}
