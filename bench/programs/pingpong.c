/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pingpong.c - one-way time of MPI messages between two ranks of one machine, and the time
 * of a message in a stream.
 *
 *     pingpong WHAT REPETITIONS MILLISECONDS SIZE...
 *
 * WHAT is "unchanged", "fresh", "stream", or some of these with commas. For each SIZE (bytes,
 * a multiple of 4, or 0) the ranks send messages for about MILLISECONDS, REPETITIONS
 * times; rank 0 prints one line for each repetition:
 *
 *     WHAT SIZE ITERATIONS NS DISTANCE_BEFORE_NS DISTANCE_AFTER_NS
 *
 * "unchanged" and "fresh" are ping-pongs, one message at a time; "stream" is a rate.
 *
 * How the time is taken. Both ranks read the same clock (CLOCK_MONOTONIC is one for the
 * machine). The sender stamps just before MPI_Send, the receiver just after its MPI_Recv
 * returned; their difference is the one-way time of that message. What an iteration
 * counts is the mean of its two messages, what a repetition reports is the mean of the
 * middle half of its iterations (as robust to outliers as a median, but finer than the
 * resolution of the clock, which is some per cent of a small message). The time between a
 * receive and the next send is in no interval, so:
 *
 *  - "unchanged" buffers are written once, and sent again and again, as most ping-pong
 *    programs do. The sender's buffer then stays in the *receiver's* cache, too, which
 *    flatters every mechanism.
 *  - "fresh" buffers are written anew, every word of them, before each send: the receiver
 *    must fetch lines that the other core has just modified, as in a real program. The
 *    writing is done before the stamp, while the partner already waits in MPI_Recv.
 *
 * A "stream" goes one way, like usual message-rate benchmarks: rank 0 sends a window of messages,
 * for which rank 1 posts receives, and waits for an acknowledgement of the window. An iteration is
 * a window; a repetition reports its time divided by the number of messages. The buffers are
 * unchanged; each message has its own on both sides.
 *
 * The distances show the placement of the two ranks: the time from one core's write to the
 * other's read, measured on a shared cache line just before and after the repetition. In a
 * virtual machine it changes with the host's placement of the processors, by a factor of
 * five, and all times with it; only samples at one distance are comparable.
 *
 * Every message is checked after the stamp: three of its words in measured iterations,
 * all of them in the warm-up; of a stream those of the last window, into cleared buffers. A
 * wrong word ends the program with status 1.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ITERATIONS_MIN = 4, ITERATIONS_MAX = 4000, SIZES_MAX = 64 };
enum { HAND_OVERS = 400, BATCHES = 5 };
/* Messages of a window; fewer if their buffers exceed this memory. */
enum { WINDOW_MAX = 64, WINDOW_BYTES = 16 << 20 };

static int rank;
static uint32_t *send_buffer, *receive_buffer;
static _Atomic uint64_t *shared_word; /* on a separate cache line; only increases */
static int64_t sent[ITERATIONS_MAX], received[ITERATIONS_MAX];

