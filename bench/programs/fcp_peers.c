/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * fcp_peers.c - messages between two processes without FCP: plain shared memory, sockets.
 *
 *     fcp_peers FILE TRANSPORTS REPETITIONS MILLISECONDS SIZE...
 *
 * FILE is empty, and in memory (/dev/shm). TRANSPORTS, with commas:
 *
 *     word    one word that both increment alternately: the lower bound between two cores. A
 *             message needs a cache line for each direction. Printed for each size of at most 8
 *             bytes.
 *     vcl     what FOLON calls VCL: the sender copies into a window that both map and sets a
 *             word behind it; the receiver, which polls that word, copies out. No protocol:
 *             one sender, one receiver, one message at a time.
 *     udp     datagrams over the loopback device, both ends blocking
 *     tcp     a connection over it, TCP_NODELAY
 *     unix    a stream socket of the Unix domain
 *
 * Prints lines as in pair.h.
 */
#include "pair.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- one word ---- */

static uint64_t told;

static inline void word_send(size_t bytes)
{
	(void)bytes;
	atomic_store_explicit(&shared->word, ++told, memory_order_release);
}

static inline void word_receive(size_t bytes)
{
	(void)bytes;
	while (atomic_load_explicit(&shared->word, memory_order_acquire) == told)
		relax();
	told++;
}

/* ---- plain shared memory ---- */

static inline void vcl_send(size_t bytes)
{
	memcpy(shared->window[me], out_buffer, bytes);
	line_send(0);
}

static inline void vcl_receive(size_t bytes)
{
	line_receive(0);
	memcpy(in_buffer, shared->window[!me], bytes);
}

/* ---- sockets ---- */

static int link_;

static inline void socket_send(size_t bytes)
{
	const char *at = (const char *)out_buffer;
	while (bytes > 0) {
		ssize_t n = send(link_, at, bytes, 0);
		if (n < 0)
			fail("send");
		at += n, bytes -= (size_t)n;
	}
}

static inline void socket_receive(size_t bytes)
{
	char *at = (char *)in_buffer;
	while (bytes > 0) {
		ssize_t n = recv(link_, at, bytes, 0);
		if (n <= 0)
			fail("recv");
		at += n, bytes -= (size_t)n;
	}
}

static struct sockaddr_in loopback(void)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
		                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

/* Makes two connected sockets, before the fork. */
static void make_udp(int ends[2])
{
	struct sockaddr_in address[2] = { loopback(), loopback() };
	for (int e = 0; e < 2; e++) {
		socklen_t length = sizeof address[e];
		ends[e] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (ends[e] < 0 || bind(ends[e], (void *)&address[e], length) ||
		    getsockname(ends[e], (void *)&address[e], &length))
			fail("udp");
	}
	for (int e = 0; e < 2; e++)
		if (connect(ends[e], (void *)&address[!e], sizeof *address))
			fail("udp");
}

static void make_tcp(int ends[2])
{
	struct sockaddr_in address = loopback();
	socklen_t length = sizeof address;
	int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (void *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (void *)&address, &length))
		fail("tcp");
	ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ends[0] < 0 || connect(ends[0], (void *)&address, sizeof address) ||
	    (ends[1] = accept(listener, NULL, NULL)) < 0)
		fail("tcp");
	for (int e = 0; e < 2; e++)
		setsockopt(ends[e], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	close(listener);
}

static void make_unix(int ends[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		fail("unix");
}

static const struct {
	const char *name;
	void (*make)(int[2]);
	size_t bytes_max;
} sockets[] = { { "udp", make_udp, 65507 },
	            { "tcp", make_tcp, MESSAGE_MAX },
	            { "unix", make_unix, MESSAGE_MAX } };

int main(int argc, char **argv)
{
	enum { SOCKETS = sizeof sockets / sizeof *sockets };
	int ends[SOCKETS][2];
	if (argc < 6) {
		fprintf(stderr, "usage: %s FILE WAYS REPETITIONS MILLISECONDS SIZE...\n", argv[0]);
		return 1;
	}
	for (int s = 0; s < SOCKETS; s++)
		sockets[s].make(ends[s]);
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* else it would wait for its partner for ever */
	pair_begin(argv[1]);
	int repetitions = atoi(argv[3]), milliseconds = atoi(argv[4]);
	for (int a = 5; a < argc; a++) {
		size_t bytes = strtoul(argv[a], NULL, 10);
		if (strstr(argv[2], "word") && bytes <= sizeof told)
			measure("word", word_send, word_receive, bytes, repetitions, milliseconds);
		if (strstr(argv[2], "vcl"))
			measure("vcl", vcl_send, vcl_receive, bytes, repetitions, milliseconds);
		for (int s = 0; s < SOCKETS; s++)
			if (strstr(argv[2], sockets[s].name) && bytes <= sockets[s].bytes_max) {
				link_ = ends[s][me];
				measure(sockets[s].name, socket_send, socket_receive, bytes, repetitions, milliseconds);
			}
	}
	if (child == 0)
		return 0;
	int status = 0;
	return waitpid(child, &status, 0) != child || status != 0;
}
