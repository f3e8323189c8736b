/* The guarantees of POSIX for a process: threads, signals, stacks, children, shared memory.
 * Each case is silent if all is well. */
#include "check.h"

#include <dlfcn.h>
#include <semaphore.h>
#include <setjmp.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <ucontext.h>

extern char **environ;

/* ---- stacks --------------------------------------------------------------------- */

static __attribute__((noinline)) long use_stack(long bytes)
{
	volatile char frame[4096];
	memset((char *)frame, (int)(bytes >> 12), sizeof frame);
	long rest = bytes > 4096 ? use_stack(bytes - 4096 - 64) : 0;
	return rest + frame[17] * 0 + 1;
}

/* The stack may grow to nearly what RLIMIT_STACK says. */
static void big_stack(void)
{
	struct rlimit limit;
	CHECK(getrlimit(RLIMIT_STACK, &limit) == 0);
	long bytes = limit.rlim_cur == RLIM_INFINITY ? 64L << 20 : (long)limit.rlim_cur;
	use_stack(bytes - bytes / 8);
}

static void *on_thread_stack(void *arg)
{
	use_stack((long)arg);
	return NULL;
}

static void big_thread_stack(void)
{
	pthread_attr_t attr;
	pthread_t threads[4];
	pthread_attr_init(&attr);
	CHECK_EQ(pthread_attr_setstacksize(&attr, 64 << 20), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], &attr, on_thread_stack, (void *)(60L << 20)), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static __thread sigjmp_buf overflow_jump;

static void overflowed(int number)
{
	(void)number;
	siglongjmp(overflow_jump, 1);
}

#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Winfinite-recursion"
static __attribute__((noinline)) long without_end(volatile char *above)
{
	volatile char frame[1024];
	frame[0] = above[0];
	return without_end(frame) + frame[0];
}

/* A stack that overflows raises SIGSEGV, which a handler on another stack survives. */
static void *overflow_thrice(void *unused)
{
	static __thread char other[65536];
	stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
	volatile char start[1] = {1};
	CHECK(sigaltstack(&stack, NULL) == 0);
	for (volatile int i = 0; i < 3; i++)
		if (sigsetjmp(overflow_jump, 1) == 0) {
			without_end(start);
			CHECK(!"the stack has no end");
		}
	return unused;
}

