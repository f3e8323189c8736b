/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvm_stream.c - the rate of one-way messages.
 *
 *     pvm_stream TASKS PLACES ENCODING ROUTE REPETITIONS MESSAGES SIZE...
 *
 * All tasks but the first send MESSAGES of SIZE bytes to it, one after the other, at full speed;
 * it unpacks each, and checks their order. ENCODING and ROUTE as in pvm_pingpong. Prints a line
 * for each repetition:
 *
 *     SENDERS SIZE MESSAGES_IN_ALL NANOSECONDS
 *
 * from the start signal of the receiver until it has unpacked the last one.
 */
#include "pvm_job.h"

enum { TAG_BEGIN = 1, TAG_LOAD };

static char *buffer;

static void send_all(int messages, int size, int encoding)
{
	for (int i = 0; i < messages; i++) {
		memcpy(buffer, &i, sizeof i);
		CHECK(pvm_initsend(encoding));
		CHECK(pvm_pkbyte(buffer, size, 1));
		CHECK(pvm_send(tids[0], TAG_LOAD));
	}
}

static void receive_all(int messages, int size)
{
	static int next[TASKS_MAX];
	memset(next, 0, sizeof next);
	for (int i = 0; i < messages * (tasks - 1); i++) {
		int bytes, tag, from, nth, sender = 1;
		int message = CHECK(pvm_recv(-1, TAG_LOAD));
		CHECK(pvm_bufinfo(message, &bytes, &tag, &from));
		CHECK(pvm_upkbyte(buffer, size, 1));
		memcpy(&nth, buffer, sizeof nth);
		while (sender < tasks && tids[sender] != from)
			sender++;
		if (sender == tasks || next[sender]++ != nth)
			fail("messages are not in order, number", nth);
	}
}

static void measure(void)
{
	if (tasks < 2 || arguments < 5)
		fail("usage: TASKS PLACES ENCODING ROUTE REPETITIONS MESSAGES SIZE...", 0);
	int encoding = !strcmp(argument[0], "inplace") ? PvmDataInPlace
	             : !strcmp(argument[0], "raw")     ? PvmDataRaw
	                                               : PvmDataDefault;
	if (strcmp(argument[1], "default"))
		CHECK(pvm_setopt(PvmRoute, strcmp(argument[1], "direct") ? PvmDontRoute : PvmRouteDirect));
	int repetitions = atoi(argument[2]), messages = atoi(argument[3]);
	for (int a = 4; a < arguments; a++) {
		int size = atoi(argument[a]);
		if (size < (int)sizeof(int) || !(buffer = calloc(1, (size_t)size)))
			fail("a size must be 4 bytes or more", size);
		for (int r = -1; r < repetitions; r++) { /* the first one establishes the routes */
			int n = r < 0 ? 1 : messages;
			if (task != 0) {
				CHECK(pvm_recv(tids[0], TAG_BEGIN));
				send_all(n, size, encoding);
				continue;
			}
			int64_t begin = now_ns();
			CHECK(pvm_initsend(PvmDataRaw));
			CHECK(pvm_mcast(tids + 1, tasks - 1, TAG_BEGIN));
			receive_all(n, size);
			int64_t ns = now_ns() - begin;
			if (r >= 0)
				say("%d %d %d %lld", tasks - 1, size, n * (tasks - 1), (long long)ns);
		}
		free(buffer);
	}
}

int main(int argc, char **argv)
{
	return job(argc, argv, measure);
}
