/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * memop_fetch.c - the fetch of a page of one process when a process on another machine reads it:
 * the paper's Table 3 on a current kernel.
 *
 *	memop_fetch ptrace|memop SAMPLES [CPU CPU]
 *
 * Two control processes, each with a target, on the given processors. One target reads pages
 * without read permission. Its control process traces it, is notified of the fault, requests the
 * page from the other one over TCP, writes it into its target, makes it readable, and resumes the
 * target. The other control process reads the page of its own target, write-protects it, and sends
 * it. Pages are read and written word by word with ptrace(2), or with memop_peekpage and
 * memop_pokepage; memop_mprotect changes permissions in both.
 *
 * Prints a line for each part: method, part, number of samples, and their median, 99th percentile
 * and maximum in ns.
 *
 *  - fetch: from the access to the value, by the target's clock.
 *  - wait: from the request to the reply. - serve: the part of the other side.
 *  - bring: writing the page, and making it readable.
 */
#define _GNU_SOURCE
#include "times.h"

#include <arpa/inet.h>
#include <errno.h>
#include <memop.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };
enum { FETCH, WAIT, SERVE, BRING, PARTS };
static const char *const names[PARTS] = {"fetch", "wait", "serve", "bring"};

static int samples, by_ptrace;
static const char *cpus[2];
static char *region;
/* Times of all parts, in memory that all processes share. */
static long *times;