static void stack_overflow(void)
{
	struct sigaction action = {.sa_handler = overflowed, .sa_flags = SA_ONSTACK};
	pthread_t thread;
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	overflow_thrice(NULL);
	CHECK_EQ(pthread_create(&thread, NULL, overflow_thrice, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* ---- thread-local data ------------------------------------------------------------ */

static __thread int tls_counter = 41;
static __thread char tls_zero[5000];
static __thread long tls_aligned __attribute__((aligned(64))) = 7;
static int ordinary = 5;

static void *tls_thread(void *arg)
{
	CHECK_EQ(tls_counter, 41);
	CHECK_EQ(tls_aligned, 7);
	CHECK_EQ((uintptr_t)&tls_aligned % 64, 0);
	for (size_t i = 0; i < sizeof tls_zero; i++)
		CHECK_EQ(tls_zero[i], 0);
	for (int i = 0; i < 10000; i++) {
		tls_counter = (int)(intptr_t)arg * 10000 + i;
		if (i % 100 == 0)
			sched_yield();
		CHECK_EQ(tls_counter, (int)(intptr_t)arg * 10000 + i);
	}
	memset(tls_zero, 9, sizeof tls_zero);
	errno = (int)(intptr_t)arg;
	usleep(1000);
	CHECK(1); /* resets errno, as each thread's own */
	return (void *)&tls_counter;
}

static void tls(void)
{
	void *addresses[16];
	pthread_t threads[16];
	ordinary++; /* data of the program is private to the task */
	CHECK_EQ(ordinary, 6);
	for (int i = 0; i < 16; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, tls_thread, (void *)(intptr_t)(i + 1)), 0);
	for (int i = 0; i < 16; i++)
		CHECK_EQ(pthread_join(threads[i], &addresses[i]), 0);
	CHECK_EQ(tls_counter, 41);
}

/* ---- threads ------------------------------------------------------------------------ */

static int cleaned, ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wakeup = PTHREAD_COND_INITIALIZER;

static void clean(void *arg)
{
	__atomic_fetch_add(&cleaned, (int)(intptr_t)arg, __ATOMIC_SEQ_CST);
}

static void unlock(void *arg)
{
	pthread_mutex_unlock(arg);
}

static void *sleeps(void *arg)
{
	pthread_cleanup_push(clean, (void *)1);
	__atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
	for (;;)
		sleep(1000);
	pthread_cleanup_pop(0);
	return arg;
}

static void *reads(void *arg)
{
	char byte;
	pthread_cleanup_push(clean, (void *)10);
	__atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
	if (read(*(int *)arg, &byte, 1) == 1)
		CHECK(!"nobody writes");
	pthread_cleanup_pop(0);
	return NULL;
}

static void *waits(void *arg)
{
	pthread_cleanup_push(clean, (void *)100);
	__atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&lock);
	pthread_cleanup_push(unlock, &lock);
	for (;;)
		pthread_cond_wait(&wakeup, &lock);
	pthread_cleanup_pop(0);
	pthread_cleanup_pop(0);
	return arg;
}

static void *spins(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	pthread_cleanup_push(clean, (void *)1000);
	__atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
	for (volatile long i = 0;; i++)
		;
	pthread_cleanup_pop(0);
	return arg;
}

static void cancel(void)
{
	int ends[2];
	CHECK(pipe(ends) == 0);
	void *(*bodies[])(void *) = {sleeps, reads, waits, spins};
	for (int round = 0; round < 5; round++) {
		pthread_t threads[4];
		cleaned = ready = 0;
		for (int i = 0; i < 4; i++)
			CHECK_EQ(pthread_create(&threads[i], NULL, bodies[i], &ends[0]), 0);
		/* In the first rounds they may be cancelled before they get anywhere. */
		while (round > 1 && __atomic_load_n(&ready, __ATOMIC_SEQ_CST) < 4)
			usleep(1000);
		for (int i = 0; i < 4; i++)
			CHECK_EQ(pthread_cancel(threads[i]), 0);
		for (int i = 0; i < 4; i++) {
			void *result;
			CHECK_EQ(pthread_join(threads[i], &result), 0);
			CHECK(result == PTHREAD_CANCELED);
		}
		if (round > 1)
			CHECK_EQ(cleaned, 1111);
	}
	CHECK_EQ(pthread_mutex_lock(&lock), 0);
}

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t not_empty, not_full;
	int items[8], head, count;
	pthread_barrier_t start;
	pthread_rwlock_t table_lock;
	sem_t done;
	long sum;
};

static void *produces(void *arg)
{
	struct queue *queue = arg;
	pthread_barrier_wait(&queue->start);
	for (int i = 1; i <= 5000; i++) {
		pthread_mutex_lock(&queue->lock);
		while (queue->count == 8)
			pthread_cond_wait(&queue->not_full, &queue->lock);
		queue->items[(queue->head + queue->count++) % 8] = i;
		pthread_cond_signal(&queue->not_empty);
		pthread_mutex_unlock(&queue->lock);
	}
	sem_post(&queue->done);
	return NULL;
}

static void *consumes(void *arg)
{
	struct queue *queue = arg;
	pthread_barrier_wait(&queue->start);
	for (int i = 1; i <= 5000; i++) {
		pthread_mutex_lock(&queue->lock);
		while (queue->count == 0)
			pthread_cond_wait(&queue->not_empty, &queue->lock);
		int item = queue->items[queue->head];
		queue->head = (queue->head + 1) % 8;
		queue->count--;
		pthread_cond_signal(&queue->not_full);
		pthread_mutex_unlock(&queue->lock);
		pthread_rwlock_wrlock(&queue->table_lock);
		queue->sum += item;
		pthread_rwlock_unlock(&queue->table_lock);
	}
	sem_post(&queue->done);
	return NULL;
}

static void synchronise(void)
{
	static struct queue queue = {.lock = PTHREAD_MUTEX_INITIALIZER,
	                             .not_empty = PTHREAD_COND_INITIALIZER,
	                             .not_full = PTHREAD_COND_INITIALIZER,
	                             .table_lock = PTHREAD_RWLOCK_INITIALIZER};
	pthread_t threads[8];
	pthread_barrier_init(&queue.start, NULL, 8);
	sem_init(&queue.done, 0, 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, i % 2 ? produces : consumes, &queue), 0);
	for (int i = 0; i < 8; i++)
		CHECK(sem_wait(&queue.done) == 0);
	CHECK_EQ(queue.sum, 4 * 12502500L);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static void *takes_and_dies(void *arg)
{
	CHECK_EQ(pthread_mutex_lock(arg), 0);
	return NULL;
}

