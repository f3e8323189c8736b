/* Collective operations, small and large, each result checked; windows; sub-communicators. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

static void wrong(const char *what, int count)
{
	fprintf(stderr, "rank %d: %s of %d is wrong\n", rank, what, count);
	MPI_Abort(MPI_COMM_WORLD, 9);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int most = 1 << 17;
	int *out = malloc(sizeof(int) * (size_t)(most * ranks));
	int *in = malloc(sizeof(int) * (size_t)(most * ranks));
	int sum_of_ranks = ranks * (ranks - 1) / 2;
	for (int count = 1; count <= most; count *= 8) {
		int all = count * ranks;
		for (int root = 0; root < ranks; root++) {
			for (int i = 0; i < count; i++)
				out[i] = rank == root ? i + root : -1;
			MPI_Bcast(out, count, MPI_INT, root, MPI_COMM_WORLD);
			for (int i = 0; i < count; i++)
				if (out[i] != i + root)
					wrong("bcast", count);
		}
		for (int i = 0; i < all; i++)
			out[i] = rank * all + i;
		MPI_Allreduce(out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			if (in[i] != sum_of_ranks * all + ranks * i)
				wrong("allreduce", count);
		MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
		for (int i = 0; i < all; i++)
			if (in[i] != i / count * all + rank * count + i % count)
				wrong("alltoall", count);
		MPI_Allgather(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
		for (int i = 0; i < all; i++)
			if (in[i] != i / count * all + i % count)
				wrong("allgather", count);
		MPI_Scatter(out, count, MPI_INT, in, count, MPI_INT, 0, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			if (in[i] != rank * count + i)
				wrong("scatter", count);
		MPI_Scan(out, in, count, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			if (in[i] != rank * all + i)
				wrong("scan", count);
		MPI_Request request;
		MPI_Iallreduce(out, in, count, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		for (int i = 0; i < count; i++)
			if (in[i] != i)
				wrong("iallreduce", count);
		MPI_Barrier(MPI_COMM_WORLD);
	}

	MPI_Comm half;
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	int sum;
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
	int wanted = 0;
	for (int i = rank % 2; i < ranks; i += 2)
		wanted += i;
	if (sum != wanted)
		wrong("sum in half", 1);
	MPI_Comm_free(&half);

	/* One-sided: each writes into its neighbour's window, and reads the other's. */
	int *window_memory, count = 50000;
	MPI_Win window;
	MPI_Win_allocate((MPI_Aint)sizeof(int) * count, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
	                 &window_memory, &window);
	for (int i = 0; i < count; i++)
		out[i] = rank + i;
	MPI_Win_fence(0, window);
	MPI_Put(out, count, MPI_INT, (rank + 1) % ranks, 0, count, MPI_INT, window);
	MPI_Win_fence(0, window);
	MPI_Get(in, count, MPI_INT, (rank + 1) % ranks, 0, count, MPI_INT, window);
	MPI_Win_fence(0, window);
	for (int i = 0; i < count; i++)
		if (window_memory[i] != (rank + ranks - 1) % ranks + i || in[i] != rank + i)
			wrong("window", count);
	MPI_Win_free(&window);

	/* Memory that ranks share by MPI's own means. */
	MPI_Comm node;
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
	MPI_Win_allocate_shared((MPI_Aint)sizeof(int) * 1000, sizeof(int), MPI_INFO_NULL, node,
	                        &window_memory, &window);
	for (int i = 0; i < 1000; i++)
		window_memory[i] = rank * 1000 + i;
	MPI_Win_fence(0, window);
	MPI_Aint size;
	int unit, *theirs;
	MPI_Win_shared_query(window, (rank + 1) % ranks, &size, &unit, &theirs);
	for (int i = 0; i < 1000; i++)
		if (theirs[i] != (rank + 1) % ranks * 1000 + i)
			wrong("shared window", 1000);
	MPI_Win_fence(0, window);
	MPI_Win_free(&window);

	if (rank == 0)
		printf("collectives agree\n");
	MPI_Finalize();
	return 0;
}
