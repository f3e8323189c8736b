/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * files.c - files that are mapped, and read past the page cache, by threads of all nodes.
 *
 *	files shared|end|direct|copied|lent FILE
 *
 * shared: what is written to a file is seen where it is mapped shared and read-only. end: who uses
 * pages beyond a file's end gets SIGBUS, and a system call EFAULT. direct: reads of O_DIRECT lose
 * nothing, while another thread writes the same page. copied: the same of process_vm_writev. lent:
 * what the kernel reads of a page later (vmsplice, MSG_ZEROCOPY) is what was there.
 * Prints `right`, or what is not.
 */
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MANY = 300 };

static const char *path;

static int nodes(void)
{
	return nagaya_nodes() > 0 ? nagaya_nodes() : 1;
}

static void go_to(int node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate(node) == 0);
}

/* Runs work(argument) by a new thread. */
static void by_a_thread(void *(*work)(void *), intptr_t argument)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, work, (void *)argument) == 0);
	pthread_join(thread, NULL);
}

/* The file, of so many bytes of this kind. */
static int make(size_t bytes, char byte)
{
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	char *content = malloc(bytes);

	CHECK(file >= 0 && content);
	memset(content, byte, bytes);
	CHECK(write(file, content, bytes) == (ssize_t)bytes);
	free(content);
	return file;
}

static volatile sig_atomic_t signalled, code;
static void *volatile fault_address;
static _Thread_local sigjmp_buf back;

static void faulted(int number, siginfo_t *info, void *context)
{
	(void)context;
	signalled = number;
	code = info->si_code;
	fault_address = info->si_addr;
	siglongjmp(back, 1);
}

static void catch(void)
{
	struct sigaction action = { .sa_sigaction = faulted, .sa_flags = SA_SIGINFO };

	CHECK(sigaction(SIGBUS, &action, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
}

/* The signal that a use of the address raises, or 0. */
static int signal_of(volatile char *at, int writes)
{
	signalled = 0;
	if (sigsetjmp(back, 1) == 0) {
		if (writes)
			*at = 1;
		else
			(void)*at;
	}
	CHECK(signalled == 0 || fault_address == (void *)at);
	return signalled;
}

static char *volatile mapped;
static volatile char expected;

static void *sees(void *node)
{
	go_to((int)(intptr_t)node);
	CHECK(mapped[0] == expected && mapped[PAGE + 7] == expected);
	/* The kernel sees it, too. */
	int ends[2];
	char byte;
	CHECK(pipe(ends) == 0 && write(ends[1], mapped + 1, 1) == 1);
	CHECK(read(ends[0], &byte, 1) == 1 && byte == expected);
	close(ends[0]);
	close(ends[1]);
	return NULL;
}

static void all_see(int file, char byte)
{
	char pages[2 * PAGE];

	memset(pages, byte, sizeof(pages));
	CHECK(pwrite(file, pages, sizeof(pages), 0) == sizeof(pages));
	expected = byte;
	for (int node = 0; node < nodes(); node++)
		by_a_thread(sees, node);
}

static void is_shared(void)
{
	int file = make(2 * PAGE, 'a'), reader = open(path, O_RDONLY), status;

	catch();
	mapped = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, reader, 0);
	CHECK(mapped != MAP_FAILED);
	all_see(file, 'a');
	all_see(file, 'b');
	pid_t child = fork();
	if (child == 0) {
		char byte = 'c';
		CHECK(mapped[0] == 'b' && pwrite(file, &byte, 1, 0) == 1 && mapped[0] == 'c');
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0 && mapped[0] == 'c');
	/* It was opened for reading, so it stays that. */
	CHECK(signal_of(mapped, 1) == SIGSEGV);
	CHECK(mprotect(mapped, PAGE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
	CHECK(mmap(mapped, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, reader, 0) ==
	      MAP_FAILED);
	CHECK(errno == EACCES && mapped[0] == 'c');
	CHECK(mprotect(mapped, PAGE, PROT_NONE) == 0 && signal_of(mapped, 0) == SIGSEGV);
	CHECK(mprotect(mapped, PAGE, PROT_READ) == 0 && signal_of(mapped, 0) == 0);
	/* It grows as the file does, and has the file's bytes wherever it goes. */
	CHECK(ftruncate(file, 10 * PAGE) == 0 && pwrite(file, "z", 1, 9 * PAGE) == 1);
	CHECK(mremap(mapped, 2 * PAGE, 1000 * PAGE, 0) == MAP_FAILED && errno == ENOMEM);
	char *more = mremap(mapped, 2 * PAGE, 10 * PAGE, MREMAP_MAYMOVE);
	CHECK(more != MAP_FAILED && more[0] == 'c' && more[9 * PAGE] == 'z');
	CHECK(signal_of(more, 1) == SIGSEGV);
	mapped = more;
	all_see(file, 'd');
	CHECK(mremap(more, 10 * PAGE, PAGE, 0) == more && signal_of(more + PAGE, 0) == SIGSEGV);
	CHECK(munmap(more, PAGE) == 0 && signal_of(more, 0) == SIGSEGV);
	/* Many that do not touch. */
	char *all[MANY];
	for (int at = 0; at < MANY; at++) {
		all[at] = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0);
		CHECK(all[at] != MAP_FAILED);
		CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	}
	CHECK(pwrite(file, "many", 4, 0) == 4);
	for (int at = 0; at < MANY; at++)
		CHECK(memcmp(all[at], "many", 4) == 0 && munmap(all[at], PAGE) == 0);
	/* Not everything can be mapped, nor by everybody. */
	int ends[2], writer = open(path, O_WRONLY);
	CHECK(pipe(ends) == 0);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, ends[0], 0) == MAP_FAILED && errno == ENODEV);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, writer, 0) == MAP_FAILED && errno == EACCES);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, writer, 0) == MAP_FAILED && errno == EACCES);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED && errno == EBADF);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, reader, 7) == MAP_FAILED && errno == EINVAL);
}

