/* Every call of xpmem.h: its effect, and each error that it documents. Cases with a peer
 * run as two tasks, with the IDs 0 and 1; case `chaos` is an owner of spaces. */
#include "check.h"

#include <grp.h>
#include <limits.h>
#include <pvas.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <xpmem.h>

#define PAGE 4096ul
#define ADDRESS_END 0x7ffffffff000ul
#define MODE(bits) XPMEM_PERMIT_MODE, (void *)(uintptr_t)(bits)
#define SEGMENTS_MAX 65536

static char self[PATH_MAX];

/* ---- pieces --------------------------------------------------------------------------- */

static char *pages(size_t count)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static xpmem_segid_t make(void *start, size_t size, int mode)
{
	xpmem_segid_t segid = xpmem_make(start, size, MODE(mode));
	CHECK(segid > 0);
	return segid;
}

static xpmem_apid_t get(xpmem_segid_t segid)
{
	xpmem_apid_t apid = xpmem_get(segid, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL);
	CHECK(apid > 0);
	return apid;
}

static void *attach(xpmem_apid_t apid, off_t offset, size_t size)
{
	struct xpmem_addr addr = {.apid = apid, .offset = offset};
	return xpmem_attach(addr, size, NULL);
}

static int me(void)
{
	int id = pvas_getid();
	CHECK(id >= 0);
	return id;
}

/* Lets the other task see `value` under `name`; it must stay where it is. */
static void tell(const char *name, long *value)
{
	CHECK(pvas_export(name, value, sizeof(*value)) == 0);
}

static long ask(int id, const char *name)
{
	void *value;
	CHECK(pvas_import(PVAS_SELF, id, name, &value, NULL, 60000) == 0);
	return *(long *)value;
}

/* Both tasks meet. Neither may end before the next meeting. */
static void meet(const char *where)
{
	static long here = 1;
	tell(where, &here);
	CHECK(ask(1 - me(), where) == 1);
}

static void wait_for_end(int id)
{
	while (pvas_getpid(PVAS_SELF, id) > 0)
		usleep(1000);
}

/* Task 0's last word, which task 1 asks for; task 0 stays as long as task 1 does. */
static void let_go(const char *word)
{
	static long gone = 1;
	tell(word, &gone);
	wait_for_end(1);
}

static long faults(void)
{
	struct rusage usage;
	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage.ru_minflt + usage.ru_majflt;
}

/* ---- one process ---------------------------------------------------------------------- */

static void check_outside(void)
{
	struct xpmem_addr addr = {.apid = 1};
	CHECK_FAILS(xpmem_init(), ENOENT);
	CHECK_FAILS(xpmem_version(), ENOENT);
	CHECK_FAILS(xpmem_make(NULL, XPMEM_MAXADDR_SIZE, MODE(0600)), ENOENT);
	CHECK_FAILS(xpmem_get(1, XPMEM_RDWR, XPMEM_PERMIT_MODE, NULL), ENOENT);
	CHECK_FAILS(xpmem_attach(addr, PAGE, NULL), ENOENT);
	CHECK_FAILS(xpmem_detach(self), ENOENT);
	CHECK_FAILS(xpmem_release(1), ENOENT);
	CHECK_FAILS(xpmem_remove(1), ENOENT);
}

static void version(void)
{
	CHECK_EQ(xpmem_init(), 0);
	CHECK_EQ(xpmem_version(), 0x00026005);
	CHECK_EQ(xpmem_init(), 0);
}

