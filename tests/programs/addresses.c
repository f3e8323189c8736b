/* Prints where a task's parts lie, and that the formulae of libpvas hold for them: a line
 * "ID BASE SEGMENT TEXT HEAP MMAP LIBC STACK", hexadecimal but for the ID.
 *
 * usage: addresses [owner]
 *     owner: makes a space, and runs itself as task 3 (pvas_spawn) and 5 (pvas_fork). */
#include "check.h"

#include <pvas.h>
#include <sys/auxv.h>

extern char **environ;

static void print(void)
{
	struct pvas_space_info info = {0};
	int id = pvas_getid(), local;
	CHECK(id >= 0 && pvas_getspace(PVAS_SELF, &info) == 0);
	uintptr_t segment = info.base + id * info.segment_size;
	uintptr_t heap = (uintptr_t)sbrk(0);
	uintptr_t parts[] = {(uintptr_t)print, heap, getauxval(AT_BASE), (uintptr_t)stdout,
	                     (uintptr_t)&local};
	CHECK((uintptr_t)pvas_segment(PVAS_SELF, id) == segment);
	for (int i = 0; i < 5; i++) {
		CHECK(parts[i] >= segment && parts[i] - segment < info.segment_size);
		CHECK(pvas_id_of(PVAS_SELF, (void *)parts[i]) == id);
	}
	char line[200];
	int length = snprintf(line, sizeof line, "%d %lx %lx %lx %lx %lx %lx %lx\n", id, info.base,
	                      segment, parts[0], parts[1], parts[2], parts[3], parts[4]);
	CHECK(write(1, line, length) == length);
}

static void own(char *program)
{
	char *task[] = {program, NULL};
	int status, pvd = pvas_create();
	CHECK(pvd >= 0);
	pid_t spawned = pvas_spawn(pvd, 3, program, task, environ, NULL);
	CHECK(spawned > 0 && waitpid(spawned, &status, 0) == spawned && status == 0);
	pid_t forked = pvas_fork(pvd, 5);
	if (forked == 0) {
		pvas_execve(program, task, environ);
		_exit(127);
	}
	CHECK(forked > 0 && waitpid(forked, &status, 0) == forked && status == 0);
	CHECK(pvas_destroy(pvd) == 0);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		own(argv[0]);
	else
		print();
	return 0;
}
