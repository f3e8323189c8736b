/* Tasks of several machines, that nagaya run has started, in one space: memory goes to and fro
 * between machines while its owners change it, map and unmap it, fork and end.
 *
 * usage: cluster CASE */
#include "check.h"

#include <pvas.h>
#include <setjmp.h>
#include <stdatomic.h>

#define PAGE 4096ul
#define WAIT_MS 60000
#define TASKS_MAX 16

static int me, tasks;

static void *of(int task, const char *name)
{
	void *address;
	if (pvas_import(PVAS_SELF, task, name, &address, NULL, WAIT_MS)) {
		fprintf(stderr, "%d: %s of %d: %s\n", me, name, task, pvas_error());
		_exit(1);
	}
	return address;
}

static void tell(const char *name, const void *address, size_t size)
{
	CHECK_EQ(pvas_export(name, address, size), 0);
}

/* ---- steps that all take together: task 0's board ---------------------------------------- */

static struct board {
	_Alignas(4096) _Atomic int arrived;
	_Alignas(4096) _Atomic int ticket, serving;
	long count;
	_Alignas(4096) _Atomic int x;
	_Alignas(4096) _Atomic int y;
	_Alignas(4096) int seen[2];
	long plain[TASKS_MAX];
} own, *board = &own;

static void meet(void)
{
	static int step;
	step++;
	atomic_fetch_add(&board->arrived, 1);
	while (atomic_load(&board->arrived) < step * tasks) {
		usleep(300);
		check_parent();
	}
}

static void begin(void)
{
	me = pvas_getid();
	CHECK(me >= 0);
	tasks = atoi(getenv("NAGAYA_TASKS"));
	CHECK(tasks <= TASKS_MAX);
	if (me == 0)
		tell("board", &own, sizeof own);
	else
		board = of(0, "board");
	meet();
}

/* Task 0, at whose board the others look, stays until they have gone. */
static void outlast(void)
{
	for (int task = 1; !me && task < tasks; task++)
		while (pvas_getpid(PVAS_SELF, task) >= 0 || errno == EREMOTE)
			usleep(500);
}

static void part(void)
{
	meet();
	outlast();
}