static void making(void)
{
	char *memory = pages(4);
	CHECK_FAILS(xpmem_make(memory, 0, MODE(0600)), EINVAL);
	CHECK_FAILS(xpmem_make(memory, PAGE, 0, (void *)0600), EINVAL);
	CHECK_FAILS(xpmem_make(memory, PAGE, 2, (void *)0600), EINVAL);
	CHECK_FAILS(xpmem_make(memory, PAGE, MODE(01000)), EINVAL);
	CHECK_FAILS(xpmem_make(memory, PAGE, MODE(-1L)), EINVAL);
	CHECK_FAILS(xpmem_make(memory + 8, PAGE, MODE(0600)), EINVAL);
	CHECK_FAILS(xpmem_make(memory, PAGE - 1, MODE(0600)), EINVAL);
	CHECK_FAILS(xpmem_make(memory, ADDRESS_END, MODE(0600)), EINVAL);
	CHECK_FAILS(xpmem_make(memory, -PAGE, MODE(0600)), EINVAL);
	CHECK_FAILS(xpmem_make((void *)(ADDRESS_END + PAGE), PAGE, MODE(0600)), EINVAL);
	CHECK_FAILS(xpmem_make((void *)-PAGE, 2 * PAGE, MODE(0600)), EINVAL);

	CHECK_FAILS(xpmem_remove(0), EINVAL);
	CHECK_FAILS(xpmem_remove(-1), EINVAL);
	xpmem_segid_t segid = make(memory, 4 * PAGE, 0600);
	CHECK_FAILS(xpmem_remove(segid ^ 1l << 60), ENOENT);
	CHECK_EQ(xpmem_remove(segid), 0);
	CHECK_FAILS(xpmem_remove(segid), ENOENT);
	CHECK_FAILS(xpmem_remove(INT64_MAX), ENOENT);

	/* Neither mapped nor aligned to anything but pages; everything; all modes. */
	CHECK_EQ(xpmem_remove(make((void *)(3 * PAGE), 5 * PAGE, 0)), 0);
	CHECK_EQ(xpmem_remove(make(NULL, ADDRESS_END, 0777)), 0);
	CHECK_EQ(xpmem_remove(make(NULL, XPMEM_MAXADDR_SIZE, 0)), 0);
}

static int by_value(const void *left, const void *right)
{
	long a = *(const long *)left, b = *(const long *)right;
	return (a > b) - (a < b);
}

static void many(void)
{
	static xpmem_segid_t segids[2 * SEGMENTS_MAX];
	size_t count = 0;
	while (count < SEGMENTS_MAX) {
		segids[count] = make((void *)(count * PAGE), PAGE, 0600);
		count++;
	}
	CHECK_FAILS(xpmem_make(NULL, PAGE, MODE(0600)), ENOMEM);
	/* One goes, one more finds room, and its name is new. */
	for (size_t old = 0; old < 1000; old++) {
		CHECK_EQ(xpmem_remove(segids[old]), 0);
		segids[count] = make((void *)(count * PAGE), PAGE, 0600);
		count++;
		CHECK_FAILS(xpmem_make(NULL, PAGE, MODE(0600)), ENOMEM);
		CHECK_FAILS(xpmem_get(segids[old], XPMEM_RDWR, MODE(0)), ENOENT);
	}
	for (size_t i = 1000; i < count; i += 997) {
		xpmem_apid_t apid = get(segids[i]);
		CHECK(attach(apid, 0, PAGE) != (void *)-1);
		CHECK_EQ(xpmem_release(apid), 0);
	}
	qsort(segids, count, sizeof(segids[0]), by_value);
	for (size_t i = 1; i < count; i++)
		CHECK(segids[i - 1] < segids[i]);
}

static void getting(void)
{
	char *memory = pages(4);
	xpmem_segid_t segid = make(memory, 4 * PAGE, 0600);
	CHECK_FAILS(xpmem_get(0, XPMEM_RDWR, MODE(0)), EINVAL);
	CHECK_FAILS(xpmem_get(-segid, XPMEM_RDWR, MODE(0)), EINVAL);
	CHECK_FAILS(xpmem_get(segid, XPMEM_RDWR | XPMEM_RDONLY, MODE(0)), EINVAL);
	CHECK_FAILS(xpmem_get(segid, 4, MODE(0)), EINVAL);
	CHECK_FAILS(xpmem_get(segid, -1, MODE(0)), EINVAL);
	CHECK_FAILS(xpmem_get(segid, XPMEM_RDWR, 0, NULL), EINVAL);
	CHECK_FAILS(xpmem_get(segid ^ 1l << 60, XPMEM_RDWR, MODE(0)), ENOENT);
	CHECK_FAILS(xpmem_get(1, XPMEM_RDWR, MODE(0)), ENOENT);
	CHECK_FAILS(xpmem_get(INT64_MAX, XPMEM_RDWR, MODE(0)), ENOENT);

	/* The permit value is not used, as Open MPI knows. */
	xpmem_apid_t first = xpmem_get(segid, XPMEM_RDWR, MODE(0666)), second = get(segid);
	CHECK(first > 0 && second > 0 && first != second);
	CHECK_EQ(xpmem_release(first), 0);
	CHECK_FAILS(xpmem_release(first), ENOENT);
	CHECK_FAILS(attach(first, 0, PAGE), ENOENT);
	CHECK(attach(second, 0, PAGE) == memory);
	CHECK_FAILS(xpmem_release(0), EINVAL);
	CHECK_FAILS(xpmem_release(-second), EINVAL);
	CHECK_FAILS(xpmem_release(INT64_MAX), ENOENT);
	CHECK_EQ(xpmem_release(second), 0);
}

