/* An owner whose children are killed at every instant of their lives, their start
 * included: it never hangs nor crashes, its own memory stays as it is, and in the end all
 * IDs are free and all memory and descriptors are back.
 *
 *   chaos_owner SEED SECONDS
 *
 * As `chaos_owner task KIND` it is the task itself. */
#include "check.h"

#include <dirent.h>
#include <pvas.h>
#include <sys/wait.h>

#define SPAWNERS 4
#define IDS 12
#define PATTERN_SIZE (4u << 20)

static const char *self;
static uint64_t seed;
static int space;
static volatile int stop;
static volatile unsigned long rounds[SPAWNERS], started, refused, signalled;

/* ---- the task --------------------------------------------------------------------- */

static int be_task(const char *kind)
{
	char *memory = malloc(1 << 20);
	CHECK(memory);
	memset(memory, 7, 1 << 20);
	switch (kind[0]) {
	case 'e': return 3;
	case 's': /* until it is killed; its threads, too */
		for (int i = 0; i < 2; i++) {
			pthread_t thread;
			CHECK(!pthread_create(&thread, NULL, (void *(*)(void *))(void *)pause, NULL));
		}
		for (;;)
			pause();
	case 'c': *(volatile int *)0 = 0; return 0;
	case 'f': { /* a child of its own, which outlives it by little */
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			_exit(memory[12345] == 7 ? 0 : 1);
		int status;
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK_EQ(status, 0);
		return 3;
	}
	case 'x': execl("/bin/sh", "sh", "-c", "exit 3", (char *)NULL); return 1;
	case 'm': /* maps and unmaps */
		for (int i = 0; i < 200; i++) {
			char *at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			CHECK(at != MAP_FAILED);
			memset(at, i, 65536);
			CHECK(!munmap(at, 65536));
		}
		return 3;
	}
	return 2;
}

/* ---- spawners --------------------------------------------------------------------- */

static void spin(uint64_t ns)
{
	double until = check_seconds() + ns * 1e-9;
	while (check_seconds() < until)
		;
}

/* Waits for its end; no other thread waits for it. */
static int await(pid_t pid)
{
	int status;
	pid_t got;
	while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
		;
	CHECK_EQ(got, pid);
	return status;
}

/* A task ends by itself, or is killed by this test. */
static void check_end(const char *kind, int status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return;
	if (kind[0] == 'c')
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	else
		CHECK_EQ(status, 3 << 8);
}

static pid_t fork_and_execve(int id, char *const argv[], uint64_t random)
{
	pid_t pid = pvas_fork(space, id);
	if (pid == 0) {
		if (random % 8 == 0)
			_exit(3);
		if (random % 8 == 1)
			execve("/bin/sh", (char *[]){"sh", "-c", "exit 3", NULL}, NULL);
		pvas_execve(self, argv, NULL);
		dprintf(2, "pvas_execve: %s\n", pvas_error());
		_exit(99);
	}
	return pid;
}

static void *run_spawner(void *argument)
{
	static const char *const kinds[] = {"e", "s", "c", "f", "x", "m"};
	long number = (long)argument;
	uint64_t state = seed + 100 + number;
	while (!stop) {
		uint64_t random = check_random(&state);
		const char *kind = kinds[random % 6];
		char *argv[] = {"chaos_owner", "task", (char *)kind, NULL};
		int id = number + SPAWNERS * (random >> 8) % IDS / SPAWNERS * SPAWNERS, forked = number == 0;
		pid_t pid = forked ? fork_and_execve(id, argv, random >> 16)
		                   : pvas_spawn(space, random >> 16 & 1 ? PVAS_ANY_ID : id, self, argv, NULL, NULL);
		if (pid < 0) {
			/* Killed before it was a task; or another thread was given the ID. */
			if (errno != ESRCH && errno != EBUSY && errno != EAGAIN) {
				fprintf(stderr, "spawner %ld: %s: %s\n", number, strerror(errno), pvas_error());
				_exit(1);
			}
			__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
		} else {
			__atomic_fetch_add(&started, 1, __ATOMIC_RELAXED);
			if (kind[0] == 's' && random >> 20 & 1) {
				spin(random >> 24 & 0xfffff);
				kill(pid, SIGKILL);
			} else if (kind[0] == 's') {
				kill(pid, SIGKILL);
			}
			int status = await(pid);
			if (!forked || (random >> 16) % 8 > 1)
				check_end(kind, status);
			else if (WIFEXITED(status))
				CHECK_EQ(WEXITSTATUS(status), 3);
		}
		rounds[number]++;
	}
	return NULL;
}

