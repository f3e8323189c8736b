/* What a program has of the kernel besides ordinary memory: contexts of asynchronous I/O, the
 * rings of io_uring, attached System V memory, a raised stack limit, a seccomp filter. Each works
 * as in a process, and the end of a task leaves nothing of it to the others.
 *
 * usage: kernel_objects CASE */
#include "check.h"

#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <pvas.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>

extern char **environ;

/* Exit status of a case that this kernel or user cannot run. */
#define NOT_HERE 77

/* ---- asynchronous I/O -------------------------------------------------------------- */

static aio_context_t set_up(unsigned events)
{
	aio_context_t context = 0;
	CHECK_EQ(syscall(SYS_io_setup, events, &context), 0);
	CHECK(context != 0);
	return context;
}

static void write_and_read(aio_context_t context, int file, int round)
{
	char text[64], back[64] = "";
	int length = snprintf(text, sizeof text, "round %d", round) + 1;
	for (int i = 0; i < 2; i++) {
		struct iocb block = {
			.aio_lio_opcode = i ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE,
			.aio_fildes = file,
			.aio_buf = (uintptr_t)(i ? back : text),
			.aio_nbytes = length,
			.aio_data = 7 + i,
		};
		struct iocb *blocks[] = {&block};
		struct io_event event;
		CHECK_EQ(syscall(SYS_io_submit, context, 1, blocks), 1);
		CHECK_EQ(syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
		CHECK_EQ(event.res, length);
		CHECK_EQ(event.data, 7 + i);
	}
	CHECK_EQ(strcmp(text, back), 0);
}

static void aio_works(void)
{
	int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	CHECK(file >= 0);
	for (int round = 0; round < 20; round++) {
		aio_context_t context = set_up(100), other = set_up(1);
		CHECK(context != other);
		write_and_read(context, file, round);
		write_and_read(other, file, round);
		CHECK_EQ(syscall(SYS_io_destroy, context), 0);
		CHECK_FAILS(syscall(SYS_io_destroy, context), EINVAL);
		CHECK_EQ(syscall(SYS_io_destroy, other), 0);
	}
	aio_context_t bad = 1;
	CHECK_FAILS(syscall(SYS_io_setup, 1, &bad), EINVAL);
	CHECK_FAILS(syscall(SYS_io_setup, 1, (void *)8), EFAULT);
	bad = 0;
	CHECK_FAILS(syscall(SYS_io_setup, 0, &bad), EINVAL);
}

static void aio_is_left(void)
{
	set_up(1024);
	set_up(10);
}

/* ---- io_uring ---------------------------------------------------------------------- */

static int ring(struct io_uring_params *params)
{
	memset(params, 0, sizeof *params);
	int file = syscall(SYS_io_uring_setup, 8, params);
	if (file < 0)
		exit(NOT_HERE);
	return file;
}

static char *map_ring(int file, size_t size, off_t offset)
{
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, offset);
	CHECK(at != MAP_FAILED);
	return at;
}

static void uring_works(void)
{
	struct io_uring_params p;
	for (int round = 0; round < 50; round++) {
		int file = ring(&p);
		size_t submissions = p.sq_off.array + p.sq_entries * sizeof(unsigned);
		size_t completions = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
		size_t entries = p.sq_entries * sizeof(struct io_uring_sqe);
		char *sq = map_ring(file, submissions, IORING_OFF_SQ_RING);
		char *cq = map_ring(file, completions, IORING_OFF_CQ_RING);
		struct io_uring_sqe *sqes = (void *)map_ring(file, entries, IORING_OFF_SQES);
		memset(sqes, 0, sizeof *sqes);
		sqes->opcode = IORING_OP_NOP;
		sqes->user_data = 12345;
		unsigned *tail = (unsigned *)(sq + p.sq_off.tail);
		((unsigned *)(sq + p.sq_off.array))[0] = 0;
		__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
		CHECK_EQ(syscall(SYS_io_uring_enter, file, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0), 1);
		unsigned *end = (unsigned *)(cq + p.cq_off.tail);
		CHECK_EQ(__atomic_load_n(end, __ATOMIC_ACQUIRE), 1);
		struct io_uring_cqe *cqe = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
		CHECK_EQ(cqe->user_data, 12345);
		CHECK_EQ(munmap(sq, submissions), 0);
		CHECK_EQ(munmap(cq, completions), 0);
		CHECK_EQ(munmap(sqes, entries), 0);
		CHECK_EQ(close(file), 0);
	}
}

