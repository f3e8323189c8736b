/* Every call of pvas.h: its effect, and each error that it documents. The program is the
 * owner of spaces in one case, and with a first argument that begins with "task-" one of
 * the tasks that it starts there. */
#include "check.h"

#include <dirent.h>
#include <limits.h>
#include <pvas.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>

extern char **environ;

static char self[PATH_MAX];

/* NULL, with this errno. */
#define CHECK_NULL(call, error)                                                      \
	do {                                                                         \
		errno = 0;                                                           \
		const void *got_ = (call);                                           \
		int errno_ = errno;                                                 \
		CHECK(got_ == NULL);                                                 \
		CHECK_EQ(errno_, error);                                        \
	} while (0)

/* pvas_error() says something, in one line. */
static void check_reason(void)
{
	const char *reason = pvas_error();
	CHECK(reason != NULL);
	if (strlen(reason) < 8 || strchr(reason, '\n')) {
		fprintf(stderr, "pvas_error() is \"%s\"\n", reason);
		_exit(1);
	}
}

static pid_t start(int pvd, int id, const char *role, const char *argument)
{
	char *argv[] = {"api", (char *)role, (char *)argument, NULL};
	return pvas_spawn(pvd, id, self, argv, environ, NULL);
}

static int wait_status(pid_t pid)
{
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int new_space(void)
{
	int pvd = pvas_create();
	if (pvd < 0) {
		fprintf(stderr, "pvas_create: %s\n", pvas_error());
		_exit(1);
	}
	return pvd;
}

static struct pvas_space_info info_of(int pvd)
{
	struct pvas_space_info info = {0};
	CHECK(pvas_getspace(pvd, &info) == 0);
	return info;
}

/* A task that reports nothing and stays. */
static pid_t start_sleeper(int pvd, int id)
{
	pid_t pid = start(pvd, id, "task-sleeps", "");
	if (pid < 0) {
		fprintf(stderr, "a sleeper with ID %d: %s\n", id, pvas_error());
		_exit(1);
	}
	return pid;
}

static void task_sleeps(const char *unused)
{
	(void)unused;
	for (;;) {
		check_parent();
		sleep(1);
	}
}

static void task_exits(const char *status)
{
	exit(atoi(status));
}

static void task_dies(const char *number)
{
	raise(atoi(number));
}

/* ---- spaces ---------------------------------------------------------------------------- */

static void spaces_are_made_and_removed(void)
{
	int pvd = new_space();
	CHECK(pvd >= 0);
	struct pvas_space_info info = info_of(pvd);
	CHECK(info.fields != 0);
	CHECK_EQ(info.segment_size, 32ul << 30);
	CHECK(info.max_tasks >= 1000);
	CHECK_EQ(info.tasks, 0);
	CHECK_EQ(info.owner, getpid());
	CHECK_EQ(pvas_ntasks(pvd), 0);
	int ids[] = {0, 1, 17, info.max_tasks - 1};
	for (int i = 0; i < 4; i++) {
		char *segment = pvas_segment(pvd, ids[i]);
		CHECK((uintptr_t)segment == info.base + (uintptr_t)ids[i] * info.segment_size);
		CHECK_EQ(pvas_id_of(pvd, segment), ids[i]);
		CHECK_EQ(pvas_id_of(pvd, segment + info.segment_size - 1), ids[i]);
	}
	CHECK_FAILS(pvas_id_of(pvd, (char *)info.base - 1), EINVAL);
	CHECK_FAILS(pvas_id_of(pvd, (char *)info.base + (uintptr_t)info.max_tasks * info.segment_size),
	            EINVAL);
	CHECK_FAILS(pvas_id_of(pvd, &info), EINVAL);
	CHECK_FAILS(pvas_id_of(pvd, NULL), EINVAL);
	CHECK_NULL(pvas_segment(pvd, -1), EINVAL);
	CHECK_NULL(pvas_segment(pvd, info.max_tasks), EINVAL);
	CHECK_NULL(pvas_export_area(pvd, -1), EINVAL);
	CHECK_NULL(pvas_export_area(pvd, info.max_tasks), EINVAL);
	CHECK_NULL(pvas_export_area(pvd, 3), ESRCH);
	CHECK_FAILS(pvas_getpid(pvd, 3), ESRCH);
	CHECK_FAILS(pvas_getpid(pvd, -1), EINVAL);
	CHECK_FAILS(pvas_getpid(pvd, info.max_tasks), EINVAL);
	CHECK_FAILS(pvas_getspace(pvd, NULL), EFAULT);
	check_reason();
	CHECK(pvas_destroy(pvd) == 0);
	for (int i = 0; i < 200; i++) {
		pvd = new_space();
		CHECK(pvas_destroy(pvd) == 0);
	}
}

static void no_such_space(void)
{
	int removed = new_space();
	CHECK(pvas_destroy(removed) == 0);
	int wrong[] = {removed, removed + 1, 12345, INT_MAX, -2, INT_MIN};
	char *argv[] = {"true", NULL};
	struct pvas_space_info info;
	for (int i = 0; i < 6; i++) {
		int pvd = wrong[i];
		CHECK_FAILS(pvas_destroy(pvd), EBADF);
		check_reason();
		CHECK_FAILS(pvas_fork(pvd, 0), EBADF);
		check_reason();
		CHECK_FAILS(pvas_spawn(pvd, 0, "/bin/true", argv, environ, NULL), EBADF);
		check_reason();
		CHECK_FAILS(pvas_ntasks(pvd), EBADF);
		CHECK_FAILS(pvas_getspace(pvd, &info), EBADF);
		CHECK_FAILS(pvas_getpid(pvd, 0), EBADF);
		CHECK_NULL(pvas_segment(pvd, 0), EBADF);
		CHECK_NULL(pvas_export_area(pvd, 0), EBADF);
		CHECK_FAILS(pvas_id_of(pvd, &info), EBADF);
		CHECK_FAILS(pvas_import(pvd, 0, "name", NULL, NULL, 0), EBADF);
		check_reason();
	}
}

static void space_attributes(void)
{
	struct pvas_space_attr attr = {.fields = PVAS_SPACE_SEGMENT_SIZE | PVAS_SPACE_MAX_TASKS};
	size_t good[] = {64ul << 20, 1ul << 30, 4ul << 30, 16ul << 40};
	for (int i = 0; i < 4; i++) {
		attr.segment_size = good[i];
		attr.max_tasks = 3;
		int pvd = pvas_create_attr(&attr);
		CHECK(pvd >= 0);
		struct pvas_space_info info = info_of(pvd);
		CHECK_EQ(info.segment_size, good[i]);
		CHECK_EQ(info.max_tasks, 3);
		CHECK_EQ(wait_status(start(pvd, 2, "task-exits", "3")), 3);
		CHECK_FAILS(start(pvd, 3, "task-exits", "3"), EINVAL);
		CHECK(pvas_destroy(pvd) == 0);
	}
	size_t bad[] = {0, 1, 4096, 32ul << 20, 63ul << 20, 100ul << 20, 3ul << 30, 32ul << 40,
	                (size_t)1 << 63, SIZE_MAX};
	for (int i = 0; i < 10; i++) {
		attr.segment_size = bad[i];
		CHECK_FAILS(pvas_create_attr(&attr), EINVAL);
		check_reason();
	}
	attr.segment_size = 4ul << 30;
	attr.max_tasks = 0;
	CHECK_FAILS(pvas_create_attr(&attr), EINVAL);
	attr.max_tasks = -1;
	CHECK_FAILS(pvas_create_attr(&attr), EINVAL);
	/* More than the address space: 100 times 16 TiB. */
	attr.segment_size = 16ul << 40;
	attr.max_tasks = 100;
	CHECK_FAILS(pvas_create_attr(&attr), ENOMEM);
	check_reason();
	attr.max_tasks = 1;
	attr.fields |= 1ul << 40;
	CHECK_FAILS(pvas_create_attr(&attr), EINVAL);
	check_reason();
	CHECK_FAILS(pvas_create_attr(NULL), EFAULT);
	/* Members without a flag are ignored. */
	attr = (struct pvas_space_attr){.segment_size = 5, .max_tasks = -7};
	int pvd = pvas_create_attr(&attr);
	CHECK(pvd >= 0);
	CHECK_EQ(info_of(pvd).segment_size, 32ul << 30);
	CHECK(pvas_destroy(pvd) == 0);
	/* Thousands of IDs. */
	attr = (struct pvas_space_attr){PVAS_SPACE_SEGMENT_SIZE, 256 << 20, 0};
	pvd = pvas_create_attr(&attr);
	CHECK(pvd >= 0);
	CHECK(info_of(pvd).max_tasks >= 10000);
	int last = info_of(pvd).max_tasks - 1;
	CHECK_EQ(wait_status(start(pvd, last, "task-exits", "4")), 4);
	CHECK(pvas_destroy(pvd) == 0);
}

static void segment_size_from_the_environment(void)
{
	const struct { const char *text; size_t size; } good[] = {
		{"67108864", 64ul << 20}, {"65536K", 64ul << 20}, {"256M", 256ul << 20},
		{"4G", 4ul << 30},        {"1T", 1ul << 40},
	};
	for (int i = 0; i < 5; i++) {
		CHECK(setenv("PVAS_SEGMENT_SIZE", good[i].text, 1) == 0);
		int pvd = new_space();
		CHECK_EQ(info_of(pvd).segment_size, good[i].size);
		CHECK(pvas_destroy(pvd) == 0);
	}
	const char *bad[] = {"big", "-1", "5", "3G", "4X", "4GG", "32M", "32T", "99999999999999999999"};
	for (int i = 0; i < 9; i++) {
		CHECK(setenv("PVAS_SEGMENT_SIZE", bad[i], 1) == 0);
		CHECK_FAILS(pvas_create(), EINVAL);
		CHECK(strstr(pvas_error(), "PVAS_SEGMENT_SIZE"));
		check_reason();
	}
	/* The program's own setting takes precedence. */
	struct pvas_space_attr attr = {PVAS_SPACE_SEGMENT_SIZE, 1ul << 30, 0};
	CHECK(setenv("PVAS_SEGMENT_SIZE", "4G", 1) == 0);
	int pvd = pvas_create_attr(&attr);
	CHECK_EQ(info_of(pvd).segment_size, 1ul << 30);
	CHECK(pvas_destroy(pvd) == 0);
}

static void several_spaces(void)
{
	int pvds[4];
	struct pvas_space_info infos[4];
	pid_t pids[4];
	for (int i = 0; i < 4; i++) {
		struct pvas_space_attr attr = {PVAS_SPACE_SEGMENT_SIZE | PVAS_SPACE_MAX_TASKS,
		                               (1ul + 3 * (i % 2)) << 30, 20};
		pvds[i] = pvas_create_attr(&attr);
		CHECK(pvds[i] >= 0);
		infos[i] = info_of(pvds[i]);
		for (int k = 0; k < i; k++) {
			CHECK(pvds[k] != pvds[i]);
			uintptr_t end_k = infos[k].base + 20 * infos[k].segment_size;
			uintptr_t end_i = infos[i].base + 20 * infos[i].segment_size;
			CHECK(end_k <= infos[i].base || end_i <= infos[k].base);
			CHECK_FAILS(pvas_id_of(pvds[k], (void *)infos[i].base), EINVAL);
		}
		pids[i] = start_sleeper(pvds[i], 5);
		CHECK_EQ(pvas_getpid(pvds[i], 5), pids[i]);
	}
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pvas_ntasks(pvds[i]), 1);
	CHECK(pvas_destroy(pvds[1]) == 0);
	CHECK_EQ(wait_status(pids[1]), 128 + SIGKILL);
	for (int i = 0; i < 4; i++)
		if (i != 1) {
			CHECK(kill(pids[i], 0) == 0);
			CHECK_EQ(pvas_ntasks(pvds[i]), 1);
			char expected[32];
			snprintf(expected, sizeof expected, "%zx", (size_t)infos[i].base);
			CHECK_EQ(wait_status(start(pvds[i], 6, "task-base-is", expected)), 0);
		}
	for (int i = 0; i < 4; i++)
		if (i != 1) {
			CHECK(pvas_destroy(pvds[i]) == 0);
			CHECK_EQ(wait_status(pids[i]), 128 + SIGKILL);
		}
}

