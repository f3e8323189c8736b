/* Delegation between tasks that nagaya run has started: task 0 is the delegatee, the others
 * are requesters, but for task 1 in some cases.
 *
 * usage: delegate CASE */
#include "check.h"

#include <pvas.h>
#include <pvas_delegate.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { SUM, TWICE, FAIL, HOLD, COUNT, COPY, MANY, KEEP, RELEASE, LOOK };

static int me, tasks;
static pvas_delegatee *zero;

/* ---- operations ------------------------------------------------------------------ */

static atomic_int gate_open, held, ended;

static long sum(const struct pvas_delegate_job *job, void *context)
{
	const unsigned char *bytes = job->payload;
	long all = (long)context;
	for (size_t i = 0; i < job->length; i++)
		all += bytes[i];
	return all;
}

struct numbers {
	long *at;
	size_t count;
};

static long twice(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	const struct numbers *numbers = job->payload;
	CHECK_EQ(job->length, sizeof *numbers);
	CHECK_EQ(job->operation, TWICE);
	for (size_t i = 0; i < numbers->count; i++)
		numbers->at[i] *= 2;
	return job->requester;
}

static long fails(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	return -*(const int *)job->payload;
}

/* Returns when the gate is opened, or the result is not wanted any more. */
static long hold(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	held++;
	while (!gate_open && !pvas_delegate_cancelled(job))
		usleep(1000);
	held--;
	return gate_open ? 1 : -EINTR;
}

static atomic_long count;

static long counts(const struct pvas_delegate_job *job, void *context)
{
	(void)job, (void)context;
	return ++count;
}

struct copy {
	void *to;
	const void *from;
	size_t length;
};

static long copies(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	const struct copy *copy = job->payload;
	char buffer[4096];
	if (pvas_delegate_read(job, buffer, copy->from, copy->length) != 0)
		return -errno;
	if (pvas_delegate_write(job, copy->to, buffer, copy->length) != 0)
		return -errno;
	return copy->length;
}

/* Requests that are answered later: by RELEASE, the last one first. */
static const struct pvas_delegate_job *keeping[100];
static int kept;
static pthread_mutex_t keeping_lock = PTHREAD_MUTEX_INITIALIZER;

static long keeps(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	CHECK(pthread_mutex_lock(&keeping_lock) == 0);
	const struct pvas_delegate_job *mine = pvas_delegate_keep(job);
	CHECK(mine && mine != job && mine->requester == job->requester);
	CHECK(mine->operation == KEEP && mine->length == job->length);
	CHECK(!pvas_delegate_keep(job) && errno == EALREADY);
	CHECK(!pvas_delegate_keep(mine) && errno == EALREADY);
	keeping[kept++] = mine;
	CHECK(pthread_mutex_unlock(&keeping_lock) == 0);
	return -EDOM; /* nobody looks */
}

static long releases(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	CHECK(pthread_mutex_lock(&keeping_lock) == 0);
	int others = 0, count = kept;
	for (int i = 0; i < count; i++)
		if (keeping[i]->requester != job->requester) {
			const struct pvas_delegate_job *other = keeping[i];
			keeping[i] = keeping[others];
			keeping[others++] = other;
		}
	while (kept > others) {
		const struct pvas_delegate_job *mine = keeping[--kept];
		long result = pvas_delegate_cancelled(mine) ? -EINTR : *(const int *)mine->payload;
		CHECK_EQ(pvas_delegate_answer(mine, result), 0);
	}
	CHECK(pthread_mutex_unlock(&keeping_lock) == 0);
	return count - others;
}

struct look {
	const void *at;
	size_t length;
	int access;
};

static long looks(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	const struct look *look = job->payload;
	return pvas_delegate_check(job, look->at, look->length, look->access) ? -errno : 0;
}

static long ends(const struct pvas_delegate_job *job, void *context)
{
	(void)job, (void)context;
	ended++;
	return 0;
}

static void *serve(void *unused)
{
	while (pvas_delegate_serve(-1) == 1)
		;
	int error = errno;
	CHECK_EQ(error, EBADF);
	return unused;
}