static void attaching(void)
{
	char *memory = pages(4);
	xpmem_apid_t apid = get(make(memory, 4 * PAGE, 0600));
	CHECK(attach(apid, 0, 4 * PAGE) == memory);
	CHECK(attach(apid, PAGE, 3 * PAGE) == memory + PAGE);
	/* Sizes are rounded up. */
	CHECK(attach(apid, 3 * PAGE, 1) == memory + 3 * PAGE);
	CHECK(attach(apid, 2 * PAGE, PAGE + 1) == memory + 2 * PAGE);
	CHECK_FAILS(attach(apid, 3 * PAGE, PAGE + 1), EINVAL);
	CHECK_FAILS(attach(apid, 0, 5 * PAGE), EINVAL);
	CHECK_FAILS(attach(apid, 4 * PAGE, PAGE), EINVAL);
	CHECK_FAILS(attach(apid, 0, 0), EINVAL);
	CHECK_FAILS(attach(apid, 1, PAGE), EINVAL);
	CHECK_FAILS(attach(apid, -PAGE, PAGE), EINVAL);
	CHECK_FAILS(attach(apid, 0, SIZE_MAX), EINVAL);
	CHECK_FAILS(attach(apid, PAGE, SIZE_MAX - PAGE + 1), EINVAL);
	CHECK_FAILS(attach(0, 0, PAGE), EINVAL);
	CHECK_FAILS(attach(-apid, 0, PAGE), EINVAL);
	CHECK_FAILS(attach(apid ^ 1l << 60, 0, PAGE), ENOENT);

	struct xpmem_addr addr = {.apid = apid, .offset = PAGE};
	CHECK(xpmem_attach(addr, PAGE, memory + PAGE) == memory + PAGE);
	CHECK_FAILS(xpmem_attach(addr, PAGE, memory), EINVAL);
	CHECK_FAILS(xpmem_attach(addr, PAGE, memory + PAGE + 1), EINVAL);
	CHECK_FAILS(xpmem_attach(addr, PAGE, (void *)-PAGE), EINVAL);

	/* A read-only permit cannot be attached; 0 is both. */
	xpmem_segid_t segid = make(memory, PAGE, 0600);
	apid = xpmem_get(segid, XPMEM_RDONLY, MODE(0));
	CHECK(apid > 0);
	CHECK_FAILS(attach(apid, 0, PAGE), EACCES);
	apid = xpmem_get(segid, 0, MODE(0));
	CHECK(attach(apid, 0, PAGE) == memory);
	/* Once the segment is gone the permit is of no use. */
	CHECK_EQ(xpmem_remove(segid), 0);
	CHECK_FAILS(attach(apid, 0, PAGE), ENOENT);
	CHECK_EQ(xpmem_release(apid), 0);

	/* The whole address space: offsets are addresses. */
	apid = get(make(NULL, XPMEM_MAXADDR_SIZE, 0600));
	CHECK(attach(apid, (off_t)memory, 4 * PAGE) == memory);
	CHECK(attach(apid, 0, ADDRESS_END) == NULL);
	CHECK_FAILS(attach(apid, 0, ADDRESS_END + 1), EINVAL);
	apid = get(make(memory, XPMEM_MAXADDR_SIZE, 0600));
	CHECK(attach(apid, 0, ADDRESS_END - (size_t)memory) == memory);
	CHECK_FAILS(attach(apid, PAGE, ADDRESS_END - (size_t)memory), EINVAL);
}

