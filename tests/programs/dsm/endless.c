// Works on shared memory until it is killed, and says who it is: `endless`.

#include <jia.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	jia_init(argc, argv);
	long *cells = (long *)jia_alloc3(100000 * sizeof *cells, 8192, 0);
	jia_barrier();
	printf("task %d is %d\n", jiapid, (int)getpid());
	fflush(stdout);
	for (long i = 0;; i++) {
		jia_lock(i % 5);
		cells[i * 777 % 100000 / 5 * 5 + i % 5] += 1;
		jia_unlock(i % 5);
		if (i % 20 == 0)
			jia_barrier();
	}
}