/* Pages of the file, of which it has two and a half. */
static char *private_pages, *shared_pages;

static void *meets_the_end(void *node)
{
	char *both[] = { private_pages, shared_pages };

	go_to((int)(intptr_t)node);
	for (int at = 0; at < 2; at++) {
		char *pages = both[at];
		CHECK(signal_of(pages + 2 * PAGE + PAGE / 2 - 1, 0) == 0 && pages[2 * PAGE] == 'e');
		CHECK(signal_of(pages + 3 * PAGE - 1, 0) == 0 && pages[3 * PAGE - 1] == 0);
		CHECK(signal_of(pages + 3 * PAGE, 0) == SIGBUS && code == BUS_ADRERR);
		CHECK(signal_of(pages + 5 * PAGE - 1, 0) == SIGBUS && code == BUS_ADRERR);
		CHECK(signal_of(pages + 4 * PAGE, 1) == SIGBUS && code == BUS_ADRERR);
	}
	/* System calls, here and at the origin. */
	CHECK(syscall(SYS_nanosleep, private_pages + 3 * PAGE, NULL) == -1 && errno == EFAULT);
	int ends[2];
	CHECK(pipe(ends) == 0);
	CHECK(write(ends[1], private_pages + 4 * PAGE, 1) == -1 && errno == EFAULT);
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(read(ends[0], private_pages + 4 * PAGE, 1) == -1 && errno == EFAULT);
	close(ends[0]);
	close(ends[1]);
	return NULL;
}