static void uring_is_left(void)
{
	struct io_uring_params p;
	int file = ring(&p);
	map_ring(file, 4096, IORING_OFF_SQ_RING);
	map_ring(file, 4096, IORING_OFF_SQES);
}

/* ---- an owner: nothing is left ------------------------------------------------------ */

static int lines_with(pid_t pid, const char *word)
{
	char path[64], line[4096];
	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	FILE *maps = fopen(path, "r");
	CHECK(maps != NULL);
	int count = 0;
	while (fgets(line, sizeof line, maps))
		count += strstr(line, word) != NULL;
	fclose(maps);
	return count;
}

static void run_task(int pvd, int id, char *what)
{
	char *argv[] = {"kernel_objects", what, NULL};
	int status;
	pid_t pid = pvas_spawn(pvd, id, "/proc/self/exe", argv, environ, NULL);
	CHECK(pid > 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (status == NOT_HERE << 8)
		exit(NOT_HERE);
	CHECK_EQ(status, 0);
}

/* The owner notices a task's end a moment after waitpid. */
static void check_nothing_left(pid_t process, const char *word)
{
	double limit = check_seconds() + 60;
	while (lines_with(process, word) && check_seconds() < limit)
		usleep(1000);
	CHECK_EQ(lines_with(process, word), 0);
}

static void the_end_of_a_task_destroys_contexts(void)
{
	int pvd = pvas_create();
	CHECK(pvd >= 0);
	for (int i = 0; i < 5; i++) {
		run_task(pvd, PVAS_ANY_ID, "aio_is_left");
		check_nothing_left(getpid(), "[aio]");
	}
	CHECK_EQ(pvas_destroy(pvd), 0);
}

static void the_end_of_a_task_unmaps_rings(void)
{
	int pvd = pvas_create();
	CHECK(pvd >= 0);
	for (int i = 0; i < 5; i++) {
		run_task(pvd, PVAS_ANY_ID, "uring_is_left");
		check_nothing_left(getpid(), "[io_uring]");
	}
	CHECK_EQ(pvas_destroy(pvd), 0);
}

/* The only child of an owner without tasks keeps its domain. */
static pid_t child(void)
{
	char path[64];
	int pid = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
	FILE *children = fopen(path, "r");
	CHECK(children && fscanf(children, "%d", &pid) == 1 && pid > 0);
	fclose(children);
	return pid;
}

static void the_same_in_a_domain(void)
{
	struct pvas_space_attr attr = {
		.fields = PVAS_SPACE_SHARED | PVAS_SPACE_MAX_TASKS, .shared = 1, .max_tasks = 4};
	int pvd = pvas_create_attr(&attr);
	CHECK(pvd >= 0);
	CHECK_EQ(pvas_add_domain(pvd, 2, 2, NULL, 0), 1);
	pid_t keeper = child();
	for (int i = 0; i < 3; i++) {
		run_task(pvd, 2, "aio_is_left");
		check_nothing_left(keeper, "[aio]");
		run_task(pvd, 3, "uring_is_left");
		check_nothing_left(keeper, "[io_uring]");
	}
	CHECK_EQ(pvas_destroy(pvd), 0);
}

/* ---- System V memory ---------------------------------------------------------------- */

static void many_attachments(void)
{
	enum { COUNT = 400, ROUNDS = 20 };
	static char *at[COUNT];
	int id = shmget(IPC_PRIVATE, 8 << 20, 0600 | IPC_CREAT);
	CHECK(id >= 0);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < COUNT; i++) {
			at[i] = shmat(id, NULL, 0);
			CHECK(at[i] != (char *)-1);
		}
		at[round][0] = round;
		CHECK_EQ(at[COUNT - 1][0], round);
		for (int i = 0; i < COUNT; i++)
			CHECK_EQ(shmdt(at[i]), 0);
		/* All address space is free again, for one large mapping. */
		char *large = mmap(NULL, 3ul << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(large != MAP_FAILED);
		CHECK_EQ(munmap(large, 3ul << 30), 0);
	}
	CHECK_EQ(shmctl(id, IPC_RMID, NULL), 0);
}