static void task_base_is(const char *expected)
{
	CHECK_EQ(info_of(PVAS_SELF).base, strtoul(expected, NULL, 16));
	CHECK_EQ(pvas_getid(), 6);
}

static void address_space_runs_out(void)
{
	struct pvas_space_attr attr = {PVAS_SPACE_SEGMENT_SIZE | PVAS_SPACE_MAX_TASKS, 16ul << 40, 1};
	int pvds[64], n = 0;
	while (n < 64 && (pvds[n] = pvas_create_attr(&attr)) >= 0)
		n++;
	CHECK(n >= 3 && n < 9);
	CHECK_FAILS(pvas_create_attr(&attr), ENOMEM);
	check_reason();
	for (int i = 0; i < n; i++)
		CHECK(pvas_destroy(pvds[i]) == 0);
	/* By default a space takes half of the rest: there is room for several. */
	for (int i = 0; i < 5; i++)
		pvds[i] = new_space();
	for (int i = 0; i < 5; i++)
		CHECK(pvas_destroy(pvds[i]) == 0);
}

/* ---- tasks ----------------------------------------------------------------------------- */

static pid_t fork_and_execve(int pvd, int id, const char *role, const char *argument)
{
	char *argv[] = {"api", (char *)role, (char *)argument, NULL};
	pid_t pid = pvas_fork(pvd, id);
	if (pid == 0) {
		pvas_execve(self, argv, environ);
		_exit(111);
	}
	return pid;
}

static void true_statuses(void)
{
	int pvd = new_space();
	CHECK_EQ(wait_status(fork_and_execve(pvd, 0, "task-exits", "0")), 0);
	CHECK_EQ(wait_status(fork_and_execve(pvd, 0, "task-exits", "42")), 42);
	CHECK_EQ(wait_status(fork_and_execve(pvd, 0, "task-exits", "255")), 255);
	int deadly[] = {SIGKILL, SIGTERM, SIGABRT, SIGSEGV, SIGUSR1, SIGRTMIN};
	for (int i = 0; i < 6; i++) {
		char number[8];
		snprintf(number, sizeof number, "%d", deadly[i]);
		CHECK_EQ(wait_status(fork_and_execve(pvd, 1, "task-dies", number)), 128 + deadly[i]);
	}
	/* A stop is seen, and a continuation. */
	int status;
	pid_t pid = fork_and_execve(pvd, 0, "task-sleeps", "");
	CHECK(kill(pid, SIGSTOP) == 0);
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	CHECK(kill(pid, SIGCONT) == 0);
	CHECK_EQ(waitpid(pid, &status, WCONTINUED), pid);
	CHECK(WIFCONTINUED(status));
	CHECK(kill(pid, SIGTERM) == 0);
	siginfo_t info;
	CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
	CHECK_EQ(info.si_status, SIGTERM);
	struct rusage usage;
	CHECK_EQ(wait4(pid, &status, 0, &usage), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	CHECK_FAILS(waitpid(pid, &status, 0), ECHILD);
	/* SIGCHLD reports it. */
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	struct timespec limit = {20, 0};
	while (sigtimedwait(&set, NULL, &(struct timespec){0, 0}) > 0)
		;
	pid = fork_and_execve(pvd, 0, "task-exits", "1");
	CHECK_EQ(sigtimedwait(&set, &info, &limit), SIGCHLD);
	CHECK_EQ(info.si_pid, pid);
	CHECK_EQ(wait_status(pid), 1);
	CHECK(pvas_destroy(pvd) == 0);
}

static void identifiers(void)
{
	int pvd = new_space(), most = info_of(pvd).max_tasks;
	int bad[] = {-2, -100, most, INT_MAX, INT_MIN};
	for (int i = 0; i < 5; i++) {
		CHECK_FAILS(pvas_fork(pvd, bad[i]), EINVAL);
		check_reason();
		CHECK_FAILS(start(pvd, bad[i], "task-sleeps", ""), EINVAL);
		check_reason();
	}
	CHECK_FAILS(pvas_fork(pvd, PVAS_ANY_ID), EINVAL);
	pid_t pid = start_sleeper(pvd, 7);
	CHECK_FAILS(pvas_fork(pvd, 7), EBUSY);
	check_reason();
	CHECK_FAILS(start(pvd, 7, "task-sleeps", ""), EBUSY);
	check_reason();
	CHECK_EQ(pvas_getpid(pvd, 7), pid);
	CHECK_EQ(pvas_ntasks(pvd), 1);
	/* The lowest free one. */
	pid_t first = start_sleeper(pvd, PVAS_ANY_ID), second = start_sleeper(pvd, PVAS_ANY_ID);
	CHECK_EQ(pvas_getpid(pvd, 0), first);
	CHECK_EQ(pvas_getpid(pvd, 1), second);
	CHECK_EQ(pvas_ntasks(pvd), 3);
	CHECK(kill(first, SIGKILL) == 0);
	CHECK_EQ(wait_status(first), 128 + SIGKILL);
	CHECK_FAILS(pvas_getpid(pvd, 0), ESRCH);
	CHECK_EQ(pvas_ntasks(pvd), 2);
	first = start_sleeper(pvd, PVAS_ANY_ID);
	CHECK_EQ(pvas_getpid(pvd, 0), first);
	/* An ID is free once its task has been waited for, many times over. */
	for (int i = 0; i < 100; i++)
		CHECK_EQ(wait_status(start(pvd, 3, "task-exits", "6")), 6);
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(first), 128 + SIGKILL);
	CHECK_EQ(wait_status(second), 128 + SIGKILL);
	CHECK_EQ(wait_status(pid), 128 + SIGKILL);
}

