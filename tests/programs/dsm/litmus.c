// Small programs over shared memory whose results are known: `litmus NAME [ROUNDS]`, as a task
// of a job. Each checks what it sees, and says "NAME is right" once, from task 0.

#include <errno.h>
#include <fcntl.h>
#include <jia.h>
#include <nagaya_dsm.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define check(condition) \
	do { \
		if (!(condition)) \
			jia_error("%s:%d: %s (task %d)", __FILE__, __LINE__, #condition, jiapid); \
	} while (0)

static int rounds;

// Returns the number of tasks of this node.
static int tasks_here(void)
{
	int node = nagaya_dsm_node(), nodes = nagaya_dsm_nodes();
	return (node + 1) * jiahosts / nodes - node * jiahosts / nodes;
}

// Whoever has the lock sees all that was written under it. Several locks guard neighbours in
// one page.
static void counter(void)
{
	enum { LOCKS = 3 };
	long *sums = (long *)jia_alloc(LOCKS * sizeof *sums);
	jia_barrier();
	for (int i = 0; i < rounds; i++) {
		int lock = (i + jiapid) % LOCKS;
		jia_lock(lock);
		sums[lock]++;
		jia_unlock(lock);
	}
	jia_barrier();
	long all = 0;
	for (int i = 0; i < LOCKS; i++)
		all += sums[i];
	check(all == (long)rounds * jiahosts);
	jia_barrier();
}

// Writes before a flag was set under a lock, in the same critical section, are visible to a task
// that finds the flag set. The messages are on the reader's node, the writer's, and a third.
static void message(void)
{
	enum { WORDS = 3000 };
	for (int home = 0; home < 3; home++) {
		volatile int *flag = (int *)jia_alloc2p(sizeof *flag, home % jiahosts);
		int *text = (int *)jia_alloc2p(WORDS * sizeof *text, home % jiahosts);
		int writer = 0, reader = jiahosts - 1;
		jia_barrier();
		for (int i = 1; i <= rounds / 10 + 1; i++) {
			for (;;) {
				jia_lock(9);
				int seen = *flag;
				if (jiapid == writer && seen == 2 * i - 2) {
					for (int at = 0; at < WORDS; at++)
						text[at] = i * WORDS + at;
					*flag = 2 * i - 1;
				}
				if (jiapid == reader && seen == 2 * i - 1) {
					for (int at = 0; at < WORDS; at++)
						check(text[at] == i * WORDS + at);
					*flag = 2 * i;
				}
				jia_unlock(9);
				if (seen >= 2 * i - 1 + (jiapid == reader))
					break;
				usleep(100);
			}
		}
		jia_barrier();
	}
}

// Several nodes write their own bytes of one page at once, and none undoes another's.
static void sharing(void)
{
	enum { PAGES = 5 };
	size_t bytes = PAGES * nagaya_dsm_page_size();
	unsigned char *cells = (unsigned char *)jia_alloc3(bytes, 1, 0);
	jia_barrier();
	for (int i = 1; i <= rounds; i++) {
		for (size_t at = jiapid; at < bytes; at += jiahosts * 7)
			cells[at] = i + at;
		jia_barrier();
		size_t other = (jiapid + 1) % jiahosts;
		for (size_t at = other; at < bytes; at += jiahosts * 7)
			check(cells[at] == (unsigned char)(i + at));
		jia_barrier();
	}
}

// Bands of a line move round: each task reads its neighbours' and writes its own, in two
// arrays by turns.
static void phases(void)
{
	enum { CELLS = 3001 };
	size_t all = (size_t)CELLS * jiahosts;
	long *arrays[2];
	for (int i = 0; i < 2; i++)
		arrays[i] = (long *)nagaya_dsm_alloc(all * sizeof(long), NULL);
	for (size_t at = jiapid * CELLS; at < (jiapid + 1ul) * CELLS; at++)
		arrays[0][at] = at * at;
	jia_barrier();
	for (int i = 1; i <= rounds; i++) {
		long *from = arrays[(i - 1) % 2], *to = arrays[i % 2];
		for (size_t at = jiapid * CELLS; at < (jiapid + 1ul) * CELLS; at++)
			to[at] = from[(at + 1) % all] + 1;
		jia_barrier();
	}
	for (size_t at = 0; at < all; at += 17) {
		long from = (at + rounds) % all;
		check(arrays[rounds % 2][at] == from * from + rounds);
	}
	jia_barrier();
}

// A ring of tasks: each waits for the one before, adds, and sets the next one's variable.
static void conditions(void)
{
	long *sum = (long *)jia_alloc1(sizeof *sum);
	jia_barrier();
	for (int i = 0; i < rounds / 10 + 1; i++) {
		if (jiapid > 0)
			jia_waitcv(jiapid);
		check(*sum == (long)i * jiahosts + jiapid);
		*sum += 1;
		if (jiapid + 1 < jiahosts)
			jia_setcv(jiapid + 1);
		jia_barrier();
		if (jiapid == 0)
			for (int cv = 1; cv < jiahosts; cv++)
				jia_resetcv(cv);
		jia_barrier();
		check(*sum == (long)(i + 1) * jiahosts);
		jia_barrier();
	}
}

// Uses each page of it, so that system calls find it.
static void touch(volatile char *text, size_t bytes, int writes)
{
	for (size_t at = 0; at < bytes; at += 512) {
		char byte = text[at];
		if (writes)
			text[at] = byte;
	}
}

// System calls read from shared memory and write into it, for any location of its pages. If the
// user may not do that, they fail at pages that the program has not just used.
static void calls(void)
{
	size_t bytes = 6 * nagaya_dsm_page_size() + 1000;
	char *text = (char *)jia_alloc3(bytes, 1, 0);
	const char *given = getenv("NAGAYA_DSM_CALLS");
	int fail = given && strcmp(given, "0") == 0;
	jia_barrier();
	for (int i = 0; i < rounds / 10 + 1; i++) {
		int writer = i % jiahosts;
		char path[] = "/tmp/dsm-litmus-XXXXXX";
		if (jiapid == writer) {
			int file = mkstemp(path);
			check(file >= 0);
			char *own = malloc(bytes);
			memset(own, 'a' + i % 26, bytes);
			check(write(file, own, bytes) == (ssize_t)bytes);
			if (fail && i == 0)
				check(pread(file, text, bytes, 0) == -1 && errno == EFAULT);
			if (fail)
				touch(text, bytes, 1);
			check(pread(file, text, bytes, 0) == (ssize_t)bytes);
			free(own);
			close(file);
			unlink(path);
		}
		jia_barrier();
		int pipes[2];
		check(pipe(pipes) == 0);
		if (fail)
			touch(text, bytes, 0);
		char back[5000];
		for (size_t at = 0; at + sizeof back <= bytes; at += sizeof back) {
			check(write(pipes[1], text + at, sizeof back) == sizeof back);
			check(read(pipes[0], back, sizeof back) == sizeof back);
			for (size_t b = 0; b < sizeof back; b++)
				check(back[b] == 'a' + i % 26);
		}
		close(pipes[0]);
		close(pipes[1]);
		jia_barrier();
	}
}

// Memory is where it was asked for, zeroed, at the same addresses everywhere. The first of all,
// since jia_alloc goes round.
static void memory(void)
{
	size_t page = nagaya_dsm_page_size();
	unsigned last = jiahosts - 1;
	struct { unsigned long at; size_t bytes, block; unsigned first; } all[] = {
		{ jia_alloc(10), 10, page, 0 },
		{ jia_alloc(3 * page), 3 * page, 3 * page, 1 % jiahosts },
		{ jia_alloc1(5 * page), 5 * page, 5 * page, 0 },
		{ jia_alloc2(7 * page, 2 * page), 7 * page, 2 * page, 0 },
		{ jia_alloc2p(2 * page + 1, last), 3 * page, 3 * page, last },
		{ jia_alloc3(9 * page, page - 1, last), 9 * page, page, last },
	};
	unsigned long next = all[0].at;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		unsigned long at = all[i].at;
		check(at == next);
		next = at + (all[i].bytes + page - 1) / page * page;
		for (size_t offset = 0; offset < all[i].bytes; offset += page) {
			struct nagaya_dsm_page_statistics it;
			check(nagaya_dsm_page_statistics((void *)(at + offset), &it, sizeof it) == 0);
			unsigned task = (all[i].first + offset / all[i].block) % jiahosts;
			// Tasks are divided over nodes in order.
			unsigned node = nagaya_dsm_nodes() - 1;
			while (node * jiahosts / nagaya_dsm_nodes() > task)
				node--;
			check(it.home == node);
			// Other tasks of the node are perhaps ahead.
			if (tasks_here() == 1)
				check(it.fetched + it.written + it.dropped == 0);
		}
		for (size_t offset = 0; offset < all[i].bytes; offset += 100)
			check(*(char *)(at + offset) == 0);
	}
	unsigned long first = all[0].at;
	jia_bcast(&first, sizeof first, 0);
	check(first == all[0].at);
	jia_barrier();
}