static char *map(size_t size)
{
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

/* ---- cases --------------------------------------------------------------------------- */

/* Domains are machines, by the same number everywhere; PIDs are each machine's own. */
static void who(void)
{
	begin();
	CHECK_EQ(pvas_ntasks(PVAS_SELF), tasks);
	int last = 0;
	for (int task = 0; task < tasks; task++) {
		int domain = pvas_domain_of(PVAS_SELF, task);
		CHECK(domain == last || domain == last + 1);
		last = domain;
		if (domain == pvas_domain_of(PVAS_SELF, me))
			CHECK(pvas_getpid(PVAS_SELF, task) > 0);
		else
			CHECK_FAILS(pvas_getpid(PVAS_SELF, task), EREMOTE);
	}
	CHECK(last > 0);
	CHECK_EQ(pvas_getpid(PVAS_SELF, me), getpid());
	CHECK_FAILS(pvas_getpid(PVAS_SELF, tasks), ESRCH);
	part();
}

/* A lock that is made of loads and stores in memory of machine 0. */
static void locks(void)
{
	begin();
	const int rounds = 100;
	for (int round = 0; round < rounds; round++) {
		int mine = atomic_fetch_add(&board->ticket, 1);
		while (atomic_load(&board->serving) != mine)
			check_parent();
		board->count += 1;
		board->plain[me] += board->count;
		atomic_store(&board->serving, mine + 1);
	}
	meet();
	CHECK_EQ(board->count, (long)rounds * tasks);
	part();
}

/* Dekker's test: of two tasks that write and then read, one sees the other's write. */
static void order(void)
{
	begin();
	for (int round = 0; round < 100; round++) {
		if (me == 0)
			atomic_store(&board->x, 0), atomic_store(&board->y, 0);
		meet();
		if (me == 0) {
			atomic_store(&board->x, 1);
			board->seen[0] = atomic_load(&board->y);
		} else if (me == tasks - 1) {
			atomic_store(&board->y, 1);
			board->seen[1] = atomic_load(&board->x);
		}
		meet();
		CHECK(board->seen[0] || board->seen[1]);
		meet();
	}
	part();
}

/* The kernel reads and writes other machines' memory in system calls, also memory that is
 * untouched here. */
static void calls(void)
{
	begin();
	enum { SIZE = 5 * 4096 + 17 };
	char *text = map(SIZE + PAGE), *room = map(SIZE + PAGE);
	memset(text, 'a' + me, SIZE);
	tell("text", text, SIZE);
	tell("room", room, SIZE);
	meet();
	int next = (me + 1) % tasks, before = (me + tasks - 1) % tasks, ends[2];
	const char *far = of(next, "text");
	CHECK_EQ(pipe(ends), 0);
	CHECK_EQ(write(ends[1], far, SIZE), SIZE);
	char *to = of(before, "room");
	CHECK_EQ(read(ends[0], to, SIZE), SIZE);
	meet();
	/* The next task has read the memory of the one after it. */
	for (int at = 0; at < SIZE; at++)
		CHECK_EQ(room[at], 'a' + (me + 2) % tasks);
	CHECK_EQ(room[SIZE], 0);
	/* Nothing is mapped there. */
	struct pvas_space_info space;
	CHECK_EQ(pvas_getspace(PVAS_SELF, &space), 0);
	char *nothing = (char *)pvas_segment(PVAS_SELF, next) + space.segment_size / 2;
	CHECK_FAILS(write(ends[1], nothing, 1), EFAULT);
	close(ends[1]);
	part();
}

static sigjmp_buf back;

static volatile sig_atomic_t looks;

static void caught(int signal, siginfo_t *information, void *context)
{
	(void)context;
	if (!looks) {
		fprintf(stderr, "%d: signal %d at %p\n", me, signal, information->si_addr);
		_exit(1);
	}
	siglongjmp(back, signal);
}

static void catch(void)
{
	struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
	CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
}

/* A separate function, so that registers after the jump have no values of the caller. */
__attribute__((noinline)) static int signal_at(const volatile char *address)
{
	int signal = sigsetjmp(back, 1);
	looks = 1;
	if (!signal)
		(void)*address;
	looks = 0;
	return signal;
}

/* Maps, unmaps, discards, moves and grows memory of which others have pages. */
static void maps(void)
{
	begin();
	enum { SIZE = 64 * 4096 };
	catch();
	char *area = map(SIZE), *const first = area;
	memset(area, 1 + me, SIZE);
	tell("area", area, SIZE);
	int next = (me + 1) % tasks, before = (me + tasks - 1) % tasks;
	char *far = of(next, "area");
	for (size_t at = 0; at < SIZE; at += PAGE)
		CHECK_EQ(far[at], 1 + next);
	far[0] = 100 + me;
	meet();
	CHECK_EQ(area[0], 100 + before);
	meet();
	CHECK_EQ(madvise(area, SIZE / 2, MADV_DONTNEED), 0);
	CHECK_EQ(area[0], 0);
	meet();
	for (size_t at = 0; at < SIZE; at += PAGE)
		CHECK_EQ(far[at], at < SIZE / 2 ? 0 : 1 + next);
	far[PAGE] = 50 + me;
	meet();
	CHECK_EQ(area[PAGE], 50 + before);
	CHECK_EQ(munmap(area, SIZE / 4), 0);
	meet();
	CHECK_EQ(signal_at(far), SIGSEGV);
	CHECK_EQ(signal_at(far + SIZE / 4 - 1), SIGSEGV);
	CHECK_EQ(signal_at(far + SIZE / 4), 0);
	meet();
	area = mmap(first, SIZE / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(area == first);
	area[2 * PAGE] = 70 + me;
	meet();
	CHECK_EQ(far[0], 0);
	CHECK_EQ(far[2 * PAGE], 70 + next);
	far[3 * PAGE] = 80 + me;
	meet();
	CHECK_EQ(area[3 * PAGE], 80 + before);
	/* To another place, with another machine's writes. */
	char *moved = mremap(area, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED);
	CHECK_EQ(moved[3 * PAGE], 80 + before);
	CHECK_EQ(moved[2 * PAGE], 70 + me);
	CHECK_EQ(moved[SIZE], 0);
	moved[SIZE] = 90 + me;
	tell("moved", moved, 2 * SIZE);
	meet();
	char *there = of(next, "moved");
	CHECK_EQ(there[SIZE], 90 + next);
	CHECK_EQ(there[2 * PAGE], 70 + next);
	part();
}

/* Owners allocate and free while others read and write what they have. */
static void churn(void)
{
	begin();
	static _Atomic(char *) block;
	tell("block", &block, sizeof block);
	_Atomic(char *) *far = of((me + 1) % tasks, "block");
	uint64_t seed = 7 + me;
	for (int round = 0; round < 60; round++) {
		size_t size = 1 + check_random(&seed) % 300000;
		char *mine = malloc(size);
		memset(mine, 1, size);
		atomic_store(&block, mine);
		meet();
		char *its = atomic_load(far);
		CHECK_EQ(its[0], 1);
		its[0] = 2;
		meet();
		CHECK_EQ(mine[0], 2);
		CHECK_EQ(mine[size - 1], size == 1 ? 2 : 1);
		free(mine);
		char *fresh = calloc(1, 20000);
		for (int at = 0; at < 20000; at++)
			CHECK_EQ(fresh[at], 0);
		free(fresh);
	}
	part();
}

/* A fork has what its parent had, wherever that was. */
static void forks(void)
{
	begin();
	enum { PAGES = 40 };
	char *area = map(PAGES * PAGE);
	for (int page = 0; page < PAGES; page++)
		area[page * PAGE] = page;
	tell("area", area, PAGES * PAGE);
	meet();
	char *far = of((me + 1) % tasks, "area");
	for (int page = 0; page < PAGES; page += 2)
		far[page * PAGE] += 100;
	meet();
	for (int round = 0; round < 3; round++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (!child) {
			for (int page = 0; page < PAGES; page++)
				if ((unsigned char)area[page * PAGE] != (page % 2 ? page : page + 100))
					_exit(2);
			memset(area, 0, PAGES * PAGE);
			_exit(0);
		}
		int status;
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK_EQ(status, 0);
	}
	meet();
	CHECK_EQ((unsigned char)far[2 * PAGE], 102);
	part();
}

/* A task that ends takes its memory along, and cannot be found any more. */
static void ends(void)
{
	begin();
	static int word = 5;
	tell("word", &word, sizeof word);
	int last = tasks - 1;
	const char *far = me ? NULL : of(last, "word");
	if (!me)
		CHECK_EQ(*far, 5);
	meet();
	if (me == last)
		_exit(0);
	if (!me) {
		catch();
		while (pvas_getpid(PVAS_SELF, last) >= 0 || errno == EREMOTE)
			usleep(500);
		CHECK_FAILS(pvas_getpid(PVAS_SELF, last), ESRCH);
		CHECK_FAILS(pvas_import(PVAS_SELF, last, "word", NULL, NULL, 0), ESRCH);
		double begin = check_seconds();
		while (!signal_at(far) && check_seconds() - begin < 10)
			usleep(1000);
		CHECK_EQ(signal_at(far), SIGSEGV);
		/* The others look at the board until they have left the step. */
		for (int other = 1; other < last; other++)
			while (pvas_getpid(PVAS_SELF, other) >= 0 || errno == EREMOTE)
				usleep(500);
	}
	outlast();
}

enum { BLOCK = 2 << 20 };

static char *map_aligned(size_t size)
{
	char *room = map(size + BLOCK);
	return (char *)(((uintptr_t)room + BLOCK - 1) / BLOCK * BLOCK);
}

/* Memory that others have grows in place, into unused memory. */
static void grows(void)
{
	begin();
	char *area = map_aligned(3 * BLOCK), *other = area + 2 * BLOCK;
	memset(area, 1, BLOCK);
	memset(other, 2, BLOCK);
	CHECK_EQ(munmap(area + BLOCK, BLOCK), 0);
	tell("area", area, BLOCK);
	tell("other", other, BLOCK);
	meet();
	/* One after the other: they may lie side by side elsewhere. */
	int next = (me + 1) % tasks;
	const volatile char *far = of(next, "area"), *beyond = of(next, "other");
	CHECK_EQ(*far, 1);
	CHECK_EQ(*beyond, 2);
	meet();
	CHECK(mremap(area, BLOCK, 2 * BLOCK, 0) == area);
	for (size_t at = BLOCK; at < 2 * BLOCK; at += PAGE)
		CHECK_EQ(area[at], 0);
	memset(area + BLOCK, 3, BLOCK);
	meet();
	CHECK_EQ(far[BLOCK], 3);
	CHECK_EQ(far[BLOCK - 1], 1);
	CHECK_EQ(*beyond, 2);
	CHECK_EQ(*other, 2);
	/* And where it cannot, it takes along what others have written. */
	((volatile char *)far)[PAGE] = 4;
	meet();
	char *moved = mremap(area, 2 * BLOCK, 3 * BLOCK, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED && moved != area);
	CHECK_EQ(moved[0], 1);
	CHECK_EQ(moved[PAGE], 4);
	CHECK_EQ(moved[2 * BLOCK - 1], 3);
	CHECK_EQ(moved[2 * BLOCK], 0);
	part();
}

/* Memory is read and written from one end to the other, with untouched parts and an
 * unmapped one. */
static void streams(void)
{
	enum { PAGES = 1024, GONE = 700 };
	begin();
	char *area = map(PAGES * PAGE), *new = map(PAGES * PAGE);
	for (long page = 0; page < PAGES; page++)
		if (page % 37)
			*(long *)(area + page * PAGE) = page + 1;
	CHECK_EQ(munmap(area + GONE * PAGE, PAGE), 0);
	tell("area", area, GONE * PAGE);
	tell("new", new, PAGES * PAGE);
	meet();
	int next = (me + 1) % tasks;
	char *far = of(next, "area"), *far_new = of(next, "new");
	for (int round = 0; round < 3; round++) {
		for (long page = 0; page < PAGES; page++) {
			volatile long *word = (volatile long *)(far + page * PAGE);
			if (page == GONE)
				continue;
			CHECK_EQ(*word, page % 37 || round ? page + 1 + round : 0);
		}
		meet();
		for (long page = 0; page < PAGES; page++)
			if (page != GONE)
				*(volatile long *)(far + page * PAGE) = page + 2 + round;
		meet();
		/* We come back to our own. */
		for (long page = round; page < PAGES; page += 3)
			if (page != GONE)
				CHECK_EQ(*(volatile long *)(area + page * PAGE), page + 2 + round);
		meet();
	}
	for (long page = 0; page < PAGES; page++)
		*(volatile long *)(far_new + page * PAGE) = page;
	meet();
	for (long page = 0; page < PAGES; page++)
		CHECK_EQ(*(volatile long *)(new + page * PAGE), page);
	part();
}

/* The last task reads pages of task 0 in an order that nobody predicts: no page, a page of each
 * block, or two. What else it does is the same in all three cases. */
enum { TOUCHES = 128 };

static void touch(int pages_of_a_block)
{
	const size_t block = 2 << 20;
	begin();
	if (me == 0) {
		char *area = map((TOUCHES + 1) * block);
		area += -(uintptr_t)area % block;
		for (int at = 0; at < TOUCHES; at++)
			for (int page = 1; page <= 2; page++)
				area[at * block + 100 * page * PAGE] = page;
		tell("touched", area, TOUCHES * block);
	}
	meet();
	if (me == tasks - 1) {
		volatile char *far = of(0, "touched");
		int order[TOUCHES];
		uint64_t state = 1;
		for (int at = 0; at < TOUCHES; at++) {
			int other = check_random(&state) % (at + 1);
			order[at] = order[other];
			order[other] = at;
		}
		for (int page = 1; page <= pages_of_a_block; page++)
			for (int at = 0; at < TOUCHES; at++)
				CHECK_EQ(far[order[at] * block + 100 * page * PAGE], page);
	}
	part();
}

static void touch_nothing(void)
{
	touch(0);
}

static void touch_first(void)
{
	touch(1);
}

static void touch_again(void)
{
	touch(2);
}

struct sleep {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int awake;
	pthread_t sleeper;
};

static void *sleep_well(void *argument)
{
	struct sleep *it = argument;
	pthread_mutex_lock(&it->mutex);
	while (!it->awake)
		pthread_cond_wait(&it->cond, &it->mutex);
	pthread_mutex_unlock(&it->mutex);
	return NULL;
}

static void *join_sleeper(void *argument)
{
	CHECK_EQ(pthread_join(((struct sleep *)argument)->sleeper, NULL), 0);
	return NULL;
}

/* Threads sleep at futexes that are not private when others come to their memory first. */
static void sleeps(void)
{
	begin();
	struct sleep *it = (struct sleep *)map(4ul << 20);
	pthread_mutexattr_t mutex;
	pthread_condattr_t cond;
	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&it->mutex, &mutex);
	pthread_condattr_init(&cond);
	pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&it->cond, &cond);
	pthread_t joiner;
	CHECK_EQ(pthread_create(&it->sleeper, NULL, sleep_well, it), 0);
	CHECK_EQ(pthread_create(&joiner, NULL, join_sleeper, it), 0);
	usleep(20000);
	tell("sleep", it, sizeof *it);
	/* The futex of pthread_join lies there. */
	tell("thread", (void *)it->sleeper, PAGE / 4);
	meet();
	struct sleep *its = of((me + 1) % tasks, "sleep");
	CHECK_EQ(its->awake, 0);
	const volatile char *thread = of((me + 1) % tasks, "thread");
	(void)*thread;
	meet();
	pthread_mutex_lock(&it->mutex);
	it->awake = 1;
	pthread_cond_broadcast(&it->cond);
	pthread_mutex_unlock(&it->mutex);
	CHECK_EQ(pthread_join(joiner, NULL), 0);
	part();
}