/* Ends of a child of pvas_fork other than pvas_execve. */
static void fork_and_other_ends(void)
{
	int pvd = new_space();
	volatile int shared = 0;
	pid_t pid = pvas_fork(pvd, 4);
	if (pid == 0) {
		shared = 17;
		_exit(7);
	}
	CHECK(pid > 0);
	CHECK_EQ(shared, 17); /* the child borrowed our memory, and we waited */
	CHECK_EQ(wait_status(pid), 7);
	pid = pvas_fork(pvd, 4);
	if (pid == 0) {
		char *argv[] = {"sh", "-c", "exit 8", NULL};
		execve("/bin/sh", argv, environ);
		_exit(111);
	}
	CHECK(pid > 0);
	CHECK_FAILS(pvas_getpid(pvd, 4), ESRCH); /* an ordinary process now */
	CHECK_EQ(wait_status(start(pvd, 4, "task-exits", "9")), 9);
	CHECK_EQ(wait_status(pid), 8);
	pid = pvas_fork(pvd, 4);
	if (pid == 0)
		raise(SIGKILL);
	CHECK_EQ(wait_status(pid), 128 + SIGKILL);
	/* It may try again after an error. */
	volatile int first = 0;
	char *argv[] = {"api", "task-exits", "12", NULL};
	pid = pvas_fork(pvd, 4);
	if (pid == 0) {
		first = pvas_execve("/nonexistent", argv, environ) == -1 ? errno : 0;
		pvas_execve(self, argv, environ);
		_exit(111);
	}
	CHECK_EQ(first, ENOENT);
	CHECK_EQ(wait_status(pid), 12);
	CHECK_FAILS(pvas_execve(self, argv, environ), EPERM);
	check_reason();
	CHECK(pvas_destroy(pvd) == 0);
}

/* The task has the child's settings; the parent's stay unchanged. */
static void fork_and_set_up(void)
{
	int pvd = new_space(), ends[2];
	char *argv[] = {"api", "task-set-up", NULL};
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	umask(022);
	pid_t pid = pvas_fork(pvd, 0);
	if (pid == 0) {
		struct rlimit limit = {100, 100};
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGUSR2);
		if (dup2(ends[1], 77) == 77 && chdir("/usr") == 0 && setpgid(0, 0) == 0 &&
		    setrlimit(RLIMIT_NOFILE, &limit) == 0 &&
		    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, 8) == 0) {
			umask(077);
			pvas_execve(self, argv, environ);
		}
		_exit(111);
	}
	CHECK(close(ends[1]) == 0);
	char text[200] = {0};
	CHECK(read(ends[0], text, sizeof text - 1) > 0);
	char expected[200];
	snprintf(expected, sizeof expected, "/usr umask 77 group %d files 100 blocked 1 cloexec 0", pid);
	if (strcmp(text, expected) != 0) {
		fprintf(stderr, "%s, not %s\n", text, expected);
		_exit(1);
	}
	CHECK_EQ(wait_status(pid), 0);
	CHECK_EQ(umask(022), 022);
	CHECK(getpgrp() != pid);
	CHECK_FAILS(fcntl(77, F_GETFD), EBADF);
	CHECK(pvas_destroy(pvd) == 0);
}

static void task_set_up(const char *unused)
{
	char directory[PATH_MAX];
	struct rlimit limit;
	sigset_t set;
	mode_t mask = umask(0);
	(void)unused;
	sigprocmask(SIG_BLOCK, NULL, &set);
	getrlimit(RLIMIT_NOFILE, &limit);
	int others = 0; /* descriptors that were close-on-exec */
	for (int fd = 3; fd < 77; fd++)
		others += fcntl(fd, F_GETFD) >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC);
	dprintf(77, "%s umask %o group %d files %d blocked %d cloexec %d",
	        getcwd(directory, sizeof directory), mask, getpgrp(), (int)limit.rlim_cur,
	        sigismember(&set, SIGUSR2), others);
}

/* ---- programs that cannot be run ------------------------------------------------------------ */

static int execve_error(int pvd, const char *path, char *const *argv, char *const *envp)
{
	volatile int error = 0;
	pid_t pid = pvas_fork(pvd, 0);
	if (pid == 0) {
		pvas_execve(path, argv, envp);
		error = errno;
		_exit(0);
	}
	int status = wait_status(pid);
	return error ? error : 1000 + status;
}

static void make_file(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	CHECK(fchmod(fd, mode) == 0 && close(fd) == 0);
}

/* In the current directory, which is the test's own. */
static void programs_that_cannot_be_run(void)
{
	int pvd = new_space();
	char *argv[] = {"x", NULL};
	make_file("text", "just a text\n", 0755);
	make_file("empty", "", 0755);
	make_file("not-executable", "#!/bin/sh\n", 0644);
	make_file("no-interpreter", "#!/nonexistent/sh\n", 0755);
	make_file("loop", "#!./loop\n", 0755);
	make_file("short-elf", "\177ELF\2\1\1", 0755);
	CHECK(symlink("link", "link") == 0);
	const struct { const char *path; int error; } bad[] = {
		{"./nonexistent", ENOENT}, {"", ENOENT},      {"./text/below", ENOTDIR},
		{"/tmp", EACCES},          {"text", ENOEXEC}, {"empty", ENOEXEC},
		{"./not-executable", EACCES}, {"./no-interpreter", ENOENT}, {"./loop", ELOOP},
		{"./link", ELOOP},         {"./short-elf", ENOEXEC},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int error = execve_error(pvd, bad[i].path, argv, environ);
		if (error != bad[i].error)
			fprintf(stderr, "pvas_execve(\"%s\"):\n", bad[i].path);
		CHECK_EQ(error, bad[i].error);
		errno = 0;
		pid_t pid = pvas_spawn(pvd, 0, bad[i].path, argv, environ, NULL);
		error = errno;
		if (pid != -1 || error != bad[i].error)
			fprintf(stderr, "pvas_spawn(\"%s\"): %d\n", bad[i].path, pid);
		CHECK_EQ(pid, -1);
		CHECK_EQ(error, bad[i].error);
		check_reason();
		CHECK_FAILS(waitpid(-1, NULL, 0), ECHILD); /* no child is left */
		CHECK_FAILS(pvas_getpid(pvd, 0), ESRCH);
	}
	/* Too many arguments. */
	enum { MANY = 1000 };
	static char *many[MANY + 1];
	char *big = malloc(100001);
	memset(big, 'x', 100000);
	big[100000] = 0;
	for (int i = 0; i < MANY; i++)
		many[i] = big;
	CHECK_EQ(execve_error(pvd, self, many, environ), E2BIG);
	CHECK_EQ(execve_error(pvd, self, argv, many), E2BIG);
	CHECK_FAILS(pvas_spawn(pvd, 0, self, many, environ, NULL), E2BIG);
	check_reason();
	/* As many as a process may have are fine. */
	for (int i = 2; i < 16; i++)
		many[i] = big;
	many[0] = "api";
	many[1] = "task-counts";
	many[16] = NULL;
	CHECK_EQ(wait_status(pvas_spawn(pvd, 0, self, many, environ, NULL)), 16);
	CHECK(pvas_destroy(pvd) == 0);
}

