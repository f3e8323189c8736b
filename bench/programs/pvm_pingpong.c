/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvm_pingpong.c - one-way time of PVM messages between two tasks.
 *
 *     pvm_pingpong 2 PLACES ENCODINGS ROUTE CORES BUFFERS REPETITIONS MILLISECONDS SIZE...
 *
 * ENCODINGS are "xdr", "raw" and "inplace", BUFFERS "unchanged" and "fresh", with commas;
 * ROUTE is "default", "direct" (PvmRouteDirect) or "daemon" (PvmDontRoute); CORES "bound",
 * if each task stays on its own core, or "free". SIZE is in bytes, a multiple of 4:
 * messages are packed as ints, whose byte order XDR changes. Prints a line for each repetition:
 *
 *     ENCODING-BUFFERS SIZE ITERATIONS ONE_WAY_NS
 *
 * The sender stamps before pvm_initsend, the receiver when it has unpacked; both read the
 * same clock. So the time includes packing and unpacking, as in a program. As
 * in pingpong.c, a repetition reports the mean of the middle half of its iterations; fresh
 * buffers are written anew before each stamp, and every message is checked after it.
 */
#include "cores.h"
#include "pvm_job.h"

enum { ITERATIONS_MIN = 4, ITERATIONS_MAX = 4000, TAG_BALL = 1, TAG_STAMPS, TAG_TURNS };

static int *send_buffer, *receive_buffer;
static int64_t sent[ITERATIONS_MAX], received[ITERATIONS_MAX];

/* The first word of a message; word k is this plus k. */
static unsigned first_word(int sender, int iteration)
{
	return ((unsigned)iteration << 20) + (unsigned)sender + 1;
}

static void write_message(int words, int iteration)
{
	unsigned first = first_word(task, iteration);
	for (int k = 0; k < words; k++)
		send_buffer[k] = (int)(first + (unsigned)k);
}

static void check_message(int words, int iteration, int every_word)
{
	unsigned first = first_word(!task, iteration);
	int step = every_word || words < 3 ? 1 : (words - 1) / 2;
	for (int k = 0; k < words; k += step)
		if ((unsigned)receive_buffer[k] != first + (unsigned)k)
			fail("a message arrived with wrong contents, word", k);
}

static void send_ball(int words, int encoding)
{
	CHECK(pvm_initsend(encoding));
	CHECK(pvm_pkint(send_buffer, words, 1));
	CHECK(pvm_send(tids[!task], TAG_BALL));
}

static void receive_ball(int words)
{
	CHECK(pvm_recv(tids[!task], TAG_BALL));
	CHECK(pvm_upkint(receive_buffer, words, 1));
}

/* `n` round trips; leaves the stamps in `sent` and `received`. */
static void round_trips(int words, int encoding, int n, int fresh, int warm_up)
{
	if (!fresh)
		write_message(words, 0);
	for (int i = 0; i < n; i++) {
		if (task == 1) {
			receive_ball(words);
			received[i] = now_ns();
			check_message(words, fresh ? i : 0, warm_up);
		}
		if (fresh)
			write_message(words, i);
		sent[i] = now_ns();
		send_ball(words, encoding);
		if (task == 0) {
			receive_ball(words);
			received[i] = now_ns();
			check_message(words, fresh ? i : 0, warm_up);
		}
	}
}

/* Of the one-way times, from the stamps of both tasks; on task 0. */
static double usual_one_way_ns(int n)
{
	static int64_t partner_sent[ITERATIONS_MAX], partner_received[ITERATIONS_MAX];
	static double one_way[ITERATIONS_MAX];
	if (task == 1) {
		CHECK(pvm_initsend(PvmDataRaw));
		CHECK(pvm_pklong(sent, n, 1));
		CHECK(pvm_pklong(received, n, 1));
		CHECK(pvm_send(tids[0], TAG_STAMPS));
		return 0;
	}
	CHECK(pvm_recv(tids[1], TAG_STAMPS));
	CHECK(pvm_upklong(partner_sent, n, 1));
	CHECK(pvm_upklong(partner_received, n, 1));
	for (int i = 0; i < n; i++)
		one_way[i] = (double)(partner_received[i] - sent[i] + received[i] - partner_sent[i]) / 2;
	return mean_of_middle_half(one_way, n);
}