/* ---- killers ---------------------------------------------------------------------- */

/* Kills a task as soon as the space knows it, or a little later. */
static void *kill_new_tasks(void *argument)
{
	uint64_t state = seed + (long)argument;
	pid_t known[IDS] = {0};
	while (!stop) {
		for (int id = 0; id < IDS; id++) {
			pid_t pid = pvas_getpid(space, id);
			if (pid <= 0 || pid == known[id])
				continue;
			known[id] = pid;
			uint64_t random = check_random(&state);
			if (random % 4 == 0)
				continue;
			spin(random >> 8 & (random % 4 == 1 ? 0 : random % 4 == 2 ? 0x3fff : 0xfffff));
			kill(pid, SIGKILL);
			__atomic_fetch_add(&signalled, 1, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

static pid_t parent_of(pid_t pid)
{
	char path[40], text[512];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t size = read(fd, text, sizeof text - 1);
	close(fd);
	text[size > 0 ? size : 0] = 0;
	char *end = strrchr(text, ')');
	pid_t parent = -1;
	if (end)
		sscanf(end + 1, " %*c %d", &parent);
	return parent;
}

/* Kills, stops and continues children whether the space knows them or not: those that
 * are still being set up, too. A new one has a PID a little above the last. */
static void *kill_children(void *argument)
{
	uint64_t state = seed + (long)argument;
	pid_t last = getpid();
	while (!stop) {
		pid_t found = 0;
		for (pid_t pid = last + 1; pid < last + 40; pid++) {
			int pidfd = syscall(SYS_pidfd_open, pid, 0);
			if (pidfd < 0)
				continue;
			/* The descriptor names the process that was there; it is a child of this one if
			 * the present one is. */
			if (parent_of(pid) == getpid()) {
				found = pid;
				uint64_t random = check_random(&state);
				spin(random >> 8 & 0x1ffff);
				if (random % 4 == 0) {
					syscall(SYS_pidfd_send_signal, pidfd, SIGSTOP, NULL, 0);
					spin(random >> 8 & 0xfffff);
					syscall(SYS_pidfd_send_signal, pidfd, SIGCONT, NULL, 0);
				}
				if (random % 4 < 3) {
					syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
					__atomic_fetch_add(&signalled, 1, __ATOMIC_RELAXED);
				}
			}
			close(pidfd);
		}
		if (found) {
			last = found;
		} else {
			/* Others start processes, too: catch up by asking for a PID. */
			pid_t probe = vfork();
			if (probe == 0)
				_exit(0);
			await(probe);
			last = probe;
		}
	}
	return NULL;
}

/* ---- what must be as before ------------------------------------------------------- */

static int count_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	CHECK(directory);
	int count = 0;
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

/* Mappings in the space's part of the address space. */
static int count_mappings(uintptr_t from, uintptr_t to)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0;
	unsigned long start;
	CHECK(maps);
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-", &start) == 1 && start >= from && start < to)
			count++;
	fclose(maps);
	return count;
}

static int run_one(int id)
{
	char *argv[] = {"chaos_owner", "task", "e", NULL};
	pid_t pid = pvas_spawn(space, id, self, argv, NULL, NULL);
	if (pid < 0) {
		fprintf(stderr, "ID %d: %s\n", id, pvas_error());
		return 0;
	}
	CHECK_EQ(await(pid), 3 << 8);
	return 1;
}

/* The watcher may not have received the last ends yet. */
static void await_reclaim(void)
{
	for (int tries = 0; pvas_ntasks(space) && tries < 2000; tries++)
		usleep(10000);
	CHECK_EQ(pvas_ntasks(space), 0);
}

int main(int argc, char **argv)
{
	self = "/proc/self/exe";
	if (argc == 3 && strcmp(argv[1], "task") == 0)
		return be_task(argv[2]);
	char path[4096];
	ssize_t length = readlink(self, path, sizeof path - 1);
	CHECK(length > 0);
	path[length] = 0;
	self = path;
	CHECK_EQ(argc, 3);
	seed = strtoull(argv[1], NULL, 10);
	double seconds = strtod(argv[2], NULL);

	struct pvas_space_attr attr = {PVAS_SPACE_SEGMENT_SIZE | PVAS_SPACE_MAX_TASKS, 256 << 20, IDS};
	space = pvas_create_attr(&attr);
	CHECK(space >= 0);
	struct pvas_space_info info;
	CHECK(!pvas_getspace(space, &info));
	uintptr_t end = info.base + IDS * info.segment_size;
	for (int id = 0; id < IDS; id++)
		CHECK(run_one(id));
	await_reclaim();
	int fds = count_fds(), mappings = count_mappings(info.base, end);
	unsigned char *pattern = malloc(PATTERN_SIZE);
	CHECK(pattern);
	for (unsigned i = 0; i < PATTERN_SIZE; i++)
		pattern[i] = i * 37 + (i >> 12);

	pthread_t spawners[SPAWNERS], killers[2];
	for (long i = 0; i < SPAWNERS; i++)
		CHECK(!pthread_create(&spawners[i], NULL, run_spawner, (void *)i));
	CHECK(!pthread_create(&killers[0], NULL, kill_new_tasks, (void *)1));
	CHECK(!pthread_create(&killers[1], NULL, kill_children, (void *)2));
	/* A spawner that makes no progress for this long hangs. */
	const double patience = 20;
	double over = check_seconds() + seconds, changed[SPAWNERS];
	unsigned long seen[SPAWNERS] = {0};
	int joined = 0;
	for (int i = 0; i < SPAWNERS; i++)
		changed[i] = check_seconds();
	while (joined < SPAWNERS) {
		usleep(10000);
		if (check_seconds() > over)
			stop = 1;
		for (int i = 0; i < SPAWNERS; i++) {
			if (changed[i] == 0)
				continue;
			if (stop && pthread_tryjoin_np(spawners[i], NULL) == 0) {
				changed[i] = 0;
				joined++;
			} else if (rounds[i] != seen[i]) {
				seen[i] = rounds[i];
				changed[i] = check_seconds();
			} else if (check_seconds() - changed[i] > patience) {
				fprintf(stderr, "spawner %d hangs after %lu rounds\n", i, rounds[i]);
				_exit(1);
			}
		}
	}
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_join(killers[i], NULL));
	printf("%lu started, %lu refused, %lu signals\n", started, refused, signalled);

	for (unsigned i = 0; i < PATTERN_SIZE; i++)
		CHECK_EQ(pattern[i], (unsigned char)(i * 37 + (i >> 12)));
	await_reclaim();
	for (int id = 0; id < IDS; id++)
		CHECK(run_one(id));
	CHECK_FAILS(waitpid(-1, NULL, WNOHANG), ECHILD);
	await_reclaim();
	CHECK_EQ(count_mappings(info.base, end), mappings);
	CHECK_EQ(count_fds(), fds);
	CHECK(!pvas_destroy(space));
	CHECK_EQ(count_mappings(info.base, end), 0);
	return 0;
}