static int argument_count;

static void task_counts(const char *unused)
{
	(void)unused;
	exit(argument_count);
}

static void empty_lists(void)
{
	int pvd = new_space();
	char *none[] = {NULL};
	/* As execve with an empty list: the program gets one empty argument, or none. */
	CHECK_EQ(wait_status(pvas_spawn(pvd, 0, self, NULL, NULL, NULL)), 88);
	CHECK_EQ(wait_status(pvas_spawn(pvd, 0, self, none, none, NULL)), 88);
	CHECK_EQ(execve_error(pvd, self, NULL, NULL), 1088);
	CHECK(pvas_destroy(pvd) == 0);
}

/* ---- attributes of tasks ---------------------------------------------------------------------- */

static void spawn_with(int pvd, const struct pvas_spawn_attr *attr, const char *what,
                       const char *expected)
{
	char *argv[] = {"api", "task-tells", (char *)what, (char *)expected, NULL};
	pid_t pid = pvas_spawn(pvd, PVAS_ANY_ID, self, argv, environ, attr);
	if (pid < 0)
		fprintf(stderr, "%s: %s\n", what, pvas_error());
	CHECK(pid > 0);
	CHECK_EQ(wait_status(pid), 0);
}

static const char *third_argument;

/* Compares one of its attributes with the expected one. */
static void task_tells(const char *what)
{
	char text[PATH_MAX] = "";
	if (strcmp(what, "fds") == 0) {
		for (int fd = 0; fd < 1024; fd++)
			if (fcntl(fd, F_GETFD) >= 0)
				sprintf(text + strlen(text), "%d%s ", fd,
				        fcntl(fd, F_GETFD) & FD_CLOEXEC ? "!" : "");
	} else if (strcmp(what, "cwd") == 0) {
		CHECK(getcwd(text, sizeof text));
	} else if (strcmp(what, "cpus") == 0) {
		cpu_set_t set;
		CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &set))
				sprintf(text + strlen(text), "%d ", cpu);
	} else if (strcmp(what, "group") == 0) {
		sprintf(text, "%s", getpgrp() == getpid() ? "own" : "joined");
		if (getpgrp() != getpid())
			sprintf(text, "%d", getpgrp());
	}
	if (strcmp(text, third_argument) != 0) {
		fprintf(stderr, "%s: \"%s\", not \"%s\"\n", what, text, third_argument);
		_exit(1);
	}
}

static void spawn_attributes(void)
{
	int pvd = new_space(), ends[2];
	char expected[PATH_MAX];
	CHECK(pipe2(ends, O_CLOEXEC) == 0);

	/* Descriptors: these and no others, swapped ones too, even close-on-exec here. */
	const int map[][2] = {{2, 2}, {1, 0}, {0, 1}, {ends[0], 401}, {ends[1], 7}, {ends[1], 8}};
	struct pvas_spawn_attr attr = {.fields = PVAS_SPAWN_FDS, .fd_map = map, .n_fds = 6};
	spawn_with(pvd, &attr, "fds", "0 1 2 7 8 401 ");
	attr.n_fds = 1;
	spawn_with(pvd, &attr, "fds", "2 ");
	/* Crosswise: each one's number is the other's source. */
	const int cross[][2] = {{2, 2}, {ends[0], ends[1]}, {ends[1], ends[0]}};
	attr = (struct pvas_spawn_attr){.fields = PVAS_SPAWN_FDS, .fd_map = cross, .n_fds = 3};
	snprintf(expected, sizeof expected, "2 %d %d ", ends[0], ends[1]);
	spawn_with(pvd, &attr, "fds", expected);
	/* All that are not close-on-exec, at their numbers. */
	int kept = fcntl(0, F_DUPFD, 333);
	CHECK_EQ(kept, 333);
	expected[0] = 0;
	for (int fd = 0; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0 && !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
			sprintf(expected + strlen(expected), "%d ", fd);
	CHECK(strstr(expected, "333"));
	spawn_with(pvd, NULL, "fds", expected);
	attr = (struct pvas_spawn_attr){0};
	spawn_with(pvd, &attr, "fds", expected);
	/* Offsets are shared, as after fork. */
	FILE *file = tmpfile();
	CHECK_EQ(write(fileno(file), "abcdef", 6), 6);
	CHECK_EQ(lseek(fileno(file), 2, SEEK_SET), 2);
	const int with_file[][2] = {{fileno(file), 0}, {2, 2}};
	attr = (struct pvas_spawn_attr){PVAS_SPAWN_FDS, with_file, 2};
	char *reader[] = {"api", "task-reads-a-byte", NULL};
	CHECK_EQ(wait_status(pvas_spawn(pvd, 0, self, reader, environ, &attr)), 'c');
	CHECK_EQ(lseek(fileno(file), 0, SEEK_CUR), 3);

	attr = (struct pvas_spawn_attr){.fields = PVAS_SPAWN_CWD, .cwd = "/usr/bin"};
	spawn_with(pvd, &attr, "cwd", "/usr/bin");
	CHECK(getcwd(expected, sizeof expected));
	spawn_with(pvd, NULL, "cwd", expected);

	cpu_set_t all, one;
	CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
	int cpu = CPU_SETSIZE - 1;
	while (!CPU_ISSET(cpu, &all))
		cpu--;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	attr = (struct pvas_spawn_attr){.fields = PVAS_SPAWN_CPUS, .cpus = &one, .cpus_size = sizeof one};
	snprintf(expected, sizeof expected, "%d ", cpu);
	spawn_with(pvd, &attr, "cpus", expected);
	CHECK(sched_getaffinity(0, sizeof one, &one) == 0);
	CHECK(CPU_EQUAL(&one, &all));

	attr = (struct pvas_spawn_attr){.fields = PVAS_SPAWN_PGID, .pgid = 0};
	spawn_with(pvd, &attr, "group", "own");
	pid_t leader = pvas_spawn(pvd, 9, self, (char *[]){"api", "task-sleeps", "", NULL}, environ, &attr);
	CHECK_EQ(getpgid(leader), leader);
	attr.pgid = leader;
	snprintf(expected, sizeof expected, "%d", leader);
	spawn_with(pvd, &attr, "group", expected);
	CHECK(kill(-leader, SIGKILL) == 0);
	CHECK_EQ(wait_status(leader), 128 + SIGKILL);

	/* All at once. */
	attr = (struct pvas_spawn_attr){.fields = PVAS_SPAWN_FDS | PVAS_SPAWN_CWD | PVAS_SPAWN_PGID,
	                                .fd_map = map, .n_fds = 6, .cwd = "/", .pgid = 0};
	spawn_with(pvd, &attr, "fds", "0 1 2 7 8 401 ");
	spawn_with(pvd, &attr, "cwd", "/");
	spawn_with(pvd, &attr, "group", "own");
	CHECK(pvas_destroy(pvd) == 0);
}

static void task_reads_a_byte(const char *unused)
{
	char byte;
	(void)unused;
	CHECK_EQ(read(0, &byte, 1), 1);
	exit(byte);
}

/* The chosen ID is returned, however soon the task ends. */
static void spawn_tells_the_id(void)
{
	int pvd = new_space(), id = -7;
	struct pvas_spawn_attr attr = {.fields = PVAS_SPAWN_ID, .id = &id};
	char *ends[] = {"api", "task-exits", "6", NULL};
	for (int i = 0; i < 200; i++) {
		id = -7;
		pid_t pid = pvas_spawn(pvd, PVAS_ANY_ID, self, ends, environ, &attr);
		CHECK(pid > 0);
		/* The last one's may not be free again at once. */
		CHECK(id >= 0 && id < 200);
		CHECK_EQ(wait_status(pid), 6);
	}
	/* The same as that of a task that lives. */
	char *sleeps[] = {"api", "task-sleeps", "", NULL};
	pid_t sleeper = pvas_spawn(pvd, PVAS_ANY_ID, self, sleeps, environ, &attr);
	CHECK(sleeper > 0);
	CHECK_EQ(pvas_getpid(pvd, id), sleeper);
	int taken = id;
	/* One that was asked for; and none on error. */
	CHECK_EQ(wait_status(pvas_spawn(pvd, 205, self, ends, environ, &attr)), 6);
	CHECK_EQ(id, 205);
	CHECK_FAILS(pvas_spawn(pvd, taken, self, ends, environ, &attr), EBUSY);
	CHECK_FAILS(pvas_spawn(pvd, 206, "/nonexistent", ends, environ, &attr), ENOENT);
	CHECK_EQ(id, 205);
	attr.id = NULL;
	CHECK_FAILS(pvas_spawn(pvd, 206, self, ends, environ, &attr), EFAULT);
	/* A caller that does not ask for it need not have the member. */
	attr.fields = 0;
	attr.id = (int *)16;
	CHECK_EQ(wait_status(pvas_spawn(pvd, 206, self, ends, environ, &attr)), 6);
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(sleeper), 128 + SIGKILL);
}

