/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * delegated_mpi.c - one task of each node makes the MPI calls of all others, which only compute.
 *
 *     mpicc -o delegated_mpi delegated_mpi.c $(pkg-config --cflags --libs pvas_delegate)
 *     mpirun -n NODES --map-by ppr:1:node nagaya run -n TASKS ./delegated_mpi
 *
 * Task 0 of each space is the rank. Each other task adds up part of a series, starts a
 * reduction over all nodes, on its own communicator, and continues to compute:
 * the rank makes MPI's progress. The sums are those of all nodes.
 */
#include <pvas_delegate_mpi_serve.h>
#include <stdio.h>

static int left;

static long one_less(const struct pvas_delegate_job *job, void *context)
{
	(void)job, (void)context;
	left--;
	return 0;
}

static int fail(const char *what)
{
	fprintf(stderr, "delegated_mpi: %s: %s\n", what, pvas_delegate_error());
	return 1;
}

static int rank(int tasks)
{
	struct pvas_delegate_mpi_server mpi;
	MPI_Comm communicator;
	MPI_Init(NULL, NULL);
	if (pvas_delegate_open(0, 0) != 0 || pvas_delegate_mpi_open(&mpi) != 0 ||
	    pvas_delegate_register(0, one_less, NULL) != 0)
		return fail("open");
	/* Number i is task i + 1's. */
	for (left = 0; left < tasks - 1; left++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
		pvas_delegate_mpi_add(&mpi, communicator);
	}
	while (left > 0)
		if (pvas_delegate_serve(pvas_delegate_mpi_progress(&mpi)) < 0)
			return fail("serve");
	pvas_delegate_close();
	pvas_delegate_mpi_close(&mpi);
	return MPI_Finalize();
}

static double part_of_ln2(long first, long count)
{
	double sum = 0;
	for (long i = first; i < first + count; i++)
		sum += (i % 2 ? 1.0 : -1.0) / (double)i;
	return sum;
}

static int computer(int me, int tasks)
{
	enum { TERMS = 1000000 };
	int mine = me - 1;
	double part, sum, next;
	pvas_delegatee *zero = pvas_delegate_find(0, -1);
	if (!zero)
		return fail("find");
	long node = pvas_delegate_mpi_call(zero, pvas_delegate_mpi_rank(mine));
	long begin = 1 + (node * (tasks - 1) + mine) * 2 * TERMS;
	part = part_of_ln2(begin, TERMS);
	pvas_delegate_request *request = pvas_delegate_mpi_start(
		zero, pvas_delegate_mpi_allreduce(&part, &sum, 1, PVAS_DELEGATE_MPI_DOUBLE,
	                                          PVAS_DELEGATE_MPI_SUM, mine));
	if (!request)
		return fail("allreduce");
	next = part_of_ln2(begin + TERMS, TERMS); /* meanwhile */
	long result;
	if (pvas_delegate_wait(request, &result, -1) != 1 || result < 0)
		return fail("allreduce");
	part = next;
	if (pvas_delegate_mpi_call(zero, pvas_delegate_mpi_allreduce(
						 &part, &next, 1, PVAS_DELEGATE_MPI_DOUBLE,
						 PVAS_DELEGATE_MPI_SUM, mine)) != 0)
		return fail("allreduce");
	if (node == 0)
		printf("task %d: its terms on all nodes add up to %.9f\n", me, sum + next);
	return pvas_delegate_call(zero, 0, NULL, 0) == 0 ? 0 : fail("leave");
}

int main(void)
{
	const char *id = getenv("NAGAYA_TASK_ID"), *count = getenv("NAGAYA_TASKS");
	if (!id || !count) {
		fprintf(stderr, "delegated_mpi: start it by mpirun and nagaya run, see its source\n");
		return 1;
	}
	int me = atoi(id), tasks = atoi(count);
	return me == 0 ? rank(tasks) : computer(me, tasks);
}