// Letters, by sender and tag, broadcasts and reductions; from and into shared memory, too.
static void letters(void)
{
	int *shared = (int *)jia_alloc1(100000 * sizeof *shared);
	jia_barrier();
	int next = (jiapid + 1) % jiahosts, before = (jiapid + jiahosts - 1) % jiahosts;
	for (int i = 0; i < rounds; i++) {
		int letter[3] = { jiapid, i, 7 };
		jia_send(letter, sizeof letter, next, 1);
		jia_send(letter, 1, next, 2);
		int got[5] = { 0 };
		check(jia_recv(got, sizeof got, before, 2) == 1);
		check(jia_recv(got, sizeof got, i % 2 ? before : MSG_PROC_ALL, 1) == sizeof letter);
		check(got[0] == before && got[1] == i && got[2] == 7);
	}
	int root = jiahosts - 1;
	if (jiapid == root)
		for (int at = 0; at < 100000; at++)
			shared[at] = at;
	jia_barrier();
	if (jiapid == root)
		jia_send(shared, 100000 * sizeof *shared, 0, 3);
	if (jiapid == 0) {
		int *own = malloc(100000 * sizeof *own);
		check(jia_recv(own, 100000 * sizeof *own, MSG_PROC_ALL, MSG_TAG_ALL) == 400000);
		check(own[99999] == 99999);
		// Cut, since the place is shorter.
		jia_send(own, 400, 0, 0);
		check(jia_recv(own, 40, 0, 0) == 40);
		free(own);
	}
	for (int from = 0; from < jiahosts; from++) {
		double value = jiapid == from ? 1.5 * from : -1;
		jia_bcast(&value, sizeof value, from);
		check(value == 1.5 * from);
		int ints[2] = { jiapid, -jiapid }, sums[2];
		jia_reduce(ints, sums, 2, SUM_INT, from);
		check(jiapid != from || (sums[0] == jiahosts * (jiahosts - 1) / 2 && sums[1] == -sums[0]));
		jia_reduce(ints, sums, 2, MIN_INT, from);
		check(jiapid != from || (sums[0] == 0 && sums[1] == 1 - jiahosts));
		double reals[1] = { jiapid + 0.5 }, most[1];
		jia_reduce(reals, most, 1, MAX_DOUBLE, from);
		check(jiapid != from || most[0] == jiahosts - 0.5);
		float floats[1] = { 2 }, product[1];
		jia_reduce(floats, product, 1, SUM_FLOAT, from);
		check(jiapid != from || product[0] == 2.0f * jiahosts);
	}
	jia_wait();
}

