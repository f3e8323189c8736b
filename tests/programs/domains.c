/* Tasks of several domains, that nagaya run has started: each looks at and writes to what the
 * others have, by plain loads and stores and by process_vm_*.
 *
 * usage: domains CASE */
#include "meet.h"

#include <setjmp.h>
#include <sys/uio.h>

#define PAGES 600ul /* more than a page of page tables has entries */

/* ---- what each task has --------------------------------------------------------------- */

static long variable = 1;       /* .data */
static long zeros[3 * 512];     /* .bss, over more than one page */
static const char constant[] = "a constant in memory that only its owner has mapped";

struct all {
	long *heap, *variable, *zeros, *stack, *fresh, *large;
	const char *constant;
	const unsigned char *text;
	pid_t pid;
};

static struct all mine;

static long *pages(size_t count)
{
	long *at = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static long value(int task, int what)
{
	return 1000 * (task + 1) + what;
}

static void have(long *stack)
{
	mine.heap = malloc(sizeof(long));
	mine.variable = &variable, mine.zeros = zeros, mine.stack = stack;
	mine.fresh = pages(2), mine.large = pages(PAGES);
	mine.constant = constant, mine.text = (const unsigned char *)have, mine.pid = getpid();
	*mine.heap = value(me, 0), variable = value(me, 1), *stack = value(me, 2);
	zeros[1024] = value(me, 3);
	for (unsigned page = 0; page < PAGES; page++)
		mine.large[page * 512] = value(me, page);
	tell("all", &mine, sizeof mine);
}

static void begin(long *stack)
{
	begin_to_meet();
	have(stack);
	meet();
}

/* ---- cases --------------------------------------------------------------------------- */

/* Domains are as the command line said: tasks of one mm have it in common, others not. */
static void apart(void)
{
	long stack;
	begin(&stack);
	int before = 0;
	for (int task = 0; task < tasks; task++) {
		int domain = pvas_domain_of(PVAS_SELF, task);
		CHECK(domain == before || domain == before + 1);
		before = domain;
		struct all *its = of(task, "all");
		long vms = syscall(SYS_kcmp, getpid(), its->pid, 1 /* KCMP_VM */, 0, 0);
		int same = domain == pvas_domain_of(PVAS_SELF, me);
		/* For tasks the gate always answers "the same". */
		CHECK_EQ(vms, 0);
		if (task == me)
			CHECK(same);
	}
	CHECK_FAILS(pvas_domain_of(PVAS_SELF, 1 << 20), EINVAL);
	part();
}

/* All tasks read all memory, then write into the next one's. */
static void pointers(void)
{
	long stack;
	begin(&stack);
	for (int task = 0; task < tasks; task++) {
		const struct all *its = of(task, "all");
		CHECK_EQ(*its->heap, value(task, 0));
		CHECK_EQ(*its->variable, value(task, 1));
		CHECK_EQ(*its->stack, value(task, 2));
		CHECK_EQ(its->zeros[1024], value(task, 3));
		CHECK_EQ(its->zeros[0], 0);
		CHECK(strcmp(its->constant, constant) == 0);
		CHECK(memcmp(its->text, (const void *)have, 16) == 0);
		for (unsigned page = 0; page < PAGES; page++)
			CHECK_EQ(its->large[page * 512], value(task, page));
	}
	meet();
	int next = (me + 1) % tasks;
	const struct all *its = of(next, "all");
	*its->heap = value(me, 10), *its->variable = value(me, 11), *its->stack = value(me, 12);
	its->fresh[0] = value(me, 13); /* nobody has touched it before */
	its->zeros[0] = value(me, 14);
	meet();
	int before = (me + tasks - 1) % tasks;
	CHECK_EQ(*mine.heap, value(before, 10));
	CHECK_EQ(variable, value(before, 11));
	CHECK_EQ(stack, value(before, 12));
	CHECK_EQ(mine.fresh[0], value(before, 13));
	CHECK_EQ(mine.fresh[512], 0);
	CHECK_EQ(zeros[0], value(before, 14));
	part();
}

static ssize_t transfer(int write, pid_t pid, void *here, const void *there, size_t size)
{
	struct iovec local = {here, size}, remote = {(void *)there, size};
	return write ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
	             : process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

/* The same by process_vm_*, with the kernel's errors. */
static void copies(void)
{
	long stack;
	begin(&stack);
	static long buffer[PAGES * 512];
	int next = (me + 1) % tasks;
	const struct all *its = of(next, "all");
	pid_t pid = its->pid;
	CHECK_EQ(transfer(0, pid, buffer, its->large, PAGES * PAGE), PAGES * PAGE);
	for (unsigned page = 0; page < PAGES; page++)
		CHECK_EQ(buffer[page * 512], value(next, page));
	CHECK_EQ(transfer(0, pid, buffer, its->constant, sizeof constant), sizeof constant);
	CHECK(memcmp(buffer, constant, sizeof constant) == 0);
	buffer[0] = value(me, 20);
	CHECK_EQ(transfer(1, pid, buffer, its->fresh, sizeof(long)), sizeof(long));
	CHECK_EQ(transfer(0, pid, buffer, &its->fresh[512], 8), 8);
	CHECK_EQ(buffer[0], 0);
	CHECK_FAILS(transfer(0, pid, buffer, NULL, 8), EFAULT);
	char *segment = pvas_segment(PVAS_SELF, next);
	struct pvas_space_info space;
	CHECK_EQ(pvas_getspace(PVAS_SELF, &space), 0);
	/* In the middle of its mmap area, where nothing is. */
	CHECK_FAILS(transfer(0, pid, buffer, segment + space.segment_size / 2, 8), EFAULT);
	CHECK_FAILS(transfer(1, pid, buffer, segment + space.segment_size / 2, 8), EFAULT);
	/* The end of the mapping: a part is copied. */
	const char *end = (const char *)its->large + PAGES * PAGE;
	ssize_t some = transfer(0, pid, buffer, end - 8, 64 << 20);
	CHECK(some >= 8 && some < 64 << 20);
	meet();
	CHECK_EQ(mine.fresh[0], value((me + tasks - 1) % tasks, 20));
	part();
}

static sigjmp_buf back;

static void caught(int signal)
{
	siglongjmp(back, signal);
}

static int signal_at(const volatile long *address)
{
	int signal = sigsetjmp(back, 1);
	if (!signal)
		(void)*address;
	return signal;
}

/* Memory that its owner unmaps is unmapped for all, and new memory at the same place is
 * empty. */
static void unmaps(void)
{
	long stack;
	begin(&stack);
	const struct all its = *(struct all *)of((me + 1) % tasks, "all");
	for (unsigned page = 0; page < PAGES; page++)
		CHECK_EQ(its.large[page * 512], value((me + 1) % tasks, page));
	meet();
	CHECK_EQ(munmap(mine.large, PAGES * PAGE), 0);
	meet();
	struct sigaction action = {.sa_handler = caught};
	CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
	CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
	long buffer;
	CHECK_FAILS(transfer(0, its.pid, &buffer, its.large, 8), EFAULT);
	CHECK(signal_at(its.large) != 0);
	CHECK(signal_at(&its.large[512 * (PAGES - 1)]) != 0);
	CHECK_EQ(signal_at(its.heap), 0);
	meet();
	long *again = mmap(mine.large, PAGES * PAGE, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(again == mine.large);
	meet();
	for (unsigned page = 0; page < PAGES; page++)
		CHECK_EQ(its.large[page * 512], 0);
	its.large[512] = 7;
	meet();
	CHECK_EQ(mine.large[512], 7);
	part();
}

/* Memory outside of the space: text and constants can be read, writable memory of others
 * cannot, and process_vm_readv reads all of it. */
static void files(void)
{
	long stack;
	begin(&stack);
	char name[] = "/tmp/nagaya-domains-XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0 && unlink(name) == 0);
	long word = value(me, 30), got;
	CHECK_EQ(pwrite(fd, &word, sizeof word, 0), sizeof word);
	long *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	long *private = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(shared != MAP_FAILED && private != MAP_FAILED);
	tell("shared", shared, PAGE);
	tell("private", private, PAGE);
	meet();
	struct sigaction action = {.sa_handler = caught};
	CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
	int next = (me + 1) % tasks;
	const struct all *its = of(next, "all");
	long *far = of(next, "shared");
	CHECK_EQ(*(long *)of(next, "private"), value(next, 30));
	CHECK_EQ(signal_at(far), SIGBUS);
	CHECK_EQ(transfer(0, its->pid, &got, far, sizeof got), sizeof got);
	CHECK_EQ(got, value(next, 30));
	meet();
	*shared = value(me, 31);
	meet();
	CHECK_EQ(transfer(0, its->pid, &got, far, sizeof got), sizeof got);
	CHECK_EQ(got, value(next, 31));
	part();
}

/* Pages without accesses need no page tables; accessed ones need some. */
static void demand(void)
{
	long stack;
	begin(&stack);
	const size_t count = 64 << 20 >> 12;
	long *own = pages(count);
	for (size_t page = 0; page < count; page++)
		own[page * 512] = page;
	tell("own", own, count * PAGE);
	meet();
	if (me) {
		const long *its = of(0, "own");
		long before = check_status("VmPTE");
		meet();
		CHECK_EQ(its[512 * 5], 5);
		CHECK(check_status("VmPTE") - before <= 16);
		long sum = 0;
		for (size_t page = 0; page < count; page++)
			sum += its[page * 512];
		CHECK_EQ(sum, (long)(count * (count - 1) / 2));
		CHECK(check_status("VmPTE") - before >= (long)(count * 8 / 1024) - 16);
	} else {
		meet();
	}
	part();
}

int main(int argc, char **argv)
{
	const struct check_case cases[] = {
		{"apart", apart},   {"pointers", pointers}, {"copies", copies},
		{"unmaps", unmaps}, {"demand", demand},     {"files", files},       {NULL, NULL},
	};
	return check_main(cases, argc, argv);
}