static void bad_spawn_attributes(void)
{
	int pvd = new_space();
	const int closed[][2] = {{2, 2}, {777, 5}}, negative[][2] = {{2, -1}};
	cpu_set_t none;
	CPU_ZERO(&none);
	enum { EITHER = -1 }; /* EBADF, as dup2 has it, or EINVAL */
	const struct { struct pvas_spawn_attr attr; int error; } bad[] = {
		{{.fields = 1ul << 50}, EINVAL},
		{{.fields = PVAS_SPAWN_FDS, .fd_map = closed, .n_fds = 2}, EBADF},
		{{.fields = PVAS_SPAWN_FDS, .fd_map = negative, .n_fds = 1}, EITHER},
		{{.fields = PVAS_SPAWN_CWD, .cwd = "/nonexistent"}, ENOENT},
		{{.fields = PVAS_SPAWN_CWD, .cwd = "/bin/sh"}, ENOTDIR},
		{{.fields = PVAS_SPAWN_CPUS, .cpus = &none, .cpus_size = sizeof none}, EINVAL},
		{{.fields = PVAS_SPAWN_PGID, .pgid = 0x3ffffff}, EPERM},
		{{.fields = PVAS_SPAWN_PDEATHSIG, .pdeathsig = 500}, EINVAL},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char *argv[] = {"api", "task-exits", "0", NULL};
		errno = 0;
		pid_t pid = pvas_spawn(pvd, 0, self, argv, environ, &bad[i].attr);
		int error = errno;
		if (bad[i].error == EITHER && (error == EBADF || error == EINVAL))
			error = EITHER;
		if (pid != -1 || error != bad[i].error)
			fprintf(stderr, "bad attribute %zu: %d\n", i, pid);
		CHECK_EQ(pid, -1);
		CHECK_EQ(error, bad[i].error);
		check_reason();
		CHECK_FAILS(waitpid(-1, NULL, 0), ECHILD);
	}
	CHECK_EQ(wait_status(start(pvd, 0, "task-exits", "2")), 2);
	CHECK(pvas_destroy(pvd) == 0);
}

static int space_of_thread;
static pid_t spawned_by_thread;

static void *spawns_and_ends(void *unused)
{
	struct pvas_spawn_attr attr = {.fields = PVAS_SPAWN_PDEATHSIG, .pdeathsig = SIGTERM};
	char *argv[] = {"api", "task-sleeps", "", NULL};
	spawned_by_thread = pvas_spawn(space_of_thread, 0, self, argv, environ, &attr);
	CHECK(spawned_by_thread > 0);
	return unused;
}

/* The signal comes when the spawning thread ends, not the process. */
static void death_signal(void)
{
	pthread_t thread;
	space_of_thread = new_space();
	CHECK_EQ(pthread_create(&thread, NULL, spawns_and_ends, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(wait_status(spawned_by_thread), 128 + SIGTERM);
	CHECK(pvas_destroy(space_of_thread) == 0);
}

/* ---- many tasks ------------------------------------------------------------------------------- */

static void *spawns_many(void *arg)
{
	int pvd = *(int *)arg;
	for (int i = 0; i < 60; i++) {
		char number[8];
		snprintf(number, sizeof number, "%d", i);
		pid_t pid = start(pvd, PVAS_ANY_ID, "task-exits", number);
		if (pid < 0)
			fprintf(stderr, "%s\n", pvas_error());
		CHECK(pid > 0);
		CHECK_EQ(wait_status(pid), i);
	}
	return NULL;
}

static void threads_spawn_at_once(void)
{
	pthread_t threads[6];
	int pvd = new_space();
	for (int i = 0; i < 6; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, spawns_many, &pvd), 0);
	for (int i = 0; i < 6; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(pvas_ntasks(pvd), 0);
	CHECK(pvas_destroy(pvd) == 0);
}

static void two_hundred_at_once(void)
{
	pid_t pids[200];
	int pvd = new_space();
	for (int i = 0; i < 200; i++)
		pids[i] = start_sleeper(pvd, PVAS_ANY_ID);
	CHECK_EQ(pvas_ntasks(pvd), 200);
	for (int i = 0; i < 200; i++)
		CHECK_EQ(pvas_getpid(pvd, i), pids[i]);
	CHECK(pvas_destroy(pvd) == 0);
	for (int i = 0; i < 200; i++)
		CHECK_EQ(wait_status(pids[i]), 128 + SIGKILL);
}

static int mappings_within(uintptr_t start, uintptr_t end)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[PATH_MAX + 100];
	int n = 0;
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from < end && to > start)
			n++;
	fclose(maps);
	return n;
}

static void destroy_kills_and_unmaps(void)
{
	pid_t pids[5];
	int pvd = new_space();
	struct pvas_space_info info = info_of(pvd);
	uintptr_t end = info.base + (uintptr_t)info.max_tasks * info.segment_size;
	for (int i = 0; i < 5; i++) {
		pids[i] = start(pvd, i * 3, i % 2 ? "task-has-threads" : "task-sleeps", "");
		CHECK(pids[i] > 0);
		CHECK(pvas_import(pvd, i * 3, "threads", NULL, NULL, i % 2 ? 20000 : 0) == (i % 2 ? 0 : -1));
	}
	CHECK(kill(pids[2], SIGSTOP) == 0); /* stopped ones too */
	CHECK(mappings_within(info.base, end) > 20);
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(mappings_within(info.base, end), 0);
	for (int i = 0; i < 5; i++)
		CHECK_EQ(wait_status(pids[i]), 128 + SIGKILL);
	/* In a process that did not make the space. */
	pvd = new_space();
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_FAILS(pvas_destroy(pvd), EPERM);
		check_reason();
		CHECK_FAILS(pvas_fork(pvd, 0), EPERM);
		CHECK_FAILS(start(pvd, 0, "task-exits", "0"), EPERM);
		_exit(0);
	}
	CHECK_EQ(wait_status(pid), 0);
	CHECK_EQ(wait_status(start(pvd, 0, "task-exits", "5")), 5);
	CHECK(pvas_destroy(pvd) == 0);
}