enum { MOVES = 12, MOVE_PAGES = 8, WORKERS = 2 };

static struct moves {
	char *area;
	_Atomic int is_over;
	/* Only the owner's. */
	long rounds[WORKERS];
} moves;

/* Of a page of the area: a worker's, or with WORKERS the other machine's. */
static volatile long *count_of(char *area, int page, int who)
{
	return (volatile long *)(area + page / MOVE_PAGES * BLOCK + page % MOVE_PAGES * PAGE) + who;
}

static void *work(void *argument)
{
	int me = (int)(intptr_t)argument;
	while (!atomic_load(&moves.is_over)) {
		for (int page = 0; page < MOVES * MOVE_PAGES; page++)
			++*count_of(moves.area, page, me);
		moves.rounds[me]++;
	}
	return NULL;
}

/* Maps and unmaps the upper half of each block. */
static void *remap(void *argument)
{
	uint64_t seed = 11 + (uintptr_t)argument;
	while (!atomic_load(&moves.is_over)) {
		char *at = moves.area + check_random(&seed) % MOVES * BLOCK + BLOCK / 2 +
		           check_random(&seed) % 100 * PAGE;
		size_t size = (1 + check_random(&seed) % 20) * PAGE;
		CHECK_EQ(munmap(at, size), 0);
		/* A move at this moment must not restore it. */
		unsigned char pages[20];
		for (int look = 0; look < 10; look++)
			CHECK_FAILS(mincore(at, size, pages), ENOMEM);
		int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
		CHECK(mmap(at, size, PROT_READ | PROT_WRITE, flags, -1, 0) == at);
		CHECK_EQ(*at, 0);
		memset(at, 1, size);
		CHECK_EQ(mprotect(at, PAGE, PROT_READ), 0);
		CHECK_EQ(*at, 1);
		CHECK_EQ(mprotect(at, PAGE, PROT_READ | PROT_WRITE), 0);
		at[size - 1] = 2;
	}
	return NULL;
}