static void fail(const char *what)
{
	fprintf(stderr, "memop_fetch: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Pages in an unpredictable order. */
static char *page(int sample)
{
	return region + (size_t)((long)sample * 7919 % samples) * PAGE;
}

static void take(int part, int sample, long ns)
{
	times[(long)part * samples + sample] = ns;
}

static void stay_on(const char *cpu)
{
	cpu_set_t set;

	if (!cpu)
		return;
	CPU_ZERO(&set);
	CPU_SET(atoi(cpu), &set);
	if (sched_setaffinity(0, sizeof set, &set))
		fail("sched_setaffinity");
}

static pid_t start(void)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void receive(int from, void *data, size_t length)
{
	if (recv(from, data, length, MSG_WAITALL) != (ssize_t)length)
		fail("recv");
}

static void peek(pid_t target, char *at, char *data)
{
	char words[PAGE];

	if (!by_ptrace) {
		if (memop_peekpage(target, at, data))
			fail("memop_peekpage");
		return;
	}
	for (size_t word = 0; word < PAGE; word += sizeof(long)) {
		errno = 0;
		long value = ptrace(PTRACE_PEEKDATA, target, at + word, 0);
		if (errno)
			fail("PTRACE_PEEKDATA");
		*(long *)(words + word) = value;
	}
	memcpy(data, words, PAGE);
}

static void poke(pid_t target, char *at, const char *data)
{
	if (!by_ptrace) {
		if (memop_pokepage(target, at, data))
			fail("memop_pokepage");
		return;
	}
	for (size_t word = 0; word < PAGE; word += sizeof(long))
		if (ptrace(PTRACE_POKEDATA, target, at + word, *(const long *)(data + word)))
			fail("PTRACE_POKEDATA");
}

/* --- the machine that has the pages --- */

static void owns(int peer)
{
	char data[PAGE];
	pid_t target;

	stay_on(cpus[1]);
	target = start();
	if (target == 0) {
		memset(region, 'o', (size_t)samples * PAGE);
		for (;;)
			pause();
	}
	usleep(100000);
	/* ptrace reads only a stopped process. The stop is not measured. */
	if (by_ptrace) {
		if (ptrace(PTRACE_SEIZE, target, 0, 0) || ptrace(PTRACE_INTERRUPT, target, 0, 0))
			fail("ptrace");
		if (waitpid(target, NULL, __WALL) != target)
			fail("waitpid");
	}
	for (int sample = 0; sample < samples; sample++) {
		char *at;

		receive(peer, &at, sizeof at);
		long begin = now_ns();
		peek(target, at, data);
		if (memop_mprotect(target, at, PAGE, PROT_READ))
			fail("memop_mprotect");
		if (send(peer, data, PAGE, 0) != PAGE)
			fail("send");
		take(SERVE, sample, now_ns() - begin);
	}
	kill(target, SIGKILL);
	exit(0);
}

/* --- the machine that reads them --- */

static void reads(void)
{
	for (int sample = 0; sample < samples; sample++) {
		volatile char *at = page(sample);
		long begin = now_ns();

		char value = *at;
		take(FETCH, sample, now_ns() - begin);
		if (value != 'o')
			_exit(1);
	}
	_exit(0);
}

static void fetches(int peer)
{
	char data[PAGE];
	int status, sample = 0;
	pid_t target;

	stay_on(cpus[0]);
	if (mprotect(region, (size_t)samples * PAGE, PROT_NONE))
		fail("mprotect");
	target = start();
	if (target == 0) {
		raise(SIGSTOP);
		reads();
	}
	if (waitpid(target, &status, WUNTRACED) != target || !WIFSTOPPED(status))
		fail("waitpid");
	if (ptrace(PTRACE_SEIZE, target, 0, 0))
		fail("PTRACE_SEIZE");
	kill(target, SIGCONT);
	for (;;) {
		siginfo_t info;

		if (waitpid(target, &status, __WALL) != target)
			fail("waitpid");
		if (!WIFSTOPPED(status))
			break;
		if (WSTOPSIG(status) != SIGSEGV) {
			int is_event = status >> 16;
			ptrace(PTRACE_CONT, target, 0, is_event ? 0 : WSTOPSIG(status));
			continue;
		}
		if (ptrace(PTRACE_GETSIGINFO, target, 0, &info))
			fail("PTRACE_GETSIGINFO");
		char *at = (char *)((uintptr_t)info.si_addr & -(uintptr_t)PAGE);
		long asked = now_ns();
		if (send(peer, &at, sizeof at, 0) != sizeof at)
			fail("send");
		receive(peer, data, PAGE);
		long came = now_ns();
		poke(target, at, data);
		if (memop_mprotect(target, at, PAGE, PROT_READ))
			fail("memop_mprotect");
		take(BRING, sample, now_ns() - came);
		take(WAIT, sample++, came - asked);
		if (ptrace(PTRACE_CONT, target, 0, 0))
			fail("PTRACE_CONT");
	}
	if (status != 0 || sample != samples) {
		fprintf(stderr, "memop_fetch: %d faults, status %#x\n", sample, status);
		exit(1);
	}
}

/* Makes the two ends of a TCP connection. */
static void connected(int ends[2])
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int one = 1, listens = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listens, (struct sockaddr *)&address, length) || listen(listens, 1) ||
	    getsockname(listens, (struct sockaddr *)&address, &length) ||
	    connect(ends[0], (struct sockaddr *)&address, length))
		fail("a TCP connection");
	ends[1] = accept(listens, NULL, NULL);
	for (int end = 0; end < 2; end++)
		if (setsockopt(ends[end], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
			fail("TCP_NODELAY");
	close(listens);
}

int main(int argc, char **argv)
{
	int ends[2];

	samples = argc == 3 || argc == 5 ? atoi(argv[2]) : 0;
	by_ptrace = samples > 0 && !strcmp(argv[1], "ptrace");
	if (samples < 1 || (!by_ptrace && strcmp(argv[1], "memop"))) {
		fprintf(stderr, "usage: memop_fetch ptrace|memop SAMPLES [CPU CPU]\n");
		return 2;
	}
	for (int end = 0; argc == 5 && end < 2; end++)
		cpus[end] = argv[3 + end];
	region = mmap(NULL, (size_t)samples * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	times = mmap(NULL, PARTS * (size_t)samples * sizeof *times, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (region == MAP_FAILED || times == MAP_FAILED)
		fail("mmap");
	connected(ends);
	pid_t owner = start();
	if (owner == 0)
		owns(ends[1]);
	close(ends[1]);
	fetches(ends[0]);
	int status;
	if (waitpid(owner, &status, 0) != owner || status != 0)
		fail("the owner's control process");
	for (int part = 0; part < PARTS; part++) {
		long *of = times + (long)part * samples;
		sort(of, samples);
		printf("%s %s %d %ld %ld %ld\n", argv[1], names[part], samples, of[samples / 2],
		       of[(long)samples * 99 / 100], of[samples - 1]);
	}
	return 0;
}
