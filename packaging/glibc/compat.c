/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * compat.c - functions of newer C libraries that glibc 2.28 does not export. `portable-cc` links it
 * into each program and library, where its symbols stay hidden.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("hidden")))

/* Until 2.32, `stat` was a static function over a function with a version of `struct stat`. */
#define STAT_VERSION 1
extern int __fxstat64(int version, int fd, struct stat64 *buf);
extern int __xstat64(int version, const char *path, struct stat64 *buf);
extern int __lxstat64(int version, const char *path, struct stat64 *buf);
extern int __fxstatat64(int version, int fd, const char *path, struct stat64 *buf, int flags);

EXPORT int fstat64(int fd, struct stat64 *buf)
{
	return __fxstat64(STAT_VERSION, fd, buf);
}

EXPORT int stat64(const char *path, struct stat64 *buf)
{
	return __xstat64(STAT_VERSION, path, buf);
}

EXPORT int lstat64(const char *path, struct stat64 *buf)
{
	return __lxstat64(STAT_VERSION, path, buf);
}

EXPORT int fstatat64(int fd, const char *path, struct stat64 *buf, int flags)
{
	return __fxstatat64(STAT_VERSION, fd, path, buf, flags);
}

/* On 64-bit machines both structures are the same. */
EXPORT int fstat(int fd, struct stat *buf) __attribute__((alias("fstat64")));
EXPORT int stat(const char *path, struct stat *buf) __attribute__((alias("stat64")));
EXPORT int lstat(const char *path, struct stat *buf) __attribute__((alias("lstat64")));
EXPORT int fstatat(int fd, const char *path, struct stat *buf, int flags)
	__attribute__((alias("fstatat64")));

/* Since 2.30. */
EXPORT pid_t gettid(void)
{
	return (pid_t)syscall(SYS_gettid);
}

/* Since 2.34. The kernel has it since 5.9, with this number on all processors. */
EXPORT int close_range(unsigned int first, unsigned int last, int flags)
{
	return (int)syscall(436, first, last, flags);
}