static void detaching(void)
{
	char *memory = pages(8);
	xpmem_apid_t apid = get(make(memory, 8 * PAGE, 0600));
	CHECK_FAILS(xpmem_detach(memory), EINVAL);
	/* Any address in it will do. */
	CHECK(attach(apid, 0, 4 * PAGE) == memory);
	CHECK_FAILS(xpmem_detach(memory + 4 * PAGE), EINVAL);
	CHECK_EQ(xpmem_detach(memory + 2 * PAGE + 5), 0);
	CHECK_FAILS(xpmem_detach(memory), EINVAL);
	/* As often as it was attached. */
	CHECK(attach(apid, 0, PAGE) == memory && attach(apid, 0, 8 * PAGE) == memory);
	CHECK_EQ(xpmem_detach(memory), 0);
	CHECK_EQ(xpmem_detach(memory), 0);
	CHECK_FAILS(xpmem_detach(memory), EINVAL);
	/* Release detaches what was attached by this permit. */
	xpmem_apid_t other = get(make(memory, 8 * PAGE, 0600));
	CHECK(attach(apid, 0, PAGE) == memory && attach(other, 4 * PAGE, PAGE) != (void *)-1);
	CHECK_EQ(xpmem_release(apid), 0);
	CHECK_FAILS(xpmem_detach(memory), EINVAL);
	CHECK_EQ(xpmem_detach(memory + 4 * PAGE), 0);
	/* The memory itself was never touched. */
	memset(memory, 1, 8 * PAGE);
	CHECK_EQ(munmap(memory, 8 * PAGE), 0);
	CHECK_EQ(xpmem_detach(memory), 0);
	CHECK_EQ(xpmem_detach(NULL), 0);
	CHECK_EQ(xpmem_detach((void *)-1), 0);
}

/* Other tasks find segments by a name of the export area. */
static void no_name_left(void)
{
	static long value;
	char name[16];
	for (int i = 0; i < PVAS_EXPORT_NAMES; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		tell(name, &value);
	}
	char *memory = pages(1);
	CHECK_FAILS(xpmem_make(memory, PAGE, MODE(0600)), ENOMEM);
	CHECK_FAILS(xpmem_make(memory, PAGE, MODE(0600)), ENOMEM);
	CHECK_FAILS(xpmem_remove(getpid()), ENOENT);
	CHECK_EQ(pvas_unexport("n7"), 0);
	CHECK(attach(get(make(memory, PAGE, 0600)), 0, PAGE) == memory);
}

static void forking(void)
{
	char *memory = pages(1);
	xpmem_segid_t segid = make(memory, PAGE, 0600);
	xpmem_apid_t apid = get(segid);
	pid_t child = fork();
	if (child == 0) {
		check_outside();
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(attach(apid, 0, PAGE) == memory);
	CHECK_EQ(xpmem_detach(memory), 0);
	CHECK_EQ(xpmem_release(apid), 0);
	CHECK_EQ(xpmem_remove(segid), 0);
}

static void *thread_works(void *memory)
{
	for (int i = 0; i < 3000; i++) {
		char *mine = (char *)memory + i % 16 * PAGE;
		xpmem_segid_t segid = make(mine, PAGE, 0600);
		xpmem_apid_t apid = get(segid);
		CHECK(attach(apid, 0, PAGE) == mine);
		CHECK_EQ(xpmem_detach(mine), 0);
		CHECK(attach(apid, 0, PAGE) == mine);
		CHECK_EQ(xpmem_remove(segid), 0);
		CHECK_FAILS(attach(apid, 0, PAGE), ENOENT);
		CHECK_EQ(xpmem_release(apid), 0);
	}
	return NULL;
}

/* The first calls of several threads come at once, too. */
static void threads(void)
{
	pthread_t threads[8];
	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&threads[i], NULL, thread_works, pages(16)) == 0);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

/* ---- two tasks ------------------------------------------------------------------------ */

#define SHARED_PAGES 8192ul

static void shared_by_maker(void)
{
	static long segid, where;
	long *memory = (long *)pages(SHARED_PAGES);
	for (size_t i = 0; i < SHARED_PAGES * PAGE / sizeof(long); i++)
		memory[i] = i;
	where = (long)memory;
	segid = make(memory, SHARED_PAGES * PAGE, 0600);
	tell("where", &where);
	tell("segid", &segid);
	meet("made");
	meet("attached");
	for (size_t i = 0; i < SHARED_PAGES * PAGE / sizeof(long); i++)
		CHECK(memory[i] == (long)i + 1);
	CHECK_EQ(xpmem_remove(segid), 0);
	meet("removed");
	meet("checked");
	memory[0] = 42;
	let_go("written");
}

