/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * fcp_messages.c - messages by FCP's three protocols, between two processes or two tasks of
 * a space.
 *
 *     fcp_messages FILE TRANSPORTS REPETITIONS MILLISECONDS SIZE...
 *
 * FILE is empty, and in memory (/dev/shm); windows are made beside it, as FILE.TRANSPORT.
 * TRANSPORTS, with commas: "fcp", "fcp-plus", "fcp2"; "fcp2-huge", which is fcp2 with messages that
 * lie in huge pages; and "fcp2-space", which is the name of fcp2 between tasks. Prints lines as in
 * pair.h. Under `nagaya run -n 2` the two tasks are the pair; otherwise the program forks.
 */
#include "pair.h"

#include <fcp.h>

static FCP_port *port;

static void check(int64_t status, const char *what)
{
	if (status < 0) {
		fprintf(stderr, "process %d: %s: %s\n", me, what, FCP_reason());
		exit(1);
	}
}

static inline void fcp_send(size_t bytes)
{
	check(FCP_send(port, (uint32_t)!me, out_buffer, bytes, -1), "FCP_send");
}

static inline void fcp_receive(size_t bytes)
{
	check(FCP_recv(port, NULL, 0, in_buffer, bytes, NULL, -1), "FCP_recv");
}

/* Allocates memory for a message in huge pages, if the kernel has them. */
static uint32_t *huge_buffer(void)
{
	enum { HUGE = 2 << 20 };
	void *buffer = aligned_alloc(HUGE, MESSAGE_MAX);
	if (!buffer || madvise(buffer, MESSAGE_MAX, MADV_HUGEPAGE))
		fail("huge pages");
	memset(buffer, 1, MESSAGE_MAX);
	return buffer;
}

static const struct {
	const char *name;
	int window, port, huge;
} ways[] = {
	{ "fcp", FCP_PROTOCOL_FCP, FCP_PROTOCOL_FCP, 0 },
	{ "fcp-plus", FCP_PROTOCOL_FCP, FCP_PROTOCOL_PLUS, 0 },
	{ "fcp2", FCP_PROTOCOL_II, FCP_PROTOCOL_II, 0 },
	{ "fcp2-space", FCP_PROTOCOL_II, FCP_PROTOCOL_II, 0 },
	{ "fcp2-huge", FCP_PROTOCOL_II, FCP_PROTOCOL_II, 1 },
};

/* Returns 1 if a list with commas has this word. */
static int has(const char *list, const char *word)
{
	size_t length = strlen(word);
	for (const char *at = list; (at = strstr(at, word)); at += length)
		if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ','))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 6) {
		fprintf(stderr, "usage: %s FILE WAYS REPETITIONS MILLISECONDS SIZE...\n", argv[0]);
		return 1;
	}
	pid_t child = pair_begin_both(argv[1]);
	int repetitions = atoi(argv[3]), milliseconds = atoi(argv[4]);
	for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
		struct VCL_plan plan = { .fields = VCL_PLAN_PROTOCOL, .protocol = ways[w].window };
		char where[256];
		VCL_window *window;
		if (!has(argv[2], ways[w].name))
			continue;
		snprintf(where, sizeof where, "%s.%s", argv[1], ways[w].name);
		if (ways[w].huge)
			out_buffer = huge_buffer(), in_buffer = huge_buffer();
		check(VCL_open(where, &plan, &window), "VCL_open");
		check(FCP_alloc(window, (uint32_t)me, 0, ways[w].port, &port), "FCP_alloc");
		meet();
		for (int a = 5; a < argc; a++)
			measure(ways[w].name, fcp_send, fcp_receive, strtoul(argv[a], NULL, 10), repetitions,
			        milliseconds);
		meet();
		FCP_free(port);
		VCL_close(window);
		if (me == 0)
			unlink(where);
	}
	return pair_end(child);
}
