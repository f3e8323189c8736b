// JIAJIA's calls for one process in ordinary memory. Programs that are linked with this instead of
// libjia are the serial reference of the same programs on several nodes.

#define JIA_NO_ASSERT
#include <jia.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 8192 };

int jia_pid = 0;
int hostc = 1;
int jia_lock_index = 0;

void jia_init(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	jia_clock();
}

// Programs whose main() returns nothing would end with any status.
void jia_exit(void)
{
	exit(0);
}

int jia_task(void)
{
	return jia_pid;
}

int jia_tasks(void)
{
	return hostc;
}

void jia_error(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	exit(1);
}

void assert(int condition, const char *message)
{
	if (!condition)
		jia_error("%s\n", message);
}

unsigned long jia_alloc1(size_t size)
{
	size_t pages = (size + PAGE - 1) / PAGE * PAGE;
	void *memory = aligned_alloc(PAGE, pages);
	if (memory == NULL)
		jia_error("no memory for %zu bytes\n", size);
	return (unsigned long)memset(memory, 0, pages);
}

unsigned long jia_alloc(size_t size)
{
	return jia_alloc1(size);
}

unsigned long jia_alloc2(size_t size, size_t block)
{
	(void)block;
	return jia_alloc1(size);
}

unsigned long jia_alloc2p(size_t size, int host)
{
	(void)host;
	return jia_alloc1(size);
}

unsigned long jia_alloc3(size_t size, size_t block, int starthost)
{
	(void)block;
	(void)starthost;
	return jia_alloc1(size);
}

void jia_lock(int lock)
{
	(void)lock;
}

void jia_unlock(int lock)
{
	(void)lock;
}

void jia_barrier(void)
{
}

void jia_wait(void)
{
}

void jia_config(int option, int value)
{
	(void)option;
	(void)value;
}

int jia_newlock(void)
{
	return jia_lock_index++;
}

float jia_clock(void)
{
	static double begin;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
	if (begin == 0)
		begin = seconds;
	return (float)(seconds - begin);
}

unsigned int jia_startstat(void)
{
	return 0;
}

unsigned int jia_stopstat(void)
{
	return 0;
}
