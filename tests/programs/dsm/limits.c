// A node that comes upon a limit of its process: `limits NAME`. Task 1 lowers or uses up what the
// name says, then writes pages that live with task 0; `nothing` leaves all as it is.

#include <jia.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define BYTES (200l << 20)

// No more addresses than are in use, and a few.
static void lower_addresses(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%lu", &pages) != 1)
		return perror("/proc/self/statm");
	fclose(file);
	unsigned long bytes = pages * getpagesize() + (16l << 20);
	if (setrlimit(RLIMIT_AS, &(struct rlimit){ bytes, bytes }))
		perror("setrlimit");
}

// All mappings that a process may have: each of these is two.
static void use_up_mappings(void)
{
	long page = getpagesize();
	char *at;
	do
		at = mmap(NULL, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	while (at != MAP_FAILED && mprotect(at, page, PROT_NONE) == 0);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "nothing";
	jia_init(argc, argv);
	long bytes = strcmp(name, "addresses") == 0 ? BYTES : 1 << 20;
	char *first = (char *)jia_alloc2p(bytes, 0);
	jia_barrier();
	if (jiapid == 1 && strcmp(name, "addresses") == 0)
		lower_addresses();
	if (jiapid == 1 && strcmp(name, "mappings") == 0)
		use_up_mappings();
	char *second = (char *)jia_alloc2p(1 << 20, 0);
	for (long at = 0; jiapid == 1 && at < bytes; at += 8192)
		first[at] = 1;
	jia_barrier();
	if (jiapid == 0 && first[bytes - 8192] == 1 && second[0] == 0)
		printf("ran\n");
	jia_exit();
}
