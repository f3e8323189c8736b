/* Prints the addresses of its text, heap, libc, a mapping and the stack, hexadecimal. A thread on
 * another node, if there is one, sees the same. */
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>

static unsigned long parts[5], theirs[5];

static void look(unsigned long *to, unsigned long mapping, unsigned long stack)
{
	to[0] = (unsigned long)look;
	to[1] = (unsigned long)sbrk(0);
	to[2] = (unsigned long)stdout;
	to[3] = mapping;
	to[4] = stack;
}

static void *thread(void *of_first)
{
	look(theirs, parts[3], (unsigned long)of_first);
	return NULL;
}

int main(void)
{
	int local;
	pthread_t id;
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	look(parts, (unsigned long)page, (unsigned long)&local);
	CHECK(pthread_create(&id, NULL, thread, &local) == 0 && pthread_join(id, NULL) == 0);
	parts[1] = (unsigned long)sbrk(0);
	for (int i = 0; i < 5; i++)
		CHECK(i == 1 || parts[i] == theirs[i]);
	for (int i = 0; i < 5; i++)
		printf("%lx%c", parts[i], i < 4 ? ' ' : '\n');
	return 0;
}