/* Others come to memory in which threads work, and which they map and unmap. */
static void works(void)
{
	begin();
	moves.area = map_aligned((size_t)MOVES * BLOCK);
	tell("moves", &moves, sizeof moves);
	pthread_t threads[WORKERS + 1];
	for (int at = 0; at <= WORKERS; at++)
		CHECK_EQ(pthread_create(&threads[at], NULL, at < WORKERS ? work : remap,
		                        (void *)(intptr_t)at), 0);
	meet();
	struct moves *its = of((me + 1) % tasks, "moves");
	char *far = its->area;
	long rounds = 0;
	for (; rounds < 5; rounds++)
		for (int page = 0; page < MOVES * MOVE_PAGES; page++) {
			++*count_of(far, page, WORKERS);
			usleep(100);
		}
	meet();
	atomic_store(&moves.is_over, 1);
	for (int at = 0; at <= WORKERS; at++)
		CHECK_EQ(pthread_join(threads[at], NULL), 0);
	for (int page = 0; page < MOVES * MOVE_PAGES; page++) {
		for (int at = 0; at < WORKERS; at++)
			CHECK_EQ(*count_of(moves.area, page, at), moves.rounds[at]);
		CHECK_EQ(*count_of(moves.area, page, WORKERS), rounds);
	}
	part();
}

/* Prints its ID, and stays until it is killed. */
static void stays(void)
{
	begin();
	static volatile int value;
	tell("value", (int *)&value, sizeof value);
	int *far = of((me + 1) % tasks, "value");
	printf("%d stays\n", me);
	fflush(stdout);
	for (;;) {
		++*far;
		check_parent();
	}
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		{"who", who},     {"locks", locks}, {"order", order}, {"calls", calls},
		{"maps", maps},   {"churn", churn}, {"forks", forks}, {"ends", ends},
		{"stays", stays}, {"sleeps", sleeps}, {"works", works}, {"grows", grows},
		{"streams", streams}, {"touch_nothing", touch_nothing},
		{"touch_first", touch_first}, {"touch_again", touch_again}, {NULL, NULL},
	};
	return check_main(cases, argc, argv);
}
