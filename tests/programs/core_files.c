/* What the core files of tasks hold: the memory of the task that died, not of the others.
 *
 * usage: core_files      makes a space and lets tasks die in it, in the current directory
 *        core_files big | wait | abort | segv | quit    a task */
#include "check.h"

#include <glob.h>
#include <pvas.h>
#include <sys/resource.h>

#define BIG (192ul << 20)

/* In the heap of the task that runs this; together only there. */
static char *mark(const char *name)
{
	char *text = malloc(64);
	snprintf(text, 64, "%s-%s-%s", "mark", name, "of this task");
	return text;
}

static void task(const char *how)
{
	char *volatile kept = mark(how);
	if (strcmp(how, "big") == 0) {
		char *block = malloc(BIG);
		memset(block, 1, BIG);
		CHECK(pvas_export("ready", kept, 1) == 0);
		for (;;) {
			check_parent();
			usleep(10000);
		}
	}
	if (strcmp(how, "wait") == 0) {
		CHECK(pvas_export("ready", kept, 1) == 0);
		for (;;) {
			check_parent();
			usleep(10000);
		}
	}
	if (strcmp(how, "abort") == 0)
		abort();
	if (strcmp(how, "segv") == 0)
		*(volatile int *)8 = 1;
	if (strcmp(how, "quit") == 0)
		raise(SIGQUIT);
}

/* Returns the size of the file; checks that it contains the mark. */
static size_t size_of(const char *path, const char *how, int *holds)
{
	char wanted[64];
	struct stat status;
	int fd = open(path, O_RDONLY);
	CHECK(fd >= 0 && fstat(fd, &status) == 0);
	char *bytes = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(bytes != MAP_FAILED);
	snprintf(wanted, sizeof wanted, "mark-%s-of this task", how);
	*holds = memmem(bytes, status.st_size, wanted, strlen(wanted)) != NULL;
	munmap(bytes, status.st_size);
	close(fd);
	return status.st_blocks * 512;
}

static pid_t spawn(int pvd, int id, char *self, char *how)
{
	char *argv[] = {self, how, NULL};
	extern char **environ;
	pid_t pid = pvas_spawn(pvd, id, self, argv, environ, NULL);
	CHECK(pid > 0);
	return pid;
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		task(argv[1]);
		return 1;
	}
	struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
	CHECK(setrlimit(RLIMIT_CORE, &all) == 0);
	int pvd = pvas_create();
	CHECK(pvd >= 0);
	pid_t big = spawn(pvd, 0, argv[0], "big");
	CHECK(pvas_import(pvd, 0, "ready", NULL, NULL, 10000) == 0);
	pid_t waits = spawn(pvd, 9, argv[0], "wait");
	CHECK(pvas_import(pvd, 9, "ready", NULL, NULL, 10000) == 0);
	char *ways[] = {"abort", "segv", "quit", "abort", "wait"};
	for (int i = 0; i < 5; i++) {
		int status, holds;
		glob_t found;
		/* The last dies of a signal from outside, without an earlier notice. */
		int outside = i == 4;
		pid_t pid = outside ? waits : spawn(pvd, i + 1, argv[0], ways[i]);
		if (outside)
			CHECK(kill(pid, SIGQUIT) == 0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status) && WCOREDUMP(status));
		CHECK(glob("core*", 0, NULL, &found) == 0);
		CHECK_EQ(found.gl_pathc, 1);
		size_t size = size_of(found.gl_pathv[0], ways[i], &holds);
		CHECK(holds);
		CHECK(outside || size < BIG / 4);
		CHECK(unlink(found.gl_pathv[0]) == 0);
		globfree(&found);
	}
	CHECK(kill(big, SIGKILL) == 0);
	CHECK(waitpid(big, NULL, 0) == big);
	puts("small cores");
	return 0;
}
