/* What the tests' C programs share: a check that says where it failed. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Ends the program with status 1, having said what did not hold. */
#define CHECK(condition)                                                             \
	do {                                                                         \
		errno = 0;                                                           \
		if (!(condition)) {                                                  \
			fprintf(stderr, "%s:%d: not so: %s (errno %d: %s)\n",        \
			        __FILE__, __LINE__, #condition, errno,               \
			        strerror(errno));                                    \
			_exit(1);                                                    \
		}                                                                    \
	} while (0)

/* The same for two integers, which are printed. */
#define CHECK_EQ(left, right)                                                        \
	do {                                                                         \
		errno = 0;                                                           \
		long long left_ = (long long)(left), right_ = (long long)(right);    \
		if (left_ != right_) {                                               \
			fprintf(stderr, "%s:%d: %s is %lld, not %s = %lld "          \
			                "(errno %d: %s)\n",                          \
			        __FILE__, __LINE__, #left, left_, #right, right_,    \
			        errno, strerror(errno));                             \
			_exit(1);                                                    \
		}                                                                    \
	} while (0)

/* The call must return -1 with this errno. */
#define CHECK_FAILS(call, error)                                                     \
	do {                                                                         \
		errno = 0;                                                           \
		long long got_ = (long long)(call);                                  \
		int errno_ = errno;                                                  \
		if (got_ != -1 || errno_ != (error)) {                               \
			fprintf(stderr, "%s:%d: %s returned %lld with errno %d "     \
			                "(%s), not -1 with %s\n",                    \
			        __FILE__, __LINE__, #call, got_, errno_,             \
			        strerror(errno_), #error);                           \
			_exit(1);                                                    \
		}                                                                    \
	} while (0)

/* A program of several named cases. */
struct check_case {
	const char *name;
	void (*run)(void);
};

__attribute__((unused)) static int check_main(const struct check_case *cases, int argc,
                                              char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s CASE\n", argv[0]);
		return 2;
	}
	for (; cases->name; cases++)
		if (strcmp(cases->name, argv[1]) == 0) {
			cases->run();
			return 0;
		}
	fprintf(stderr, "%s: no case %s\n", argv[0], argv[1]);
	return 2;
}

/* A small generator (SplitMix64): the same numbers everywhere from the same seed. */
__attribute__((unused)) static uint64_t check_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

/* Ends the process when its parent has ended: a test that failed leaves nothing behind. */
__attribute__((unused)) static void check_parent(void)
{
	static pid_t parent;
	if (!parent)
		parent = getppid();
	if (getppid() != parent)
		_exit(9);
}

__attribute__((unused)) static double check_seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* A number of this process's status: KiB of VmPTE, the count of Threads. Allocates nothing. */
__attribute__((unused)) static long check_status(const char *field)
{
	char text[4096], name[64], *line;
	snprintf(name, sizeof name, "\n%s:", field);
	int fd = open("/proc/self/status", O_RDONLY);
	CHECK(fd >= 0);
	ssize_t length = read(fd, text, sizeof text - 1);
	CHECK(length > 0 && close(fd) == 0);
	text[length] = 0;
	CHECK((line = strstr(text, name)) != NULL);
	return atol(line + strlen(name));
}

#endif
