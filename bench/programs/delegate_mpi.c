/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * delegate_mpi.c - a whole collective, called by the task that needs it, or delegated to another
 * task, if the core of the first is slow: it has only part of a processor's time. `direct` runs
 * plain MPI ranks; with `delegated` each rank is `nagaya run -n 2`, whose task 0 makes the calls of
 * task 1.
 *
 * usage: delegate_mpi direct|delegated MILLISECONDS GROUP|- SIZE...
 *
 * If a GROUP is given, the task that needs the collective enters the control group GROUP-RANK,
 * which limits its time. Prints
 *
 *     allreduce|alltoall direct|delegated BYTES NS
 *
 * BYTES is the size of each rank's buffer, NS the mean time of a call.
 */
#define _GNU_SOURCE
#include "times.h"

#include <pvas_delegate_mpi_serve.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LEAVE = 1, LARGEST = 4 << 20, ROUND = 10 };

static void fail(const char *what)
{
	fprintf(stderr, "delegate_mpi: %s: %s\n", what, pvas_delegate_error());
	exit(1);
}

static void enter(const char *group, int rank)
{
	char path[4096];
	if (group[0] == '-')
		return;
	snprintf(path, sizeof path, "%s-%d/cgroup.procs", group, rank);
	FILE *file = fopen(path, "w");
	if (!file || fputs("0", file) < 0 || fclose(file) != 0) {
		perror(path);
		exit(1);
	}
}

static int left;

static long leave(const struct pvas_delegate_job *job, void *context)
{
	(void)job, (void)context;
	left = 1;
	return 0;
}

static void serve(void)
{
	struct pvas_delegate_mpi_server mpi;
	MPI_Init(NULL, NULL);
	if (pvas_delegate_open(0, 0) || pvas_delegate_mpi_open(&mpi) ||
	    pvas_delegate_mpi_add(&mpi, MPI_COMM_WORLD) != 0 ||
	    pvas_delegate_register(LEAVE, leave, NULL))
		fail("pvas_delegate_open");
	while (!left)
		if (pvas_delegate_serve(pvas_delegate_mpi_progress(&mpi)) < 0)
			fail("pvas_delegate_serve");
	pvas_delegate_mpi_close(&mpi);
	MPI_Finalize();
}

static pvas_delegatee *zero;
static double *from, *to;

static void call(struct pvas_delegate_mpi what)
{
	if (pvas_delegate_mpi_call(zero, what) != 0)
		fail("pvas_delegate_mpi_call");
}

static void allreduce(int count)
{
	if (zero)
		call(pvas_delegate_mpi_allreduce(from, to, count, PVAS_DELEGATE_MPI_DOUBLE,
		                                 PVAS_DELEGATE_MPI_SUM, 0));
	else
		MPI_Allreduce(from, to, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(int count)
{
	if (zero)
		call(pvas_delegate_mpi_alltoall(from, to, count, PVAS_DELEGATE_MPI_DOUBLE, 0));
	else
		MPI_Alltoall(from, count, MPI_DOUBLE, to, count, MPI_DOUBLE, MPI_COMM_WORLD);
}

/* Broadcasts rank 0's value. */
static int agreed(int mine)
{
	if (zero)
		call(pvas_delegate_mpi_bcast(&mine, 1, PVAS_DELEGATE_MPI_INT, 0, 0));
	else
		MPI_Bcast(&mine, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return mine;
}

static void measure(const char *what, void (*collective)(int), int count, size_t bytes,
                    int milliseconds, int rank)
{
	long begin = 0, calls = 0;
	for (int round = 0; agreed(round < 3 || now_ns() - begin < milliseconds * 1000000L); round++) {
		if (round == 1)
			begin = now_ns(), calls = 0;
		for (int i = 0; i < ROUND; i++)
			collective(count);
		calls += ROUND;
	}
	if (rank == 0)
		printf("%s %s %zu %.1f\n", what, zero ? "delegated" : "direct", bytes,
		       (double)(now_ns() - begin) / (double)calls);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int rank, ranks;
	if (argc < 5) {
		fprintf(stderr, "usage: %s direct|delegated MILLISECONDS GROUP|- SIZE...\n", argv[0]);
		return 1;
	}
	int delegated = strcmp(argv[1], "delegated") == 0;
	if (delegated && atoi(getenv("NAGAYA_TASK_ID")) == 0) {
		serve();
		return 0;
	}
	if (delegated) {
		if (!(zero = pvas_delegate_find(0, 20000)))
			fail("pvas_delegate_find");
		rank = (int)pvas_delegate_mpi_call(zero, pvas_delegate_mpi_rank(0));
		ranks = (int)pvas_delegate_mpi_call(zero, pvas_delegate_mpi_size(0));
	} else {
		MPI_Init(NULL, NULL);
		MPI_Comm_rank(MPI_COMM_WORLD, &rank);
		MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	}
	from = calloc(1, LARGEST), to = calloc(1, LARGEST);
	memset(from, 0, LARGEST), memset(to, 0, LARGEST);
	enter(argv[3], rank);
	for (int a = 4; a < argc; a++) {
		size_t bytes = strtoul(argv[a], NULL, 10);
		if (bytes > LARGEST)
			return 1;
		int count = (int)(bytes / sizeof *from), each = count / ranks;
		measure("allreduce", allreduce, count, bytes, atoi(argv[2]), rank);
		measure("alltoall", alltoall, each ? each : 1, bytes, atoi(argv[2]), rank);
	}
	if (delegated)
		return pvas_delegate_call(zero, LEAVE, NULL, 0) != 0;
	return MPI_Finalize();
}
