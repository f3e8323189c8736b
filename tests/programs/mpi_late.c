/* Rank 1 computes while rank 0 sends it messages of 3 to 64 KiB. After a few of them no send waits
 * for the receiver any more. Every message arrives whole and in order, although rank 0 overwrites
 * its data as soon as a call allows it.
 *
 * usage: mpi_late FILE, an empty one, by which the ranks meet without the MPI */
#include "mpi_check.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

enum { WORDS = 16384, TRAINING = 20, LAST = 8, MANY = 150, ATTEMPTS = 10 };

/* Shared by the ranks: the last step that rank 0 has announced. */
static _Atomic int *announced;
/* The number of the present step, counted by both ranks alike. */
static int step;
static int data[WORDS], taken[MANY][WORDS];

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Computes until rank 0 has announced the present step, for 5 s at most. */
static int is_announced(void)
{
	double begin = seconds();
	while (*announced < step)
		if (seconds() - begin > 5)
			return 0;
	return 1;
}

static int words(int number)
{
	return 768 + number * 5779 % (WORDS - 768 + 1);
}

/* Sends message `number` in one of several ways, and overwrites it. */
static void give(int number)
{
	int count = words(number), done = 0, index = -1;
	MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
	fill(data, (size_t)count, number);
	if (number % 5 == 0) {
		MPI_Send(data, count, MPI_INT, 1, 7, MPI_COMM_WORLD);
	} else {
		MPI_Isend(data, count, MPI_INT, 1, 7, MPI_COMM_WORLD, &requests[1]);
		if (number % 5 == 1)
			MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
		else if (number % 5 == 2)
			MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		else if (number % 5 == 3)
			MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
		else
			while (!done)
				MPI_Test(&requests[1], &done, MPI_STATUS_IGNORE);
		CHECK(number % 5 != 3 || index == 1);
		CHECK(requests[1] == MPI_REQUEST_NULL);
	}
	memset(data, 0x7e, sizeof data);
}

static void take(int number, MPI_Request *request)
{
	MPI_Irecv(taken[number], words(number), MPI_INT, 0, 7, MPI_COMM_WORLD, request);
}

static void check(int number, MPI_Request *request)
{
	MPI_Wait(request, MPI_STATUS_IGNORE);
	CHECK(right(taken[number], (size_t)words(number), number) == (size_t)words(number));
}

/* Returns 1 if the last sends have ended while rank 1 was computing. */
static int attempt(void)
{
	MPI_Request requests[LAST];
	int ended = 0;
	for (int i = 0; i < TRAINING; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		step++;
		if (rank == 0) {
			*announced = step;
			give(5 * i + i % 2);
		} else {
			take(5 * i + i % 2, requests);
			is_announced();
			usleep(3000);
			check(5 * i + i % 2, requests);
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	step++;
	for (int i = 0; i < LAST; i++)
		if (rank == 0)
			give(i);
		else
			take(i, &requests[i]);
	if (rank == 0)
		*announced = step;
	else
		ended = is_announced();
	for (int i = 0; rank == 1 && i < LAST; i++)
		check(i, &requests[i]);
	MPI_Bcast(&ended, 1, MPI_INT, 1, MPI_COMM_WORLD);
	return ended;
}

int main(int argc, char **argv)
{
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	CHECK(argc == 2 && ranks == 2);
	int fd = open(argv[1], O_RDWR);
	CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
	announced = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(announced != MAP_FAILED);
	int attempts = 0;
	while (!attempt())
		CHECK(++attempts < ATTEMPTS);

	/* More messages than there are buffers, none of them expected yet. */
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < MANY; i++) {
		MPI_Request request;
		if (rank == 0) {
			give(i);
		} else {
			if (i == 0)
				usleep(20000);
			take(i, &request);
			check(i, &request);
		}
	}
	if (rank == 0)
		puts("sends do not wait");
	/* A started message ends in MPI_Finalize. */
	if (rank == 0) {
		give(0);
	} else {
		MPI_Request request;
		usleep(20000);
		take(0, &request);
		check(0, &request);
	}
	MPI_Finalize();
	return 0;
}
