/* Which of MPI's functions does a program see? As a program that is linked to an MPI, or as a
 * plug-in that brings one along (-DPLUGIN, and -DHOST for the program that loads it).
 *
 * usage: mpi_names             of a linked program
 *        mpi_names PLUGIN      of the host
 *
 * Prints the names that are there for a weak reference and for dlsym(), then does a broadcast by
 * the function with large counts, if there is one, and a barrier through a wrapper of its own. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES(N)                                                                     \
	N(MPI_Init) N(MPI_Init_thread) N(MPI_Barrier) N(MPI_Bcast) N(MPI_Reduce)     \
	N(MPI_Allreduce) N(MPI_Allgather) N(MPI_Alltoall) N(MPI_Bcast_c)             \
	N(MPI_Reduce_c) N(MPI_Allreduce_c) N(MPI_Allgather_c) N(MPI_Alltoall_c)      \
	N(MPI_Send) N(MPI_Send_c) N(MPI_Isendrecv) N(MPI_Allreduce_init)             \
	N(MPI_Neighbor_alltoallw_c) N(MPI_Rget_accumulate_c) N(MPI_Buffer_flush)

#ifdef HOST

#define LOOK(name)                                                                   \
	if (dlsym(RTLD_DEFAULT, #name) || dlsym(RTLD_DEFAULT, "P" #name))            \
		puts(#name " without an MPI");

int main(int argc, char **argv)
{
	NAMES(LOOK)
	void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!plugin) {
		fprintf(stderr, "mpi_names: %s\n", dlerror());
		return 1;
	}
	return ((int (*)(void))dlsym(plugin, "program"))();
}

#else

#include <mpi.h>

/* By the assembler, since not every MPI's header declares them. */
#define WEAK(name)                                                                   \
	({                                                                           \
		void *address_;                                                      \
		__asm__(".weak " name "\n\tmovq " name "@GOTPCREL(%%rip), %0" : "=r"(address_)); \
		address_;                                                            \
	})
#define SHOW_ONE(name)                                                               \
	if (WEAK(name) || dlsym(RTLD_DEFAULT, name))                                 \
		if (!rank)                                                           \
			printf("%s%s%s\n", name, WEAK(name) ? " weak" : "",          \
			       dlsym(RTLD_DEFAULT, name) ? " dlsym" : "");
#define SHOW(name) SHOW_ONE(#name) SHOW_ONE("P" #name)

typedef int large_bcast(void *, MPI_Count, MPI_Datatype, int, MPI_Comm);

#ifndef PLUGIN
static int barriers;

/* As tools do. */
int MPI_Barrier(MPI_Comm comm)
{
	barriers++;
	return PMPI_Barrier(comm);
}
#endif

int program(void)
{
	int rank, data = 0;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	NAMES(SHOW)
	data = rank ? 0 : 42;
	large_bcast *large = (large_bcast *)WEAK("MPI_Bcast_c");
	if (large)
		large(&data, 1, MPI_INT, 0, MPI_COMM_WORLD);
	else
		MPI_Bcast(&data, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
#ifndef PLUGIN
	if (barriers != 1)
		printf("%d barriers\n", barriers);
#endif
	if (data != 42)
		printf("rank %d got %d\n", rank, data);
	MPI_Finalize();
	return 0;
}

#ifndef PLUGIN
int main(void)
{
	return program();
}
#endif
#endif
