/* A program that makes a space with domains itself.
 *
 * usage: domain_owner CASE */
#include "check.h"

#include <pvas.h>

extern char **environ;

static int space(int shared, int tasks)
{
	struct pvas_space_attr attr = {
	        .fields = PVAS_SPACE_SHARED | PVAS_SPACE_MAX_TASKS, .shared = shared, .max_tasks = tasks};
	int pvd = pvas_create_attr(&attr);
	if (pvd < 0)
		fprintf(stderr, "%s\n", pvas_error());
	CHECK(pvd >= 0);
	return pvd;
}

static pid_t spawn(int pvd, int id, const char *command)
{
	char *argv[] = {"sh", "-c", (char *)command, NULL};
	pid_t pid = pvas_spawn(pvd, id, "/bin/sh", argv, environ, NULL);
	if (pid < 0)
		fprintf(stderr, "%d: %s: %s\n", id, command, pvas_error());
	CHECK(pid > 0);
	return pid;
}

static int status_of(pid_t pid)
{
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return status;
}

/* Returns true if the kernel reports one mm for two processes. */
static int share_memory(pid_t a, pid_t b)
{
	return syscall(SYS_kcmp, a, b, 1 /* KCMP_VM */, 0, 0) == 0;
}

static void arguments(void)
{
	int plain = space(0, 4), pvd = space(1, 8);
	if (!getenv("PVAS_SHARED"))
		CHECK_FAILS(pvas_add_domain(plain, 0, 1, NULL, 0), EINVAL);
	CHECK_FAILS(pvas_add_domain(99, 0, 1, NULL, 0), EBADF);
	CHECK_FAILS(pvas_add_domain(pvd, 0, 0, NULL, 0), EINVAL);
	CHECK_FAILS(pvas_add_domain(pvd, -1, 1, NULL, 0), EINVAL);
	CHECK_FAILS(pvas_add_domain(pvd, 8, 1, NULL, 0), EINVAL);
	CHECK_FAILS(pvas_add_domain(pvd, 7, 2, NULL, 0), EINVAL);
	CHECK_EQ(status_of(spawn(pvd, 1, "exit 3")), 3 << 8);
	CHECK_FAILS(pvas_add_domain(pvd, 0, 2, NULL, 0), EBUSY);
	CHECK_EQ(pvas_add_domain(pvd, 2, 2, NULL, 0), 1);
	CHECK_FAILS(pvas_add_domain(pvd, 3, 2, NULL, 0), EBUSY);
	CHECK_EQ(pvas_add_domain(pvd, 4, 1, NULL, 0), 2);
	CHECK_EQ(pvas_domain_of(pvd, 1), 0);
	CHECK_EQ(pvas_domain_of(pvd, 3), 1);
	CHECK_EQ(pvas_domain_of(pvd, 4), 2);
	CHECK_EQ(pvas_domain_of(pvd, 5), 0);
	CHECK_FAILS(pvas_domain_of(pvd, 8), EINVAL);
	CHECK_FAILS(pvas_fork(pvd, 3), EINVAL);
	CHECK_EQ(pvas_destroy(pvd), 0);
	CHECK_EQ(pvas_destroy(plain), 0);
	CHECK_FAILS(waitpid(-1, NULL, 0), ECHILD);
}

/* Tasks of all domains are children of the owner; those of one share an mm. */
static void children(void)
{
	int pvd = space(1, 6);
	CHECK_EQ(pvas_add_domain(pvd, 2, 2, NULL, 0), 1);
	CHECK_EQ(pvas_add_domain(pvd, 4, 2, NULL, 0), 2);
	char command[99];
	snprintf(command, sizeof command, "test $PPID = %d && sleep 30", getpid());
	pid_t pids[6];
	for (int id = 0; id < 6; id++)
		pids[id] = spawn(pvd, id, command);
	usleep(200000);
	for (int a = 0; a < 6; a++) {
		CHECK_EQ(pvas_getpid(pvd, a), pids[a]);
		CHECK_EQ(pvas_id_of_pid(pvd, pids[a]), a);
		CHECK_EQ(share_memory(pids[a], getpid()), a < 2);
		for (int b = 0; b < 6; b++)
			CHECK_EQ(share_memory(pids[a], pids[b]), a / 2 == b / 2);
	}
	CHECK_EQ(pvas_ntasks(pvd), 6);
	for (int id = 0; id < 6; id++) {
		CHECK_EQ(kill(pids[id], SIGTERM), 0);
		CHECK_EQ(status_of(pids[id]), SIGTERM);
	}
	CHECK_EQ(pvas_ntasks(pvd), 0);
	CHECK_EQ(pvas_destroy(pvd), 0);
	CHECK_FAILS(waitpid(-1, NULL, 0), ECHILD);
}

/* Bytes that the memory of all segments has in use. */
static long used(void)
{
	for (int fd = 3; fd < 100; fd++) {
		char link[64], name[64];
		struct stat file;
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		ssize_t length = readlink(link, name, sizeof name - 1);
		if (length <= 0)
			continue;
		name[length] = 0;
		if (strstr(name, "memfd:pvas") && fstat(fd, &file) == 0)
			return file.st_blocks * 512;
	}
	return -1;
}

/* An ID is free again when its task has ended, in another domain too. Its exports and its
 * memory are gone. */
