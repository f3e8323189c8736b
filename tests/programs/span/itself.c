/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A program that looks at itself: /proc/self/exe by every call, its command line, its name, and
 * whether it can execute itself. Bad addresses are EFAULT. With `raise` it sends itself SIGSEGV. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char path[4096];
static struct stat own;

static int is_own(const struct stat *stat)
{
	return stat->st_dev == own.st_dev && stat->st_ino == own.st_ino;
}

static int opens_own(int descriptor)
{
	struct stat it;
	int is;

	if (descriptor < 0 || fstat(descriptor, &it) != 0)
		return -errno;
	is = is_own(&it);
	close(descriptor);
	return is;
}

static void look_at(const char *what, const char *name)
{
	struct open_how how = {.flags = O_RDONLY};
	struct statx more;
	struct stat it;
	char link[4096];
	ssize_t length;

	printf("%s: stat %d", what, stat(name, &it) == 0 ? is_own(&it) : -errno);
	printf(" lstat %d", lstat(name, &it) == 0 ? S_ISLNK(it.st_mode) != 0 : -errno);
	printf(" fstatat %d", fstatat(AT_FDCWD, name, &it, 0) == 0 ? is_own(&it) : -errno);
	printf(" statx %d", statx(AT_FDCWD, name, 0, STATX_INO, &more) == 0
				    ? more.stx_ino == own.st_ino
				    : -errno);
	printf(" open %d", opens_own(syscall(SYS_open, name, O_RDONLY)));
	printf(" openat %d", opens_own(openat(AT_FDCWD, name, O_RDONLY | O_CLOEXEC)));
	printf(" openat2 %d", opens_own(syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof how)));
	printf(" nofollow %d", opens_own(open(name, O_RDONLY | O_NOFOLLOW)));
	printf(" access %d", syscall(SYS_access, name, X_OK) == 0 ? 0 : -errno);
	printf(" faccessat %d", syscall(SYS_faccessat, AT_FDCWD, name, R_OK) == 0 ? 0 : -errno);
	printf(" faccessat2 %d", syscall(SYS_faccessat2, AT_FDCWD, name, X_OK, 0) == 0 ? 0 : -errno);
	length = readlink(name, link, sizeof link);
	printf(" readlink %d", length > 0 && strncmp(link, path, length) == 0 && !path[length]);
	printf(" short %zd", readlinkat(AT_FDCWD, name, link, 3));
	printf(" none %d\n", syscall(SYS_readlink, name, link, 0) < 0 ? -errno : 0);
}

static void say(const char *name)
{
	char text[4096];
	int descriptor = open(name, O_RDONLY);
	ssize_t bytes = read(descriptor, text, sizeof text - 1);

	CHECK(descriptor >= 0 && bytes > 0);
	close(descriptor);
	text[bytes] = 0;
	printf("%s:", name);
	for (char *at = text; at < text + bytes; at += strlen(at) + 1)
		printf(" [%s]", at);
	printf("\n");
}

static void bad_addresses(void)
{
	static const long calls[][4] = {
		{SYS_stat, 8, 8}, {SYS_open, 8, 0}, {SYS_readlink, 8, 8, 8}, {SYS_openat, -100, 8, 0},
		{SYS_execve, 8, 0, 0}, {SYS_rt_sigaction, SIGUSR1, 8, 0},
		{SYS_rt_sigprocmask, SIG_BLOCK, 8, 0}, {SYS_futex, 8, 0, 0},
	};

	printf("bad:");
	for (unsigned at = 0; at < sizeof calls / sizeof *calls; at++) {
		long result = syscall(calls[at][0], calls[at][1], calls[at][2], calls[at][3], 8L);

		printf(" %d", result < 0 ? errno : 0);
	}
	printf("\n");
}

static void *look(void *node)
{
	char name[64];

	nagaya_migrate((int)(intptr_t)node);
	look_at("self", "/proc/self/exe");
	look_at("thread", "/proc/thread-self/exe");
	snprintf(name, sizeof name, "/proc/%d/exe", getpid());
	look_at("process", name);
	snprintf(name, sizeof name, "/proc/%ld/exe", syscall(SYS_gettid));
	look_at("thread ID", name);
	snprintf(name, sizeof name, "/proc/self/task/%ld/exe", syscall(SYS_gettid));
	look_at("task", name);
	look_at("nobody", "/proc/self/exe/x");
	say("/proc/self/cmdline");
	say("/proc/self/comm");
	bad_addresses();
	signal(SIGSEGV, SIG_IGN);
	raise(SIGSEGV);
	signal(SIGSEGV, SIG_DFL);
	return NULL;
}

static void *raises(void *node)
{
	nagaya_migrate((int)(intptr_t)node);
	raise(SIGSEGV);
	return NULL;
}

static void begin(void *(*body)(void *), int node)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, body, (void *)(intptr_t)node) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void ends_itself(pid_t child)
{
	int status;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

/* By posix_spawn(3), and by children of fork(2) and theirs. */
static void *starts_itself(void *none)
{
	char *again[] = {"itself", "again", path, NULL};
	pid_t child;

	(void)none;
	CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, again, environ) == 0);
	ends_itself(child);
	child = fork();
	if (child == 0) {
		execv("/proc/self/exe", again);
		_exit(1);
	}
	ends_itself(child);
	child = fork();
	if (child == 0) {
		int status;

		child = fork();
		if (child == 0) {
			execv("/proc/self/exe", again);
			_exit(1);
		}
		_exit(waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 1);
	}
	ends_itself(child);
	return NULL;
}

int main(int count, char **arguments)
{
	static char *none[] = {NULL};
	const char *what = count > 1 ? arguments[1] : "";
	int nodes = nagaya_nodes() > 1 ? nagaya_nodes() : 1;

	if (strcmp(what, "executed") == 0) {
		say("/proc/self/cmdline");
		execl("/bin/echo", "echo", "right", NULL);
	}
	if (strcmp(what, "again") == 0) {
		CHECK(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
		printf("%s", strcmp(path, arguments[2]) == 0 ? "itself\n" : path);
		return 3;
	}
	if (strcmp(what, "raise") == 0) {
		begin(raises, nodes - 1);
		return 0;
	}
	CHECK(realpath(arguments[0], path) && stat(path, &own) == 0);
	if (strcmp(what, "children") == 0) {
		for (int turn = 1; turn <= 3; turn++)
			begin(starts_itself, turn % nodes);
		printf("right\n");
		return 0;
	}
	for (int turn = 1; turn <= 3; turn++)
		begin(look, turn % nodes);
	printf("deleted:\n");
	fflush(stdout);
	if (strcmp(what, "delete") == 0) {
		struct stat it;

		CHECK(unlink(path) == 0);
		CHECK(stat("/proc/self/exe", &it) == 0 && is_own(&it));
	}
	if (strcmp(what, "execveat") == 0) {
		char *again[] = {"itself", "executed", NULL};

		syscall(SYS_execveat, -1, "/proc/self/exe", again, none, 0);
	}
	execl("/proc/self/exe", "itself", "executed", NULL);
	return 1;
}