/* Returns the number of round trips that fit, which task 0 sends to the other. */
static int agree(double round_trip_ns, int milliseconds)
{
	double fit = milliseconds * 1e6 / round_trip_ns;
	int n = fit < ITERATIONS_MIN ? ITERATIONS_MIN : fit > ITERATIONS_MAX ? ITERATIONS_MAX : (int)fit;
	if (task == 0) {
		CHECK(pvm_initsend(PvmDataRaw));
		CHECK(pvm_pkint(&n, 1, 1));
		CHECK(pvm_send(tids[1], TAG_TURNS));
	} else {
		CHECK(pvm_recv(tids[0], TAG_TURNS));
		CHECK(pvm_upkint(&n, 1, 1));
	}
	return n;
}

static void measure_size(int size, int encoding, const char *name, int fresh)
{
	int repetitions = atoi(argument[4]), milliseconds = atoi(argument[5]);
	int words = size / (int)sizeof(int), warm_up = size < 1 << 20 ? 10 : 3;
	int64_t start = 0;
	for (int pass = 0; pass < 2; pass++) { /* the first one includes page faults and set-up */
		start = now_ns();
		round_trips(words, encoding, warm_up, fresh, 1);
	}
	int n = agree((double)(now_ns() - start) / warm_up, milliseconds);
	for (int r = 0; r < repetitions; r++) {
		round_trips(words, encoding, n, fresh, 0);
		double ns = usual_one_way_ns(n);
		if (task == 0)
			say("%s-%s %d %d %.1f", name, fresh ? "fresh" : "unchanged", size, n, ns);
	}
}

static void stay_on_a_core(void)
{
	cpu_set_t allowed;
	if (!sched_getaffinity(0, sizeof allowed, &allowed) && CPU_COUNT(&allowed) >= tasks)
		stay_on(task);
}

static void measure(void)
{
	static const struct {
		const char *name;
		int value;
	} encodings[] = { { "xdr", PvmDataDefault }, { "raw", PvmDataRaw }, { "inplace", PvmDataInPlace } };
	int largest = 0;
	if (tasks != 2 || arguments < 7)
		fail("usage: 2 PLACES ENCODINGS ROUTE CORES BUFFERS REPETITIONS MILLISECONDS SIZE...", 0);
	if (strcmp(argument[1], "default"))
		CHECK(pvm_setopt(PvmRoute, strcmp(argument[1], "direct") ? PvmDontRoute : PvmRouteDirect));
	if (!strcmp(argument[2], "bound"))
		stay_on_a_core();
	for (int a = 6; a < arguments; a++) {
		int size = atoi(argument[a]);
		if (size <= 0 || size % (int)sizeof(int))
			fail("a size must be a positive multiple of 4", size);
		largest = size > largest ? size : largest;
	}
	send_buffer = aligned_alloc(4096, ((size_t)largest + 4095) / 4096 * 4096);
	receive_buffer = aligned_alloc(4096, ((size_t)largest + 4095) / 4096 * 4096);
	if (!send_buffer || !receive_buffer)
		fail("no memory for the buffers", largest);
	for (size_t e = 0; e < sizeof encodings / sizeof *encodings; e++)
		for (int fresh = 0; fresh < 2; fresh++)
			if (strstr(argument[0], encodings[e].name) &&
			    strstr(argument[3], fresh ? "fresh" : "unchanged"))
				for (int a = 6; a < arguments; a++)
					measure_size(atoi(argument[a]), encodings[e].value, encodings[e].name, fresh);
}

int main(int argc, char **argv)
{
	return job(argc, argv, measure);
}