static void again(void)
{
	int pvd = space(1, 2);
	CHECK_EQ(pvas_add_domain(pvd, 1, 1, NULL, 0), 1);
	pid_t sleeps = spawn(pvd, 1, "sleep 100");
	CHECK_FAILS(pvas_spawn(pvd, 1, "/bin/sh", (char *[]){"sh", NULL}, environ, NULL), EBUSY);
	CHECK_EQ(kill(sleeps, SIGKILL), 0);
	CHECK_EQ(status_of(sleeps), SIGKILL);
	/* Its writes to its export area are gone, too. */
	char *marks[] = {"domain_owner", "marks", NULL};
	pid_t marker = pvas_spawn(pvd, 1, "/proc/self/exe", marks, environ, NULL);
	CHECK(marker > 0);
	char *export = pvas_export_area(pvd, 1);
	while (export[200] != 7)
		usleep(100);
	CHECK_EQ(kill(marker, SIGKILL), 0);
	CHECK_EQ(status_of(marker), SIGKILL);
	while (pvas_ntasks(pvd))
		usleep(100);
	CHECK_EQ(export[200], 0);
	for (int round = 0; round < 40; round++) {
		pid_t pid = spawn(pvd, 1, round % 2 ? "exec true" : "exit 7");
		CHECK_EQ(status_of(pid), round % 2 ? 0 : 7 << 8);
		while (pvas_ntasks(pvd))
			usleep(100);
		CHECK_EQ(export[100], 0);
		export[100] = 1; /* nobody finds it */
	}
	/* The export area stays, and little else. */
	CHECK(used() >= 0 && used() <= 256 << 10);
	CHECK_EQ(pvas_destroy(pvd), 0);
	CHECK_FAILS(waitpid(-1, NULL, 0), ECHILD);
}

/* A task that marks its export area. */
static void marks(void)
{
	((char *)pvas_export_area(PVAS_SELF, pvas_getid()))[200] = 7;
	for (;;)
		pause();
}

/* A program that cannot start gives the reason and leaves no child, and the next starts. */
static void refused(void)
{
	int pvd = space(1, 2);
	CHECK_EQ(pvas_add_domain(pvd, 1, 1, NULL, 0), 1);
	char *argv[] = {"x", NULL};
	CHECK_FAILS(pvas_spawn(pvd, 1, "/none", argv, environ, NULL), ENOENT);
	struct pvas_spawn_attr nowhere = {.fields = PVAS_SPAWN_CWD, .cwd = "/none"};
	CHECK_FAILS(pvas_spawn(pvd, 1, "/bin/sh", argv, environ, &nowhere), ENOENT);
	cpu_set_t none;
	CPU_ZERO(&none);
	struct pvas_spawn_attr unbound = {
	        .fields = PVAS_SPAWN_CPUS, .cpus = &none, .cpus_size = sizeof none};
	CHECK_FAILS(pvas_spawn(pvd, 1, "/bin/sh", argv, environ, &unbound), EINVAL);
	CHECK(strstr(pvas_error(), "affinity") != NULL);
	int pipes[2];
	CHECK_EQ(pipe(pipes), 0);
	int map[1][2] = {{pipes[1], 1}};
	struct pvas_spawn_attr told = {
	        .fields = PVAS_SPAWN_FDS | PVAS_SPAWN_CWD, .fd_map = map, .n_fds = 1, .cwd = "/usr"};
	char *says[] = {"sh", "-c", "pwd; umask; ls /proc/self/fd | wc -l", NULL};
	umask(027);
	pid_t pid = pvas_spawn(pvd, 1, "/bin/sh", says, environ, &told);
	CHECK(pid > 0);
	close(pipes[1]);
	CHECK_EQ(status_of(pid), 0);
	char text[100] = "";
	CHECK(read(pipes[0], text, sizeof text - 1) > 0);
	CHECK(strncmp(text, "/usr\n0027\n2\n", 12) == 0 || (fputs(text, stderr), 0));
	CHECK_EQ(pvas_destroy(pvd), 0);
	CHECK_FAILS(waitpid(-1, NULL, 0), ECHILD);
}

/* Tells its PID and those of its children, and waits to be killed. */
static void abandoned(void)
{
	int pvd = space(1, 3);
	CHECK_EQ(pvas_add_domain(pvd, 1, 2, NULL, 0), 1);
	struct pvas_spawn_attr dies = {.fields = PVAS_SPAWN_PDEATHSIG, .pdeathsig = SIGKILL};
	char *argv[] = {"sleep", "100", NULL};
	for (int id = 0; id < 3; id++)
		CHECK(pvas_spawn(pvd, id, "/bin/sleep", argv, environ, &dies) > 0);
	FILE *list = fopen("/proc/thread-self/children", "r");
	CHECK(list != NULL);
	for (int pid; fscanf(list, "%d", &pid) == 1;)
		printf("%d ", pid);
	printf("all\n");
	fflush(stdout);
	pause();
}

int main(int argc, char **argv)
{
	const struct check_case cases[] = {
		{"arguments", arguments}, {"children", children}, {"again", again},
		{"refused", refused},     {"abandoned", abandoned},
		{"marks", marks},         {NULL, NULL},
	};
	return check_main(cases, argc, argv);
}