static void fail(const char *what)
{
	fprintf(stderr, "pingpong: rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The first word of a message; word k is this plus k. */
static uint32_t first_word(int sender, int iteration)
{
	return ((uint32_t)iteration << 20) + (uint32_t)(sender + 1);
}

static void write_message(uint32_t *buffer, size_t words, int iteration)
{
	uint32_t first = first_word(rank, iteration);
	for (size_t k = 0; k < words; k++)
		buffer[k] = first + (uint32_t)k;
}

static void check_message(const uint32_t *buffer, size_t words, int iteration, int every_word)
{
	uint32_t first = first_word(!rank, iteration);
	if (words == 0)
		return;
	if (every_word) {
		for (size_t k = 0; k < words; k++)
			if (buffer[k] != first + (uint32_t)k)
				fail("a message arrived with wrong contents");
		return;
	}
	size_t places[3] = { 0, words / 2, words - 1 };
	for (int p = 0; p < 3; p++)
		if (buffer[places[p]] != first + (uint32_t)places[p])
			fail("a message arrived with wrong contents");
}

/* `n` round trips of `size` bytes; leaves the stamps in `sent` and `received`. */
static void round_trips(int size, int n, int fresh, int warm_up)
{
	size_t words = (size_t)size / sizeof(uint32_t);
	if (!fresh)
		write_message(send_buffer, words, 0);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < n; i++) {
		if (rank == 1) {
			MPI_Recv(receive_buffer, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			received[i] = now_ns();
			check_message(receive_buffer, words, fresh ? i : 0, warm_up);
		}
		if (fresh)
			write_message(send_buffer, words, i);
		sent[i] = now_ns();
		MPI_Send(send_buffer, size, MPI_BYTE, !rank, 0, MPI_COMM_WORLD);
		if (rank == 0) {
			MPI_Recv(receive_buffer, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			received[i] = now_ns();
			check_message(receive_buffer, words, fresh ? i : 0, warm_up);
		}
	}
}

/* Returns the number of messages of a window. */
static int window_of(int size)
{
	int fit = size ? WINDOW_BYTES / size : WINDOW_MAX;
	return fit < 1 ? 1 : fit > WINDOW_MAX ? WINDOW_MAX : fit;
}

/* `n` windows of messages of `size` bytes from rank 0 to rank 1; returns the time of a message,
 * in ns. */
static double stream_ns(int size, int n, int warm_up)
{
	MPI_Request requests[WINDOW_MAX];
	size_t words = (size_t)size / sizeof(uint32_t);
	int window = window_of(size);
	for (int m = 0; m < window; m++) {
		if (rank == 0)
			write_message(send_buffer + (size_t)m * words, words, m);
		else
			memset(receive_buffer + (size_t)m * words, 0, (size_t)size);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	int64_t begin = now_ns();
	for (int i = 0; i < n; i++) {
		for (int m = 0; m < window; m++) {
			if (rank == 0)
				MPI_Isend(send_buffer + (size_t)m * words, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD,
				          &requests[m]);
			else
				MPI_Irecv(receive_buffer + (size_t)m * words, size, MPI_BYTE, 0, 0,
				          MPI_COMM_WORLD, &requests[m]);
		}
		MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
		if (rank == 0)
			MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
	}
	double ns = (double)(now_ns() - begin) / n / window;
	for (int m = 0; rank == 1 && m < window; m++)
		check_message(receive_buffer + (size_t)m * words, words, m, warm_up);
	return ns;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Mean of the middle half of the one-way times, in ns, from the stamps of both ranks; on
 * rank 0. */
static double usual_one_way_ns(int n)
{
	static int64_t partner_sent[ITERATIONS_MAX], partner_received[ITERATIONS_MAX];
	static double one_way[ITERATIONS_MAX];
	if (rank == 1) {
		MPI_Send(sent, n, MPI_INT64_T, 0, 1, MPI_COMM_WORLD);
		MPI_Send(received, n, MPI_INT64_T, 0, 1, MPI_COMM_WORLD);
		return 0;
	}
	MPI_Recv(partner_sent, n, MPI_INT64_T, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Recv(partner_received, n, MPI_INT64_T, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < n; i++) {
		int64_t to = partner_received[i] - sent[i];
		int64_t fro = received[i] - partner_sent[i];
		one_way[i] = (double)(to + fro) / 2;
	}
	qsort(one_way, (size_t)n, sizeof *one_way, by_value);
	double sum = 0;
	int from = n / 4, to = n - n / 4;
	for (int i = from; i < to; i++)
		sum += one_way[i];
	return sum / (to - from);
}

/* A word that both ranks map, in a file that rank 0 creates. (Not a window of MPI: with some of
 * the measured settings an MPI does not know that the ranks are on one node.) */
static void share_a_word(void)
{
	char name[64] = "/dev/shm/nagaya-pingpong-XXXXXX";
	int file = -1;
	if (rank == 0 && ((file = mkstemp(name)) < 0 || ftruncate(file, 4096)))
		fail("no file can be made in /dev/shm");
	MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
	if (rank == 1 && (file = open(name, O_RDWR | O_CLOEXEC)) < 0)
		fail("needs two ranks on one machine");
	void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED)
		fail("a file in /dev/shm cannot be mapped");
	close(file);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		unlink(name);
	shared_word = (_Atomic uint64_t *)((char *)memory + 1024);
}

/* Tells the processor that this thread spins. */
static void relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* The time from one rank's write to the other's read, ns: of some batches the fastest,
 * which was not interrupted. The ranks raise the word in turns, rank 0 the even values. */
static double distance_ns(void)
{
	static uint64_t value;
	double fastest = 1e12;
	for (int batch = 0; batch < BATCHES; batch++) {
		MPI_Barrier(MPI_COMM_WORLD);
		int64_t begin = now_ns();
		for (int i = 0; i < HAND_OVERS; i++, value++) {
			if ((value & 1) == (uint64_t)rank)
				atomic_store_explicit(shared_word, value + 1, memory_order_release);
			else
				while (atomic_load_explicit(shared_word, memory_order_acquire) == value)
					relax();
		}
		double each = (double)(now_ns() - begin) / HAND_OVERS;
		fastest = each < fastest ? each : fastest;
	}
	return fastest;
}

enum what { UNCHANGED, FRESH, STREAM, WHATS };
static const char *const whats[WHATS] = { "unchanged", "fresh", "stream" };

/* `n` iterations; returns on rank 0 the time of a message, in ns. */
static double iterate(enum what what, int size, int n, int warm_up)
{
	if (what == STREAM)
		return stream_ns(size, n, warm_up);
	round_trips(size, n, what == FRESH, warm_up);
	return usual_one_way_ns(n);
}

static void measure(enum what what, int size, int repetitions, int milliseconds)
{
	int64_t start = 0;
	int warm_up = size < 1 << 20 ? 10 : 3;
	for (int pass = 0; pass < 2; pass++) { /* the first one includes page faults and set-up */
		start = now_ns();
		iterate(what, size, warm_up, 1);
	}
	double each_ns = (double)(now_ns() - start) / warm_up;
	double fit = milliseconds * 1e6 / each_ns;
	int n = fit < ITERATIONS_MIN ? ITERATIONS_MIN : fit > ITERATIONS_MAX ? ITERATIONS_MAX : (int)fit;
	MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
	double before = distance_ns();
	for (int r = 0; r < repetitions; r++) {
		double ns = iterate(what, size, n, 0), after = distance_ns();
		if (rank == 0) {
			printf("%s %d %d %.1f %.1f %.1f\n", whats[what], size, n, ns, before, after);
			fflush(stdout);
		}
		before = after;
	}
}

int main(int argc, char **argv)
{
	int ranks, sizes[SIZES_MAX], n_sizes = 0, largest = 1;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2)
		fail("needs two ranks");
	if (argc < 5 || argc - 4 > SIZES_MAX)
		fail("usage: pingpong unchanged,fresh,stream REPETITIONS MILLISECONDS SIZE...");
	for (int a = 4; a < argc; a++) {
		int size = atoi(argv[a]), window = strstr(argv[1], whats[STREAM]) ? window_of(size) : 1;
		if (size < 0 || size % (int)sizeof(uint32_t))
			fail("a size must be a multiple of 4");
		sizes[n_sizes++] = size;
		largest = size * window > largest ? size * window : largest;
	}
	int repetitions = atoi(argv[2]), milliseconds = atoi(argv[3]);
	send_buffer = aligned_alloc(4096, ((size_t)largest + 4095) / 4096 * 4096);
	receive_buffer = aligned_alloc(4096, ((size_t)largest + 4095) / 4096 * 4096);
	if (!send_buffer || !receive_buffer)
		fail("no memory for the buffers");
	share_a_word();
	for (enum what what = 0; what < WHATS; what++)
		if (strstr(argv[1], whats[what]))
			for (int s = 0; s < n_sizes; s++)
				measure(what, sizes[s], repetitions, milliseconds);
	MPI_Finalize();
	return 0;
}
