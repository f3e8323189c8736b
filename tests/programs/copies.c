/* process_vm_readv and process_vm_writev: in a task they copy in user space, and nobody can
 * tell by their results. Each random call is made three ways (libc's function, libc's
 * syscall(), and a system call that no patcher of direct forms sees), which must agree in
 * return value, errno and memory; and the digest of all results is printed, so that a task's
 * can be compared with an ordinary process's, whose copies are the kernel's.
 *
 * usage: copies CASE DIR SEED COUNT SIGNALS
 *   SIGNALS: default, blocked, ignored or caught: how SIGSEGV and SIGBUS stand
 * Cases with a peer run as two tasks (or processes) with NAGAYA_TASK_ID 0 and 1. */
#include "check.h"

#include <limits.h>
#include <setjmp.h>
#include <sys/uio.h>

#define PAGE 4096ul
#define PAGES 64ul
#define ARENA (PAGES * PAGE)

static uint64_t seed;
static int count, me;
static const char *directory;

/* ---- arenas -------------------------------------------------------------------------- */

/* All pages can be read and written, except for these. */
static int readable(size_t page)
{
	return !(page == 16 || page == 17 || page == 34 || page == 35 || page == 46 || page == 47);
}

static int writable(size_t page)
{
	return readable(page) && !(page >= 26 && page < 34);
}

static void fill(char *arena, uint64_t salt)
{
	for (size_t page = 0; page < PAGES; page++)
		if (writable(page))
			for (size_t i = 0; i < PAGE; i += 8) {
				uint64_t word = (page * PAGE + i + salt) * 0x9e3779b97f4a7c15;
				memcpy(arena + page * PAGE + i, &word, 8);
			}
}

/* 64 pages: readable, but for PROT_NONE, a hole, and a mapping beyond the end of its file;
 * writable, but for a read-only stretch. */
static char *make_arena(uint64_t salt)
{
	int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	char *arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, anonymous, -1, 0);
	FILE *file = tmpfile();
	CHECK(arena != MAP_FAILED && file && ftruncate(fileno(file), 2 * PAGE) == 0);
	CHECK(mmap(arena + 44 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
	           fileno(file), 0) == arena + 44 * PAGE);
	fill(arena, salt);
	for (size_t i = 26 * PAGE; i < 34 * PAGE; i++)
		arena[i] = (char)(i * 31 + salt);
	CHECK(mprotect(arena + 16 * PAGE, 2 * PAGE, PROT_NONE) == 0);
	CHECK(syscall(SYS_pkey_mprotect, arena + 26 * PAGE, 8 * PAGE, PROT_READ, -1) == 0);
	CHECK(munmap(arena + 34 * PAGE, 2 * PAGE) == 0);
	return arena;
}

static uint64_t digest_of(const char *arena)
{
	uint64_t digest = 0;
	for (size_t page = 0; page < PAGES; page++)
		if (readable(page))
			for (size_t i = 0; i < PAGE; i += 8) {
				uint64_t word;
				memcpy(&word, arena + page * PAGE + i, 8);
				digest = (digest ^ word) * 0x100000001b3;
				digest ^= digest >> 29;
			}
	return digest;
}

/* ---- three ways to make the call -------------------------------------------------------- */

struct call {
	int write;
	pid_t pid;
	struct iovec *local, *remote;
	unsigned long locals, remotes, flags;
};

static long by_register(const struct call *call)
{
	volatile long number = call->write ? SYS_process_vm_writev : SYS_process_vm_readv;
	register long r10 __asm__("r10") = (long)call->remote;
	register long r8 __asm__("r8") = (long)call->remotes;
	register long r9 __asm__("r9") = (long)call->flags;
	long result = number;
	__asm__ volatile("nop\n\tsyscall"
	                 : "+a"(result)
	                 : "D"((long)call->pid), "S"(call->local), "d"(call->locals), "r"(r10),
	                   "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	if (result < 0) {
		errno = (int)-result;
		return -1;
	}
	return result;
}

static long make_call(const struct call *call, int way)
{
	errno = 0;
	if (way == 0)
		return (call->write ? process_vm_writev : process_vm_readv)(
			call->pid, call->local, call->locals, call->remote, call->remotes,
			call->flags);
	if (way == 1)
		return syscall(call->write ? SYS_process_vm_writev : SYS_process_vm_readv,
		               call->pid, call->local, call->locals, call->remote, call->remotes,
		               call->flags);
	return by_register(call);
}

