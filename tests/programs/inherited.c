/* Prints what a process inherits, one item a line, so that two ways to start it can be
 * compared. Standard streams are described like any other descriptor. */
#include "check.h"

#include <grp.h>
#include <limits.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>

extern char **environ;

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int main(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		printf("argument %d: %s\n", i, argv[i]);

	/* Variables that a launcher of tasks adds are omitted. */
	size_t n = 0;
	while (environ[n])
		n++;
	qsort(environ, n, sizeof *environ, compare);
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], "NAGAYA", 6) != 0)
			printf("environment: %s\n", environ[i]);

	for (int fd = 0; fd < 20000; fd++) {
		struct stat data;
		if (fstat(fd, &data) != 0)
			continue;
		printf("descriptor %d: %llx:%llx mode %o flags %x %x offset %lld\n", fd,
		       (unsigned long long)data.st_dev, (unsigned long long)data.st_ino,
		       data.st_mode, fcntl(fd, F_GETFL), fcntl(fd, F_GETFD),
		       fd == 1 || fd == 2 ? 0 : (long long)lseek(fd, 0, SEEK_CUR));
	}

	char directory[PATH_MAX];
	mode_t mask = umask(0);
	printf("directory: %s\n", getcwd(directory, sizeof directory));
	printf("umask: %o\n", mask);
	for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
		struct rlimit limit;
		if (getrlimit(resource, &limit) == 0)
			printf("limit %d: %llx %llx\n", resource, (unsigned long long)limit.rlim_cur,
			       (unsigned long long)limit.rlim_max);
	}
	cpu_set_t cpus;
	CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cpus))
			printf("processor: %d\n", cpu);
	struct sched_param parameter;
	sched_getparam(0, &parameter);
	printf("nice: %d, policy %d, priority %d\n", getpriority(PRIO_PROCESS, 0),
	       sched_getscheduler(0), parameter.sched_priority);

	/* As the kernel counts: libc keeps two signals to itself. */
	FILE *status = fopen("/proc/self/status", "r");
	char line[1000];
	while (fgets(line, sizeof line, status))
		if (strncmp(line, "SigBlk", 6) == 0 || strncmp(line, "SigIgn", 6) == 0 || strncmp(line, "Uid", 3) == 0 ||
		    strncmp(line, "Gid", 3) == 0 || strncmp(line, "Groups", 6) == 0 ||
		    strncmp(line, "Cap", 3) == 0 || strncmp(line, "NoNewPrivs", 10) == 0 ||
		    strncmp(line, "Seccomp", 7) == 0 || strncmp(line, "CoreDumping", 11) == 0)
			fputs(line, stdout);
	fclose(status);
	for (int number = 1; number <= SIGRTMAX; number++) {
		struct sigaction action;
		if (sigaction(number, NULL, &action) == 0)
			printf("handler %d: %s\n", number,
			       action.sa_handler == SIG_DFL   ? "default"
			       : action.sa_handler == SIG_IGN ? "ignored"
			                                      : "own");
	}
	printf("group: %d\n", getpgrp());
	printf("session: %d\n", getsid(0));
	printf("timer slack: %d\n", prctl(PR_GET_TIMERSLACK));
	printf("personality: %x\n", personality(0xffffffff));
	FILE *score = fopen("/proc/self/oom_score_adj", "r");
	if (score && fgets(line, sizeof line, score))
		printf("oom_score_adj: %s", line);
	FILE *group = fopen("/proc/self/cgroup", "r");
	while (group && fgets(line, sizeof line, group))
		printf("cgroup: %s", line);
	return 0;
}
