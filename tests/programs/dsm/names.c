// JIAJIA 2.1's variables and assert, and the calls of later versions: `names [wrong]`.

#include <jia.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void is_zeroed(const char *memory, long bytes)
{
	for (long i = 0; i < bytes; i++)
		assert(memory[i] == 0, "memory is zeroed");
}

// Every task writes its part, and reads all.
static void is_shared(char *memory, long bytes)
{
	is_zeroed(memory, bytes);
	jia_barrier();
	for (long i = jia_pid; i < bytes; i += hostc)
		memory[i] = (char)(i % 101 + 1);
	jia_barrier();
	for (long i = 0; i < bytes; i++)
		assert(memory[i] == i % 101 + 1, "all is there");
	jia_barrier();
}

static void copies(void)
{
	enum { PAGE = 8192 };
	char *memory = (char *)jia_alloc2(4 * PAGE, PAGE);
	char buffer[PAGE];
	memset(buffer, 'a' + jia_pid, PAGE);
	jia_barrier();
	if (jia_pid < 4)
		jia_put(buffer, memory + jia_pid * PAGE);
	jia_barrier();
	for (int i = 0; i < 4 && i < hostc; i++) {
		assert(jia_get(buffer, memory + i * PAGE + 5, 7) == buffer, "its buffer");
		assert(memcmp(buffer, memory + i * PAGE, 7) == 0, "what is there");
		assert(buffer[6] == 'a' + i, "what was put");
	}
}

int main(int argc, char **argv)
{
	jia_init(argc, argv);
	assert(jia_pid == jiapid && hostc == jiahosts, "the variables are right");
	int lock = jia_lock_index++ % 64;
	assert(lock == 0 && jia_lock_index == 1, "a variable of the program");
	if (argc > 1)
		assert(jia_pid != hostc - 1, "wrong by intent");

	int blocks[] = { 20000, 100 }, sizes[16];
	for (int i = 0; i < hostc; i++)
		sizes[i] = 10000 * (i + 1);
	char *first[] = {
		(char *)jia_alloc4(150000, blocks, 2, hostc - 1),
		(char *)jia_alloc_array(100000, sizes, hostc),
		(char *)jia_alloc_random(30000),
		(char *)jia_alloc3(30000, 5000, 0),
		(char *)jia_alloc(20000),
	};
	long bytes[] = { 150000, 100000, 30000, 30000, 20000 };
	for (int i = 0; i < 5; i++)
		is_shared(first[i], bytes[i]);

	jia_free(NULL);
	for (int i = 0; i < 4; i++)
		jia_free(first[i]);
	is_shared((char *)jia_alloc3(30000, 10000, 0), 30000);
	char *again[] = {
		(char *)jia_alloc4(150000, blocks, 2, hostc - 1),
		(char *)jia_alloc_array(100000, sizes, hostc),
	};
	for (int i = 0; i < 2; i++) {
		assert(again[i] == first[i], "the same memory");
		is_shared(again[i], bytes[i]);
	}
	copies();
	if (jia_pid == 0)
		printf("names are right\n");
	return 0;
}
