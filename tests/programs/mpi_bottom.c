/* A broadcast of data with gaps at absolute addresses: each rank has its own type, and passes
 * MPI_BOTTOM.
 *
 * usage: mpi_bottom */
#include "mpi_check.h"

static void bottom(void)
{
	enum { COUNT = 3000 };
	int *numbers = malloc(sizeof(int) * 2 * COUNT), length = rank == 0 ? 77 : 0;
	char *text = calloc(1, 100);
	int counts[] = {1, 1, 100};
	MPI_Datatype strided, type, types[3];
	MPI_Aint addresses[3];
	MPI_Type_vector(COUNT, 1, 2, MPI_INT, &strided);
	types[0] = strided, types[1] = MPI_INT, types[2] = MPI_CHAR;
	MPI_Get_address(numbers, &addresses[0]);
	MPI_Get_address(&length, &addresses[1]);
	MPI_Get_address(text, &addresses[2]);
	MPI_Type_create_struct(3, counts, addresses, types, &type);
	MPI_Type_commit(&type);
	for (int i = 0; i < 2 * COUNT; i++)
		numbers[i] = rank == 0 ? i : -1;
	if (rank == 0)
		strcpy(text, "from the root");
	MPI_Bcast(MPI_BOTTOM, 1, type, 0, MPI_COMM_WORLD);
	CHECK(length == 77 && strcmp(text, "from the root") == 0);
	for (int i = 0; i < 2 * COUNT; i++)
		CHECK(numbers[i] == (rank == 0 || i % 2 == 0 ? i : -1));
	MPI_Type_free(&type);
	MPI_Type_free(&strided);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("absolute addresses work\n");
}

int main(int argc, char **argv)
{
	begin(&argc, &argv, MPI_THREAD_SINGLE);
	bottom();
	MPI_Finalize();
	return 0;
}