/* ---- the other side -------------------------------------------------------------------------- */

/* The required properties of the process with the remote memory: this one, or the peer. */
struct other {
	pid_t pid;
	char *arena;
	int requests, replies; /* descriptors; -1: it is ourselves */
};

static void refill(const struct other *other)
{
	if (other->requests < 0)
		fill(other->arena, 2);
	else {
		char done;
		CHECK_EQ(write(other->requests, "f", 1), 1);
		CHECK_EQ(read(other->replies, &done, 1), 1);
	}
}

static uint64_t remote_digest(const struct other *other)
{
	uint64_t digest;
	if (other->requests < 0)
		return digest_of(other->arena);
	CHECK_EQ(write(other->requests, "d", 1), 1);
	CHECK_EQ(read(other->replies, &digest, 8), 8);
	return digest;
}

static int fifo(const char *name, int flags)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	mkfifo(path, 0600); /* the other may have made it */
	int descriptor = open(path, flags);
	CHECK(descriptor >= 0);
	return descriptor;
}

struct greeting {
	pid_t pid, tid;
	char *arena;
};

static char *shifting;
static volatile int stop;

static void *maps_and_unmaps(void *unused)
{
	while (!stop) {
		mmap(shifting, 16 * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0);
		sched_yield();
		/* Not unmapped: that would give the place to others. */
		mmap(shifting, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
	return unused;
}

static void *says_tid(void *arg)
{
	__atomic_store_n((pid_t *)arg, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	while (!stop)
		usleep(1000);
	return NULL;
}

/* Task 1: serves requests until the last one. */
static void serve(char *arena)
{
	pthread_t threads[2];
	struct greeting greeting = {.pid = getpid(), .arena = arena};
	shifting = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_EQ(pthread_create(&threads[0], NULL, says_tid, &greeting.tid), 0);
	while (__atomic_load_n(&greeting.tid, __ATOMIC_SEQ_CST) == 0)
		usleep(100);
	int requests = fifo("requests", O_RDONLY), replies = fifo("replies", O_WRONLY);
	CHECK_EQ(write(replies, &greeting, sizeof greeting), sizeof greeting);
	char request;
	int shifts = 0;
	while (read(requests, &request, 1) == 1) {
		uint64_t digest;
		switch (request) {
		case 'f':
			fill(arena, 2);
			CHECK_EQ(write(replies, "", 1), 1);
			break;
		case 'd':
			digest = digest_of(arena);
			CHECK_EQ(write(replies, &digest, 8), 8);
			break;
		case 's': /* a stretch that comes and goes */
			CHECK_EQ(pthread_create(&threads[1], NULL, maps_and_unmaps, NULL), 0);
			shifts = 1;
			CHECK_EQ(write(replies, &shifting, 8), 8);
			break;
		}
	}
	stop = 1;
	CHECK_EQ(pthread_join(threads[0], NULL), 0);
	if (shifts)
		CHECK_EQ(pthread_join(threads[1], NULL), 0);
}

/* Task 0: learns the peer. */
static struct other meet(pid_t *tid)
{
	int requests = fifo("requests", O_WRONLY), replies = fifo("replies", O_RDONLY);
	struct greeting greeting;
	CHECK_EQ(read(replies, &greeting, sizeof greeting), sizeof greeting);
	if (tid)
		*tid = greeting.tid;
	return (struct other){greeting.pid, greeting.arena, requests, replies};
}

/* ---- random calls ----------------------------------------------------------------------------- */

static uint64_t state;

static uint64_t below(uint64_t limit)
{
	return check_random(&state) % limit;
}

static const uintptr_t special[] = {
	0, 1, 8, 0x7fffffffefff, 0x7ffffffff000, 0x7fffffffffff, 0x800000000000,
	0xffff800000000000, 0xfffffffffffff000, UINTPTR_MAX,
};

static struct iovec vector(char *arena, int mean)
{
	struct iovec it;
	size_t page = below(PAGES);
	it.iov_base = arena + page * PAGE + (below(2) ? below(PAGE) : below(2) * (PAGE - 1 - below(9)));
	size_t room = (size_t)(arena + ARENA - (char *)it.iov_base);
	uint64_t kind = below(100);
	if (kind < 10)
		it.iov_len = 0;
	else if (kind < 40)
		it.iov_len = below(64);
	else if (kind < 70)
		it.iov_len = below(2 * PAGE);
	else if (kind < 80)
		it.iov_len = (below(8) + 1) * PAGE;
	else
		it.iov_len = below(16 * PAGE);
	if (it.iov_len > room)
		it.iov_len = room; /* beyond lies what we do not know */
	if (mean && below(40) == 0)
		it.iov_base = (void *)special[below(sizeof special / sizeof *special)];
	if (mean && below(60) == 0)
		it.iov_base = NULL, it.iov_len = 0; /* as UCX probes its peers */
	if (mean && below(150) == 0)
		it.iov_len = (size_t)-1 - below(3) * PAGE; /* negative */
	if (mean && below(150) == 0) {
		/* Huge, and ending in a bad place before anything of it is copied. */
		it.iov_base = arena + 16 * PAGE;
		it.iov_len = 1ul << (20 + below(12));
	}
	return it;
}

/* Steers clear of bad pages, so that long chains of vectors get copied too. */
static void make_good(struct iovec *vectors, unsigned long n, char *arena, int write)
{
	for (unsigned long i = 0; i < n; i++) {
		size_t from = (size_t)((char *)vectors[i].iov_base - arena) / PAGE;
		if ((char *)vectors[i].iov_base < arena || from >= PAGES)
			continue;
		size_t good = 0;
		while (from + good < PAGES && (write ? writable : readable)(from + good))
			good++;
		size_t most = good ? (from + good) * PAGE - (size_t)((char *)vectors[i].iov_base - arena)
		                   : 0;
		if (vectors[i].iov_len > most && vectors[i].iov_len <= ARENA)
			vectors[i].iov_len = most;
	}
}

static void describe(const struct call *call, const char *local, const char *remote)
{
	fprintf(stderr, "%s pid %d flags %lu\n", call->write ? "writev" : "readv", call->pid,
	        call->flags);
	for (int side = 0; side < 2; side++) {
		const struct iovec *vectors = side ? call->remote : call->local;
		unsigned long n = side ? call->remotes : call->locals;
		const char *arena = side ? remote : local;
		fprintf(stderr, " %lu %s:", n, side ? "remote" : "local");
		for (unsigned long i = 0; i < n && i < 20 && (uintptr_t)vectors > 4096; i++) {
			long offset = (const char *)vectors[i].iov_base - arena;
			if (offset >= 0 && offset < (long)ARENA)
				fprintf(stderr, " page %ld+%ld", offset / (long)PAGE,
				        offset % (long)PAGE);
			else
				fprintf(stderr, " %p", vectors[i].iov_base);
			fprintf(stderr, " for %zu;", vectors[i].iov_len);
		}
		fprintf(stderr, "\n");
	}
}

static void random_calls(struct other other)
{
	static struct iovec vectors[2][2000];
	char *arena = make_arena(1);
	pid_t gone = fork();
	if (gone == 0)
		_exit(0);
	CHECK_EQ(waitpid(gone, NULL, 0), gone);

	state = seed;
	uint64_t digest = 0;
	long copied = 0, refused = 0, cut = 0;
	for (int i = 0; i < count; i++) {
		struct call call = {.write = (int)below(2), .pid = other.pid};
		int mean = below(2) == 0, good = below(3) == 0;
		unsigned long most = below(20) == 0 ? 1024 : below(10) == 0 ? 100 : 6;
		call.locals = below(most + 1);
		call.remotes = below(most + 1);
		for (unsigned long k = 0; k < call.locals; k++)
			vectors[0][k] = vector(arena, mean);
		for (unsigned long k = 0; k < call.remotes; k++)
			vectors[1][k] = vector(other.arena, mean);
		if (good) {
			make_good(vectors[0], call.locals, arena, !call.write);
			make_good(vectors[1], call.remotes, other.arena, call.write);
		}
		call.local = vectors[0];
		call.remote = vectors[1];
		if (mean && below(12) == 0)
			switch (below(8)) {
			case 0: call.flags = 1 + below(3); break;
			case 1: call.locals = 1025 + below(500); break;
			case 2: call.remotes = 1025 + below(500); break;
			case 3: call.locals = (unsigned long)-1 - below(2); break;
			case 4: call.local = (struct iovec *)special[below(8)]; break;
			case 5: call.remote = (struct iovec *)special[below(8)]; break;
			case 6: call.pid = below(2) ? gone : -(pid_t)below(3); break;
			case 7:
				if (below(2))
					call.local = (struct iovec *)(arena + 16 * PAGE - 8);
				else
					call.remote = (struct iovec *)(arena + 34 * PAGE - 24);
				break;
			}

		long result[3];
		int error[3];
		uint64_t local_after[3], remote_after[3];
		for (int way = 0; way < 3; way++) {
			fill(arena, 1);
			refill(&other);
			result[way] = make_call(&call, way);
			error[way] = result[way] == -1 ? errno : 0;
			local_after[way] = digest_of(arena);
			remote_after[way] = remote_digest(&other);
		}
		for (int way = 1; way < 3; way++)
			if (result[0] != result[way] || error[0] != error[way] ||
			    local_after[0] != local_after[way] ||
			    remote_after[0] != remote_after[way]) {
				fprintf(stderr,
				        "call %d: libc's %ld (%s), %s %ld (%s); memory %s, "
				        "remote memory %s\n",
				        i, result[0], strerror(error[0]),
				        way == 1 ? "syscall()'s" : "the kernel's", result[way],
				        strerror(error[way]),
				        local_after[0] == local_after[way] ? "equal" : "differs",
				        remote_after[0] == remote_after[way] ? "equal" : "differs");
				describe(&call, arena, other.arena);
				_exit(1);
			}
		copied += result[0] > 0;
		refused += result[0] < 0;
		cut += result[0] == 0;
		digest = (digest ^ (uint64_t)result[0] ^ ((uint64_t)error[0] << 32)) * 0x100000001b3;
		digest = (digest ^ local_after[0] ^ remote_after[0] << 1) * 0x100000001b3;
		digest ^= digest >> 31;
		if (getenv("COPIES_VERBOSE")) {
			printf("%d: %ld %d %016llx\n", i, result[0], error[0],
			       (unsigned long long)digest);
			fflush(stdout);
		}
	}
	printf("copied %ld refused %ld nothing %ld digest %016llx\n", copied, refused, cut,
	       (unsigned long long)digest);
}

static void on_itself(void)
{
	random_calls((struct other){getpid(), make_arena(2), -1, -1});
}

static void with_peer(void)
{
	char *arena = make_arena(2);
	if (me == 1)
		serve(arena);
	else
		random_calls(meet(NULL));
}

/* ---- particular cases ------------------------------------------------------------------------------ */

static void threads_and_ends(void)
{
	char *arena = make_arena(2), here[100];
	if (me == 1) {
		serve(arena);
		return;
	}
	pid_t tid;
	struct other other = meet(&tid);
	struct iovec local = {here, sizeof here}, remote = {other.arena + 100, sizeof here};
	/* A thread's ID stands for its process. */
	CHECK(tid != other.pid);
	CHECK_EQ(process_vm_readv(tid, &local, 1, &remote, 1, 0), sizeof here);
	CHECK_EQ(process_vm_readv(other.pid, &local, 1, &remote, 1, 0), sizeof here);
	/* Somebody else altogether, by the kernel. */
	static char text[] = "of the parent";
	int ends[2];
	CHECK(pipe(ends) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		strcpy(text, "of the child!");
		CHECK_EQ(write(ends[1], "", 1), 1);
		pause();
	}
	CHECK_EQ(read(ends[0], here, 1), 1);
	local = (struct iovec){here, sizeof text};
	remote = (struct iovec){text, sizeof text};
	CHECK_EQ(process_vm_readv(pid, &local, 1, &remote, 1, 0), sizeof text);
	CHECK(strcmp(here, "of the child!") == 0);
	CHECK(strcmp(text, "of the parent") == 0);
	CHECK(kill(pid, SIGKILL) == 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK_FAILS(process_vm_readv(pid, &local, 1, &remote, 1, 0), ESRCH);
	/* The peer ends. Its memory goes, then its PID. */
	CHECK(close(other.requests) == 0);
	local = (struct iovec){here, sizeof here};
	remote = (struct iovec){other.arena + 100, sizeof here};
	double start = check_seconds();
	long result;
	int error;
	do {
		result = process_vm_readv(other.pid, &local, 1, &remote, 1, 0);
		error = errno;
		CHECK(result == -1 ? error == ESRCH || error == EFAULT : result == sizeof here);
		CHECK(check_seconds() - start < 20);
	} while (result != -1 || error != ESRCH);
}

/* Memory that the peer maps and unmaps during the copy: a count or EFAULT, never a signal. */
static void races(void)
{
	char *arena = make_arena(2);
	if (me == 1) {
		serve(arena);
		return;
	}
	struct other other = meet(NULL);
	static char here[16 * PAGE];
	char *there;
	CHECK_EQ(write(other.requests, "s", 1), 1);
	CHECK_EQ(read(other.replies, &there, 8), 8);
	double start = check_seconds();
	for (long i = 0; check_seconds() - start < 1.5; i++) {
		struct iovec local = {here, sizeof here}, remote = {there + i % 64, sizeof here - 64};
		long result = (i % 2 ? process_vm_readv : process_vm_writev)(other.pid, &local, 1,
		                                                              &remote, 1, 0);
		int error = errno;
		CHECK(result == -1 ? error == EFAULT
		                   : result > 0 && result <= (long)remote.iov_len);
	}
}

/* Tens of megabytes, nothing aligned. */
static void bulk(void)
{
	size_t size = 48 << 20;
	if (me == 1) {
		char *block = malloc(size + 64);
		for (size_t i = 0; i < size + 64; i++)
			block[i] = (char)(i * 2654435761u >> 13);
		serve(block);
		return;
	}
	struct other other = meet(NULL);
	char *block = malloc(size + 64);
	memset(block, 0, size + 64);
	struct iovec local[2] = {{block + 3, size / 3}, {block + 3 + size / 3, size - size / 3}};
	struct iovec remote[3] = {{other.arena + 5, 77},
	                          {other.arena + 5 + 77, size / 2},
	                          {other.arena + 5 + 77 + size / 2, size - size / 2 - 77}};
	CHECK_EQ(process_vm_readv(other.pid, local, 2, remote, 3, 0), size);
	for (size_t i = 0; i < size; i++)
		CHECK(block[3 + i] == (char)((i + 5) * 2654435761u >> 13));
	CHECK_EQ(block[2], 0);
	CHECK_EQ(block[3 + size], 0);
	memset(block, 99, size);
	CHECK_EQ(process_vm_writev(other.pid, local, 1, remote + 1, 1, 0), size / 3);
	struct iovec back = {block, 100}, edge = {other.arena + 5 + 77 + size / 3 - 50, 100};
	CHECK_EQ(process_vm_readv(other.pid, &back, 1, &edge, 1, 0), 100);
	CHECK_EQ(block[49], 99);
	CHECK_EQ(block[50], (char)((5 + 77 + size / 3) * 2654435761u >> 13));
}

static volatile long handler_result;

static void copies_in_handler(int number)
{
	char here[64];
	static char there[64] = "from a handler", *nowhere = (char *)8;
	struct iovec local = {here, 64}, remote = {there, 64}, bad = {nowhere, 64};
	(void)number;
	handler_result = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
	if (process_vm_readv(getpid(), &local, 1, &bad, 1, 0) != -1 || errno != EFAULT)
		handler_result = -2;
}

/* On a small stack, in a handler, beside threads that do the same. */
static void in_handlers(void)
{
	size_t size = (size_t)sysconf(_SC_MINSIGSTKSZ) + 4096;
	stack_t stack = {.ss_sp = malloc(size), .ss_size = size};
	struct sigaction action = {.sa_handler = copies_in_handler, .sa_flags = SA_ONSTACK};
	CHECK(sigaltstack(&stack, NULL) == 0);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 0; i < 1000; i++) {
		CHECK(raise(SIGUSR1) == 0);
		CHECK_EQ(handler_result, 64);
	}
}

/* ---- signal masks: wherever SIGSEGV is blocked, a bad address is EFAULT all the same ---- */

static sigset_t all_signals;

static void good_and_bad(void)
{
	static char from[100], to[100];
	struct iovec local = {to, 100}, remote = {from, 100}, nowhere = {(void *)8, 100};
	CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), 100);
	CHECK_FAILS(process_vm_readv(getpid(), &local, 1, &nowhere, 1, 0), EFAULT);
	CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), 100);
}