/* The kernel walks the robust list when a thread ends, and clears its TID. */
static void robust_mutex(void)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t mutex;
	pthread_t thread;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&mutex, &attr);
	CHECK_EQ(pthread_create(&thread, NULL, takes_and_dies, &mutex), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(pthread_mutex_lock(&mutex), EOWNERDEAD);
}

static void *ends_last(void *unused)
{
	usleep(50000);
	exit(0);
	return unused;
}

/* main may end before its threads; the process lives as long as one does. */
static void main_ends_first(void)
{
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, ends_last, NULL), 0);
	pthread_exit(NULL);
}

static void *short_lived(void *arg)
{
	return arg;
}

static void many_threads(void)
{
	for (int round = 0; round < 40; round++) {
		pthread_t threads[50];
		for (long i = 0; i < 50; i++)
			CHECK_EQ(pthread_create(&threads[i], NULL, short_lived, (void *)i), 0);
		for (long i = 0; i < 50; i++) {
			void *result;
			CHECK_EQ(pthread_join(threads[i], &result), 0);
			CHECK_EQ((long)result, i);
		}
	}
}

/* ---- signals ------------------------------------------------------------------------ */

static volatile sig_atomic_t caught[65];
static volatile int caught_value;
static volatile pid_t caught_by;

static void catches(int number, siginfo_t *info, void *context)
{
	(void)context;
	caught[number]++;
	caught_value = info->si_value.sival_int;
	caught_by = (pid_t)syscall(SYS_gettid);
}

static void *pauses(void *unused)
{
	while (!caught[SIGUSR2])
		usleep(1000);
	return unused;
}

static void signals(void)
{
	struct sigaction action = {.sa_sigaction = catches, .sa_flags = SA_SIGINFO};
	for (int number = 1; number <= SIGRTMAX; number++)
		if (number != SIGKILL && number != SIGSTOP && (number < 32 || number >= SIGRTMIN))
			CHECK(sigaction(number, &action, NULL) == 0);

	CHECK(kill(getpid(), SIGUSR1) == 0);
	CHECK_EQ(caught[SIGUSR1], 1);
	CHECK_EQ(caught_by, syscall(SYS_gettid));
	CHECK(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = 1234}) == 0);
	CHECK_EQ(caught[SIGRTMIN + 3], 1);
	CHECK_EQ(caught_value, 1234);

	/* To one thread. */
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, pauses, NULL), 0);
	CHECK_EQ(pthread_kill(thread, SIGUSR2), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(caught[SIGUSR2], 1);
	CHECK(caught_by != syscall(SYS_gettid));

	/* Blocked, then waited for; real-time signals queue in order. */
	sigset_t set, old;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigaddset(&set, SIGHUP);
	CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
	for (int i = 0; i < 5; i++)
		CHECK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0);
	for (int i = 0; i < 5; i++) {
		siginfo_t info;
		CHECK_EQ(sigwaitinfo(&set, &info), SIGRTMIN);
		CHECK_EQ(info.si_value.sival_int, i);
	}
	int descriptor = signalfd(-1, &set, 0);
	CHECK(raise(SIGHUP) == 0);
	struct signalfd_siginfo info;
	CHECK_EQ(read(descriptor, &info, sizeof info), sizeof info);
	CHECK_EQ(info.ssi_signo, SIGHUP);
	CHECK_EQ(caught[SIGHUP], 0);
	CHECK_EQ(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);

	/* A timer interrupts a read. */
	int ends[2];
	char byte;
	CHECK(pipe(ends) == 0);
	struct itimerval timer = {.it_value.tv_usec = 20000, .it_interval.tv_usec = 20000};
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	CHECK_FAILS(read(ends[0], &byte, 1), EINTR);
	while (caught[SIGALRM] < 5)
		pause();
	timer = (struct itimerval){{0}};
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);

	/* Ignored here, ignored in a child. */
	CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR);
	CHECK(raise(SIGUSR1) == 0);
	CHECK_EQ(caught[SIGUSR1], 1);
}

static volatile int timer_ticks;

static void ticks(union sigval value)
{
	__atomic_fetch_add(&timer_ticks, value.sival_int, __ATOMIC_SEQ_CST);
}

