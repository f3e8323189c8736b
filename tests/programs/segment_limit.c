/* A task limited to a part of its segment: small mappings succeed, one that does not fit is
 * ENOMEM, and all of them lie in that part. Sizes that are none are EINVAL. */
#include "check.h"

#include <errno.h>
#include <pvas.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
#define LIMIT (256ul << 20)

static void *map(size_t size)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
	            -1, 0);
}

static int as_task(void)
{
	uintptr_t start = (uintptr_t)pvas_segment(PVAS_SELF, pvas_getid());
	int local;
	CHECK((uintptr_t)&local - start < LIMIT);
	CHECK(map(1ul << 30) == MAP_FAILED && errno == ENOMEM);
	uintptr_t small = (uintptr_t)map(8ul << 20);
	CHECK(small > start && small + (8ul << 20) - start < LIMIT);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return as_task();
	char *task[] = {argv[0], "task", NULL};
	struct pvas_spawn_attr attr = {.fields = PVAS_SPAWN_SEGMENT_SIZE, .segment_size = LIMIT};
	int status, pvd = pvas_create();
	CHECK(pvd >= 0);
	pid_t pid = pvas_spawn(pvd, 3, argv[0], task, environ, &attr);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	const size_t wrong[] = {0, LIMIT + 4096, 32ul << 20, 1ul << 45};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		attr.segment_size = wrong[i];
		CHECK(pvas_spawn(pvd, 3, argv[0], task, environ, &attr) == -1 && errno == EINVAL);
	}
	return 0;
}
