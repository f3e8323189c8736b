/* A task tells which one it is, and where.
 *
 * usage: print_task [stay|briefly] */
#include "check.h"

#include <pvas.h>

int main(int argc, char **argv)
{
	struct pvas_space_info info = {0};
	int id = pvas_getid();
	if (id < 0 || pvas_getspace(PVAS_SELF, &info) != 0) {
		fprintf(stderr, "who: %s\n", pvas_error());
		return 1;
	}
	printf("task %d of %d, segments of %zu, owner %d\n", id, info.tasks, info.segment_size,
	       info.owner);
	fflush(stdout);
	if (argc > 1 && strcmp(argv[1], "briefly") == 0)
		usleep(500000);
	while (argc > 1 && strcmp(argv[1], "stay") == 0)
		sleep(1);
	return 0;
}
