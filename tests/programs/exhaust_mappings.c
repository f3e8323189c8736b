/* Uses up a resource of the shared address space, prints "exhausted", and keeps it until
 * its standard input ends or a signal comes.
 * Usage: exhaust_mappings mappings|memory */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Adds anonymous memory; alternating protections keep the kernel from merging mappings. */
static int add(size_t size, int alternate)
{
	char *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return 0;
	return !alternate || !mprotect(at, size / 2, PROT_READ);
}

int main(int argc, char **argv)
{
	int mappings = argc > 1 && !strcmp(argv[1], "mappings");
	char line[64];
	/* The buffer of stdio is allocated before. */
	static char buffer[BUFSIZ];
	setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
	if (mappings)
		while (add(8192, 1))
			;
	else
		for (size_t size = 1 << 30; size >= 4096; size /= 2)
			while (add(size, 0))
				;
	printf("%s\n", errno == ENOMEM ? "exhausted" : strerror(errno));
	while (read(0, line, sizeof line) > 0)
		;
	return 0;
}
