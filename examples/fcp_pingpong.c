/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * fcp_pingpong - two processes send a message to and fro by FCP, FCP plus and FCP II.
 *
 *	cc fcp_pingpong.c -o fcp_pingpong $(pkg-config --cflags --libs fcp)
 *	./fcp_pingpong [BYTES...]
 *
 * The child is given the window's descriptor, as any process could be.
 */
#define _GNU_SOURCE
#include <fcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PARENT = 1, CHILD = 2 };

static void fail(const char *doing)
{
	fprintf(stderr, "fcp_pingpong: %s: %s\n", doing, FCP_reason());
	exit(1);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void turn(FCP_port *port, uint32_t to, char *message, size_t size, int first)
{
	for (int half = 0; half < 2; half++) {
		if (half == !first) {
			if (FCP_send(port, to, message, size, 10) != 0)
				fail("send");
		} else if (FCP_recv(port, &to, 1, message, size, NULL, 10) != (int64_t)size) {
			fail("receive");
		}
	}
}

static void measure(int protocol, const char *name, size_t size)
{
	int listed = protocol != FCP_PROTOCOL_II;
	struct VCL_plan plan = {
		.fields = VCL_PLAN_MEMBERS | VCL_PLAN_PROTOCOL,
		.members = 4,
		.protocol = listed ? FCP_PROTOCOL_FCP : FCP_PROTOCOL_II,
	};
	VCL_window *window;
	FCP_port *port;
	if (VCL_open(NULL, &plan, &window) != 0)
		fail("window");
	if (FCP_alloc(window, PARENT, 0, protocol, &port) != 0)
		fail("port");
	char *message = calloc(1, size + 1);
	int turns = size < 65536 ? 20000 : 500;
	pid_t child = fork();
	if (child == 0) {
		char where[32];
		VCL_window *ours;
		FCP_port *mine;
		snprintf(where, sizeof where, "fd:%d", VCL_descriptor(window));
		if (VCL_open(where, NULL, &ours) != 0)
			fail("window again");
		if (FCP_alloc(ours, CHILD, 0, protocol, &mine) != 0)
			fail("port of the child");
		/* The first message announces this process. */
		if (FCP_send(mine, PARENT, "", 0, 10) != 0)
			fail("send");
		for (int i = 0; i < turns; i++)
			turn(mine, PARENT, message, size, 0);
		exit(0);
	}
	if (FCP_recv(port, NULL, 0, NULL, 0, NULL, 10) != 0)
		fail("hear from the child");
	memset(message, 'x', size);
	double begin = now();
	for (int i = 0; i < turns; i++)
		turn(port, CHILD, message, size, 1);
	double each = (now() - begin) / (2.0 * turns);
	printf("%-8s %8zu B %10.2f us %10.1f MB/s\n", name, size, each * 1e6, size / each / 1e6);
	int status = 0;
	waitpid(child, &status, 0);
	free(message);
	FCP_free(port);
	VCL_close(window);
	if (status != 0)
		exit(1);
}

int main(int argc, char **argv)
{
	static char *usual[] = {"4", "4096", "1048576"};
	char **sizes = argc > 1 ? argv + 1 : usual;
	int count = argc > 1 ? argc - 1 : 3;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < count; i++) {
		size_t size = strtoull(sizes[i], NULL, 10);
		measure(FCP_PROTOCOL_FCP, "FCP", size);
		measure(FCP_PROTOCOL_PLUS, "FCP plus", size);
		measure(FCP_PROTOCOL_II, "FCP II", size);
	}
	return 0;
}
