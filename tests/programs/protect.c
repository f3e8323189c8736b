/* Tasks of a protected job (nagaya run --protect): what each can do with the memory of the next
 * one by loads, stores and system calls.
 *
 * usage: protect CASE [FILE] */
#include "meet.h"

#include <pvas_delegate.h>
#include <setjmp.h>
#include <sys/uio.h>

static int next;
/* "writes", "all", or "" in a job without protection. */
static const char *protection;

/* ---- what each task has --------------------------------------------------------------- */

/* Memory that nobody exports, on pages of its own. */
static _Alignas(4096) long data[512] = {1};
static const _Alignas(4096) char constant[PAGE] = "a constant";

/* Where the others find it: exported, and so open to them. */
static _Alignas(4096) struct {
	long *heap, *data, *fresh;
	const char *constant;
	pid_t pid;
	char rest[PAGE - 40];
} mine, *its;

static long *pages(size_t count)
{
	long *at = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static long value(int task, int number)
{
	return 1000 * (task + 1) + number;
}

static void begin(void)
{
	begin_to_meet();
	next = (me + 1) % tasks;
	protection = getenv("PROTECTION") ? getenv("PROTECTION") : "";
	mine.heap = pages(2), mine.fresh = pages(2), mine.data = data;
	mine.constant = constant, mine.pid = getpid();
	*mine.heap = value(me, 0), data[0] = value(me, 1);
	tell("mine", &mine, sizeof mine);
	its = of(next, "mine");
	meet();
}

/* ---- accesses ------------------------------------------------------------------------- */

static sigjmp_buf back;
static void *faulted;
static int fault_code;

static void caught(int signal, siginfo_t *info, void *context)
{
	(void)context;
	faulted = info->si_addr, fault_code = info->si_code;
	siglongjmp(back, signal);
}

static void catch_faults(void)
{
	struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
	CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
	CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
}

static int store_signal(volatile long *address, long number)
{
	int signal = sigsetjmp(back, 1);
	if (!signal)
		*address = number;
	return signal;
}

static int load_signal(const volatile long *address)
{
	int signal = sigsetjmp(back, 1);
	if (!signal)
		(void)*address;
	return signal;
}

static int is(const char *wanted)
{
	return !strcmp(protection, wanted);
}

static ssize_t transfer(int write, pid_t pid, void *here, const void *there, size_t size)
{
	struct iovec local = {here, size}, remote = {(void *)there, size};
	return write ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
	             : process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

/* ---- cases --------------------------------------------------------------------------- */

/* Task 1 stores into the memory of task 0, which then reports its state. */
static void stray(void)
{
	begin();
	if (me == 1) {
		*its->heap = 7;
		puts("stored");
		return;
	}
	while (pvas_getpid(PVAS_SELF, 1) >= 0)
		usleep(500);
	puts(*mine.heap == value(me, 0) ? "unharmed" : "damaged");
}

/* Task 1 loads from the memory of task 0. */
static void peek(void)
{
	begin();
	if (me == 1)
		printf("read %ld\n", *its->heap);
	while (!me && pvas_getpid(PVAS_SELF, 1) >= 0)
		usleep(500);
}

/* Loads and stores of each kind of memory. */
static void accesses(void)
{
	begin();
	catch_faults();
	long *all[] = {its->heap, its->data, its->fresh, (long *)its->constant};
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(load_signal(all[i]), is("all") ? SIGSEGV : 0);
		if (i == 3)
			continue;
		meet();
		CHECK_EQ(store_signal(all[i], value(me, i)), *protection ? SIGSEGV : 0);
		CHECK(!*protection || (faulted == all[i] && fault_code == SEGV_ACCERR));
		meet();
	}
	int before = (me + tasks - 1) % tasks;
	CHECK_EQ(*mine.heap, *protection ? value(me, 0) : value(before, 0));
	CHECK_EQ(data[0], *protection ? value(me, 1) : value(before, 1));
	CHECK_EQ(*mine.fresh, *protection ? 0 : value(before, 2));
	part();
}

/* The alias of all segments, which lies outside of them. */
static char *alias(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], rights[8];
	unsigned long start, found = 0;
	while (maps && fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%*x %7s", &start, rights) == 2 && !strcmp(rights, "---s") &&
		    start >= 88ul << 40 && strstr(line, "memfd:pvas"))
			found = start;
	fclose(maps);
	CHECK(found);
	return (char *)found;
}