static void timers(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD,
	                         .sigev_notify_function = ticks,
	                         .sigev_value.sival_int = 1};
	timer_t timer;
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	struct itimerspec every = {{0, 3000000}, {0, 3000000}};
	CHECK(timer_settime(timer, 0, &every, NULL) == 0);
	while (__atomic_load_n(&timer_ticks, __ATOMIC_SEQ_CST) < 10)
		usleep(1000);
	CHECK(timer_delete(timer) == 0);

	int descriptor = timerfd_create(CLOCK_MONOTONIC, 0), poller = epoll_create1(0);
	int counter = eventfd(0, 0);
	struct epoll_event wanted = {.events = EPOLLIN, .data.fd = descriptor}, got;
	CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &wanted) == 0);
	wanted.data.fd = counter;
	CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, counter, &wanted) == 0);
	every.it_interval.tv_nsec = 0;
	CHECK(timerfd_settime(descriptor, 0, &every, NULL) == 0);
	CHECK_EQ(epoll_wait(poller, &got, 1, 5000), 1);
	CHECK_EQ(got.data.fd, descriptor);
	double start = check_seconds();
	struct timespec nap = {0, 10000000};
	CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL), 0);
	CHECK(check_seconds() - start >= 0.0099);
	CHECK(sched_getcpu() >= 0);
}

static void jump_deep(jmp_buf target, int depth)
{
	volatile char frame[500];
	frame[0] = (char)depth;
	if (depth == 0)
		longjmp(target, 17);
	jump_deep(target, depth - 1);
	frame[1] = frame[0];
}

static ucontext_t contexts[2];
static volatile int switched;

static void coroutine(void)
{
	for (;;) {
		switched++;
		swapcontext(&contexts[1], &contexts[0]);
	}
}

static void jumps(void)
{
	jmp_buf target;
	for (volatile int i = 0; i < 1000; i++) {
		int value = setjmp(target);
		if (value == 0)
			jump_deep(target, i % 50);
		CHECK_EQ(value, 17);
	}
	static char stack[65536];
	CHECK(getcontext(&contexts[1]) == 0);
	contexts[1].uc_stack.ss_sp = stack;
	contexts[1].uc_stack.ss_size = sizeof stack;
	makecontext(&contexts[1], coroutine, 0);
	for (int i = 0; i < 1000; i++)
		CHECK(swapcontext(&contexts[0], &contexts[1]) == 0);
	CHECK_EQ(switched, 1000);
}

static char *guarded;
static volatile int faults;

static void opens_page(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	char *page = (char *)((uintptr_t)info->si_addr & ~4095ul);
	if (page < guarded || page >= guarded + (256 << 12))
		_exit(3);
	faults++;
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

/* Garbage collectors learn of writes by SIGSEGV and let them go on. */
static void segv_handler(void)
{
	static char other[65536];
	stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
	struct sigaction action = {.sa_sigaction = opens_page, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	CHECK(sigaltstack(&stack, NULL) == 0);
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	guarded = mmap(NULL, 256 << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(guarded != MAP_FAILED);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 256; i++)
			guarded[(i * 37 % 256) << 12] += (char)i;
		CHECK_EQ(faults, 256 * (round + 1));
		CHECK(mprotect(guarded, 256 << 12, round % 2 ? PROT_NONE : PROT_READ) == 0);
	}
}

static sigjmp_buf bus_jump;

static void bus(int number)
{
	siglongjmp(bus_jump, number);
}

static void past_end_of_file(void)
{
	FILE *file = tmpfile();
	CHECK(ftruncate(fileno(file), 4096) == 0);
	char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	CHECK(map != MAP_FAILED);
	signal(SIGBUS, bus);
	map[4095] = 1;
	if (sigsetjmp(bus_jump, 1) == 0) {
		map[4096] = 1;
		CHECK(!"there is no page");
	}
}

/* ---- children ----------------------------------------------------------------------- */

static void wait_for(pid_t pid, int wanted)
{
	int status;
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), wanted);
}

