/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * delegate.c - the cost of delegation between two cores: a round trip of an empty request, and
 * writes of a file, direct and delegated. Two tasks; the first is the delegatee.
 *
 * usage: delegate FILE REPETITIONS MILLISECONDS SIZE...
 *
 * prints for each repetition
 *
 *     OPERATION BYTES NS LINE_BEFORE_NS LINE_AFTER_NS
 *
 * where LINE is the round trip of a cache line to the other core.
 */
#include "pair.h"

#include <pvas_delegate.h>
#include <sys/uio.h>

enum { NOTHING, LEAVE };

static volatile int left;

static long nothing(const struct pvas_delegate_job *job, void *context)
{
	(void)context;
	return (long)job->length;
}

static long leave(const struct pvas_delegate_job *job, void *context)
{
	(void)job, (void)context;
	left = 1;
	return 0;
}

static pvas_delegatee *delegatee;
static int file;
static size_t length;
static char payload[PVAS_DELEGATE_PAYLOAD];

static void call(void)
{
	if (pvas_delegate_call(delegatee, NOTHING, payload, length) != (long)length)
		fail("pvas_delegate_call");
}

static void delegated(void)
{
	struct iovec vector = { out_buffer, length };
	struct pvas_delegate_file_io io = { file, 0, 0, &vector, 1 };
	if (pvas_delegate_call(delegatee, PVAS_DELEGATE_PWRITEV, &io, sizeof io) != (long)length)
		fail("PVAS_DELEGATE_PWRITEV");
}

static void direct(void)
{
	struct iovec vector = { out_buffer, length };
	if (pwritev(file, &vector, 1, 0) != (ssize_t)length)
		fail("pwritev");
}

static double times_ns(void (*what)(void), int n)
{
	int64_t begin = now_ns();
	for (int i = 0; i < n; i++)
		what();
	return (double)(now_ns() - begin) / n;
}

/* The median of short batches. */
static double batches_ns(void (*what)(void), int milliseconds)
{
	static double batches[BATCHES_MAX];
	enum { BATCH_NS = 50000 };
	int each = (int)(BATCH_NS / times_ns(what, 20)) + 1;
	double fit = milliseconds * 1e6 / (times_ns(what, each) * each);
	int n = fit < 3 ? 3 : fit > BATCHES_MAX ? BATCHES_MAX : (int)fit;
	for (int b = 0; b < n; b++)
		batches[b] = times_ns(what, each);
	qsort(batches, (size_t)n, sizeof *batches, by_value);
	return batches[n / 2];
}

/* Runs on both tasks; the delegatee serves meanwhile. */
static void measure_calls(const char *way, void (*what)(void), int repetitions, int milliseconds)
{
	double before = 2 * line_ns();
	for (int r = 0; r < repetitions; r++) {
		double ns = 0;
		if (me == 0) {
			for (left = 0; !left;)
				if (pvas_delegate_serve(-1) != 1)
					fail("pvas_delegate_serve");
		} else {
			ns = batches_ns(what, milliseconds);
			if (pvas_delegate_call(delegatee, LEAVE, NULL, 0) != 0)
				fail("pvas_delegate_call");
		}
		double after = 2 * line_ns();
		if (me == 1)
			printf("%s %zu %.1f %.1f %.1f\n", way, length, ns, before, after);
		before = after;
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: %s FILE REPETITIONS MILLISECONDS SIZE...\n", argv[0]);
		return 1;
	}
	static const size_t payloads[] = { 0, PVAS_DELEGATE_INLINE, PVAS_DELEGATE_PAYLOAD };
	int repetitions = atoi(argv[2]), milliseconds = atoi(argv[3]);
	pair_begin(argv[1]);
	/* The same number in both, so that the file is the same. */
	file = memfd_create("written", MFD_CLOEXEC);
	if (file < 0)
		fail("memfd_create");
	if (me == 0) {
		if (pvas_delegate_open(0, PVAS_DELEGATE_FILES) ||
		    pvas_delegate_register(NOTHING, nothing, NULL) ||
		    pvas_delegate_register(LEAVE, leave, NULL))
			fail("pvas_delegate_open");
		shared->word = (uint64_t)atoi(getenv("NAGAYA_TASK_ID")) << 32 | (unsigned)file;
	}
	meet();
	if (me == 1) {
		delegatee = pvas_delegate_find((int)(shared->word >> 32), -1);
		if (!delegatee)
			fail("pvas_delegate_find");
	}
	for (size_t p = 0; p < sizeof payloads / sizeof *payloads; p++) {
		length = payloads[p];
		measure_calls("empty", call, repetitions, milliseconds);
	}
	for (int a = 4; a < argc; a++) {
		length = strtoul(argv[a], NULL, 10);
		if (length > MESSAGE_MAX)
			errno = EINVAL, fail("size");
		int own = file;
		measure_calls("direct", direct, repetitions, milliseconds);
		file = (int)(uint32_t)shared->word;
		measure_calls("delegated", delegated, repetitions, milliseconds);
		file = own;
	}
	return 0;
}
