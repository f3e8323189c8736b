/* Delegation to the node server: one or two tasks, in the directory of a test.
 *
 * usage: delegate_server works|dies|absent */
#include "check.h"

#include <pvas.h>
#include <pvas_delegate.h>
#include <sys/socket.h>

static int me;
static pvas_delegatee *server;

static long file_io(unsigned operation, int fd, void *at, size_t length, long offset)
{
	struct iovec vector = { at, length };
	struct pvas_delegate_file_io io = { fd, 0, offset, &vector, 1 };
	return pvas_delegate_call(server, operation, &io, sizeof io);
}

static long socket_io(unsigned operation, int fd, void *at, size_t length)
{
	struct iovec vector = { at, length };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
	struct pvas_delegate_socket_io io = { fd, 0, &message };
	return pvas_delegate_call(server, operation, &io, sizeof io);
}

static void find(void)
{
	server = pvas_delegate_find(PVAS_DELEGATE_SERVER, 20000);
	if (!server)
		fprintf(stderr, "%s\n", pvas_delegate_error());
	CHECK(server);
}

/* A file of this name is there. */
static void wait_for(const char *name)
{
	while (access(name, F_OK) != 0) {
		check_parent();
		usleep(1000);
	}
}

static void works(void)
{
	enum { SIZE = 300000 };
	find();
	char name[] = "file0", byte = 7;
	name[4] = (char)('0' + me);
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int theirs = pvas_delegate_pass_fd(server, fd);
	CHECK(theirs >= 0 && close(fd) == 0);

	/* Old memory, and some untouched. */
	char *out = malloc(SIZE), *in = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < SIZE; i++)
		out[i] = (char)(i * 7 + i / 256 + (size_t)me);
	CHECK_EQ(file_io(PVAS_DELEGATE_PWRITEV, theirs, out, SIZE, 5), SIZE);
	CHECK_EQ(file_io(PVAS_DELEGATE_PREADV, theirs, in, SIZE, 5), SIZE);
	CHECK(memcmp(in, out, SIZE) == 0);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, theirs, (void *)8, 1, 0), EFAULT);

	/* Only passed descriptors, and only for their owner. */
	char others[] = "there0";
	others[5] = (char)('0' + me);
	CHECK(close(open(others, O_CREAT | O_WRONLY, 0600)) == 0);
	others[5] = (char)('1' - me);
	if (access("alone", F_OK) != 0)
		wait_for(others);
	for (int number = 0; number < 100; number++)
		if (number != theirs)
			CHECK_FAILS(file_io(PVAS_DELEGATE_PREADV, number, in, 1, 0), EBADF);

	/* Sockets. */
	int pair[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	int far = pvas_delegate_pass_fd(server, pair[0]);
	CHECK(far >= 0 && far != theirs && close(pair[0]) == 0);
	CHECK_EQ(socket_io(PVAS_DELEGATE_SENDMSG, far, out, 1000), 1000);
	CHECK_EQ(read(pair[1], in, 2000), 1000);
	CHECK(memcmp(in, out, 1000) == 0);
	CHECK_EQ(write(pair[1], &byte, 1), 1);
	CHECK_EQ(socket_io(PVAS_DELEGATE_RECVMSG, far, in, 10), 1);
	CHECK_EQ(in[0], 7);
	CHECK_EQ(pvas_delegate_close_fd(server, far), 0);
	CHECK_EQ(read(pair[1], in, 1), 0); /* the end */
	CHECK_FAILS(pvas_delegate_close_fd(server, far), EBADF);
	CHECK_FAILS(socket_io(PVAS_DELEGATE_RECVMSG, far, in, 10), EBADF);
	CHECK_FAILS(pvas_delegate_pass_fd(server, pair[0]), EBADF);

	/* Closed is closed: numbers are used again. */
	for (int i = 0; i < 300; i++) {
		int number = pvas_delegate_pass_fd(server, pair[1]);
		CHECK(number >= 0 && number < 100);
		CHECK_EQ(pvas_delegate_close_fd(server, number), 0);
	}
	close(pair[1]);

	/* A way that is released takes along what was passed by it. */
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(pvas_delegate_pass_fd(server, pair[0]) >= 0 && close(pair[0]) == 0);
	pvas_delegate_release(server);
	CHECK_EQ(read(pair[1], in, 1), 0);

	/* So does a task that ends, though a child of it lives on. */
	find();
	CHECK(mkfifo("fifo", 0600) == 0 || errno == EEXIST);
	if (me == 1) {
		CHECK((fd = open("fifo", O_WRONLY)) >= 0);
		CHECK(pvas_delegate_pass_fd(server, fd) >= 0 && close(fd) == 0);
		CHECK(write(1, "passed\n", 7) == 7);
		if (fork() == 0) {
			wait_for("over");
			_exit(0);
		}
		raise(SIGKILL);
	}
	if (access("alone", F_OK) != 0) {
		CHECK((fd = open("fifo", O_RDONLY)) >= 0);
		CHECK_EQ(read(fd, in, 1), 0);
	}
	CHECK(close(open("over", O_CREAT | O_WRONLY, 0600)) == 0);
	CHECK(write(1, "works\n", 6) == 6);
}

/* The delegatee is killed: that is reported, and the requester continues. */
static void dies(void)
{
	find();
	int fd = open("file", O_RDWR | O_CREAT, 0600), theirs = pvas_delegate_pass_fd(server, fd);
	char byte = 1;
	CHECK(theirs >= 0);
	CHECK_EQ(file_io(PVAS_DELEGATE_PWRITEV, theirs, &byte, 1, 0), 1);
	CHECK(write(1, "works\n", 6) == 6);
	long result;
	while ((result = file_io(PVAS_DELEGATE_PWRITEV, theirs, &byte, 1, 0)) == 1)
		check_parent();
	CHECK(result == -1);
	CHECK_FAILS(file_io(PVAS_DELEGATE_PWRITEV, theirs, &byte, 1, 0), ESRCH);
	CHECK_FAILS(pvas_delegate_pass_fd(server, fd), ECONNRESET);
	CHECK(!pvas_delegate_find(PVAS_DELEGATE_SERVER, 1000) && errno == ESRCH);
	CHECK(write(1, "on\n", 3) == 3);
}

static void absent(void)
{
	CHECK(!pvas_delegate_find(PVAS_DELEGATE_SERVER, -1) && errno == ESRCH);
	CHECK(strstr(pvas_delegate_error(), "--delegatee"));
	CHECK(!pvas_delegate_find(-3, -1) && errno == EINVAL);
	/* One that takes no descriptors. */
	CHECK_EQ(pvas_delegate_open(0, PVAS_DELEGATE_FILES), 0);
	CHECK(server = pvas_delegate_find(me, 0));
	CHECK_FAILS(pvas_delegate_pass_fd(server, 0), EOPNOTSUPP);
}

int main(int argc, char **argv)
{
	const struct check_case cases[] = {
		{ "works", works }, { "dies", dies }, { "absent", absent }, { NULL, NULL },
	};
	CHECK((me = pvas_getid()) >= 0);
	return check_main(cases, argc, argv);
}