static void spawns(void)
{
	char *exits[] = {"sh", "-c", "exit 5", NULL};
	char *writes[] = {"sh", "-c", "echo $WORD; cat", NULL};
	char *words[] = {"WORD=passed", "PATH=/usr/bin:/bin", NULL};
	pid_t pid;
	for (int i = 0; i < 50; i++) {
		CHECK_EQ(posix_spawnp(&pid, "sh", NULL, NULL, exits, environ), 0);
		wait_for(pid, 5);
	}
	int in[2], out[2];
	CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t set;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	posix_spawnattr_setsigdefault(&attr, &set);
	CHECK_EQ(posix_spawn(&pid, "/bin/sh", &actions, &attr, writes, words), 0);
	CHECK(close(in[0]) == 0 && close(out[1]) == 0);
	CHECK_EQ(write(in[1], "through\n", 8), 8);
	CHECK(close(in[1]) == 0);
	char text[64] = {0};
	FILE *reader = fdopen(out[0], "r");
	CHECK_EQ(fread(text, 1, sizeof text, reader), 15);
	CHECK(strcmp(text, "passed\nthrough\n") == 0);
	wait_for(pid, 0);
	CHECK_EQ(posix_spawn(&pid, "/nonexistent", NULL, NULL, exits, environ), ENOENT);
}

static void shells(void)
{
	for (int i = 0; i < 20; i++)
		CHECK_EQ(WEXITSTATUS(system("exit 9")), 9);
	FILE *reader = popen("seq 1 100000", "r");
	long sum = 0, number;
	while (fscanf(reader, "%ld", &number) == 1)
		sum += number;
	CHECK_EQ(sum, 5000050000);
	CHECK_EQ(pclose(reader), 0);
	FILE *writer = popen("cat >/dev/null; exit 3", "w");
	for (int i = 0; i < 100000; i++)
		fprintf(writer, "%d\n", i);
	CHECK_EQ(WEXITSTATUS(pclose(writer)), 3);
}

static void vforks(void)
{
	for (int i = 0; i < 50; i++) {
		pid_t pid = vfork();
		if (pid == 0) {
			if (i % 2)
				execl("/bin/sh", "sh", "-c", "exit 6", NULL);
			_exit(6);
		}
		wait_for(pid, 6);
	}
}

/* A forked child has its own memory, its own heap, and may fork, thread and exec. */
static void forks(void)
{
	int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	char *heap = malloc(1 << 20);
	memset(heap, 1, 1 << 20);
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			CHECK_EQ(heap[12345], 1);
			memset(heap, 2, 1 << 20);
			ordinary = 77;
			for (int k = 1; k < 200; k++) {
				char *block = malloc((size_t)k * 1000);
				memset(block, k, (size_t)k * 1000);
				free(block);
			}
			CHECK(sbrk(1 << 20) != (void *)-1);
			pthread_t thread;
			CHECK_EQ(pthread_create(&thread, NULL, short_lived, NULL), 0);
			CHECK_EQ(pthread_join(thread, NULL), 0);
			pid_t grandchild = fork();
			if (grandchild == 0) {
				shared[i]++;
				if (i % 2)
					execl("/bin/true", "true", NULL);
				_exit(0);
			}
			wait_for(grandchild, 0);
			shared[i]++;
			_exit(30 + i);
		}
		wait_for(pid, 30 + i);
		CHECK_EQ(shared[i], 2);
		CHECK_EQ(heap[12345], 1);
	}
	CHECK_EQ(ordinary, 5);
}

static volatile int stop;

static void *allocates(void *unused)
{
	uint64_t state = (uintptr_t)&unused;
	while (!stop) {
		size_t size = check_random(&state) % 300000;
		char *block = malloc(size + 1);
		block[size] = 1;
		free(block);
	}
	return NULL;
}

static int prepared, parented, childed;
static void prepare(void) { prepared++; }
static void parent(void) { parented++; }
static void child(void) { childed++; }

static void fork_beside_threads(void)
{
	pthread_t threads[3];
	CHECK_EQ(pthread_atfork(prepare, parent, child), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, allocates, NULL), 0);
	for (int i = 0; i < 40; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			free(malloc(100000));
			_exit(childed == 1 ? 0 : 1);
		}
		wait_for(pid, 0);
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(prepared, 40);
	CHECK_EQ(parented, 40);
}

/* fork without libc. */
static void raw_forks(void)
{
	for (int i = 0; i < 10; i++) {
		long pid = i % 2 ? syscall(SYS_fork) : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		CHECK(pid >= 0);
		if (pid == 0) {
			ordinary = 99;
			_exit(8);
		}
		wait_for((pid_t)pid, 8);
	}
	CHECK_EQ(ordinary, 5);
}

