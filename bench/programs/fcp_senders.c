/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * fcp_senders.c - the rate of messages that a process receives from many others.
 *
 *     fcp_senders WINDOW TRANSPORTS REPETITIONS MESSAGES BYTES SENDERS...
 *
 * WINDOW is a path in /dev/shm at which windows are made, as WINDOW.TRANSPORT; TRANSPORTS, with
 * commas: "fcp", "fcp-plus", "fcp2". For each number of SENDERS so many processes send MESSAGES in
 * all, of BYTES, as fast as they can. A line for each repetition:
 *
 *     TRANSPORT SENDERS BYTES MESSAGES NANOSECONDS
 *
 * from the start signal of the receiver. It checks the order of the messages of each sender.
 */
#define _GNU_SOURCE
#include <fcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SENDERS_MAX = 32, BYTES_MAX = 4096 };

static char buffer[BYTES_MAX];
static int bytes;

static void check(int64_t status, const char *what)
{
	if (status < 0) {
		fprintf(stderr, "%s: %s\n", what, FCP_reason());
		exit(1);
	}
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Sends `messages` in each repetition, after the start signal of the receiver. */
static void be_sender(VCL_window *window, uint32_t id, int protocol, int messages, int repetitions)
{
	FCP_port *port;
	uint32_t number = 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	check(FCP_alloc(window, id, 0, protocol, &port), "FCP_alloc");
	check(FCP_send(port, 0, "here", 4, -1), "FCP_send");
	for (int r = 0; r < repetitions; r++) {
		check(FCP_recv(port, NULL, 0, buffer, sizeof buffer, NULL, -1), "FCP_recv");
		for (int m = 0; m < messages; m++, number++) {
			memcpy(buffer, &number, sizeof number);
			check(FCP_send(port, 0, buffer, (size_t)bytes, -1), "FCP_send");
		}
	}
	FCP_free(port);
	exit(0);
}

static void receive_all(FCP_port *port, const char *way, int senders, int messages, int repetitions)
{
	uint32_t next[SENDERS_MAX + 1] = { 0 }, from, number;
	for (int s = 0; s < senders; s++)
		check(FCP_recv(port, NULL, 0, buffer, sizeof buffer, NULL, -1), "FCP_recv");
	for (int r = 0; r < repetitions; r++) {
		int64_t begin = now_ns();
		for (int s = 0; s < senders; s++)
			check(FCP_send(port, (uint32_t)s + 1, "go", 2, -1), "FCP_send");
		for (int m = 0; m < messages * senders; m++) {
			check(FCP_recv(port, NULL, 0, buffer, sizeof buffer, &from, -1), "FCP_recv");
			memcpy(&number, buffer, sizeof number);
			if (from < 1 || from > (uint32_t)senders || number != next[from]++) {
				fprintf(stderr, "%s: message %u of %u is not in order\n", way, number, from);
				exit(1);
			}
		}
		printf("%s %d %d %d %lld\n", way, senders, bytes, messages * senders,
		       (long long)(now_ns() - begin));
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int window, port;
	} ways[] = { { "fcp", FCP_PROTOCOL_FCP, FCP_PROTOCOL_FCP },
		         { "fcp-plus", FCP_PROTOCOL_FCP, FCP_PROTOCOL_PLUS },
		         { "fcp2", FCP_PROTOCOL_II, FCP_PROTOCOL_II } };
	if (argc < 7) {
		fprintf(stderr, "usage: %s WINDOW WAYS REPETITIONS MESSAGES BYTES SENDERS...\n", argv[0]);
		return 1;
	}
	int repetitions = atoi(argv[3]), failed = 0;
	bytes = atoi(argv[5]);
	for (int a = 6; a < argc; a++)
		for (char *list = strdup(argv[2]), *way = strtok(list, ","); way; way = strtok(NULL, ",")) {
			size_t w = 0;
			int senders = atoi(argv[a]), messages = atoi(argv[4]) / (senders > 0 ? senders : 1);
			while (w < 3 && strcmp(ways[w].name, way))
				w++;
			if (w == 3 || senders < 1 || senders > SENDERS_MAX || bytes < 4 || bytes > BYTES_MAX) {
				fprintf(stderr, "%s: a way, 1 to %d senders, 4 to %d bytes\n", way, SENDERS_MAX,
				        BYTES_MAX);
				return 1;
			}
			struct VCL_plan plan = { .fields = VCL_PLAN_PROTOCOL, .protocol = ways[w].window };
			char where[256];
			VCL_window *window;
			FCP_port *port;
			snprintf(where, sizeof where, "%s.%s", argv[1], way);
			check(VCL_open(where, &plan, &window), "VCL_open");
			check(FCP_alloc(window, 0, 0, ways[w].port, &port), "FCP_alloc");
			for (int s = 1; s <= senders; s++) {
				pid_t child = fork();
				if (child == 0) { /* opens the window itself, like another program */
					check(VCL_open(where, &plan, &window), "VCL_open");
					be_sender(window, (uint32_t)s, ways[w].port, messages, repetitions);
				}
			}
			receive_all(port, way, senders, messages, repetitions);
			for (int s = 0, status; s < senders; s++)
				failed |= wait(&status) < 0 || status != 0;
			FCP_free(port);
			VCL_close(window);
			unlink(where);
		}
	return failed;
}
