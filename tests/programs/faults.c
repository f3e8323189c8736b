/* Tasks that end badly, and what of it the others and the owner notice: nothing. The program
 * owns a space, and is its tasks where its first argument begins with "task-".
 *
 * usage: faults CASE [TINY-PROGRAM] */
#include "check.h"

#include <dirent.h>
#include <limits.h>
#include <pvas.h>
#include <stdatomic.h>
#include <sys/resource.h>

extern char **environ;

static char self[PATH_MAX];
static const char *argument = "";

static pid_t start(int pvd, int id, const char *role, const char *arg)
{
	char *argv[] = {"faults", (char *)role, (char *)arg, NULL};
	pid_t pid = pvas_spawn(pvd, id, self, argv, environ, NULL);
	if (pid < 0) {
		fprintf(stderr, "%s as task %d: %s\n", role, id, pvas_error());
		_exit(1);
	}
	return pid;
}

static int wait_status(pid_t pid)
{
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void *import(int pvd, int id, const char *name)
{
	void *addr;
	if (pvas_import(pvd, id, name, &addr, NULL, 60000) != 0) {
		fprintf(stderr, "%s of task %d: %s\n", name, id, pvas_error());
		_exit(1);
	}
	return addr;
}

/* ---- workers that others leave alone -------------------------------------------------- */

/* Works for ever in all its memory: heap, stack, maps, threads, data; counts its rounds. */
static atomic_long rounds;
static int data[10000];

static void *worker_thread(void *unused)
{
	char stack[20000];
	for (unsigned char i = 1;; i++) {
		check_parent();
		memset(stack, i, sizeof stack);
		sched_yield();
		for (size_t k = 0; k < sizeof stack; k++)
			CHECK_EQ((unsigned char)stack[k], i);
	}
	return unused;
}

static void task_works(void)
{
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, worker_thread, NULL), 0);
	CHECK(pvas_export("rounds", &rounds, sizeof rounds) == 0);
	for (unsigned i = 1;; i++) {
		check_parent();
		unsigned char *block = malloc(300000);
		memset(block, (int)i, 300000);
		for (int k = 0; k < 10000; k++)
			data[k] = (int)i + k;
		void *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		                 -1, 0);
		CHECK(map != MAP_FAILED);
		*(unsigned *)map = i;
		for (int k = 0; k < 300000; k++)
			CHECK_EQ(block[k], (unsigned char)i);
		for (int k = 0; k < 10000; k++)
			CHECK_EQ(data[k], (int)i + k);
		CHECK_EQ(*(unsigned *)map, i);
		CHECK(munmap(map, 1 << 20) == 0);
		free(block);
		atomic_fetch_add(&rounds, 1);
	}
}

/* Its rounds go on. */
static void check_works(pid_t pid, atomic_long *counter)
{
	long before = atomic_load(counter);
	double start_time = check_seconds();
	while (atomic_load(counter) < before + 5) {
		CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
		CHECK(check_seconds() - start_time < 30);
		usleep(1000);
	}
}

/* ---- victims ------------------------------------------------------------------------------ */

#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Winfinite-recursion"
static int recurse(volatile char *above)
{
	volatile char frame[1000];
	frame[0] = above[0];
	return recurse(frame) + frame[0];
}

static void task_ends(void)
{
	char *heap = malloc(30 << 20);
	memset(heap, 1, 30 << 20);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, worker_thread, NULL), 0);
	CHECK(pvas_export("rounds", &rounds, sizeof rounds) == 0);
	usleep(20000);
	if (strcmp(argument, "null") == 0)
		*(volatile int *)8 = 1;
	if (strcmp(argument, "jump") == 0)
		((void (*)(void))0x1234)();
	if (strcmp(argument, "overflow") == 0)
		recurse(heap);
	if (strcmp(argument, "illegal") == 0)
		__asm__ volatile("ud2");
	if (strcmp(argument, "abort") == 0)
		abort();
	if (strcmp(argument, "exit") == 0)
		exit(3);
	if (strcmp(argument, "exec") == 0)
		execl("/bin/sh", "sh", "-c", "exit 3", NULL);
	if (strcmp(argument, "fork") == 0) {
		pid_t pid = fork();
		if (pid == 0)
			abort();
		waitpid(pid, NULL, 0);
		_exit(3);
	}
	if (strcmp(argument, "thread-exit") == 0)
		pthread_exit(NULL); /* its thread works on, until killed */
	check_parent();
	for (;;) {
		check_parent();
		sleep(1);
	}
}