static void children_that_die(void)
{
	int deadly[] = {SIGKILL, SIGTERM, SIGSEGV, SIGABRT};
	for (int i = 0; i < 4; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			signal(deadly[i], SIG_DFL);
			struct rlimit none = {0, 0};
			setrlimit(RLIMIT_CORE, &none);
			raise(deadly[i]);
			_exit(0);
		}
		wait_for(pid, 128 + deadly[i]);
	}
	/* Stopped and continued. */
	pid_t pid = fork();
	if (pid == 0) {
		raise(SIGSTOP);
		_exit(4);
	}
	int status;
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	CHECK(kill(pid, SIGCONT) == 0);
	wait_for(pid, 4);
	CHECK_FAILS(wait(NULL), ECHILD);
}

/* ---- memory shared with children ------------------------------------------------------ */

static void sysv_shm(void)
{
	for (int round = 0; round < 20; round++) {
		int id = shmget(IPC_PRIVATE, 3 << 20, IPC_CREAT | 0600);
		CHECK(id >= 0);
		char *here = shmat(id, NULL, 0);
		CHECK(here != (void *)-1);
		CHECK(here[12345] == 0);
		here[12345] = 1;
		char *again = shmat(id, NULL, SHM_RDONLY);
		CHECK(again != (void *)-1 && again != here);
		CHECK_EQ(again[12345], 1);
		pid_t pid = fork();
		if (pid == 0) {
			here[12345]++;
			_exit(shmdt(here) == 0 ? 0 : 1);
		}
		wait_for(pid, 0);
		CHECK_EQ(again[12345], 2);
		CHECK(shmdt(again) == 0);
		CHECK_FAILS(shmdt(again), EINVAL);
		CHECK_EQ(here[12345], 2);
		CHECK(shmctl(id, IPC_RMID, NULL) == 0);
		CHECK(shmdt(here) == 0);
	}
}

static void posix_shm(void)
{
	char name[64];
	snprintf(name, sizeof name, "/nagaya-test-%d", getpid());
	int descriptor = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
	CHECK(descriptor >= 0);
	CHECK(shm_unlink(name) == 0);
	CHECK(ftruncate(descriptor, 1 << 20) == 0);
	int *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
	int *twin = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, descriptor, 0);
	CHECK(map != MAP_FAILED && twin != MAP_FAILED && map != twin);
	sem_t *semaphore = (sem_t *)map;
	CHECK(sem_init(semaphore, 1, 0) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		map[100000] = 424242;
		sem_post(semaphore);
		_exit(0);
	}
	CHECK(sem_wait(semaphore) == 0);
	CHECK_EQ(twin[100000], 424242);
	wait_for(pid, 0);
}

/* ---- start and end ---------------------------------------------------------------------- */

static void opens_libraries(void)
{
	for (int i = 0; i < 50; i++) {
		void *library = dlopen("libm.so.6", RTLD_NOW);
		CHECK(library);
		double (*cosine)(double) = (double (*)(double))dlsym(library, "cos");
		CHECK(cosine && cosine(0) == 1);
		CHECK(dlclose(library) == 0);
	}
	CHECK(dlopen("libnonexistent.so", RTLD_NOW) == NULL);
	CHECK(dlerror());
}

static void says_goodbye(void)
{
	printf("goodbye\n");
}

/* Handlers run at exit and buffers are flushed. */
static void exits_in_order(void)
{
	atexit(says_goodbye);
	printf("buffered ");
	exit(0);
}

static const struct check_case cases[] = {
	{"big_stack", big_stack},
	{"big_thread_stack", big_thread_stack},
	{"stack_overflow", stack_overflow},
	{"tls", tls},
	{"cancel", cancel},
	{"synchronise", synchronise},
	{"robust_mutex", robust_mutex},
	{"main_ends_first", main_ends_first},
	{"many_threads", many_threads},
	{"signals", signals},
	{"timers", timers},
	{"jumps", jumps},
	{"segv_handler", segv_handler},
	{"past_end_of_file", past_end_of_file},
	{"spawns", spawns},
	{"shells", shells},
	{"vforks", vforks},
	{"forks", forks},
	{"fork_beside_threads", fork_beside_threads},
	{"raw_forks", raw_forks},
	{"children_that_die", children_that_die},
	{"sysv_shm", sysv_shm},
	{"posix_shm", posix_shm},
	{"opens_libraries", opens_libraries},
	{"exits_in_order", exits_in_order},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	return check_main(cases, argc, argv);
}
