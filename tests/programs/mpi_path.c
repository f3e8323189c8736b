/* Prints the path of a job's data: whether libfabric has loaded Nagaya's provider, after two ranks
 * have exchanged a message. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	int rank, size, value = 42;
	char line[4096];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (rank == 0)
		MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
	if (rank == 1)
		MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	FILE *maps = fopen("/proc/self/maps", "r");
	int provider = 0;
	while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
		provider |= strstr(line, "/libnagaya_fi.so") != NULL;
	if (rank == 0)
		printf("%s\n", provider ? "over the provider" : "by the MPI");
	MPI_Finalize();
	return 0;
}