/* Bytes of the segment that are more than reserved, export area excepted. */
static size_t bytes_used(int pvd, int id)
{
	struct pvas_space_info info;
	CHECK(pvas_getspace(pvd, &info) == 0);
	uintptr_t segment = info.base + (uintptr_t)id * info.segment_size;
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[PATH_MAX + 100], rights[5];
	unsigned long from, to;
	size_t used = 0;
	while (fgets(line, sizeof line, maps)) {
		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3)
			continue;
		if (from >= segment + info.segment_size || to <= segment + PVAS_EXPORT_SIZE)
			continue;
		if (strncmp(rights, "---", 3) != 0)
			used += to - (from > segment + PVAS_EXPORT_SIZE ? from : segment + PVAS_EXPORT_SIZE);
	}
	fclose(maps);
	return used;
}

static void check_reclaimed(int pvd, int id)
{
	double start_time = check_seconds();
	size_t used;
	while ((used = bytes_used(pvd, id)) > 0) {
		if (check_seconds() - start_time > 10)
			fprintf(stderr, "segment %d still has %zu bytes\n", id, used);
		CHECK(check_seconds() - start_time < 10);
		usleep(10000);
	}
}

static void bad_ends(void)
{
	static const struct { const char *how; int send, status; } ends[] = {
		{"null", 0, 128 + SIGSEGV}, {"jump", 0, 128 + SIGSEGV},
		{"overflow", 0, 128 + SIGSEGV}, {"illegal", 0, 128 + SIGILL},
		{"abort", 0, 128 + SIGABRT}, {"exit", 0, 3}, {"exec", 0, 3}, {"fork", 0, 3},
		{"wait", SIGKILL, 128 + SIGKILL}, {"wait", SIGTERM, 128 + SIGTERM},
		{"thread-exit", SIGKILL, 128 + SIGKILL},
	};
	int pvd = pvas_create();
	CHECK(pvd >= 0);
	pid_t workers[2] = {start(pvd, 0, "task-works", ""), start(pvd, 2, "task-works", "")};
	atomic_long *counters[2] = {import(pvd, 0, "rounds"), import(pvd, 2, "rounds")};
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		pid_t victim = start(pvd, 1, "task-ends", ends[i].how);
		if (ends[i].send) {
			import(pvd, 1, "rounds");
			usleep(30000);
			CHECK(kill(victim, ends[i].send) == 0);
		}
		int status = wait_status(victim);
		if (status != ends[i].status)
			fprintf(stderr, "by %s:\n", ends[i].how);
		CHECK_EQ(status, ends[i].status);
		check_reclaimed(pvd, 1);
		check_works(workers[0], counters[0]);
		check_works(workers[1], counters[1]);
		CHECK_EQ(pvas_ntasks(pvd), 2);
	}
	/* A stopped task does not hinder the others, and resumes on SIGCONT. */
	CHECK(kill(workers[0], SIGSTOP) == 0);
	int status;
	CHECK_EQ(waitpid(workers[0], &status, WUNTRACED), workers[0]);
	CHECK(WIFSTOPPED(status));
	long before = atomic_load(counters[0]);
	check_works(workers[1], counters[1]);
	CHECK_EQ(wait_status(start(pvd, 1, "task-ends", "exit")), 3);
	check_works(workers[1], counters[1]);
	CHECK(atomic_load(counters[0]) - before <= 0);
	CHECK(kill(workers[0], SIGCONT) == 0);
	check_works(workers[0], counters[0]);
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(workers[0]), 128 + SIGKILL);
	CHECK_EQ(wait_status(workers[1]), 128 + SIGKILL);
}