static void *sleeps_as_thread(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void task_has_threads(const char *unused)
{
	pthread_t thread;
	for (int i = 0; i < 5; i++)
		CHECK_EQ(pthread_create(&thread, NULL, sleeps_as_thread, NULL), 0);
	CHECK(pvas_export("threads", &thread, 5) == 0);
	task_sleeps(unused);
}

/* ---- who and where ------------------------------------------------------------------------------ */

static void owner_is_no_task(void)
{
	struct pvas_space_info info;
	int pvd = new_space();
	CHECK_FAILS(pvas_getid(), ESRCH);
	check_reason();
	CHECK_FAILS(pvas_ntasks(PVAS_SELF), ESRCH);
	CHECK_FAILS(pvas_getspace(PVAS_SELF, &info), ESRCH);
	CHECK_FAILS(pvas_getpid(PVAS_SELF, 0), ESRCH);
	CHECK_NULL(pvas_segment(PVAS_SELF, 0), ESRCH);
	CHECK_NULL(pvas_export_area(PVAS_SELF, 0), ESRCH);
	CHECK_FAILS(pvas_id_of(PVAS_SELF, &info), ESRCH);
	CHECK_FAILS(pvas_export("name", &info, 1), ESRCH);
	check_reason();
	CHECK_FAILS(pvas_unexport("name"), ESRCH);
	CHECK_FAILS(pvas_import(PVAS_SELF, 0, "name", NULL, NULL, 0), ESRCH);
	CHECK(pvas_destroy(pvd) == 0);
}

static void task_knows_itself(const char *expected_id)
{
	struct pvas_space_info info = info_of(PVAS_SELF);
	int id = pvas_getid(), here;
	CHECK_EQ(id, atoi(expected_id));
	CHECK_EQ(pvas_getpid(PVAS_SELF, id), getpid());
	CHECK_EQ(info.owner, getppid());
	CHECK_EQ(info.tasks, 2);
	CHECK_EQ(pvas_ntasks(PVAS_SELF), 2);
	CHECK_EQ(pvas_id_of(PVAS_SELF, &here), id);
	CHECK_EQ(pvas_id_of(PVAS_SELF, (void *)task_knows_itself), id);
	CHECK_EQ(pvas_id_of(PVAS_SELF, malloc(1)), id);
	CHECK(pvas_segment(PVAS_SELF, id) == pvas_export_area(PVAS_SELF, id));
	CHECK_EQ(pvas_getpid(PVAS_SELF, 0) > 0, 1);
	CHECK_FAILS(pvas_getpid(PVAS_SELF, 1), ESRCH);
	CHECK_NULL(pvas_segment(PVAS_SELF, info.max_tasks), EINVAL);
	CHECK_NULL(pvas_export_area(PVAS_SELF, 77), ESRCH);
	/* Tasks own no spaces. */
	char *argv[] = {"true", NULL};
	struct pvas_space_attr attr = {0};
	CHECK_FAILS(pvas_create(), EPERM);
	check_reason();
	CHECK_FAILS(pvas_create_attr(&attr), EPERM);
	CHECK_FAILS(pvas_fork(PVAS_SELF, 5), EPERM);
	CHECK_FAILS(pvas_spawn(PVAS_SELF, 5, "/bin/true", argv, environ, NULL), EPERM);
	check_reason();
	CHECK_FAILS(pvas_destroy(PVAS_SELF), EPERM);
	CHECK_FAILS(pvas_execve("/bin/true", argv, environ), EPERM);
	check_reason();
}

static void tasks_know_themselves(void)
{
	int pvd = new_space();
	pid_t sleeper = start_sleeper(pvd, 0);
	CHECK_EQ(wait_status(start(pvd, 4, "task-knows-itself", "4")), 0);
	CHECK_EQ(wait_status(start(pvd, 100, "task-knows-itself", "100")), 0);
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(sleeper), 128 + SIGKILL);
}

/* The library's thread gets the notices of tasks' ends late: it has the shared processor
 * only when no other thread needs it. */
static void delay_the_watcher(void)
{
	const struct sched_param none = {0};
	struct dirent *entry;
	cpu_set_t one;
	int found = 0;
	CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
	DIR *threads = opendir("/proc/self/task");
	while ((entry = readdir(threads))) {
		char path[300], name[32] = "";
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
		FILE *comm = fopen(path, "r");
		if (!comm || !fgets(name, sizeof name, comm) || fclose(comm))
			continue;
		if (strcmp(name, "pvas-watcher\n"))
			continue;
		CHECK(sched_setaffinity(atoi(entry->d_name), sizeof one, &one) == 0);
		CHECK(sched_setscheduler(atoi(entry->d_name), SCHED_IDLE, &none) == 0);
		found++;
	}
	closedir(threads);
	CHECK_EQ(found, 1);
}

static void task_counts_tasks(const char *tasks)
{
	CHECK_EQ(pvas_ntasks(PVAS_SELF), atoi(tasks));
	CHECK_EQ(info_of(PVAS_SELF).tasks, atoi(tasks));
}

static void tasks_waited_for_do_not_count(void)
{
	int pvd = new_space();
	pid_t sleeper = start_sleeper(pvd, 0);
	delay_the_watcher();
	for (int i = 0; i < 200; i++) {
		CHECK_EQ(wait_status(start(pvd, 1, "task-exits", "0")), 0);
		CHECK_EQ(wait_status(start(pvd, 2, "task-counts-tasks", "2")), 0);
	}
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(sleeper), 128 + SIGKILL);
}

/* A child that a task forks is an ordinary process, and a program that it execs even more. */
static void task_forks(const char *unused)
{
	(void)unused;
	pid_t pid = fork();
	if (pid == 0) {
		char *argv[] = {"api", "task-is-none", "", NULL};
		execve("/proc/self/exe", argv, environ);
		_exit(111);
	}
	CHECK_EQ(wait_status(pid), 0);
}

static void task_is_none(const char *unused)
{
	(void)unused;
	CHECK_FAILS(pvas_getid(), ESRCH);
	int pvd = new_space();
	CHECK(pvas_destroy(pvd) == 0);
}

static void children_of_tasks_are_none(void)
{
	int pvd = new_space();
	CHECK_EQ(wait_status(start(pvd, 0, "task-forks", "")), 0);
	CHECK(pvas_destroy(pvd) == 0);
}

/* ---- export area and names ------------------------------------------------------------------------- */

static void export_areas(void)
{
	int pvd = new_space();
	pid_t pid = start_sleeper(pvd, 2);
	char *area = pvas_export_area(pvd, 2);
	CHECK(area == pvas_segment(pvd, 2));
	for (int i = 0; i < PVAS_EXPORT_USER; i++)
		CHECK_EQ(area[i], 0);
	memset(area, 7, PVAS_EXPORT_USER);
	/* Another task reads and writes it. */
	CHECK_EQ(wait_status(start(pvd, 3, "task-changes-area", "2")), 0);
	CHECK_EQ(area[0], 8);
	CHECK_EQ(area[PVAS_EXPORT_USER - 1], 8);
	CHECK(kill(pid, SIGKILL) == 0);
	CHECK_EQ(wait_status(pid), 128 + SIGKILL);
	/* Readable when no task lives there, and zero; soon, if not at once. */
	CHECK(pvas_export_area(pvd, 2) == area);
	double start_time = check_seconds();
	for (int i = 0; i < PVAS_EXPORT_USER; i++)
		while (*(volatile char *)&area[i] != 0)
			CHECK(check_seconds() - start_time < 5);
	CHECK_EQ(area[PVAS_EXPORT_SIZE - 1], 0);
	/* And zero again for the next. */
	pid = start_sleeper(pvd, 2);
	for (int i = 0; i < PVAS_EXPORT_USER; i++)
		CHECK_EQ(area[i], 0);
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(pid), 128 + SIGKILL);
}

static void task_changes_area(const char *id)
{
	char *area = pvas_export_area(PVAS_SELF, atoi(id));
	CHECK(area != NULL);
	CHECK(((uintptr_t)area & 4095) == 0);
	for (int i = 0; i < PVAS_EXPORT_USER; i++) {
		CHECK_EQ(area[i], 7);
		area[i] = 8;
	}
}

static int static_data[1000] = {11, 22, 33};