static void shared_by_user(void)
{
	long *where = (long *)ask(0, "where"), segid = ask(0, "segid");
	meet("made");
	/* The heap has a page table of its own, from its first use on. */
	char *volatile first = malloc(100);
	CHECK(first);
	free(first);
	check_status("VmPTE");
	long faults_before = faults(), tables_before = check_status("VmPTE");
	xpmem_apid_t apid = get(segid);
	long *memory = attach(apid, 0, SHARED_PAGES * PAGE);
	CHECK(memory == where);
	for (size_t i = 0; i < SHARED_PAGES * PAGE / sizeof(long); i++)
		CHECK(memory[i]++ == (long)i);
	long taken = faults() - faults_before;
	if (taken > 16 || check_status("VmPTE") > tables_before) {
		fprintf(stderr, "%ld faults for %ld pages; page tables %ld KiB before, %ld now\n",
		        taken, SHARED_PAGES, tables_before, check_status("VmPTE"));
		_exit(1);
	}
	meet("attached");
	meet("removed");
	CHECK_FAILS(xpmem_get(segid, XPMEM_RDWR, MODE(0)), ENOENT);
	CHECK_FAILS(attach(apid, 0, PAGE), ENOENT);
	meet("checked");
	ask(0, "written");
	/* Unlike the real one's, the attachment is still good. */
	CHECK_EQ(memory[0], 42);
	CHECK_EQ(xpmem_detach(memory), 0);
	CHECK_EQ(xpmem_release(apid), 0);
}

static void sharing(void)
{
	me() == 0 ? shared_by_maker() : shared_by_user();
}

/* Segments of another task, and of one that has ended. */
static void ending(void)
{
	static long segid, apid;
	if (me() == 0) {
		segid = make(pages(2), 2 * PAGE, 0600);
		apid = get(segid);
		tell("segid", &segid);
		tell("apid", &apid);
		ask(1, "checked");
		kill(getpid(), SIGKILL);
	}
	segid = ask(0, "segid");
	apid = ask(0, "apid");
	xpmem_apid_t mine = get(segid);
	void *memory = attach(mine, 0, 2 * PAGE);
	CHECK(memory != (void *)-1);
	CHECK_FAILS(xpmem_remove(segid), EACCES);
	CHECK_FAILS(xpmem_release(apid), EACCES);
	CHECK_FAILS(attach(apid, 0, PAGE), EACCES);
	static long checked = 1;
	tell("checked", &checked);
	wait_for_end(0);
	CHECK_FAILS(xpmem_get(segid, XPMEM_RDWR, MODE(0)), ENOENT);
	CHECK_FAILS(xpmem_remove(segid), ENOENT);
	CHECK_FAILS(xpmem_release(apid), ENOENT);
	CHECK_FAILS(attach(apid, 0, PAGE), ENOENT);
	CHECK_FAILS(attach(mine, 0, PAGE), ENOENT);
	CHECK_EQ(xpmem_detach(memory), 0);
	CHECK_EQ(xpmem_release(mine), 0);
	puts("ended well");
}

/* Effective user and groups of a requesting task, and its expected result. As root. */
static void expect(long segid, uid_t uid, gid_t gid, gid_t group, int may_read, int may_write)
{
	CHECK(setgroups(1, &group) == 0);
	CHECK(setresgid(-1, gid, -1) == 0);
	CHECK(setresuid(-1, uid, -1) == 0);
	const struct {
		int flags, may;
	} asked[] = {{XPMEM_RDONLY, may_read}, {XPMEM_RDWR, may_read && may_write}};
	for (int i = 0; i < 2; i++) {
		if (asked[i].may)
			CHECK(xpmem_get(segid, asked[i].flags, MODE(0)) > 0);
		else
			CHECK_FAILS(xpmem_get(segid, asked[i].flags, MODE(0)), EACCES);
	}
	CHECK(setresuid(-1, 0, -1) == 0);
	CHECK(setresgid(-1, 0, -1) == 0);
}

static void modes(void)
{
	static long segids[01000];
	const uid_t maker = 1001, stranger = 1002;
	const gid_t group = 2001, others = 2002;
	if (me() == 0) {
		char *memory = pages(1);
		CHECK(setresgid(group, group, 0) == 0);
		CHECK(setresuid(maker, maker, 0) == 0);
		for (int mode = 0; mode < 01000; mode++)
			segids[mode] = make(memory, PAGE, mode);
		tell("segids", segids);
		meet("made");
		let_go("segids are there");
		return;
	}
	void *made;
	CHECK(pvas_import(PVAS_SELF, 0, "segids", &made, NULL, 60000) == 0);
	meet("made");
	ask(0, "segids are there");
	for (int mode = 0; mode < 01000; mode++) {
		long segid = ((long *)made)[mode];
		expect(segid, maker, others, others, mode & 0400, mode & 0200);
		expect(segid, maker, group, group, mode & 0400, mode & 0200);
		expect(segid, stranger, group, others, mode & 040, mode & 020);
		expect(segid, stranger, others, group, mode & 040, mode & 020);
		expect(segid, stranger, others, others, mode & 04, mode & 02);
		/* CAP_IPC_OWNER */
		expect(segid, 0, others, others, 1, 1);
	}
}