/* ---- fork costs the others nothing ----------------------------------------------------------- */

static const size_t GIGABYTE = 1ul << 30;

static long faults_so_far(void)
{
	struct rusage usage;
	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage.ru_minflt;
}

/* Has a gigabyte; writes to all of it while the other's child lives. */
static void task_sits(void)
{
	char *memory = mmap(NULL, GIGABYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	madvise(memory, GIGABYTE, MADV_NOHUGEPAGE); /* so that each page would fault */
	for (size_t at = 0; at < GIGABYTE; at += 4096)
		memory[at] = 1;
	CHECK(pvas_export("memory", memory, GIGABYTE) == 0);
	import(PVAS_SELF, 0, "forked");
	long before = faults_so_far();
	for (size_t at = 0; at < GIGABYTE; at += 4096)
		memory[at] = 2;
	long faults = faults_so_far() - before;
	printf("%ld faults\n", faults);
	CHECK(faults < 1000); /* copy-on-write would have 262144 */
	CHECK(pvas_export("written", memory, GIGABYTE) == 0);
	import(PVAS_SELF, 0, "finished");
}

static void task_forks(void)
{
	char *theirs = import(PVAS_SELF, 1, "memory");
	import(PVAS_SELF, 2, "memory");
	size_t size = 100 << 20;
	char *mine = malloc(size);
	memset(mine, 5, size);
	int done[2], go[2];
	CHECK(pipe(done) == 0 && pipe(go) == 0);
	long before = faults_so_far();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		char byte;
		long resident = check_status("VmRSS");
		unsigned char page;
		printf("child: %ld KB resident, %ld KB of page tables\n", resident, check_status("VmPTE"));
		fflush(stdout);
		CHECK(resident < 200 << 10);
		CHECK(check_status("VmPTE") < 2048); /* two gigabytes alone have 4096 */
		CHECK_EQ(mine[size - 1], 5);
		CHECK_FAILS(mincore(theirs, 4096, &page), ENOMEM);
		close(go[1]);
		CHECK_EQ(write(done[1], "", 1), 1);
		CHECK_EQ(read(go[0], &byte, 1), 0);
		_exit(6);
	}
	char byte;
	close(done[1]);
	CHECK_EQ(read(done[0], &byte, 1), 1);
	CHECK(pvas_export("forked", &byte, 1) == 0);
	import(PVAS_SELF, 1, "written");
	import(PVAS_SELF, 2, "written");
	CHECK_EQ(theirs[GIGABYTE - 4096], 2);
	/* We do pay, for our own. */
	memset(mine, 6, size);
	CHECK(faults_so_far() - before > 10);
	close(go[1]);
	CHECK_EQ(wait_status(pid), 6);
	CHECK(pvas_export("finished", &byte, 1) == 0);
	/* The sitters' imports read our memory. */
	usleep(500000);
}

static void fork_is_cheap_for_others(void)
{
	int pvd = pvas_create();
	pid_t pids[3] = {start(pvd, 0, "task-forks", ""), start(pvd, 1, "task-sits", ""),
	                 start(pvd, 2, "task-sits", "")};
	for (int i = 0; i < 3; i++)
		CHECK_EQ(wait_status(pids[i]), 0);
	CHECK(pvas_destroy(pvd) == 0);
}

/* Forks children that end at once, for ever. */
static void task_forks_for_ever(void)
{
	CHECK(pvas_export("rounds", &rounds, sizeof rounds) == 0);
	for (;;) {
		check_parent();
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			_exit(0);
		CHECK_EQ(wait_status(pid), 0);
		atomic_fetch_add(&rounds, 1);
	}
}