static void open_queue(size_t requests, unsigned flags)
{
	CHECK_EQ(pvas_delegate_open(requests, flags), 0);
	CHECK_EQ(pvas_delegate_register(SUM, sum, (void *)1000), 0);
	CHECK_EQ(pvas_delegate_register(TWICE, twice, NULL), 0);
	CHECK_EQ(pvas_delegate_register(FAIL, fails, NULL), 0);
	CHECK_EQ(pvas_delegate_register(HOLD, hold, NULL), 0);
	CHECK_EQ(pvas_delegate_register(COUNT, counts, NULL), 0);
	CHECK_EQ(pvas_delegate_register(COPY, copies, NULL), 0);
	CHECK_EQ(pvas_delegate_register(MANY, ends, NULL), 0);
	CHECK_EQ(pvas_delegate_register(KEEP, keeps, NULL), 0);
	CHECK_EQ(pvas_delegate_register(RELEASE, releases, NULL), 0);
	CHECK_EQ(pvas_delegate_register(LOOK, looks, NULL), 0);
}

/* Task 0 serves, with this many threads, until each of the others has called MANY. */
static void serve_all(int threads)
{
	pthread_t thread[16];
	for (int i = 0; i < threads; i++)
		CHECK(pthread_create(&thread[i], NULL, serve, NULL) == 0);
	for (int left = tasks - 1; left > 0;) {
		usleep(1000);
		left -= atomic_exchange(&ended, 0);
	}
	CHECK_EQ(pvas_delegate_close(), 0);
	for (int i = 0; i < threads; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	CHECK_FAILS(pvas_delegate_serve(0), EBADF);
	CHECK_FAILS(pvas_delegate_close(), EBADF);
}

static void say_done(void)
{
	CHECK_EQ(pvas_delegate_call(zero, MANY, NULL, 0), 0);
}

/* ---- cases ----------------------------------------------------------------------- */

static void calls(void)
{
	if (me == 0) {
		CHECK_FAILS(pvas_delegate_register(SUM, sum, NULL), EBADF);
		CHECK_FAILS(pvas_delegate_serve(0), EBADF);
		CHECK_FAILS(pvas_delegate_open(0, 4), EINVAL);
		CHECK_FAILS(pvas_delegate_open(40000, 0), EINVAL);
		open_queue(0, 0);
		CHECK_FAILS(pvas_delegate_open(0, 0), EBUSY);
		CHECK_FAILS(pvas_delegate_register(PVAS_DELEGATE_OPERATIONS, sum, NULL), EINVAL);
		serve_all(1);
		return;
	}
	unsigned char payload[PVAS_DELEGATE_PAYLOAD + 1];
	memset(payload, 1, sizeof payload);
	for (long length = 0; length <= PVAS_DELEGATE_PAYLOAD; length++)
		CHECK_EQ(pvas_delegate_call(zero, SUM, payload, length), 1000 + length);
	CHECK_FAILS(pvas_delegate_call(zero, SUM, payload, sizeof payload), EMSGSIZE);
	CHECK_FAILS(pvas_delegate_call(zero, SUM, NULL, 1), EFAULT);
	CHECK_FAILS(pvas_delegate_call(NULL, SUM, NULL, 0), EFAULT);
	CHECK_FAILS(pvas_delegate_call(zero, 200, NULL, 0), ENOSYS);
	CHECK_FAILS(pvas_delegate_call(zero, PVAS_DELEGATE_PREADV, NULL, 0), ENOSYS);
	CHECK_FAILS(pvas_delegate_call(zero, 100000, NULL, 0), ENOSYS);
	int error = EDOM;
	CHECK_FAILS(pvas_delegate_call(zero, FAIL, &error, sizeof error), EDOM);
	error = 1000000;
	CHECK_FAILS(pvas_delegate_call(zero, FAIL, &error, sizeof error), EIO);

	/* Addresses: our stack and heap are worked on in place. */
	long some[100], *more = malloc(100000 * sizeof *more);
	for (int i = 0; i < 100; i++)
		some[i] = i;
	for (int i = 0; i < 100000; i++)
		more[i] = i * 3;
	struct numbers numbers = { some, 100 };
	CHECK_EQ(pvas_delegate_call(zero, TWICE, &numbers, sizeof numbers), me);
	numbers = (struct numbers){ more, 100000 };
	CHECK_EQ(pvas_delegate_call(zero, TWICE, &numbers, sizeof numbers), me);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(some[i], 2 * i);
	for (int i = 0; i < 100000; i++)
		CHECK_EQ(more[i], 6 * i);

	/* Copies that may fail. */
	char from[100] = "from here", to[100] = "";
	struct copy copy = { to, from, sizeof from };
	CHECK_EQ(pvas_delegate_call(zero, COPY, &copy, sizeof copy), sizeof from);
	CHECK(strcmp(to, "from here") == 0);
	char *gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(gone != MAP_FAILED && munmap(gone + 4096, 4096) == 0);
	void *bad[] = { NULL, (void *)64, gone + 4096, gone + 4090, (void *)zero - (1L << 40),
		        (void *)-16L };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		copy = (struct copy){ to, bad[i], sizeof from };
		CHECK_FAILS(pvas_delegate_call(zero, COPY, &copy, sizeof copy), EFAULT);
		copy = (struct copy){ bad[i], from, sizeof from };
		CHECK_FAILS(pvas_delegate_call(zero, COPY, &copy, sizeof copy), EFAULT);
	}
	say_done();
}