static void task_exports(const char *unused)
{
	char name[PVAS_NAME_MAX + 2];
	(void)unused;
	/* The longest name, and one longer. */
	memset(name, 'n', sizeof name);
	name[PVAS_NAME_MAX] = 0;
	CHECK(pvas_export(name, name, 1) == 0);
	CHECK(pvas_unexport(name) == 0);
	CHECK_FAILS(pvas_unexport(name), ENOENT);
	check_reason();
	name[PVAS_NAME_MAX] = 'n';
	name[PVAS_NAME_MAX + 1] = 0;
	CHECK_FAILS(pvas_export(name, name, 1), ENAMETOOLONG);
	check_reason();
	CHECK_FAILS(pvas_export("", name, 1), EINVAL);
	check_reason();
	CHECK_FAILS(pvas_unexport(""), EINVAL);
	CHECK_FAILS(pvas_unexport("never"), ENOENT);
	/* As many as there may be, one more, and room again. */
	for (int i = 0; i < PVAS_EXPORT_NAMES; i++) {
		sprintf(name, "name %d", i);
		CHECK(pvas_export(name, &static_data[i], (size_t)i) == 0);
	}
	CHECK_FAILS(pvas_export("one more", name, 1), ENOSPC);
	check_reason();
	CHECK(pvas_export("name 100", &static_data[1], 4) == 0); /* replaced, not added */
	for (int i = 0; i < PVAS_EXPORT_NAMES; i += 2) {
		sprintf(name, "name %d", i);
		CHECK(pvas_unexport(name) == 0);
	}
	CHECK(pvas_export("one more", &static_data[2], 8) == 0);
	CHECK(pvas_export("data", static_data, sizeof static_data) == 0);
	/* Its own names it can look up, too. */
	void *addr;
	size_t size;
	CHECK(pvas_import(PVAS_SELF, pvas_getid(), "data", &addr, &size, 0) == 0);
	CHECK(addr == static_data && size == sizeof static_data);
	task_sleeps("");
}

static void exports_and_imports(void)
{
	int pvd = new_space(), most = info_of(pvd).max_tasks;
	void *addr = NULL;
	size_t size = 0;
	char name[PVAS_NAME_MAX + 2];
	memset(name, 'n', sizeof name);
	name[sizeof name - 1] = 0;
	pid_t pid = start(pvd, 1, "task-exports", "");
	CHECK(pid > 0);
	CHECK(pvas_import(pvd, 1, "data", &addr, &size, 20000) == 0);
	CHECK_EQ(size, 4000);
	CHECK_EQ(pvas_id_of(pvd, addr), 1);
	CHECK_EQ(((int *)addr)[1], 22);
	CHECK(pvas_import(pvd, 1, "data", NULL, NULL, 0) == 0);
	CHECK(pvas_import(pvd, 1, "data", &addr, NULL, -1) == 0);
	CHECK(pvas_import(pvd, 1, "data", NULL, &size, 1) == 0);
	CHECK(pvas_import(pvd, 1, "name 101", &addr, &size, 0) == 0);
	CHECK_EQ(size, 101);
	CHECK_FAILS(pvas_import(pvd, 1, "name 100", &addr, &size, 0), ENOENT); /* taken back */
	check_reason();
	CHECK(pvas_import(pvd, 1, "one more", &addr, &size, 0) == 0);
	CHECK_EQ(*(int *)addr, 33);
	CHECK_FAILS(pvas_import(pvd, 1, "", &addr, &size, 0), EINVAL);
	CHECK_FAILS(pvas_import(pvd, 1, name, &addr, &size, 0), ENAMETOOLONG);
	CHECK_FAILS(pvas_import(pvd, -1, "data", &addr, &size, 0), EINVAL);
	CHECK_FAILS(pvas_import(pvd, most, "data", &addr, &size, 0), EINVAL);
	CHECK_FAILS(pvas_import(pvd, 2, "data", &addr, &size, 0), ENOENT); /* nobody there */
	double start_time = check_seconds();
	CHECK_FAILS(pvas_import(pvd, 1, "nothing", &addr, &size, 200), ETIMEDOUT);
	check_reason();
	CHECK(check_seconds() - start_time > 0.19 && check_seconds() - start_time < 5);
	CHECK_FAILS(pvas_import(pvd, 2, "nobody", &addr, &size, 100), ETIMEDOUT);
	/* Names go with their task. */
	CHECK(kill(pid, SIGKILL) == 0);
	CHECK_EQ(wait_status(pid), 128 + SIGKILL);
	start_time = check_seconds();
	while (pvas_import(pvd, 1, "data", NULL, NULL, 0) == 0)
		CHECK(check_seconds() - start_time < 5);
	pid = start_sleeper(pvd, 1);
	CHECK_FAILS(pvas_import(pvd, 1, "data", NULL, NULL, 0), ENOENT);
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(pid), 128 + SIGKILL);
}

static void task_exports_later(const char *milliseconds)
{
	static char text[] = "worth waiting for";
	usleep((useconds_t)atoi(milliseconds) * 1000);
	CHECK(pvas_export("later", text, sizeof text) == 0);
	task_sleeps("");
}

static void task_imports_later(const char *unused)
{
	void *addr;
	size_t size;
	(void)unused;
	CHECK(pvas_import(PVAS_SELF, 5, "later", &addr, &size, -1) == 0);
	CHECK(strcmp(addr, "worth waiting for") == 0);
}

static void *starts_late(void *arg)
{
	usleep(150000);
	CHECK(start(*(int *)arg, 5, "task-exports-later", "150") > 0);
	return NULL;
}

static void imports_wait(void)
{
	int pvd = new_space();
	void *addr;
	size_t size;
	pthread_t thread;
	/* Tasks wait for a task that has not started, and so does the owner. */
	pid_t waiters[3];
	for (int i = 0; i < 3; i++)
		CHECK((waiters[i] = start(pvd, i, "task-imports-later", "")) > 0);
	double start_time = check_seconds();
	CHECK_EQ(pthread_create(&thread, NULL, starts_late, &pvd), 0);
	CHECK(pvas_import(pvd, 5, "later", &addr, &size, 20000) == 0);
	CHECK(strcmp(addr, "worth waiting for") == 0);
	CHECK(check_seconds() - start_time > 0.25);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(wait_status(waiters[i]), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	pid_t pid = pvas_getpid(pvd, 5);
	CHECK(pid > 0);
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(pid), 128 + SIGKILL);
}

static void ignores(int number)
{
	(void)number;
}

static void imports_are_interrupted(void)
{
	int pvd = new_space();
	/* The task ends during the wait for its name. */
	pid_t pid = start(pvd, 0, "task-naps-and-exits", "");
	CHECK(pid > 0);
	double start_time = check_seconds();
	CHECK_FAILS(pvas_import(pvd, 0, "never", NULL, NULL, 20000), ESRCH);
	check_reason();
	CHECK(check_seconds() - start_time < 10);
	CHECK_EQ(wait_status(pid), 0);
	/* The task has ended before. */
	while (pvas_getpid(pvd, 0) > 0)
		usleep(1000);
	start_time = check_seconds();
	CHECK_FAILS(pvas_import(pvd, 0, "never", NULL, NULL, 20000), ESRCH);
	check_reason();
	CHECK_FAILS(pvas_import(pvd, 0, "never", NULL, NULL, 0), ESRCH);
	CHECK(check_seconds() - start_time < 10);
	/* The same, waited for by another task. */
	pid = start(pvd, 0, "task-naps-and-exits", "");
	pid_t waiter = start(pvd, 1, "task-waits-in-vain", "");
	CHECK_EQ(wait_status(pid), 0);
	CHECK_EQ(wait_status(waiter), 0);
	/* A signal. */
	struct sigaction action = {.sa_handler = ignores};
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	pid = start_sleeper(pvd, 0);
	alarm(1);
	CHECK_FAILS(pvas_import(pvd, 0, "never", NULL, NULL, -1), EINTR);
	check_reason();
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(pid), 128 + SIGKILL);
}

static void task_naps_and_exits(const char *unused)
{
	(void)unused;
	usleep(400000);
	exit(0);
}

static void task_waits_in_vain(const char *unused)
{
	(void)unused;
	CHECK_FAILS(pvas_import(PVAS_SELF, 0, "never", NULL, NULL, 20000), ESRCH);
}