static void has_an_end(void)
{
	int file = make(2 * PAGE + PAGE / 2, 'e'), status;

	catch();
	private_pages = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	shared_pages = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(private_pages != MAP_FAILED && shared_pages != MAP_FAILED);
	for (int node = 0; node < nodes(); node++)
		by_a_thread(meets_the_end, node);
	pid_t child = fork();
	if (child == 0) {
		CHECK(signal_of(private_pages + 3 * PAGE, 0) == SIGBUS && code == BUS_ADRERR);
		CHECK(private_pages[2 * PAGE] == 'e');
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* What may not be used at all is SIGSEGV first. */
	CHECK(mprotect(private_pages + 3 * PAGE, PAGE, PROT_NONE) == 0);
	CHECK(signal_of(private_pages + 3 * PAGE, 0) == SIGSEGV);
	CHECK(signal_of(private_pages + 4 * PAGE, 0) == SIGBUS);
	CHECK(mprotect(private_pages, 5 * PAGE, PROT_READ) == 0);
	CHECK(signal_of(private_pages + 3 * PAGE, 0) == SIGBUS);
	CHECK(signal_of(private_pages, 1) == SIGSEGV);
	/* What is mapped there later is as anywhere. */
	char *middle = private_pages + 3 * PAGE;
	CHECK(mmap(middle, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == middle);
	CHECK(signal_of(middle, 1) == 0 && middle[0] == 1 && middle[1] == 0);
	CHECK(signal_of(private_pages + 4 * PAGE, 0) == SIGBUS);
	CHECK(munmap(private_pages + 4 * PAGE, PAGE) == 0);
	CHECK(signal_of(private_pages + 4 * PAGE, 0) == SIGSEGV);
	/* A program without a handler ends by it. */
	fflush(stdout);
	child = fork();
	if (child == 0) {
		signal(SIGBUS, SIG_DFL);
		(void)*(volatile char *)(shared_pages + 4 * PAGE);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

/* A page of which a thread writes the beginning, while the rest is read into. */
static union {
	_Alignas(PAGE) atomic_uint word;
	char bytes[2 * PAGE];
} page;
/* The same, from which is copied. */
static union {
	_Alignas(PAGE) atomic_uint word;
	char bytes[PAGE];
} source;
static atomic_int over;

static void *writes(void *node)
{
	unsigned count = 0;

	go_to((int)(intptr_t)node);
	for (; !atomic_load(&over); count++) {
		CHECK(atomic_fetch_add(&source.word, 1) == count);
		CHECK(atomic_fetch_add(&page.word, 1) == count);
	}
	return NULL;
}

/* One of many kinds of a read of 4 KB from the file. */
static void reads(int file, int round)
{
	char *to = page.bytes + 512;
	struct iovec two[] = { { to, 1024 }, { to + 1024, PAGE - 1024 } };
	ssize_t got = 0;

	switch (round % 5) {
	case 0:
		CHECK(lseek(file, 0, SEEK_SET) == 0);
		got = read(file, to, PAGE);
		CHECK(lseek(file, 0, SEEK_CUR) == PAGE);
		break;
	case 1:
		got = pread(file, to, PAGE, 0);
		break;
	case 2:
		CHECK(lseek(file, 0, SEEK_SET) == 0);
		got = readv(file, two, 2);
		break;
	case 3:
		got = preadv(file, two, 2, 0);
		break;
	case 4:
		got = preadv2(file, two, 2, 0, 0);
		break;
	}
	CHECK(got == PAGE);
}

static void is_direct(void)
{
	char content[PAGE];
	pthread_t thread;
	int file = make(3 * PAGE, 'd'), direct = open(path, O_RDWR | O_DIRECT);

	CHECK(direct >= 0 && fsync(file) == 0);
	CHECK(pthread_create(&thread, NULL, writes, (void *)(intptr_t)(nodes() - 1)) == 0);
	memset(content, 'd', PAGE);
	for (int round = 0; round < 200; round++) {
		memset(page.bytes + 512, '-', PAGE);
		reads(direct, round);
		CHECK(memcmp(page.bytes + 512, content, PAGE) == 0);
	}
	/* From the page to the file and back. */
	for (int round = 0; round < 50; round++) {
		memset(page.bytes + 512, 'A' + round, PAGE);
		CHECK(pwrite(direct, page.bytes + 512, PAGE, PAGE) == PAGE);
		CHECK(pread(file, content, PAGE, PAGE) == PAGE);
		CHECK(memcmp(page.bytes + 512, content, PAGE) == 0);
	}
	atomic_store(&over, 1);
	pthread_join(thread, NULL);
	/* At the end, and what cannot be. */
	char *volatile nowhere = (char *)PAGE;
	char *large = mmap(NULL, 40 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(large != MAP_FAILED);
	CHECK(pread(direct, large, 10 * PAGE, 0) == 3 * PAGE && large[3 * PAGE - 1] == 'd');
	CHECK(pread(direct, large, PAGE, 3 * PAGE) == 0);
	CHECK(pread(direct, large, PAGE, -1) == -1 && errno == EINVAL);
	CHECK(pread(direct, large, 100, 0) == -1 && errno == EINVAL);
	CHECK(pread(direct, large + 1, PAGE, 0) == -1 && errno == EINVAL);
	CHECK(pread(direct, nowhere, PAGE, 0) == -1 && errno == EFAULT);
	CHECK(preadv(direct, (struct iovec *)nowhere, 2, 0) == -1 && errno == EFAULT);
	CHECK(preadv(direct, (struct iovec *)nowhere, 5000, 0) == -1 && errno == EINVAL);
	/* More than goes at once. */
	CHECK(ftruncate(file, 40 << 20) == 0);
	CHECK(pwrite(file, "end", 3, (40 << 20) - 3) == 3 && fsync(file) == 0);
	struct iovec parts[] = { { large, 5 * PAGE }, { large + 5 * PAGE, (40 << 20) - 5 * PAGE } };
	CHECK(preadv(direct, parts, 2, 0) == 40 << 20 && memcmp(large + (40 << 20) - 3, "end", 3) == 0);
	CHECK(large[PAGE - 1] == 'd' && large[2 * PAGE] == 'd' && large[3 * PAGE] == 0);
}

static void is_copied(void)
{
	pthread_t thread;
	char *content = source.bytes + 2000, to[256];

	CHECK(pthread_create(&thread, NULL, writes, (void *)(intptr_t)(nodes() - 1)) == 0);
	for (int round = 0; round < 2000; round++) {
		struct iovec local = { content, 256 }, remote = { page.bytes + 1000, 256 };
		memset(content, round, 256);
		CHECK(process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == 256);
		CHECK(memcmp(page.bytes + 1000, content, 256) == 0);
		local.iov_base = to;
		CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 256);
		CHECK(memcmp(to, content, 256) == 0);
	}
	atomic_store(&over, 1);
	pthread_join(thread, NULL);
}

/* Until the page has gone to the other thread and come back. */
static void page_moves(void)
{
	unsigned before = atomic_load(&page.word);

	while (atomic_load(&page.word) - before < 3)
		usleep(100);
}

static void is_lent(void)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(name);
	int ends[2], one = 1, server = socket(AF_INET, SOCK_STREAM, 0);
	int client = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;
	char content[2000];

	CHECK(bind(server, (void *)&name, bytes) == 0 && listen(server, 1) == 0);
	CHECK(getsockname(server, (void *)&name, &bytes) == 0);
	CHECK(connect(client, (void *)&name, bytes) == 0);
	int peer = accept(server, NULL, NULL);
	CHECK(peer >= 0 && pipe(ends) == 0);
	CHECK(setsockopt(client, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) == 0);
	CHECK(pthread_create(&thread, NULL, writes, (void *)(intptr_t)(nodes() - 1)) == 0);
	for (int round = 0; round < 50; round++) {
		struct iovec piece = { page.bytes + 512, sizeof(content) };
		memset(page.bytes + 512, 'a' + round, sizeof(content));
		CHECK(vmsplice(ends[1], &piece, 1, 0) == sizeof(content));
		CHECK(send(client, piece.iov_base, sizeof(content), MSG_ZEROCOPY) == sizeof(content));
		page_moves();
		CHECK(read(ends[0], content, sizeof(content)) == sizeof(content));
		CHECK(memcmp(content, page.bytes + 512, sizeof(content)) == 0);
		memset(content, 0, sizeof(content));
		CHECK(recv(peer, content, sizeof(content), MSG_WAITALL) == sizeof(content));
		CHECK(memcmp(content, page.bytes + 512, sizeof(content)) == 0);
	}
	atomic_store(&over, 1);
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: files shared|end|direct|copied|lent FILE\n");
		return 2;
	}
	path = argv[2];
	switch (argv[1][0]) {
	case 's':
		is_shared();
		break;
	case 'e':
		has_an_end();
		break;
	case 'd':
		is_direct();
		break;
	case 'l':
		is_lent();
		break;
	default:
		is_copied();
	}
	unlink(path);
	printf("right\n");
	return 0;
}