static void not_there(void)
{
	CHECK(!pvas_delegate_find(-1, 0) && errno == EINVAL);
	CHECK(!pvas_delegate_find(1 << 20, 0) && errno == EINVAL);
	CHECK(!pvas_delegate_find(tasks, 0) && errno == ESRCH);
	CHECK(!pvas_delegate_find(me, 0) && errno == ECONNREFUSED);
	CHECK(strstr(pvas_delegate_error(), "serves no requests"));
	CHECK(!pvas_delegate_find(me, 20) && errno == ETIMEDOUT);
	pid_t child = fork();
	if (child == 0) {
		CHECK(!pvas_delegate_find(0, 0) && errno == ESRCH);
		CHECK_FAILS(pvas_delegate_open(0, 0), ESRCH);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static pvas_delegate_request *submit(unsigned operation)
{
	pvas_delegate_request *request = pvas_delegate_submit(zero, operation, NULL, 0, -1);
	CHECK(request);
	return request;
}

static void asynchronous(void)
{
	if (me == 0) {
		open_queue(64, 0);
		serve_all(1);
		return;
	}
	if (me != 1) {
		say_done();
		return;
	}
	/* This requester fills a quarter of the queue. The first is started, the others wait
	 * behind it. */
	pvas_delegate_request *requests[16];
	requests[0] = submit(HOLD);
	for (int i = 1; i < 16; i++)
		requests[i] = submit(COUNT);
	CHECK(!pvas_delegate_submit(zero, COUNT, NULL, 0, 0) && errno == EAGAIN);
	for (int i = 0; i < 16; i++)
		CHECK_EQ(pvas_delegate_test(requests[i], NULL), 0);
	long result;
	CHECK_EQ(pvas_delegate_wait(requests[3], &result, 10), 0);
	/* A started operation sees its cancellation; an operation that is not started never is. */
	CHECK_EQ(pvas_delegate_cancel(requests[5]), 0);
	CHECK_EQ(pvas_delegate_cancel(requests[5]), 0);
	CHECK_EQ(pvas_delegate_cancel(requests[0]), 0);
	CHECK_EQ(pvas_delegate_wait(requests[0], &result, -1), 1);
	CHECK(result == -EINTR || result == -ECANCELED);
	long before = 0;
	for (int i = 1; i < 16; i++) {
		CHECK_EQ(pvas_delegate_wait(requests[i], &result, -1), 1);
		if (i == 5) {
			CHECK_EQ(result, -ECANCELED);
			continue;
		}
		CHECK_EQ(result, ++before); /* in order */
	}
	/* The answer is looked for, with no waiting. */
	pvas_delegate_request *request = submit(COUNT);
	while (pvas_delegate_test(request, &result) == 0)
		sched_yield();
	CHECK_EQ(result, 15);
	say_done();
}

/* One thread has many requests on its hands, and answers them when and as it likes. */
static void later(void)
{
	enum { N = 50 };
	if (me == 0) {
		CHECK_FAILS(pvas_delegate_answer(NULL, 0), EFAULT);
		open_queue(0, 0);
		serve_all(1);
		return;
	}
	for (int round = 0; round < 20; round++) {
		pvas_delegate_request *requests[N];
		long result;
		for (int i = 0; i < N; i++) {
			int payload[200] = { 1000 * me + i };
			size_t length = i % 2 ? sizeof *payload : sizeof payload;
			requests[i] = pvas_delegate_submit(zero, KEEP, payload, length, -1);
			CHECK(requests[i]);
		}
		if (round == 0)
			CHECK_EQ(pvas_delegate_wait(requests[0], &result, 5), 0);
		CHECK_EQ(pvas_delegate_cancel(requests[7]), 0);
		/* One that was cancelled before it was begun is not kept. */
		long released = pvas_delegate_call(zero, RELEASE, NULL, 0);
		CHECK(released == N || released == N - 1);
		for (int i = 0; i < N; i++) {
			CHECK_EQ(pvas_delegate_wait(requests[i], &result, -1), 1);
			if (i == 7)
				CHECK(result == -EINTR || result == -ECANCELED);
			else
				CHECK_EQ(result, 1000 * me + i);
		}
	}
	say_done();
}

/* Addresses that may be passed to a library that would crash on bad ones. */
static void checked(void)
{
	if (me == 0) {
		open_queue(0, 0);
		serve_all(1);
		return;
	}
	enum { ALL = 600 * 4096 };
	char *read_only = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *nothing = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *some = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(read_only != MAP_FAILED && nothing != MAP_FAILED && some != MAP_FAILED);
	CHECK(munmap(some + ALL - 4096, 4096) == 0);
	some[5] = 7;
	char *last = some + ALL - 4096 - 1;
	const struct {
		struct look look;
		int error;
	} cases[] = {
		{ { some, ALL - 4096, PROT_READ }, 0 },
		{ { some, ALL - 4096, PROT_WRITE }, 0 },
		{ { some + 5, 100, PROT_READ }, 0 },
		{ { some + 5, 100, PROT_WRITE }, 0 },
		{ { some + 4095, 2, PROT_WRITE }, 0 },
		{ { last, 1, PROT_READ }, 0 },
		{ { last, 1, PROT_WRITE }, 0 },
		{ { last, 2, PROT_READ }, EFAULT },
		{ { last, 2, PROT_WRITE }, EFAULT },
		{ { some, ALL, PROT_READ }, EFAULT },
		{ { some, ALL, PROT_WRITE }, EFAULT },
		{ { some + 1, ALL - 4096, PROT_READ }, EFAULT },
		{ { read_only, 8192, PROT_READ }, 0 },
		{ { read_only, 1, PROT_WRITE }, EFAULT },
		{ { nothing, 1, PROT_READ }, EFAULT },
		{ { nothing, 1, PROT_WRITE }, EFAULT },
		{ { NULL, 1, PROT_READ }, EFAULT },
		{ { NULL, 1, PROT_WRITE }, EFAULT },
		{ { NULL, 0, PROT_READ }, 0 },
		{ { some, (size_t)-1, PROT_READ }, EFAULT },
		{ { (char *)zero - (1L << 40), 1, PROT_READ }, EFAULT },
		{ { some, 1, PROT_READ | PROT_WRITE }, EINVAL },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		long result = pvas_delegate_call(zero, LOOK, &cases[i].look, sizeof cases[i].look);
		int error = errno;
		CHECK_EQ(result < 0 ? error : 0, cases[i].error);
	}
	CHECK_EQ(some[5], 7);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(some[6 + i * 4096], 0);
	say_done();
}

/* One that fills its share leaves room for the others; a full queue is waited for. */
static void share(void)
{
	if (me == 0) {
		open_queue(16, 0);
		/* Nobody serves before the others have found out. */
		while (!pvas_delegate_find(tasks - 1, 0))
			usleep(1000);
		serve_all(2);
		return;
	}
	pvas_delegate_request *requests[4];
	for (int i = 0; i < 4; i++)
		requests[i] = submit(COUNT);
	CHECK(!pvas_delegate_submit(zero, COUNT, NULL, 0, 0) && errno == EAGAIN);
	if (me == tasks - 1)
		CHECK_EQ(pvas_delegate_open(0, 0), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pvas_delegate_wait(requests[i], NULL, -1), 1);
	say_done();
}

static void *caller(void *unused)
{
	for (int i = 0; i < 2000; i++) {
		unsigned char payload[200];
		size_t length = i % sizeof payload;
		memset(payload, i, length);
		CHECK_EQ(pvas_delegate_call(zero, SUM, payload, length),
		         1000 + (long)length * (unsigned char)i);
	}
	return unused;
}

static void threads(void)
{
	if (me == 0) {
		open_queue(16, 0);
		serve_all(4);
		return;
	}
	pthread_t thread[6];
	for (int i = 0; i < 6; i++)
		CHECK(pthread_create(&thread[i], NULL, caller, NULL) == 0);
	for (int i = 0; i < 6; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	say_done();
}

/* A queue that is closed answers what it has not begun, and can be opened again. */
static void *close_soon(void *unused)
{
	while (!held || access("sent", F_OK) != 0)
		usleep(1000);
	CHECK_EQ(pvas_delegate_close(), 0);
	gate_open = 1;
	return unused;
}

static void close_and_open(void)
{
	if (me == 0) {
		open_queue(64, 0);
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, close_soon, NULL) == 0);
		serve(NULL);
		CHECK(pthread_join(thread, NULL) == 0);
		gate_open = 0;
		while (access("again", F_OK) != 0)
			usleep(1000);
		open_queue(64, 0);
		CHECK_EQ(pvas_delegate_serve(-1), 1);
		CHECK_EQ(count, 1);
		return;
	}
	pvas_delegate_request *requests[4];
	for (int i = 1; i < 4; i++)
		CHECK(requests[i] = pvas_delegate_submit(zero, HOLD, NULL, 0, -1));
	CHECK(close(open("sent", O_CREAT | O_WRONLY, 0600)) == 0);
	long results[4];
	for (int i = 1; i < 4; i++)
		CHECK_EQ(pvas_delegate_wait(requests[i], &results[i], -1), 1);
	CHECK_EQ(results[1], 1);
	CHECK(results[2] == -ECANCELED && results[3] == -ECANCELED);
	CHECK_FAILS(pvas_delegate_call(zero, COUNT, NULL, 0), ECONNREFUSED);
	CHECK(!pvas_delegate_find(0, 0) && errno == ECONNREFUSED);
	CHECK(close(open("again", O_CREAT | O_WRONLY, 0600)) == 0);
	pvas_delegatee *again = pvas_delegate_find(0, -1);
	CHECK(again);
	CHECK_EQ(pvas_delegate_call(again, COUNT, NULL, 0), 1);
	pvas_delegate_release(again);
}

static long file_io(int operation, int fd, const struct iovec *vectors, size_t n, long offset)
{
	struct pvas_delegate_file_io io = { fd, 0, offset, vectors, n };
	return pvas_delegate_call(zero, operation, &io, sizeof io);
}

static long socket_io(int operation, int fd, struct msghdr *message, int flags)
{
	struct pvas_delegate_socket_io io = { fd, flags, message };
	return pvas_delegate_call(zero, operation, &io, sizeof io);
}

enum { FILE_FD = 100, LEFT_FD = 101, RIGHT_FD = 102 };

static void ready_made(void)
{
	if (me == 0) {
		int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600), pair[2];
		CHECK(dup2(fd, FILE_FD) == FILE_FD);
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
		CHECK(dup2(pair[0], LEFT_FD) == LEFT_FD && dup2(pair[1], RIGHT_FD) == RIGHT_FD);
		open_queue(0, PVAS_DELEGATE_FILES | PVAS_DELEGATE_SOCKETS);
		serve_all(2);
		return;
	}
	if (me != 1) {
		say_done();
		return;
	}
	CHECK(fcntl(FILE_FD, F_GETFD) == -1); /* the file is not ours */
	static char out[300000], in[300000];
	for (size_t i = 0; i < sizeof out; i++)
		out[i] = (char)(i * 7 + i / 256);
	struct iovec to[] = { { out, 1 }, { out + 1, 0 }, { out + 1, sizeof out - 1 } };
	struct iovec from[] = { { in, 200000 }, { in + 200000, 100000 } };
	CHECK_EQ(file_io(PVAS_DELEGATE_PWRITEV, FILE_FD, to, 3, 5), sizeof out);
	CHECK_EQ(file_io(PVAS_DELEGATE_PREADV, FILE_FD, from, 2, 5), sizeof in);
	CHECK(memcmp(in, out, sizeof in) == 0);
	CHECK_EQ(file_io(PVAS_DELEGATE_PREADV, FILE_FD, from, 1, 300000), 5);

	/* Errors are the requester's, and the delegatee continues. */
	char *gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(gone != MAP_FAILED && munmap(gone + 4096, 4096) == 0);
	void *others = (char *)pvas_segment(PVAS_SELF, 0) + PVAS_EXPORT_SIZE;
	struct iovec absent = { gone + 4096, 100 }, foreign = { others, 100 },
	             wild = { (void *)-4096L, 100 }, null = { NULL, 1 }, endless = { in, -1UL };
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, FILE_FD, &absent, 1, 0), EFAULT);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PWRITEV, FILE_FD, &absent, 1, 0), EFAULT);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, FILE_FD, &foreign, 1, 0), EFAULT);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, FILE_FD, &wild, 1, 0), EFAULT);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, FILE_FD, &null, 1, 0), EFAULT);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, FILE_FD, &endless, 1, 0), EFAULT);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, FILE_FD, NULL, 1, 0), EFAULT);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, FILE_FD, (void *)(gone + 4088), 1, 0), EFAULT);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, FILE_FD, from, 1025, 0), EINVAL);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, FILE_FD, from, 1, -1), EINVAL);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, 999, from, 1, 0), EBADF);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, LEFT_FD, from, 1, 0), ESPIPE);
	CHECK_FAILS(pvas_delegate_call(zero, PVAS_DELEGATE_PREADV, in, 3), EINVAL);

	/* Sockets. */
	struct iovec small_out = { out, 1000 }, small_in = { in, 2000 };
	struct msghdr send = { .msg_iov = &small_out, .msg_iovlen = 1 };
	struct msghdr receive = { .msg_iov = &small_in, .msg_iovlen = 1 };
	memset(in, 0, sizeof in);
	CHECK_FAILS(socket_io(PVAS_DELEGATE_RECVMSG, RIGHT_FD, &receive, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(socket_io(PVAS_DELEGATE_SENDMSG, LEFT_FD, &send, 0), 1000);
	receive.msg_flags = -1;
	CHECK_EQ(socket_io(PVAS_DELEGATE_RECVMSG, RIGHT_FD, &receive, 0), 1000);
	CHECK(memcmp(in, out, 1000) == 0);
	CHECK_EQ(receive.msg_flags & MSG_TRUNC, 0);
	send.msg_iov = &absent;
	CHECK_FAILS(socket_io(PVAS_DELEGATE_SENDMSG, LEFT_FD, &send, 0), EFAULT);
	send.msg_iov = &foreign;
	CHECK_FAILS(socket_io(PVAS_DELEGATE_SENDMSG, LEFT_FD, &send, 0), EFAULT);
	CHECK_FAILS(socket_io(PVAS_DELEGATE_SENDMSG, LEFT_FD, NULL, 0), EFAULT);
	receive.msg_control = in, receive.msg_controllen = 100;
	CHECK_FAILS(socket_io(PVAS_DELEGATE_RECVMSG, RIGHT_FD, &receive, 0), EINVAL);
	receive.msg_controllen = 0;
	CHECK_FAILS(socket_io(PVAS_DELEGATE_RECVMSG, RIGHT_FD, &receive, MSG_WAITALL), EINVAL);
	receive.msg_name = others, receive.msg_namelen = 16;
	CHECK_FAILS(socket_io(PVAS_DELEGATE_RECVMSG, RIGHT_FD, &receive, 0), EFAULT);
	receive.msg_name = NULL, receive.msg_namelen = 0;

	/* A receive that waits can be left; one that data comes for ends. */
	struct pvas_delegate_socket_io io = { RIGHT_FD, 0, &receive };
	pvas_delegate_request *request =
		pvas_delegate_submit(zero, PVAS_DELEGATE_RECVMSG, &io, sizeof io, -1);
	long result;
	CHECK(request && pvas_delegate_wait(request, &result, 50) == 0);
	CHECK_EQ(pvas_delegate_cancel(request), 0);
	CHECK_EQ(pvas_delegate_wait(request, &result, -1), 1);
	CHECK_EQ(result, -ECANCELED);
	request = pvas_delegate_submit(zero, PVAS_DELEGATE_RECVMSG, &io, sizeof io, -1);
	send.msg_iov = &small_out;
	CHECK_EQ(socket_io(PVAS_DELEGATE_SENDMSG, LEFT_FD, &send, 0), 1000);
	CHECK_EQ(pvas_delegate_wait(request, &result, -1), 1);
	CHECK_EQ(result, 1000);
	say_done();
}

/* The delegatee dies: waiting and later requesters get an error. */
static void delegatee_dies(void)
{
	if (me == 0) {
		open_queue(64, 0);
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
		char name[20];
		for (int other = 1; other < tasks; other++)
			for (sprintf(name, "sent%d", other); held == 0 || access(name, F_OK) != 0;)
				usleep(1000);
		_exit(0);
	}
	pvas_delegate_request *requests[4];
	for (int i = 0; i < 4; i++)
		requests[i] = submit(HOLD);
	char name[20];
	sprintf(name, "sent%d", me);
	CHECK(close(open(name, O_CREAT | O_WRONLY, 0600)) == 0);
	double begin = check_seconds();
	/* Sent before the end, or after. */
	long answer = pvas_delegate_call(zero, HOLD, NULL, 0);
	int error = errno;
	CHECK(answer == -1 && (error == ECONNRESET || error == ESRCH));
	long result;
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(pvas_delegate_wait(requests[i], &result, -1), 1);
		CHECK_EQ(result, -ECONNRESET);
	}
	CHECK(check_seconds() - begin < 20);
	CHECK_FAILS(pvas_delegate_call(zero, HOLD, NULL, 0), ESRCH);
	CHECK(strstr(pvas_delegate_error(), "task 0 has ended"));
	CHECK(!pvas_delegate_submit(zero, HOLD, NULL, 0, -1) && errno == ESRCH);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	me = atoi(getenv("NAGAYA_TASK_ID")), tasks = atoi(getenv("NAGAYA_TASKS"));
	const struct {
		const char *name;
		void (*run)(void);
		int alone;
	} cases[] = {
		{ "calls", calls, 0 },
		{ "not_there", not_there, 1 },
		{ "asynchronous", asynchronous, 0 },
		{ "later", later, 0 },
		{ "checked", checked, 0 },
		{ "share", share, 0 },
		{ "threads", threads, 0 },
		{ "close_and_open", close_and_open, 0 },
		{ "ready_made", ready_made, 0 },
		{ "delegatee_dies", delegatee_dies, 0 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (strcmp(cases[i].name, argv[1]) != 0)
			continue;
		if (me != 0 && !cases[i].alone)
			CHECK(zero = pvas_delegate_find(0, -1));
		cases[i].run();
		pvas_delegate_release(zero);
		return 0;
	}
	return 2;
}