/* A task that is stopped or killed in the middle of a fork takes no lock with it. */
static void interrupted_forks(void)
{
	uint64_t state = 42;
	int pvd = pvas_create();
	pid_t survivor = start(pvd, 0, "task-forks-for-ever", "");
	atomic_long *counter = import(pvd, 0, "rounds");
	for (int i = 0; i < 60; i++) {
		pid_t victim = start(pvd, 1, "task-forks-for-ever", "");
		import(pvd, 1, "rounds");
		usleep((useconds_t)(check_random(&state) % 3000));
		if (i % 2) {
			int status;
			CHECK(kill(victim, SIGSTOP) == 0);
			CHECK_EQ(waitpid(victim, &status, WUNTRACED), victim);
			check_works(survivor, counter);
			CHECK(kill(victim, SIGCONT) == 0);
		}
		CHECK(kill(victim, SIGKILL) == 0);
		CHECK_EQ(wait_status(victim), 128 + SIGKILL);
		check_works(survivor, counter);
	}
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(survivor), 128 + SIGKILL);
}

/* ---- no growth ---------------------------------------------------------------------------------- */

struct size {
	int lines, descriptors;
	long resident, tables, threads;
};

static struct size measure(void)
{
	struct size size = {0};
	FILE *maps = fopen("/proc/self/maps", "r");
	for (int c; (c = getc(maps)) != EOF;)
		size.lines += c == '\n';
	fclose(maps);
	DIR *directory = opendir("/proc/self/fd");
	while (readdir(directory))
		size.descriptors++;
	closedir(directory);
	size.resident = check_status("VmRSS");
	size.tables = check_status("VmPTE");
	size.threads = check_status("Threads");
	return size;
}

static void check_no_growth(struct size before, int times)
{
	/* Memory of an ended task is freed soon, if not at once. */
	struct size after;
	for (int i = 0; i < 100; i++) {
		after = measure();
		if (after.lines <= before.lines && after.descriptors <= before.descriptors &&
		    after.resident <= before.resident + 1024)
			break;
		usleep(20000);
	}
	printf("after %d: mappings %d -> %d, descriptors %d -> %d, resident %ld -> %ld KB, "
	       "page tables %ld -> %ld KB, threads %ld -> %ld\n",
	       times, before.lines, after.lines, before.descriptors, after.descriptors,
	       before.resident, after.resident, before.tables, after.tables, before.threads,
	       after.threads);
	fflush(stdout);
	CHECK(after.lines <= before.lines + 2);
	CHECK(after.descriptors <= before.descriptors);
	CHECK(after.resident <= before.resident + 1024);
	CHECK(after.tables <= before.tables + 128);
	CHECK(after.threads <= before.threads);
	CHECK_FAILS(waitpid(-1, NULL, WNOHANG), ECHILD); /* no zombies, no lost children */
}

static void cycle(int pvd, const char *program, int times)
{
	char *argv[] = {(char *)program, NULL};
	for (int i = 0; i < times; i++) {
		pid_t pid = pvas_spawn(pvd, PVAS_ANY_ID, program, argv, environ, NULL);
		if (pid < 0)
			fprintf(stderr, "spawn %d: %s\n", i, pvas_error());
		CHECK(pid > 0);
		CHECK_EQ(wait_status(pid), 0);
	}
}

static void ten_thousand_cycles(void)
{
	int pvd = pvas_create();
	cycle(pvd, argument, 1000);
	struct size before = measure();
	cycle(pvd, argument, 10000);
	check_no_growth(before, 10000);
	/* Programs with a libc, and ends of all kinds. */
	cycle(pvd, "/bin/true", 50);
	before = measure();
	cycle(pvd, "/bin/true", 500);
	check_no_growth(before, 500);
	CHECK(pvas_destroy(pvd) == 0);
}