/* No call gives the rights back. */
static void rights(void)
{
	begin();
	catch_faults();
	char *page = (char *)its->heap;
	struct pvas_space_info space;
	CHECK_EQ(pvas_getspace(PVAS_SELF, &space), 0);
	char *other = alias() + (page - (char *)space.base);
	for (char *at = page;; at = other) {
		CHECK_FAILS(mprotect(at, PAGE, PROT_READ | PROT_WRITE), EACCES);
		CHECK_FAILS(mprotect(at, PAGE, PROT_WRITE), EACCES);
		CHECK_FAILS(mprotect(at, PAGE, PROT_READ | PROT_EXEC), EACCES);
		CHECK_FAILS(pkey_mprotect(at, PAGE, PROT_READ | PROT_WRITE, -1), EACCES);
		CHECK_FAILS(mremap(at, 0, PAGE, MREMAP_MAYMOVE), EFAULT);
		CHECK_FAILS(mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
		if (at == other)
			break;
	}
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	CHECK_FAILS(mmap(page, PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0), ENOMEM);
	CHECK_FAILS(mmap(page, PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
	CHECK_FAILS(munmap(page, PAGE), EINVAL);
	CHECK_FAILS(madvise(page, PAGE, MADV_DONTNEED), EPERM);
	/* Nor what the others share on purpose, together with more. */
	char *segment = pvas_segment(PVAS_SELF, next);
	CHECK_FAILS(mprotect(segment, PVAS_EXPORT_SIZE + PAGE, PROT_READ | PROT_WRITE), EACCES);
	CHECK_FAILS(mprotect(segment, PVAS_EXPORT_SIZE, PROT_READ | PROT_WRITE), EACCES);
	CHECK_FAILS(mprotect(its, 2 * PAGE, PROT_READ | PROT_WRITE), EACCES);
	CHECK_FAILS(mprotect(its, PAGE, PROT_READ | PROT_EXEC), EACCES);
	CHECK_EQ(store_signal((long *)page, 7), SIGSEGV);
	CHECK_EQ(store_signal((long *)(segment + PVAS_EXPORT_USER), 7), SIGSEGV);
	/* Its own rights are its own business. */
	CHECK_EQ(mprotect(mine.heap, PAGE, PROT_READ), 0);
	CHECK_EQ(store_signal(mine.heap, 7), SIGSEGV);
	CHECK_EQ(mprotect(mine.heap, PAGE, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(store_signal(mine.heap, 7), 0);
	part();
}

/* Memory that is exported by name, and the export area, are shared. */
static void exports(void)
{
	begin();
	long *shared = pages(3), *its_own;
	CHECK_EQ(pvas_export("shared", shared, 2 * PAGE), 0);
	its_own = of(next, "shared");
	its_own[0] = value(me, 40), its_own[1023] = value(me, 41);
	_Atomic int *area = pvas_export_area(PVAS_SELF, next);
	CHECK(area != NULL);
	atomic_fetch_add(&area[8191], me + 1);
	meet();
	int before = (me + tasks - 1) % tasks;
	CHECK_EQ(shared[0], value(before, 40));
	CHECK_EQ(shared[1023], value(before, 41));
	area = pvas_export_area(PVAS_SELF, me);
	CHECK_EQ(atomic_load(&area[8191]), before + 1);
	catch_faults();
	CHECK_EQ(store_signal(&its_own[1024], 7), *protection ? SIGSEGV : 0);
	/* Unaligned memory: the whole pages. */
	CHECK_EQ(pvas_export("middle", &shared[1024 + 100], 8), 0);
	long *middle = of(next, "middle");
	CHECK_EQ(store_signal(middle, value(me, 42)), 0);
	meet();
	CHECK_EQ(shared[1024 + 100], value(before, 42));
	part();
}

/* Copies by process_vm_*: in both directions, with the kernel's errors. */
static void copies(void)
{
	begin();
	enum { PAGES = 300 };
	static long buffer[PAGES * 512];
	static struct { long *large; } large;
	large.large = pages(PAGES);
	for (int page = 0; page < PAGES; page++)
		large.large[page * 512] = value(me, page);
	CHECK_EQ(pvas_export("large", &large, sizeof large), 0);
	const long *theirs = (*(typeof(large) *)of(next, "large")).large;
	CHECK_EQ(transfer(0, its->pid, buffer, theirs, sizeof buffer), sizeof buffer);
	for (int page = 0; page < PAGES; page++)
		CHECK_EQ(buffer[page * 512], value(next, page));
	char text[PAGE];
	CHECK_EQ(transfer(0, its->pid, text, its->constant, PAGE), PAGE);
	CHECK(!strcmp(text, constant));
	meet();
	for (int page = 0; page < PAGES; page++)
		buffer[page * 512] = value(me, 1000 + page);
	CHECK_EQ(transfer(1, its->pid, buffer, theirs, sizeof buffer), sizeof buffer);
	CHECK_EQ(transfer(1, its->pid, buffer, its->fresh, 8), 8);
	CHECK_FAILS(transfer(1, its->pid, buffer, its->constant, 8), EFAULT);
	CHECK_FAILS(transfer(1, its->pid, buffer, NULL, 8), EFAULT);
	CHECK_FAILS(transfer(0, its->pid, buffer, NULL, 8), EFAULT);
	meet();
	int before = (me + tasks - 1) % tasks;
	for (int page = 0; page < PAGES; page++)
		CHECK_EQ(large.large[page * 512], value(before, 1000 + page));
	CHECK_EQ(*mine.fresh, value(before, 1000));
	part();
}

/* Copies of 4 KiB in each direction until FILE exists: nagaya ps counts those in user space. */
static const char *file;

static void counted(void)
{
	begin();
	static char buffer[PAGE];
	int write = !strcmp(file, "write");
	for (int i = 0; i < 100; i++)
		CHECK_EQ(transfer(write, its->pid, buffer, its->heap, PAGE), PAGE);
	puts("ready");
	fflush(stdout);
	for (;;) {
		usleep(1000);
		check_parent();
	}
}

static void *thread(void *argument)
{
	(void)argument;
	CHECK_EQ(store_signal(its->heap, 7), SIGSEGV);
	*mine.heap = value(me, 50);
	return NULL;
}

/* Threads, forks and programs that a task starts. */
static void family(void)
{
	begin();
	catch_faults();
	pthread_t one;
	CHECK_EQ(pthread_create(&one, NULL, thread, NULL), 0);
	CHECK_EQ(pthread_join(one, NULL), 0);
	CHECK_EQ(*mine.heap, value(me, 50));
	long *others = its->heap;
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) { /* it has left the space */
		CHECK_EQ(*mine.heap, value(me, 50));
		*mine.heap = 9;
		CHECK_EQ(store_signal(others, 7), SIGSEGV);
		CHECK_EQ(load_signal(others), SIGSEGV);
		_exit(5);
	}
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 5);
	CHECK_EQ(*mine.heap, value(me, 50));
	CHECK_EQ(system("exit 3"), 3 << 8);
	meet();
	if (me == tasks - 1)
		execlp("echo", "echo", "another program", NULL);
	while (!me && pvas_ntasks(PVAS_SELF) > 1)
		usleep(500);
}

/* Exports some memory, and ends when FILE exists. */
static void passing(void)
{
	long *some = mmap(pvas_segment(PVAS_SELF, 1) + (1ul << 34), PAGE, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(some == pvas_segment(PVAS_SELF, 1) + (1ul << 34));
	*some = 1;
	CHECK_EQ(pvas_export("some", some, PAGE), 0);
	while (access(file, F_OK)) {
		usleep(1000);
		check_parent();
	}
	CHECK_EQ(*some, 1);
	puts("unharmed");
}

/* Task 0 opens memory of task 1. The next task 1 has memory at the same address. */
static void survivor(void)
{
	catch_faults();
	long *some = of(1, "some");
	CHECK_EQ(store_signal(some, 1), 0);
	_Atomic int *area = pvas_export_area(PVAS_SELF, 1);
	CHECK(area != NULL);
	puts("opened");
	while (access(file, F_OK)) {
		usleep(1000);
		check_parent();
	}
	CHECK_EQ(store_signal(some, 7), SIGSEGV);
	CHECK(fault_code == SEGV_ACCERR);
	CHECK_EQ(store_signal((long *)area, 7), 0);
	CHECK_EQ(store_signal(of(1, "some"), 1), 0);
	puts("closed");
}

/* Tasks cannot delegate work on their memory. */
static void delegates(void)
{
	begin();
	CHECK_FAILS(pvas_delegate_open(16, 0), EOPNOTSUPP);
	CHECK(strstr(pvas_delegate_error(), "--protect"));
	part();
}

int main(int argc, char **argv)
{
	const struct check_case cases[] = {
		{"stray", stray},     {"peek", peek},     {"accesses", accesses}, {"rights", rights},
		{"exports", exports}, {"copies", copies}, {"counted", counted},   {"family", family},
		{"delegates", delegates}, {"passing", passing}, {"survivor", survivor}, {NULL, NULL},
	};
	setvbuf(stdout, NULL, _IOLBF, 0);
	file = argc > 2 ? argv[2] : "";
	return check_main(cases, argc, argv);
}
