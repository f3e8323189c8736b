/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * memop_pages.c - the time of reading and writing a page of another process: the paper's Table 2
 * on a current kernel.
 *
 *	memop_pages SAMPLES
 *
 * The other process waits in pause(2). Prints a line for each method: method, read or write, number
 * of samples, and their median, 99th percentile and maximum in ns. The methods alternate, sample
 * by sample.
 *
 *  - ptrace: a word at a time, of a stopped process; the page is copied to a send buffer, as in
 *    the paper.
 *  - process_vm: process_vm_readv and process_vm_writev.
 *  - memop: memop_peekpage and memop_pokepage, of a page that the process may access.
 *  - memop-hidden: the same of a page without access permission, as in a page fetch.
 *  - memory: one copy within an address space, as between tasks of a space.
 */
#define _GNU_SOURCE
#include "times.h"

#include <errno.h>
#include <memop.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };

static pid_t target;
/* Equal in both processes: accessible pages, and as many inaccessible ones. */
static char *region;
static char buffer[PAGE], words[PAGE];

static void fail(const char *what)
{
	fprintf(stderr, "memop_pages: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void ptrace_read(char *at)
{
	for (size_t word = 0; word < PAGE; word += sizeof(long)) {
		errno = 0;
		long value = ptrace(PTRACE_PEEKDATA, target, at + word, 0);
		if (errno)
			fail("PTRACE_PEEKDATA");
		*(long *)(words + word) = value;
	}
	memcpy(buffer, words, PAGE);
}

static void ptrace_write(char *at)
{
	for (size_t word = 0; word < PAGE; word += sizeof(long))
		if (ptrace(PTRACE_POKEDATA, target, at + word, *(long *)(buffer + word)))
			fail("PTRACE_POKEDATA");
}

static void process_vm_read(char *at)
{
	struct iovec here = {buffer, PAGE}, there = {at, PAGE};
	if (process_vm_readv(target, &here, 1, &there, 1, 0) != PAGE)
		fail("process_vm_readv");
}

static void process_vm_write(char *at)
{
	struct iovec here = {buffer, PAGE}, there = {at, PAGE};
	if (process_vm_writev(target, &here, 1, &there, 1, 0) != PAGE)
		fail("process_vm_writev");
}

static void memop_read(char *at)
{
	if (memop_peekpage(target, at, buffer))
		fail("memop_peekpage");
}

static void memop_write(char *at)
{
	if (memop_pokepage(target, at, buffer))
		fail("memop_pokepage");
}

static void memory_read(char *at)
{
	memcpy(buffer, at, PAGE);
	__asm__ volatile("" ::: "memory");
}

static void memory_write(char *at)
{
	memcpy(at, buffer, PAGE);
	__asm__ volatile("" ::: "memory");
}

static const struct {
	const char *name;
	void (*make[2])(char *at);
	int is_hidden;
} ways[] = {
	{"ptrace", {ptrace_read, ptrace_write}, 0},
	{"process_vm", {process_vm_read, process_vm_write}, 0},
	{"memop", {memop_read, memop_write}, 0},
	{"memop-hidden", {memop_read, memop_write}, 1},
	{"memory", {memory_read, memory_write}, 0},
};
enum { WAYS = sizeof ways / sizeof *ways };

int main(int argc, char **argv)
{
	int samples = argc == 2 ? atoi(argv[1]) : 0;

	if (samples < 1) {
		fprintf(stderr, "usage: memop_pages SAMPLES\n");
		return 2;
	}
	region = mmap(NULL, 2 * PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	if (region == MAP_FAILED)
		fail("mmap");
	memset(region, 1, 2 * PAGES * PAGE);
	target = fork();
	if (target < 0)
		fail("fork");
	if (target == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memset(region, 2, 2 * PAGES * PAGE);
		mprotect(region + PAGES * PAGE, PAGES * PAGE, PROT_NONE);
		for (;;)
			pause();
	}
	usleep(50000);
	if (ptrace(PTRACE_SEIZE, target, 0, 0) || ptrace(PTRACE_INTERRUPT, target, 0, 0))
		fail("ptrace");
	if (waitpid(target, NULL, __WALL) != target)
		fail("waitpid");

	long *times[WAYS][2];
	for (int way = 0; way < WAYS; way++)
		for (int writes = 0; writes < 2; writes++)
			if (!(times[way][writes] = calloc((size_t)samples, sizeof(long))))
				fail("calloc");
	for (int sample = 0; sample < samples; sample++)
		for (int way = 0; way < WAYS; way++)
			for (int writes = 0; writes < 2; writes++) {
				char *at = region + sample % PAGES * PAGE;
				long begin;

				at += ways[way].is_hidden * PAGES * PAGE;
				begin = now_ns();
				ways[way].make[writes](at);
				times[way][writes][sample] = now_ns() - begin;
			}
	for (int way = 0; way < WAYS; way++)
		for (int writes = 0; writes < 2; writes++) {
			long *of = times[way][writes];
			sort(of, samples);
			printf("%s %s %d %ld %ld %ld\n", ways[way].name, writes ? "write" : "read",
			       samples, of[samples / 2], of[(long)samples * 99 / 100],
			       of[samples - 1]);
		}
	kill(target, SIGKILL);
	return 0;
}
