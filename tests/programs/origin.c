/* Where the program finds itself: its library next to it by $ORIGIN, and /proc/self/exe.
 *
 * usage: origin PATH-OF-THIS-PROGRAM */
#include "check.h"

#include <dlfcn.h>
#include <link.h>
#include <limits.h>
#include <sys/auxv.h>

int origin_library(void);

#define same_file(a, b) CHECK((a)->st_dev == (b)->st_dev && (a)->st_ino == (b)->st_ino)

int main(int argc, char **argv)
{
	if (argc == 1) { /* what the exec below starts */
		puts("again");
		return 0;
	}
	char path[PATH_MAX], other[PATH_MAX];
	const char *wanted = argv[1];
	CHECK_EQ(origin_library(), 4711);

	struct stat by_path, by_link;
	CHECK(stat(wanted, &by_path) == 0);
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
	CHECK(length > 0);
	path[length] = 0;
	if (strcmp(path, wanted) != 0) {
		fprintf(stderr, "/proc/self/exe is %s, not %s\n", path, wanted);
		return 1;
	}
	/* Cut short, no terminating zero, as readlink does. */
	memset(other, 'x', sizeof other);
	CHECK_EQ(readlink("/proc/self/exe", other, 5), 5);
	CHECK(memcmp(other, wanted, 5) == 0 && other[5] == 'x');
	CHECK_EQ(readlinkat(AT_FDCWD, "/proc/self/exe", other, sizeof other), length);
	snprintf(path, sizeof path, "/proc/%d/exe", getpid());
	CHECK_EQ(readlink(path, other, sizeof other), length);
	CHECK(memcmp(other, wanted, length) == 0);
	CHECK(realpath("/proc/self/exe", other) && strcmp(other, wanted) == 0);

	CHECK(stat("/proc/self/exe", &by_link) == 0);
	same_file(&by_link, &by_path);
	CHECK(lstat("/proc/self/exe", &by_link) == 0);
	CHECK(S_ISLNK(by_link.st_mode));
	CHECK(access("/proc/self/exe", X_OK) == 0);
	for (int way = 0; way < 3; way++) {
		unsigned char magic[4];
		int descriptor = way == 0   ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC)
		                 : way == 1 ? openat(AT_FDCWD, "/proc/self/exe", O_RDONLY)
		                            : (int)syscall(SYS_open, "/proc/self/exe", O_RDONLY);
		CHECK(descriptor >= 0);
		CHECK(fstat(descriptor, &by_link) == 0);
		same_file(&by_link, &by_path);
		CHECK(read(descriptor, magic, 4) == 4 && memcmp(magic, "\177ELF", 4) == 0);
		CHECK(close(descriptor) == 0);
	}
	FILE *stream = fopen("/proc/self/exe", "rb");
	CHECK(stream && fgetc(stream) == 0177);
	CHECK_FAILS(open("/proc/self/exe", O_RDONLY | O_DIRECTORY), ENOTDIR);
	CHECK_FAILS(readlink("/proc/self/exe", (char *)8, 100), EFAULT);
	CHECK_FAILS(open((char *)8, O_RDONLY), EFAULT);

	/* The program's information about itself. */
	CHECK(strcmp((char *)getauxval(AT_EXECFN), argv[0]) == 0 ||
	      strcmp((char *)getauxval(AT_EXECFN), wanted) == 0);
	CHECK_EQ(getauxval(AT_PAGESZ), 4096);
	CHECK(getauxval(AT_SYSINFO_EHDR) != 0);
	CHECK_EQ(getauxval(AT_UID), getuid());
	CHECK_EQ(getauxval(AT_SECURE), 0);
	CHECK(strcmp(program_invocation_short_name, "origin") == 0);
	Dl_info info;
	CHECK(dladdr((void *)main, &info) && info.dli_fbase);
	CHECK(dladdr((void *)origin_library, &info));
	CHECK(strstr(info.dli_fname, "liborigin.so"));

	/* It can start itself again. */
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "origin", NULL);
		_exit(127);
	}
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	execl("/proc/self/exe", "origin", NULL);
	return 1;
}