/* ---- makers that die, and one who looks -------------------------------------------------
 * Each segment's size follows from its address, so that one that was put together from two
 * would be noticed. */

static size_t size_at(uint64_t page)
{
	return (page * 2654435761u % 1000 + 1) * PAGE;
}

/* IDs from 1: makes and removes without end, and leaves the last segids in its export area. */
static void chaos_maker(void)
{
	_Atomic long *segids = pvas_export_area(PVAS_SELF, me());
	uint64_t random = getpid();
	CHECK(segids != NULL);
	for (;;) {
		_Atomic long *place = &segids[check_random(&random) % 8];
		if (*place)
			CHECK_EQ(xpmem_remove(*place), 0);
		uint64_t page = check_random(&random) >> 30;
		*place = make((void *)(page * PAGE), size_at(page), 0600);
		check_parent();
	}
}

static void chaos_user(void)
{
	uint64_t random = 1;
	double end = check_seconds() + 3;
	long got = 0, attached = 0, missed = 0;
	struct pvas_space_info info;
	CHECK(pvas_getspace(PVAS_SELF, &info) == 0);
	while (check_seconds() < end) {
		int id = 1 + check_random(&random) % 3;
		_Atomic long *segids = pvas_export_area(PVAS_SELF, id);
		long segid = segids ? segids[check_random(&random) % 8] : 0;
		if (segid == 0)
			continue;
		xpmem_apid_t apid = xpmem_get(segid, XPMEM_RDWR, MODE(0));
		int error = errno;
		if (apid == -1) {
			CHECK_EQ(error, ENOENT);
			missed++;
			continue;
		}
		got++;
		char *start = attach(apid, 0, 1);
		error = errno;
		if (start == (char *)-1) {
			CHECK_EQ(error, ENOENT);
		} else {
			attached++;
			size_t size = size_at((uint64_t)start / PAGE);
			char *whole = attach(apid, 0, size);
			CHECK(whole == start || whole == (char *)-1);
			CHECK(attach(apid, 0, size + 1) == (char *)-1);
			error = errno;
			CHECK(error == EINVAL || error == ENOENT);
		}
		CHECK_EQ(xpmem_release(apid), 0);
	}
	printf("got %ld, attached %ld, missed %ld\n", got, attached, missed);
	CHECK(got > 100 && attached > 100 && missed > 0);
}

static pid_t start(int pvd, int id, const char *role)
{
	char *argv[] = {"xpmem", (char *)role, NULL};
	struct pvas_spawn_attr attr = {.fields = PVAS_SPAWN_PDEATHSIG, .pdeathsig = SIGKILL};
	pid_t pid = pvas_spawn(pvd, id, self, argv, environ, &attr);
	if (pid < 0)
		fprintf(stderr, "pvas_spawn: %s\n", pvas_error());
	CHECK(pid > 0);
	return pid;
}

static void chaos(void)
{
	int pvd = pvas_create(), status;
	CHECK(pvd >= 0);
	uint64_t random = time(NULL);
	pid_t user = start(pvd, 0, "chaos_user");
	pid_t makers[3] = {0};
	int kills = 0;
	for (;; kills++) {
		int which = check_random(&random) % 3;
		if (makers[which]) {
			kill(makers[which], SIGKILL);
			CHECK_EQ(waitpid(makers[which], &status, 0), makers[which]);
			CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		}
		makers[which] = start(pvd, 1 + which, "chaos_maker");
		usleep(check_random(&random) % 5000);
		if (waitpid(user, &status, WNOHANG) == user)
			break;
	}
	CHECK(status == 0);
	CHECK(kills > 10);
	CHECK_EQ(pvas_destroy(pvd), 0);
	while (wait(NULL) > 0)
		;
}

int main(int argc, char **argv)
{
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	CHECK(length > 0);
	static const struct check_case cases[] = {
		{"outside", check_outside}, {"version", version},   {"making", making},
		{"many", many},             {"getting", getting},   {"attaching", attaching},
		{"detaching", detaching},   {"forking", forking},   {"threads", threads},
		{"sharing", sharing},       {"ending", ending},     {"modes", modes},
		{"chaos", chaos},           {"chaos_user", chaos_user},
		{"chaos_maker", chaos_maker}, {"no_name_left", no_name_left}, {0},
	};
	return check_main(cases, argc, argv);
}
