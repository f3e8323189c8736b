/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * dsm_fault.c - the cost of a fault that a thread of the same process serves by userfaultfd: the
 * part of a miss in shared memory without the network.
 *
 *	dsm_fault SAMPLES PAGE-BYTES
 *
 * The memory is like that of the library: a memfd with pages present, and a view of it. Prints a
 * line for each kind of fault and of waiting: fault, waiting, number of samples, and their median,
 * 99th percentile and maximum in ns.
 *
 *  - read: a page that the view does not map; mapped with UFFDIO_CONTINUE.
 *  - write: a page that is write-protected, until UFFDIO_WRITEPROTECT.
 *  - sleeping: the thread waits in poll(2). spinning: it polls by read(2).
 */
#define _GNU_SOURCE
#include "times.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGES = 256 };

static size_t page;
static int uffd;
static char *view;
static _Atomic int spins, ends;

static void fail(const char *what)
{
	fprintf(stderr, "dsm_fault: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Sets or removes the write protection of page `at` of the view. */
static void protect(size_t at, int protects)
{
	struct uffdio_writeprotect argument = {
		.range = {(uintptr_t)view + at * page, page},
		.mode = protects ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};
	if (ioctl(uffd, UFFDIO_WRITEPROTECT, &argument))
		fail("UFFDIO_WRITEPROTECT");
}

static void map(size_t at)
{
	struct uffdio_continue argument = {.range = {(uintptr_t)view + at * page, page}};

	if (ioctl(uffd, UFFDIO_CONTINUE, &argument) && errno != EEXIST)
		fail("UFFDIO_CONTINUE");
}

static void *serve(void *none)
{
	struct pollfd wanted = {.fd = uffd, .events = POLLIN};

	while (!ends) {
		struct uffd_msg message;

		if (!spins)
			poll(&wanted, 1, 10);
		if (read(uffd, &message, sizeof message) != sizeof message)
			continue;
		size_t at = (message.arg.pagefault.address - (uintptr_t)view) / page;
		if (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP)
			protect(at, 0);
		else
			map(at);
	}
	return none;
}

static void measure(int writes, int samples, long *times)
{
	for (int taken = 0; taken < samples; taken += PAGES) {
		if (!writes && madvise(view, PAGES * page, MADV_DONTNEED))
			fail("MADV_DONTNEED");
		for (size_t at = 0; writes && at < PAGES; at++)
			protect(at, 1);
		for (int at = 0; at < PAGES && taken + at < samples; at++) {
			volatile char *byte = view + (size_t)at * page;
			long begin = now_ns();

			if (writes)
				*byte = 1;
			else
				(void)*byte;
			times[taken + at] = now_ns() - begin;
		}
	}
	sort(times, samples);
	printf("%s %s %d %ld %ld %ld\n", writes ? "write" : "read",
	       spins ? "spinning" : "sleeping", samples, times[samples / 2],
	       times[(long)samples * 99 / 100], times[samples - 1]);
}

int main(int argc, char **argv)
{
	int samples = argc == 3 ? atoi(argv[1]) : 0;

	page = argc == 3 ? (size_t)atol(argv[2]) : 0;
	if (samples < 1 || page == 0 || page % 4096 != 0) {
		fprintf(stderr, "usage: dsm_fault SAMPLES PAGE-BYTES\n");
		return 2;
	}
	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_MISSING_SHMEM |
			    UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		fail("userfaultfd");
	int memory = memfd_create("pages", MFD_CLOEXEC);
	if (memory < 0 || ftruncate(memory, (off_t)(PAGES * page)))
		fail("memfd_create");
	view = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	char *alias = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (view == MAP_FAILED || alias == MAP_FAILED)
		fail("mmap");
	memset(alias, 1, PAGES * page);
	struct uffdio_register registered = {
		.range = {(uintptr_t)view, PAGES * page},
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR |
			UFFDIO_REGISTER_MODE_WP,
	};
	if (ioctl(uffd, UFFDIO_REGISTER, &registered))
		fail("UFFDIO_REGISTER");

	pthread_t server;
	long *times = calloc((size_t)samples, sizeof *times);
	if (times == NULL || pthread_create(&server, NULL, serve, NULL))
		fail("a thread");
	for (spins = 0; spins < 2; spins++)
		for (int writes = 0; writes < 2; writes++)
			measure(writes, samples, times);
	ends = 1;
	pthread_join(server, NULL);
	return 0;
}