/* ---- the stack ---------------------------------------------------------------------- */

#define MIB (1l << 20)

static int deep(long bytes)
{
	volatile char here[64 << 10];
	memset((void *)here, 1, sizeof here);
	return bytes > 0 ? deep(bytes - (long)sizeof here) + here[5] : 0;
}

static void raise_stack(long to)
{
	struct rlimit limit;
	CHECK_EQ(getrlimit(RLIMIT_STACK, &limit), 0);
	if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < (rlim_t)to)
		exit(NOT_HERE);
	limit.rlim_cur = to;
	CHECK_EQ(setrlimit(RLIMIT_STACK, &limit), 0);
}

static void a_raised_stack_limit(void)
{
	CHECK_EQ(deep(4 * MIB), 4 * MIB / (64 << 10));
	raise_stack(40 * MIB);
	CHECK_EQ(deep(36 * MIB), 36 * MIB / (64 << 10));
	void *kept = malloc(50 * MIB);
	CHECK(kept != NULL);
	raise_stack(90 * MIB);
	CHECK_EQ(deep(80 * MIB), 80 * MIB / (64 << 10));
	int status;
	pid_t pid = fork();
	if (!pid) {
		CHECK_EQ(deep(80 * MIB), 80 * MIB / (64 << 10));
		raise_stack(110 * MIB);
		CHECK_EQ(deep(100 * MIB), 100 * MIB / (64 << 10));
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	free(kept);
}

/* ---- the control area --------------------------------------------------------------- */

static void the_control_area_is_refused(void)
{
	struct pvas_space_info info = {0};
	int id = pvas_getid();
	if (id < 0)
		return; /* an ordinary process */
	CHECK_EQ(pvas_getspace(PVAS_SELF, &info), 0);
	char *segment = pvas_segment(PVAS_SELF, id);
	char *block = (char *)pvas_export_area(PVAS_SELF, id) + PVAS_EXPORT_SIZE;
	char *other = segment + (id ? -(long)info.segment_size : (long)info.segment_size);
	char *foreign[] = {(char *)info.base - (1 << 30), (char *)info.base - 4096, block, other};
	for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
		CHECK_FAILS(mprotect(foreign[i], 4096, PROT_READ | PROT_WRITE), EACCES);
		CHECK_FAILS(mprotect(foreign[i], 4096, PROT_NONE), EACCES);
		CHECK_FAILS(madvise(foreign[i], 4096, MADV_DONTNEED), EPERM);
		CHECK_FAILS(madvise(foreign[i], 4096, MADV_DOFORK), EPERM);
	}
	/* From its own memory across the border, and over all of the space. */
	CHECK_FAILS(mprotect(segment + info.segment_size - 4096, 8192, PROT_READ), EACCES);
	CHECK_FAILS(madvise((char *)info.base - (2ul << 30), 1ul << 44, MADV_DONTNEED), EPERM);
	/* Its own memory, the export area included. */
	char *own = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(own != MAP_FAILED);
	CHECK_EQ(mprotect(own, 4096, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(madvise(own, 4096, MADV_DONTNEED), 0);
	CHECK_EQ(mprotect(pvas_export_area(PVAS_SELF, id), 4096, PROT_READ | PROT_WRITE), 0);
}

/* ---- a seccomp filter of the program ------------------------------------------------- */

#define ALLOW(number)                                                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                           \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* A worker in a sandbox: memory and output, and children if `children`. */
static int confine(int maps, int children)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_brk), ALLOW(SYS_mprotect),
		ALLOW(SYS_exit_group), ALLOW(SYS_exit), ALLOW(SYS_rt_sigreturn), ALLOW(SYS_futex),
		ALLOW(SYS_fstat), ALLOW(SYS_newfstatat), ALLOW(SYS_close), ALLOW(SYS_getrandom),
		BPF_JUMP(BPF_JMP | BPF_JA, maps ? 0 : 6, 0, 0),
		ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_mremap),
		BPF_JUMP(BPF_JMP | BPF_JA, children ? 0 : 14, 0, 0),
		ALLOW(SYS_clone), ALLOW(SYS_wait4), ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_gettid),
		ALLOW(SYS_getpid), ALLOW(SYS_set_robust_list), ALLOW(SYS_rseq),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	setvbuf(stdout, NULL, _IONBF, 0);
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void use_memory(void)
{
	for (int round = 0; round < 20; round++) {
		char *at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(at != MAP_FAILED);
		memset(at, 1, MIB);
		CHECK_EQ(munmap(at, MIB), 0);
		char *block = malloc(200 << 10);
		CHECK(block != NULL);
		memset(block, 2, 200 << 10);
		CHECK((block = realloc(block, 4 * MIB)) != NULL);
		CHECK_EQ(block[(200 << 10) - 1], 2);
		free(block);
		CHECK(sbrk(MIB) != (void *)-1);
	}
}

