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

/* Since 2.34 the C library itself runs the constructors of a program. Before, the start code of
 * the program passed a function that does. glibc of any version runs a function that is given. */
typedef int main_function(int argc, char **argv, char **envp);
typedef void init_function(int argc, char **argv, char **envp);
typedef void end_function(void);

extern init_function *const __init_array_start[] EXPORT, *const __init_array_end[] EXPORT;
extern end_function _init EXPORT;

extern int start_main_2_2_5(main_function *, int, char **, init_function *, end_function *,
                            end_function *, void *);
__asm__(".symver start_main_2_2_5, __libc_start_main@GLIBC_2.2.5");

/* The dynamic linker runs what is in __preinit_array. */
static void run_constructors(int argc, char **argv, char **envp)
{
	_init();
	for (init_function *const *each = __init_array_start; each < __init_array_end; each++)
		(*each)(argc, argv, envp);
}

EXPORT int __libc_start_main(main_function *main, int argc, char **argv, init_function *init,
                             end_function *fini, end_function *rtld_fini, void *stack_end)
{
	(void)init;
	(void)fini;
	return start_main_2_2_5(main, argc, argv, run_constructors, NULL, rtld_fini, stack_end);
}