static void in_a_handler(int number)
{
	good_and_bad();
	handler_result = number;
}

static void *with_inherited_mask(void *unused)
{
	good_and_bad();
	return unused;
}

static sigjmp_buf out;

static void jumps_out(int number)
{
	good_and_bad();
	siglongjmp(out, number);
}

static void masks_change(void)
{
	sigset_t old;
	sigfillset(&all_signals);
	for (int round = 0; round < 20; round++) {
		good_and_bad();
		CHECK(sigprocmask(SIG_SETMASK, &all_signals, &old) == 0);
		CHECK(!sigismember(&old, SIGSEGV));
		good_and_bad();
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, with_inherited_mask, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
		CHECK(pthread_create(&thread, NULL, with_inherited_mask, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		good_and_bad();
		CHECK(sigprocmask(SIG_BLOCK, &all_signals, NULL) == 0);
		good_and_bad();
		CHECK(sigprocmask(SIG_UNBLOCK, &all_signals, &old) == 0);
		CHECK(sigismember(&old, SIGSEGV) && sigismember(&old, SIGBUS));
		good_and_bad();

		/* Handlers that mask everything, and say so. */
		struct sigaction action = {.sa_handler = in_a_handler}, before;
		sigfillset(&action.sa_mask);
		for (int number = 1; number < 32; number++) {
			if (number == SIGKILL || number == SIGSTOP)
				continue;
			CHECK(sigaction(number, &action, NULL) == 0);
			CHECK(raise(number) == 0);
			CHECK_EQ(handler_result, number);
			good_and_bad();
			CHECK(sigaction(number, NULL, &before) == 0);
			CHECK(before.sa_handler == in_a_handler);
			CHECK(sigismember(&before.sa_mask, SIGSEGV) && sigismember(&before.sa_mask, SIGBUS));
			before.sa_handler = SIG_DFL;
			sigemptyset(&before.sa_mask);
			CHECK(sigaction(number, &before, &before) == 0); /* one for both */
			CHECK(before.sa_handler == in_a_handler && sigismember(&before.sa_mask, SIGSEGV));
			CHECK(sigaction(number, NULL, &before) == 0);
			CHECK(before.sa_handler == SIG_DFL && !sigismember(&before.sa_mask, SIGSEGV));
		}

		/* A handler for SIGSEGV that is left by a jump, with and without its mask. */
		action.sa_handler = jumps_out;
		CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
		int save = round % 2;
		if (!sigsetjmp(out, save))
			*(volatile int *)8 = 1;
		good_and_bad();
		CHECK(sigprocmask(SIG_SETMASK, NULL, &old) == 0);
		CHECK_EQ(sigismember(&old, SIGSEGV), !save);
		CHECK(sigprocmask(SIG_UNBLOCK, &all_signals, NULL) == 0);
		CHECK(signal(SIGSEGV, SIG_DFL) == jumps_out);
	}
	puts("masks changed");
}

static const struct check_case cases[] = {
	{"on_itself", on_itself},
	{"with_peer", with_peer},
	{"threads_and_ends", threads_and_ends},
	{"races", races},
	{"bulk", bulk},
	{"in_handlers", in_handlers},
	{"masks_change", masks_change},
	{NULL, NULL},
};

static volatile int signals;

static void counts(int number)
{
	(void)number;
	signals++;
	_exit(70);
}

int main(int argc, char **argv)
{
	if (argc < 6)
		return 2;
	directory = argv[2];
	seed = strtoull(argv[3], NULL, 10);
	count = atoi(argv[4]);
	const char *id = getenv("NAGAYA_TASK_ID");
	me = id ? atoi(id) : 0;
	sigset_t all;
	sigfillset(&all);
	if (strcmp(argv[5], "blocked") == 0)
		CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, 8) == 0);
	else if (strcmp(argv[5], "ignored") == 0)
		CHECK(signal(SIGSEGV, SIG_IGN) != SIG_ERR && signal(SIGBUS, SIG_IGN) != SIG_ERR);
	else if (strcmp(argv[5], "caught") == 0)
		CHECK(signal(SIGSEGV, counts) != SIG_ERR && signal(SIGBUS, counts) != SIG_ERR);
	return check_main(cases, argc, argv);
}