/* ---- tasks together --------------------------------------------------------------------------------- */

enum { PEERS = 6, ROUNDS = 300 };

struct meeting {
	pthread_barrier_t barrier;
	pthread_mutex_t mutex;
	long counter;
	atomic_int left;
};

/* Each sums all the others' arrays in place, again and again, under a barrier and a mutex that
 * lie in task 0's memory. */
static void task_sums(const char *unused)
{
	static struct meeting here;
	static long mine[5000];
	struct meeting *meeting;
	void *addr;
	size_t size;
	int id = pvas_getid();
	(void)unused;
	if (id == 0) {
		pthread_barrierattr_t barrier;
		pthread_mutexattr_t mutex;
		pthread_barrierattr_init(&barrier);
		pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
		pthread_barrier_init(&here.barrier, &barrier, PEERS);
		pthread_mutexattr_init(&mutex);
		pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
		pthread_mutex_init(&here.mutex, &mutex);
		CHECK(pvas_export("meeting", &here, sizeof here) == 0);
	}
	CHECK(pvas_export("array", mine, sizeof mine) == 0);
	CHECK(pvas_import(PVAS_SELF, 0, "meeting", &addr, &size, 20000) == 0);
	CHECK_EQ(size, sizeof here);
	meeting = addr;
	const long *arrays[PEERS];
	for (int peer = 0; peer < PEERS; peer++) {
		CHECK(pvas_import(PVAS_SELF, peer, "array", &addr, &size, 20000) == 0);
		CHECK_EQ(pvas_id_of(PVAS_SELF, addr), peer);
		arrays[peer] = addr;
	}
	for (long round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < 5000; i++)
			mine[i] = i * round + id;
		pthread_barrier_wait(&meeting->barrier);
		for (int peer = 0; peer < PEERS; peer++) {
			long sum = 0;
			for (int i = 0; i < 5000; i++)
				sum += arrays[peer][i];
			CHECK_EQ(sum, 12497500 * round + 5000 * peer);
		}
		CHECK_EQ(pthread_mutex_lock(&meeting->mutex), 0);
		meeting->counter++;
		CHECK_EQ(pthread_mutex_unlock(&meeting->mutex), 0);
		pthread_barrier_wait(&meeting->barrier);
	}
	CHECK_EQ(meeting->counter, PEERS * ROUNDS);
	/* Task 0's memory goes when it ends: it stays until all have left the barrier. */
	atomic_fetch_add(&meeting->left, 1);
	while (id == 0 && atomic_load(&meeting->left) < PEERS)
		usleep(1000);
}

static void tasks_sum_each_others_arrays(void)
{
	pid_t pids[PEERS];
	int pvd = new_space();
	for (int i = 0; i < PEERS; i++)
		CHECK((pids[i] = start(pvd, i, "task-sums", "")) > 0);
	for (int i = 0; i < PEERS; i++)
		CHECK_EQ(wait_status(pids[i]), 0);
	CHECK(pvas_destroy(pvd) == 0);
}

/* Figure 6 of the paper, as it stands there but for the slip in the name of pvas_fork, the
 * declaration of arg, and the wait, without which pvas_destroy kills what still runs. */
#define PROCESS_NUM 32
static void figure_6(void)
{
	int pvd, i;
	int pid[PROCESS_NUM];
	char *const arg[] = {"api", "task-says-hello", "", NULL};
	pvd = pvas_create();
	for (i = 0; i < PROCESS_NUM; i++) {
		pid[i] = pvas_fork(pvd, i);
		if (pid[i] == 0) {
			pvas_execve(self, arg, NULL);
		} else if (pid[i] > 0) {
			printf("fork pvas process %d\n", pid[i]);
		}
	}
	for (i = 0; i < PROCESS_NUM; i++)
		CHECK_EQ(wait_status(pid[i]), 100 + i);
	CHECK(pvas_destroy(pvd) == 0);
}

static void task_says_hello(const char *unused)
{
	(void)unused;
	printf("hello from process %d\n", getpid());
	fflush(stdout);
	_exit(100 + pvas_getid());
}

/* pvas_error() is the thread's own. */
static void *fails_otherwise(void *unused)
{
	CHECK_FAILS(pvas_ntasks(999), EBADF);
	CHECK(pvas_error() != NULL);
	return unused;
}

static void reasons_are_the_threads_own(void)
{
	pthread_t thread;
	CHECK(pvas_error() != NULL); /* before any call */
	int pvd = new_space();
	CHECK_FAILS(pvas_spawn(pvd, 0, "/nonexistent/program", NULL, NULL, NULL), ENOENT);
	char reason[1000];
	snprintf(reason, sizeof reason, "%s", pvas_error());
	CHECK(strstr(reason, "/nonexistent/program"));
	CHECK_EQ(pthread_create(&thread, NULL, fails_otherwise, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(strcmp(pvas_error(), reason) == 0);
	CHECK(pvas_destroy(pvd) == 0);
}

/* ---- which --------------------------------------------------------------------------------------------- */

static const struct check_case cases[] = {
	{"spaces_are_made_and_removed", spaces_are_made_and_removed},
	{"no_such_space", no_such_space},
	{"space_attributes", space_attributes},
	{"segment_size_from_the_environment", segment_size_from_the_environment},
	{"several_spaces", several_spaces},
	{"address_space_runs_out", address_space_runs_out},
	{"true_statuses", true_statuses},
	{"identifiers", identifiers},
	{"fork_and_other_ends", fork_and_other_ends},
	{"fork_and_set_up", fork_and_set_up},
	{"programs_that_cannot_be_run", programs_that_cannot_be_run},
	{"empty_lists", empty_lists},
	{"spawn_attributes", spawn_attributes},
	{"bad_spawn_attributes", bad_spawn_attributes},
	{"spawn_tells_the_id", spawn_tells_the_id},
	{"death_signal", death_signal},
	{"threads_spawn_at_once", threads_spawn_at_once},
	{"two_hundred_at_once", two_hundred_at_once},
	{"destroy_kills_and_unmaps", destroy_kills_and_unmaps},
	{"owner_is_no_task", owner_is_no_task},
	{"tasks_know_themselves", tasks_know_themselves},
	{"tasks_waited_for_do_not_count", tasks_waited_for_do_not_count},
	{"children_of_tasks_are_none", children_of_tasks_are_none},
	{"export_areas", export_areas},
	{"exports_and_imports", exports_and_imports},
	{"imports_wait", imports_wait},
	{"imports_are_interrupted", imports_are_interrupted},
	{"tasks_sum_each_others_arrays", tasks_sum_each_others_arrays},
	{"figure_6", figure_6},
	{"reasons_are_the_threads_own", reasons_are_the_threads_own},
	{NULL, NULL},
};

static const struct {
	const char *name;
	void (*run)(const char *argument);
} roles[] = {
	{"task-sleeps", task_sleeps},
	{"task-exits", task_exits},
	{"task-dies", task_dies},
	{"task-base-is", task_base_is},
	{"task-set-up", task_set_up},
	{"task-counts", task_counts},
	{"task-tells", task_tells},
	{"task-reads-a-byte", task_reads_a_byte},
	{"task-has-threads", task_has_threads},
	{"task-knows-itself", task_knows_itself},
	{"task-counts-tasks", task_counts_tasks},
	{"task-forks", task_forks},
	{"task-is-none", task_is_none},
	{"task-changes-area", task_changes_area},
	{"task-exports", task_exports},
	{"task-exports-later", task_exports_later},
	{"task-imports-later", task_imports_later},
	{"task-naps-and-exits", task_naps_and_exits},
	{"task-waits-in-vain", task_waits_in_vain},
	{"task-sums", task_sums},
	{"task-says-hello", task_says_hello},
};

int main(int argc, char **argv)
{
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	CHECK(length > 0);
	if (argc < 2)
		return 88;
	argument_count = argc;
	third_argument = argc > 3 ? argv[3] : "";
	for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
		if (strcmp(roles[i].name, argv[1]) == 0) {
			roles[i].run(argc > 2 ? argv[2] : "");
			return 0;
		}
	return check_main(cases, argc, argv);
}