static void cycles_of_all_kinds(void)
{
	static const char *const kinds[] = {"null", "exit", "exec", "fork", "kill"};
	int pvd = pvas_create();
	struct size before = {0};
	for (int round = 0; round < 24; round++) {
		pid_t pids[5];
		for (int i = 0; i < 5; i++)
			pids[i] = start(pvd, i, "task-ends", kinds[i]);
		usleep(20000);
		CHECK(kill(pids[4], SIGKILL) == 0);
		for (int i = 0; i < 5; i++)
			wait_status(pids[i]);
		/* Starts that fail leave nothing either. */
		char *argv[] = {"x", NULL};
		CHECK_FAILS(pvas_spawn(pvd, 3, "/nonexistent", argv, environ, NULL), ENOENT);
		CHECK_FAILS(pvas_spawn(pvd, 3, "/etc/passwd", argv, environ, NULL), EACCES);
		for (int i = 0; i < 5; i++)
			check_reclaimed(pvd, i);
		if (round == 11)
			before = measure();
	}
	check_no_growth(before, 60);
	/* Whole spaces come and go. */
	before = measure();
	for (int i = 0; i < 100; i++) {
		int other = pvas_create();
		CHECK(other >= 0);
		pid_t pid = start(other, 0, "task-ends", "wait");
		CHECK(pvas_destroy(other) == 0);
		CHECK_EQ(wait_status(pid), 128 + SIGKILL);
	}
	check_no_growth(before, 100);
	CHECK(pvas_destroy(pvd) == 0);
}

/* ---- vm.max_map_count ------------------------------------------------------------------------------ */

/* Makes mappings until there are nearly as many as there may be, then tries to start tasks:
 * ENOMEM with a reason, at whichever mapping it happens, and all is well once there is room. */
static void mappings_run_out(void)
{
	size_t page = 4096, most = 400000, made = 0;
	int pvd = pvas_create();
	char *argv[] = {"faults", "task-ends", "exit", NULL};
	pid_t worker = start(pvd, 0, "task-works", "");
	atomic_long *counter = import(pvd, 0, "rounds");
	char *arena = mmap(NULL, most * 2 * page, PROT_NONE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(arena != MAP_FAILED);
	CHECK(kill(worker, SIGSTOP) == 0); /* it would be refused its own maps */
	while (made < most && mprotect(arena + made * 2 * page, page, PROT_READ) == 0)
		made++;
	if (made == most) {
		printf("unlimited\n");
	} else {
		int refused = 0, started = 0;
		for (int room = 0; room < 120; room += 3) {
			errno = 0;
			pid_t pid = pvas_spawn(pvd, 1, self, argv, environ, NULL);
			int error = errno;
			if (pid < 0) {
				CHECK_EQ(error, ENOMEM);
				CHECK(strstr(pvas_error(), "max_map_count"));
				CHECK_FAILS(pvas_getpid(pvd, 1), ESRCH);
				refused++;
			} else {
				/* Loaded; its libraries may not find room. */
				int status = wait_status(pid);
				if (status != 3 && status != 127 && status != 1 && status != 128 + SIGABRT)
					printf("without room the program ended with %d\n", status);
				CHECK(status != 0);
				started += status == 3;
			}
			/* Three more may be made. */
			for (int i = 0; i < 3; i++) {
				made--;
				CHECK(munmap(arena + made * 2 * page, 2 * page) == 0);
			}
		}
		CHECK(refused > 0);
		printf("refused %d, started %d\n", refused, started);
	}
	CHECK(munmap(arena, most * 2 * page) == 0);
	CHECK_EQ(wait_status(start(pvd, 1, "task-ends", "exit")), 3);
	CHECK(kill(worker, SIGCONT) == 0);
	check_works(worker, counter);
	CHECK(pvas_destroy(pvd) == 0);
	CHECK_EQ(wait_status(worker), 128 + SIGKILL);
}

/* ---- which ------------------------------------------------------------------------------------------- */

static const struct check_case cases[] = {
	{"bad_ends", bad_ends},
	{"fork_is_cheap_for_others", fork_is_cheap_for_others},
	{"interrupted_forks", interrupted_forks},
	{"ten_thousand_cycles", ten_thousand_cycles},
	{"cycles_of_all_kinds", cycles_of_all_kinds},
	{"mappings_run_out", mappings_run_out},
	{"task-works", task_works},
	{"task-ends", task_ends},
	{"task-sits", task_sits},
	{"task-forks", task_forks},
	{"task-forks-for-ever", task_forks_for_ever},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	CHECK(length > 0);
	if (argc > 2)
		argument = argv[2];
	return check_main(cases, argc, argv);
}