static void a_filter_without_madvise(void)
{
	if (confine(1, 0)) {
		perror("seccomp");
		_exit(3);
	}
	use_memory();
	write(1, "worked\n", 7);
	_exit(0);
}

/* Others fork meanwhile: they may copy this segment, which does not change it. */
static void forks_under_a_filter(void)
{
	volatile char *kept = malloc(MIB);
	memset((char *)kept, 5, MIB);
	CHECK_EQ(confine(1, 1), 0);
	for (int round = 0; round < 30; round++) {
		int status = -1;
		use_memory();
		volatile char *later = malloc(MIB);
		memset((char *)later, round, MIB);
		pid_t pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		CHECK(pid >= 0);
		if (!pid) {
			int same = kept[MIB - 1] == 5 && later[MIB - 1] == round;
			kept[0] = later[0] = 99;
			use_memory();
			_exit(same ? 0 : 1);
		}
		CHECK_EQ(syscall(SYS_wait4, pid, &status, 0, NULL), pid);
		CHECK_EQ(status, 0);
		CHECK_EQ(kept[0], 5);
		CHECK_EQ(later[0], round);
		free((char *)later);
	}
	_exit(0);
}

/* As a process: brk works. As a task: the filter is refused, and the program continues without it. */
static void a_filter_without_mmap(void)
{
	int refused = confine(0, 0), error = errno;
	if (!refused)
		CHECK(sbrk(MIB) != (void *)-1);
	else
		CHECK_EQ(error, EPERM);
	write(1, refused ? "refused\n" : "worked\n", refused ? 8 : 7);
	_exit(0);
}

/* The gate needs prctl after a change of the user. */
static void a_filter_without_prctl(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	int refused = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), error = errno;
	if (refused)
		CHECK_EQ(error, EPERM);
	CHECK_EQ(setuid(getuid()), 0);
	puts(refused ? "refused" : "worked");
}

static const struct check_case cases[] = {
	{"aio_works", aio_works},
	{"aio_is_left", aio_is_left},
	{"uring_works", uring_works},
	{"uring_is_left", uring_is_left},
	{"the_end_of_a_task_destroys_contexts", the_end_of_a_task_destroys_contexts},
	{"the_end_of_a_task_unmaps_rings", the_end_of_a_task_unmaps_rings},
	{"the_same_in_a_domain", the_same_in_a_domain},
	{"many_attachments", many_attachments},
	{"a_raised_stack_limit", a_raised_stack_limit},
	{"the_control_area_is_refused", the_control_area_is_refused},
	{"a_filter_without_madvise", a_filter_without_madvise},
	{"forks_under_a_filter", forks_under_a_filter},
	{"a_filter_without_mmap", a_filter_without_mmap},
	{"a_filter_without_prctl", a_filter_without_prctl},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return check_main(cases, argc, argv);
}
