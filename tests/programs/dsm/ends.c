// Ends without jia_exit, with output that is not written yet: `ends HOW`. The last task ends so
// that others cannot go on, or all end alike.

#include <jia.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	jia_init(argc, argv);
	long *cells = (long *)jia_alloc3(jiahosts * 8192, 8192, 0);
	cells[jiapid * 1024] = jiapid + 1;
	jia_barrier();
	int is_last = jiapid == jiahosts - 1;
	printf("task %d was here\n", jiapid);
	if (strcmp(how, "status") == 0)
		exit(is_last ? 5 : 0);
	if (strcmp(how, "lock") == 0 && is_last)
		jia_lock(3);
	if (strcmp(how, "alone") != 0 && is_last)
		return 0;
	if (strcmp(how, "lock") == 0) {
		jia_lock(3);
		jia_unlock(3);
	}
	if (strcmp(how, "message") == 0)
		jia_recv(&how, 1, jiahosts - 1, 0);
	if (strcmp(how, "barrier") == 0)
		jia_barrier();
	// The pages of tasks that have ended are there as long as others run.
	long sum = 0;
	for (int i = 0; i < jiahosts; i++)
		sum += cells[i * 1024];
	printf("the sum is %ld\n", sum);
	return 0;
}
