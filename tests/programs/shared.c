/* What a program may expect of its memory, where it is shared memory underneath: what is
 * unmapped or discarded reads as zeros, mremap keeps contents and protection, files are not
 * written to, and after fork parent and child do not see each other's writes. As an ordinary
 * process, the same.
 *
 * usage: shared CASE */
#include "check.h"

#include <dirent.h>
#include <pvas.h>

enum { MIB = 1 << 20 };

#ifndef MADV_FREE
#define MADV_FREE 8
#endif

static char *map(size_t size, int prot)
{
	char *at = mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static int holds_only(const char *at, size_t size, char value)
{
	for (size_t i = 0; i < size; i++)
		if (at[i] != value)
			return 0;
	return 1;
}

#define WRITE (PROT_READ | PROT_WRITE)

/* The space's memory, as the task's owner has it open; -1 in an ordinary process. */
static int memory_file(pid_t owner)
{
	char path[64], name[64];
	snprintf(path, sizeof path, "/proc/%d/fd", owner);
	DIR *directory = opendir(path);
	CHECK(directory != NULL);
	int found = -1;
	for (struct dirent *e; found < 0 && (e = readdir(directory));) {
		ssize_t n = readlinkat(dirfd(directory), e->d_name, name, sizeof name - 1);
		name[n < 0 ? 0 : n] = 0;
		if (strncmp(name, "/memfd:pvas", 11) == 0)
			found = openat(dirfd(directory), e->d_name, O_RDONLY | O_CLOEXEC);
	}
	closedir(directory);
	return found;
}

/* The memory of all tasks, in MiB; 0 in an ordinary process. */
static long used(int file)
{
	struct stat s = {0};
	CHECK(file < 0 || fstat(file, &s) == 0);
	return s.st_blocks / 2048;
}

static int is_task(void)
{
	return pvas_getid() >= 0;
}

static int memory_of_this_space(void)
{
	int file = is_task() ? memory_file(getppid()) : -1;
	CHECK(!is_task() || file >= 0); /* else the test tests nothing */
	return file;
}

/* ---- gone is gone --------------------------------------------------------------- */

static void unmapped_memory_is_zero_again(void)
{
	for (int i = 0; i < 200; i++) {
		size_t size = (1 + i % 7) * 4096;
		char *at = map(size, WRITE);
		CHECK(holds_only(at, size, 0));
		memset(at, 1 + i % 100, size);
		CHECK_EQ(munmap(at, size), 0);
	}
	char *at = map(16 * 4096, WRITE);
	memset(at, 5, 16 * 4096);
	CHECK_EQ(munmap(at + 4 * 4096, 4 * 4096), 0);
	char *hint = mmap(at + 4 * 4096, 4 * 4096, WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(hint != MAP_FAILED && holds_only(hint, 4 * 4096, 0));
	CHECK(holds_only(at, 4 * 4096, 5) && holds_only(at + 8 * 4096, 8 * 4096, 5));

	/* Another mapping in its place. */
	int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	CHECK(mmap(at, 2 * 4096, WRITE, fixed, -1, 0) == at);
	CHECK(holds_only(at, 2 * 4096, 0) && holds_only(at + 2 * 4096, 2 * 4096, 5));
	memset(at, 6, 2 * 4096);
	int file = open("/proc/self/exe", O_RDONLY);
	CHECK(mmap(at, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == at);
	CHECK_EQ(memcmp(at, "\177ELF", 4), 0);
	CHECK(mmap(at, 4096, WRITE, fixed, -1, 0) == at);
	CHECK(holds_only(at, 4096, 0) && holds_only(at + 4096, 4096, 6));
	close(file);

	/* The break. */
	char *heap = sbrk(1 * MIB);
	CHECK(heap != (char *)-1);
	memset(heap, 7, 1 * MIB);
	CHECK(sbrk(-(1 * MIB)) != (char *)-1);
	CHECK(sbrk(1 * MIB) == heap);
	size_t kept = -(uintptr_t)heap % 4096; /* on the last page that stayed */
	CHECK(holds_only(heap + kept, 1 * MIB - kept, 0));
}

static void discarded_memory_is_zero(void)
{
	char *at = map(8 * 4096, WRITE);
	memset(at, 3, 8 * 4096);
	CHECK_EQ(madvise(at + 4096, 2 * 4096, MADV_DONTNEED), 0);
	CHECK(holds_only(at, 4096, 3) && holds_only(at + 4096, 2 * 4096, 0));
	CHECK(holds_only(at + 3 * 4096, 5 * 4096, 3));
	CHECK_EQ(madvise(at, 4096, MADV_FREE), 0);
	CHECK(holds_only(at, 4096, 3) || holds_only(at, 4096, 0));
	memset(at, 4, 4096);
	CHECK(holds_only(at, 4096, 4));
	CHECK_FAILS(madvise(at, 4096, MADV_REMOVE), EINVAL);
	CHECK_FAILS(madvise(at + 1, 4096, MADV_DONTNEED), EINVAL);
	CHECK_EQ(munmap(at + 4096, 4096), 0);
	CHECK_FAILS(madvise(at, 3 * 4096, MADV_DONTNEED), ENOMEM);
	CHECK(holds_only(at, 4096, 0) && holds_only(at + 2 * 4096, 4096, 0));
	/* Discarding what is mapped from a file leaves the file. */
	int file = memfd_create("file", 0);
	CHECK_EQ(ftruncate(file, 4096), 0);
	char *shared = mmap(NULL, 4096, WRITE, MAP_SHARED, file, 0);
	memset(shared, 9, 4096);
	CHECK_EQ(madvise(shared, 4096, MADV_DONTNEED), 0);
	CHECK(holds_only(shared, 4096, 9));
	CHECK_EQ(munmap(shared, 4096), 0);
	char byte;
	CHECK(pread(file, &byte, 1, 100) == 1 && byte == 9);
}

static void memory_is_given_back(void)
{
	int file = memory_of_this_space();
	long before = used(file);
	char *at = map(64 * MIB, WRITE);
	memset(at, 1, 64 * MIB);
	CHECK(file < 0 || used(file) >= before + 64);
	CHECK_EQ(madvise(at, 32 * MIB, MADV_DONTNEED), 0);
	CHECK(used(file) <= before + 34);
	CHECK_EQ(munmap(at, 64 * MIB), 0);
	CHECK(used(file) <= before + 2);
	char *heap = sbrk(32 * MIB);
	memset(heap, 1, 32 * MIB);
	CHECK(sbrk(-(32 * MIB)) != (char *)-1);
	CHECK(used(file) <= before + 2);
	at = map(32 * MIB, WRITE);
	memset(at, 1, 32 * MIB);
	at = mremap(at, 32 * MIB, 1 * MIB, 0);
	CHECK(at != MAP_FAILED && used(file) <= before + 3);
	CHECK(mremap(at, 1 * MIB, 1 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, map(1 * MIB, 0)) != MAP_FAILED);
	CHECK(used(file) <= before + 3);
	CHECK(mmap(at, 1 * MIB, PROT_READ, MAP_SHARED | MAP_FIXED,
	           open("/proc/self/exe", O_RDONLY), 0) == at);
	/* Address space takes none. */
	CHECK(map((size_t)4 << 30, WRITE) != NULL && used(file) <= before + 3);
}

/* ---- mremap ----------------------------------------------------------------------- */

static int is_writable(char *at)
{
	int file = open("/dev/zero", O_RDONLY);
	ssize_t n = read(file, at, 1);
	close(file);
	return n == 1;
}

static void mremap_keeps_contents(void)
{
	size_t size = 8 * 4096, big = 64 * 4096;
	char *at = map(size, WRITE), *wall = mmap(at + size, 4096, PROT_READ,
	                                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(wall != MAP_FAILED);
	memset(at, 1, size);
	CHECK_EQ(madvise(at + 4096, 4096, MADV_DONTNEED), 0);
	if (wall == at + size) {
		CHECK(mremap(at, size, big, 0) == MAP_FAILED && errno == ENOMEM);
		char *to = mremap(at, size, big, MREMAP_MAYMOVE);
		CHECK(to != MAP_FAILED && to != at);
		CHECK(!is_writable(at));
		at = to;
	} else {
		at = mremap(at, size, big, MREMAP_MAYMOVE);
	}
	CHECK(holds_only(at, 4096, 1) && holds_only(at + 4096, 4096, 0));
	CHECK(holds_only(at + 2 * 4096, size - 2 * 4096, 1));
	CHECK(holds_only(at + size, big - size, 0));
	memset(at, 2, big);
	/* Down and up again, in place or not: zeros. */
	CHECK(mremap(at, big, size, 0) == at);
	at = mremap(at, size, big, MREMAP_MAYMOVE);
	CHECK(at != MAP_FAILED && holds_only(at, size, 2) && holds_only(at + size, big - size, 0));

	/* To a place of the caller's, over what is there. */
	char *to = map(big, WRITE);
	memset(to, 8, big);
	CHECK_EQ(mprotect(at, big, PROT_READ), 0);
	CHECK(mremap(at, big, 2 * size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(holds_only(to, size, 2) && holds_only(to + size, size, 0));
	CHECK(holds_only(to + 2 * size, big - 2 * size, 8));
	CHECK(!is_writable(to) && is_writable(to + 2 * size) && !is_writable(at));
	CHECK(mmap(at, big, WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
	CHECK(holds_only(at, big, 0));

	CHECK(mremap(to, 0, size, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	CHECK(mremap(to, size, 0, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	CHECK(mremap(to + 1, size, big, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	CHECK(mremap(at, big, big, MREMAP_MAYMOVE | MREMAP_FIXED, at + 4096) == MAP_FAILED && errno == EINVAL);
#ifdef MREMAP_DONTUNMAP
	memset(at, 4, size);
	char *copy = mremap(at, size, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(copy != MAP_FAILED && holds_only(copy, size, 4) && holds_only(at, size, 0));
#endif
	/* realloc, which uses it. */
	unsigned char *block = NULL;
	for (size_t bytes = 100000, done = 0; bytes < 30000000; bytes += bytes / 3) {
		block = realloc(block, bytes);
		CHECK(block != NULL);
		for (size_t i = 0; i < done; i += 1000)
			CHECK_EQ(block[i], i % 251);
		for (; done < bytes; done++)
			block[done] = done % 251;
		free(malloc(200000));
	}
}

/* ---- private mappings of files ------------------------------------------------------ */

static void private_mappings_leave_the_file(void)
{
	int file = memfd_create("file", 0);
	size_t size = 3 * 4096 + 100, large = 65 * MIB;
	char *expected = malloc(size);
	for (size_t i = 0; i < size; i++)
		expected[i] = i % 251 + 1;
	CHECK(pwrite(file, expected, size, 0) == (ssize_t)size);
	char *at = mmap(NULL, size, WRITE, MAP_PRIVATE, file, 0);
	CHECK(at != MAP_FAILED);
	CHECK_EQ(memcmp(at, expected, size), 0);
	CHECK(holds_only(at + size, 4096 - 100, 0));
	memset(at, 0, size);
	char byte;
	CHECK(pread(file, &byte, 1, 0) == 1 && byte == expected[0]);
	CHECK_EQ(munmap(at, size), 0);
	at = mmap(NULL, 4096, WRITE, MAP_PRIVATE, file, 4096);
	CHECK_EQ(memcmp(at, expected + 4096, 4096), 0);
	/* Read-only first, then writable. */
	at = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
	CHECK_EQ(mprotect(at, size, WRITE), 0);
	memset(at, 0, size);
	CHECK(pread(file, &byte, 1, 0) == 1 && byte == expected[0]);
	/* Large. */
	CHECK_EQ(ftruncate(file, large), 0);
	at = mmap(NULL, large, WRITE, MAP_PRIVATE, file, 0);
	CHECK(at != MAP_FAILED && memcmp(at, expected, size) == 0 && at[large - 1] == 0);
	at[large - 1] = 1;
	CHECK(pread(file, &byte, 1, large - 1) == 1 && byte == 0);
	CHECK(mmap(NULL, 4096, WRITE, MAP_PRIVATE, 1000, 0) == MAP_FAILED && errno == EBADF);
	int out = open("/dev/null", O_WRONLY);
	CHECK(mmap(NULL, 4096, WRITE, MAP_PRIVATE, out, 0) == MAP_FAILED && errno == EACCES);
	at = mmap(NULL, 4096, WRITE, MAP_PRIVATE, open("/dev/zero", O_RDWR), 0);
	CHECK(at != MAP_FAILED && holds_only(at, 4096, 0) && (at[5] = 1));
}

/* ---- fork --------------------------------------------------------------------------- */

static int data = 1, zeroed;
static __thread int local = 1;

struct places {
	int *at[8];
	int count;
};

static void say(int pipe[2])
{
	CHECK(write(pipe[1], "x", 1) == 1);
}

static void hear(int pipe[2])
{
	char byte;
	CHECK(read(pipe[0], &byte, 1) == 1);
}

/* Parent and child write in turns, and see only their own. */
static void fork_and_compare(struct places *p)
{
	int down[2], up[2];
	CHECK(pipe(down) == 0 && pipe(up) == 0);
	for (int i = 0; i < p->count; i++)
		*p->at[i] = 100 + i;
	fflush(NULL);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		hear(down); /* the parent has written */
		for (int i = 0; i < p->count; i++) {
			CHECK_EQ(*p->at[i], 100 + i);
			*p->at[i] = 300 + i;
		}
		say(up);
		hear(down);
		for (int i = 0; i < p->count; i++)
			CHECK_EQ(*p->at[i], 300 + i);
		_exit(0);
	}
	for (int i = 0; i < p->count; i++)
		*p->at[i] = 200 + i;
	say(down);
	hear(up);
	for (int i = 0; i < p->count; i++)
		CHECK_EQ(*p->at[i], 200 + i);
	say(down);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
	for (int i = 0; i < 2; i++)
		close(down[i]), close(up[i]);
}

static void *fork_in_thread(void *unused)
{
	int on_stack;
	struct places p = {{&data, &zeroed, &local, &on_stack, malloc(sizeof(int))}, 5};
	for (int i = 0; i < 5; i++)
		fork_and_compare(&p);
	return unused;
}

static void fork_gives_memory_of_its_own(void)
{
	int on_stack;
	char *big = malloc(20 * MIB), *mapped = map(4 * MIB, WRITE), *private;
	int file = open("/proc/self/exe", O_RDONLY);
	private = mmap(NULL, 4096, WRITE, MAP_PRIVATE, file, 0);
	struct places p = {{&data, &zeroed, &local, &on_stack, (int *)big, (int *)mapped + 5000,
	                    sbrk(4096), (int *)private}, 8};
	for (int i = 0; i < 10; i++)
		fork_and_compare(&p);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, fork_in_thread, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);

	/* Protections, and libc's data about the thread. */
	char *readable = map(4096, WRITE), *none = map(4096, WRITE);
	readable[0] = 'r', none[0] = 'n';
	CHECK_EQ(mprotect(readable, 4096, PROT_READ), 0);
	CHECK_EQ(mprotect(none, 4096, PROT_NONE), 0);
	pthread_mutex_t mutex;
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&mutex, &attr);
	CHECK_EQ(pthread_mutex_lock(&mutex), 0);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(!is_writable(readable) && readable[0] == 'r');
		CHECK(write(open("/dev/null", O_WRONLY), none, 1) == 1 || !is_writable(none));
		CHECK_EQ(mprotect(none, 4096, PROT_READ), 0);
		CHECK_EQ(none[0], 'n');
		CHECK_EQ(mprotect(readable, 4096, WRITE), 0);
		readable[0] = 'c';
		/* The child's memory is ordinary: it maps, moves and forks. */
		char *more = map(MIB, WRITE);
		memset(more, 1, MIB);
		more = mremap(more, MIB, 9 * MIB, MREMAP_MAYMOVE);
		CHECK(more != MAP_FAILED && holds_only(more, MIB, 1));
		fork_in_thread(NULL);
		CHECK(sched_getcpu() >= 0);
		_exit(17);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 17);
	CHECK_EQ(readable[0], 'r');
	CHECK_EQ(pthread_mutex_unlock(&mutex), 0); /* EPERM were our TID another's */
	CHECK(sched_getcpu() >= 0);
}

/* The child continues on a separate stack, without libc's knowledge. */
static int seen_by_child;

static int child_on_stack(void *argument)
{
	int down = *(int *)argument;
	char byte;
	if (read(down, &byte, 1) != 1 || data != 41)
		return 1;
	data = 42, seen_by_child = 1;
	volatile char deep[20000];
	memset((char *)deep, 1, sizeof deep);
	return deep[100] == 1 ? 18 : 2;
}

static void clone_with_a_stack_is_a_fork(void)
{
	for (int i = 0; i < 5; i++) {
		int down[2], status;
		CHECK(pipe(down) == 0);
		data = 41;
		char *stack = map(64 << 10, WRITE);
		pid_t pid = clone(child_on_stack, stack + (64 << 10), SIGCHLD, &down[0]);
		CHECK(pid > 0);
		memset(stack, 7, 64 << 10); /* ours, not the child's */
		data = 43;
		say(down);
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 18);
		CHECK(data == 43 && !seen_by_child);
	}
}

static long resident(const char *what)
{
	char line[256];
	long kib = -1;
	FILE *status = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, status))
		if (strncmp(line, what, strlen(what)) == 0)
			kib = atol(line + strlen(what) + 1);
	fclose(status);
	return kib;
}

/* Untouched memory is still absent after a fork, in the parent and in the child. */
static void fork_does_not_fill_holes(void)
{
	int file = memory_of_this_space();
	char *at = map((size_t)4 << 30, WRITE), *reserved = map((size_t)1 << 30, PROT_NONE);
	for (size_t i = 0; i < 4096; i += 64)
		at[i << 20] = 1;
	CHECK(reserved != NULL);
	long before = used(file);
	for (int i = 0; i < 3; i++) {
		int status;
		pid_t pid = fork();
		if (pid == 0) {
			CHECK(resident("RssAnon:") < 64 << 10);
			for (size_t i = 0; i < 4096; i += 64)
				CHECK(at[i << 20] == 1 && at[(i << 20) + 8192] == 0);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK_EQ(status, 0);
	}
	CHECK(used(file) <= before + 2);
}

/* Kills every child of `parent` that it sees, at once. */
static void kill_children(pid_t parent, int until)
{
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
	pid_t self = getpid();
	fcntl(until, F_SETFL, O_NONBLOCK);
	for (char byte; read(until, &byte, 1) < 0;) {
		int file = open(path, O_RDONLY);
		ssize_t n = read(file, text, sizeof text - 1);
		close(file);
		text[n < 0 ? 0 : n] = 0;
		for (char *at = text, *end; *at; at = end) {
			pid_t pid = strtol(at, &end, 10);
			if (end == at)
				break;
			if (pid != self)
				kill(pid, SIGKILL);
			end += *end == ' ';
		}
	}
	_exit(0);
}

/* A child that is killed while it copies leaves its parent whole, and going on. */
static void children_killed_while_they_copy(void)
{
	char *big = malloc(100 * MIB);
	int stop[2], status;
	CHECK(pipe(stop) == 0);
	memset(big, 3, 100 * MIB);
	pid_t parent = getpid(), killer = fork();
	if (killer == 0) {
		close(stop[1]);
		kill_children(parent, stop[0]);
	}
	CHECK(killer > 0);
	for (int i = 0; i < 12; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			for (;;)
				pause();
		}
		CHECK(pid > 0);
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		big[i * 4096] = 3;
		free(malloc(5000));
	}
	close(stop[1]);
	CHECK(waitpid(killer, &status, 0) == killer);
	CHECK_EQ(status, 0);
	CHECK(holds_only(big, 100 * MIB, 3));
	/* And the next one is as any. */
	struct places p = {{&data, (int *)big}, 2};
	fork_and_compare(&p);
}

/* ---- the end of a task -------------------------------------------------------------- */

static void take_much(void)
{
	volatile char *much = malloc(100 * MIB);
	for (size_t i = 0; i < 100 * MIB; i += 4096)
		much[i] = 1;
	CHECK(used(memory_of_this_space()) >= 100);
}

extern char **environ;

/* An owner: the memory of its tasks is freed when they end, and reads as zeros in the next. */
static void the_end_of_a_task_gives_back(void)
{
	int pvd = pvas_create();
	CHECK(pvd >= 0);
	int file = memory_file(getpid());
	CHECK(file >= 0);
	char *argv[] = {"shared", "take_much", NULL};
	for (int i = 0; i < 3; i++) {
		int status;
		pid_t pid = pvas_spawn(pvd, 0, "/proc/self/exe", argv, environ, NULL);
		CHECK(pid > 0);
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK_EQ(status, 0);
		double limit = check_seconds() + 60;
		while (used(file) > 1 && check_seconds() < limit)
			usleep(1000);
		CHECK(used(file) <= 1);
	}
	close(file);
	CHECK_EQ(pvas_destroy(pvd), 0);
	CHECK_EQ(memory_file(getpid()), -1);
}

static const struct check_case cases[] = {
	{"unmapped_memory_is_zero_again", unmapped_memory_is_zero_again},
	{"discarded_memory_is_zero", discarded_memory_is_zero},
	{"memory_is_given_back", memory_is_given_back},
	{"mremap_keeps_contents", mremap_keeps_contents},
	{"private_mappings_leave_the_file", private_mappings_leave_the_file},
	{"fork_gives_memory_of_its_own", fork_gives_memory_of_its_own},
	{"clone_with_a_stack_is_a_fork", clone_with_a_stack_is_a_fork},
	{"fork_does_not_fill_holes", fork_does_not_fill_holes},
	{"children_killed_while_they_copy", children_killed_while_they_copy},
	{"take_much", take_much},
	{"the_end_of_a_task_gives_back", the_end_of_a_task_gives_back},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return check_main(cases, argc, argv);
}