// A sender that is faster than its receivers waits for them: unreceived messages are bounded.
static void flood(void)
{
	enum { LETTERS = 400, WORDS = 1000 };
	static int letter[WORDS];
	int to = (jiapid + 1) % jiahosts, from = (jiapid + jiahosts - 1) % jiahosts;
	// One after the other: two that flood each other would wait for ever.
	for (int sender = 0; sender < jiahosts; sender++) {
		jia_wait();
		if (jiapid == sender && to != jiapid)
			for (int i = 0; i < LETTERS; i++) {
				letter[i % WORDS] = i;
				jia_send(letter, sizeof letter, to, 4);
			}
		if (from == sender && from != jiapid) {
			usleep(20000);
			for (int i = 0; i < LETTERS; i++) {
				check(jia_recv(letter, sizeof letter, from, 4) == sizeof letter);
				check(letter[i % WORDS] == i);
			}
		}
	}
	jia_wait();
}

// A page that one node alone writes moves there, and its writes then cost no message.
static void homes(void)
{
	size_t page = nagaya_dsm_page_size();
	char *bytes = (char *)jia_alloc1(page * jiahosts);
	char *own = bytes + page * jiapid;
	jia_config(HMIG, ON);
	jia_config(ADWD, ON);
	jia_barrier();
	*own = 1;
	jia_barrier();
	struct nagaya_dsm_page_statistics it;
	check(nagaya_dsm_page_statistics(own, &it, sizeof it) == 0);
	check((int)it.home == nagaya_dsm_node());
	nagaya_dsm_reset_statistics();
	for (int i = 0; i < rounds / 10 + 1; i++) {
		*own += 1;
		jia_barrier();
	}
	struct nagaya_dsm_statistics all;
	check(nagaya_dsm_statistics(&all, sizeof all) == 0);
	check(all.diffs == 0 && all.page_messages == 0);
	check(all.write_faults <= (unsigned)tasks_here());
	jia_barrier();
	check(bytes[page * ((jiapid + 1) % jiahosts)] == (char)(rounds / 10 + 2));
	jia_config(HMIG, OFF);
	jia_barrier();
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

// Each iteration belongs to a task, and fast tasks get more.
static void load(void)
{
	int begin = 5, end = 104;
	jia_divtask(&begin, &end);
	int count[1] = { end - begin + 1 }, all[1];
	jia_reduce(count, all, 1, SUM_INT, 0);
	check(jiapid != 0 || all[0] == 100);
	double begin_s = now();
	jia_config(LOADBAL, ON);
	usleep(jiapid == 0 ? 400000 : 50000);
	double took[1] = { now() - begin_s }, others[1] = { jiapid == 0 ? 0 : took[0] }, longest[1];
	jia_loadcheck();
	begin = 0;
	end = 999;
	jia_divtask(&begin, &end);
	count[0] = end - begin + 1;
	int most[1];
	jia_reduce(count, all, 1, SUM_INT, 0);
	jia_reduce(count, most, 1, MAX_INT, 0);
	jia_reduce(others, longest, 1, MAX_DOUBLE, 0);
	check(jiapid != 0 || all[0] == 1000);
	// On a busy machine another may have been the slow one.
	check(jiapid != 0 || jiahosts == 1 || longest[0] > took[0] / 2 || count[0] < most[0]);
	jia_wait();
}

// Threads of one task touch pages at once, while their task synchronizes.
static volatile long *threads_cells;
static volatile int threads_stop;

static void *reads(void *sum)
{
	for (long at = 0; !threads_stop; at = (at + 997) % 40000)
		*(long *)sum += threads_cells[at] & 1;
	return NULL;
}

static void threads(void)
{
	threads_cells = (long *)jia_alloc3(40000 * sizeof(long), 1, 0);
	jia_barrier();
	pthread_t all[3];
	long sums[3] = { 0 };
	for (int i = 0; i < 3; i++)
		check(pthread_create(&all[i], NULL, reads, &sums[i]) == 0);
	for (int i = 1; i <= rounds / 10 + 1; i++) {
		for (long at = jiapid; at < 40000; at += jiahosts)
			threads_cells[at] = i;
		jia_barrier();
		for (long at = 0; at < 40000; at += 13)
			check(threads_cells[at] == i);
		jia_barrier();
	}
	threads_stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(all[i], NULL);
	jia_barrier();
}

// Random walks without data races: cells under randomly chosen locks, and private cells beside
// them; sums are known.
static void walk(void)
{
	enum { LOCKS = 7, CELLS = 400 };
	unsigned seed = 1234567u * (jiapid + 1);
	const char *given = getenv("NAGAYA_SEED");
	if (given)
		seed += strtoul(given, NULL, 0);
	long *cells = (long *)jia_alloc3(LOCKS * CELLS * sizeof *cells, 1, 0);
	long *counts = (long *)jia_alloc2p(LOCKS * sizeof *counts, jiahosts / 2);
	long *own = (long *)jia_alloc((size_t)jiahosts * 16 * sizeof *own);
	jia_barrier();
	long added[LOCKS] = { 0 }, total = 0;
	for (int i = 0; i < rounds; i++) {
		int lock = rand_r(&seed) % LOCKS;
		jia_lock(lock);
		for (int j = rand_r(&seed) % 20; j >= 0; j--) {
			int at = rand_r(&seed) % CELLS, with = rand_r(&seed) % CELLS;
			// Cells of one lock sum to the additions under it.
			cells[at * LOCKS + lock] += 3;
			cells[with * LOCKS + lock] -= 2;
			counts[lock]++;
			added[lock]++;
			if (j % 5 == 0) {
				long sum = 0;
				for (int cell = 0; cell < CELLS; cell++)
					sum += cells[cell * LOCKS + lock];
				check(sum == counts[lock]);
			}
		}
		jia_unlock(lock);
		own[jiapid * 16 + i % 16] = ++total;
		if (i % 50 == 49) {
			jia_barrier();
			for (int task = 0; task < jiahosts; task++)
				check(own[task * 16 + i % 16] == total);
			jia_barrier();
		}
	}
	jia_barrier();
	for (int lock = 0; lock < LOCKS; lock++) {
		double mine = added[lock], all;
		jia_reduce(&mine, &all, 1, SUM_DOUBLE, 0);
		check(jiapid != 0 || counts[lock] == all);
	}
	jia_barrier();
}

// A forked child has no shared memory, and its end has no effect on others.
static void children(void)
{
	long *cell = (long *)jia_alloc1(sizeof *cell);
	jia_barrier();
	for (int i = 0; i < 3; i++) {
		fflush(stdout);
		pid_t child = fork();
		check(child >= 0);
		if (child == 0)
			exit(nagaya_dsm_barrier() == NAGAYA_DSM_ESTATE &&
			     strstr(nagaya_dsm_reason(), "forked child") ? 7 : 1);
		int status;
		check(waitpid(child, &status, 0) == child);
		check(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	jia_lock(0);
	*cell += 1;
	jia_unlock(0);
	jia_barrier();
	check(*cell == jiahosts);
	jia_barrier();
}

// The calls that return errors.
static void errors(void)
{
	check(nagaya_dsm_init() == NAGAYA_DSM_ESTATE && strstr(nagaya_dsm_reason(), "once"));
	check(nagaya_dsm_release(5000) == NAGAYA_DSM_EINVAL);
	check(strstr(nagaya_dsm_reason(), "lock 5000: the task does not hold it"));
	check(nagaya_dsm_acquire(5000) == 0 && nagaya_dsm_acquire(5000) == NAGAYA_DSM_EINVAL);
	check(nagaya_dsm_barrier() == NAGAYA_DSM_EINVAL && strstr(nagaya_dsm_reason(), "holds lock 5000"));
	check(nagaya_dsm_release(5000) == 0);
	check(nagaya_dsm_barrier() == 0);
	check(nagaya_dsm_alloc(0, NULL) == NULL && strstr(nagaya_dsm_reason(), "0 bytes"));
	struct nagaya_dsm_homes homes = { .block = 0, .first = jiahosts };
	check(nagaya_dsm_alloc(1, &homes) == NULL && strstr(nagaya_dsm_reason(), "from 0 to"));
	struct nagaya_dsm_page_statistics it;
	check(nagaya_dsm_page_statistics(&it, &it, sizeof it) == NAGAYA_DSM_EINVAL);
	struct nagaya_dsm_lock_statistics lock;
	check(nagaya_dsm_lock_statistics(5000, &lock, sizeof lock) == 0 && lock.asked + lock.handed == (unsigned)tasks_here());
	check(nagaya_dsm_lock_statistics(77, &lock, sizeof lock) == NAGAYA_DSM_EINVAL);
	struct nagaya_dsm_statistics totals;
	struct nagaya_dsm_ride_statistics sum = { 0 }, rides;
	for (int carrier = NAGAYA_DSM_PAGE_RIDES; carrier <= NAGAYA_DSM_LOCK_RIDES; carrier++) {
		check(nagaya_dsm_ride_statistics(carrier, &rides, sizeof rides) == 0);
		sum.sent += rides.sent;
		sum.used += rides.used;
	}
	check(nagaya_dsm_statistics(&totals, sizeof totals) == 0);
	check(sum.sent == totals.rides.sent && sum.used == totals.rides.used);
	check(nagaya_dsm_ride_statistics(99, &rides, sizeof rides) == NAGAYA_DSM_EINVAL);
	check(nagaya_dsm_task() == jiapid && nagaya_dsm_tasks() == jiahosts);
	check(nagaya_dsm_barrier() == 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} PROGRAMS[] = {
	{ "memory", memory }, { "counter", counter }, { "message", message },
	{ "sharing", sharing }, { "phases", phases }, { "conditions", conditions },
	{ "calls", calls }, { "letters", letters }, { "flood", flood }, { "homes", homes }, { "load", load },
	{ "threads", threads }, { "walk", walk }, { "children", children },
	{ "errors", errors },
};

int main(int argc, char **argv)
{
	rounds = argc > 2 ? atoi(argv[2]) : 100;
	if (nagaya_dsm_init() != 0) {
		fprintf(stderr, "%s\n", nagaya_dsm_reason());
		return 2;
	}
	for (size_t i = 0; i < sizeof PROGRAMS / sizeof *PROGRAMS; i++) {
		if (argc > 1 && strcmp(argv[1], "all") && strcmp(argv[1], PROGRAMS[i].name))
			continue;
		PROGRAMS[i].run();
		if (jiapid == 0)
			printf("%s is right\n", PROGRAMS[i].name);
	}
	if (nagaya_dsm_exit() != 0 || nagaya_dsm_barrier() != NAGAYA_DSM_ESTATE)
		return 3;
	return 0;
}
