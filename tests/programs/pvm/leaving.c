/* Tasks that come and go talk to one of another host, which outlives them all: `leaving N`,
 * the same program N times, each time anew. */
#include "say.h"

static int stays(int parent)
{
	int from, n;

	tell(parent, 1, 0);
	do {
		pvm_bufinfo(pvm_recv(-1, 2), NULL, NULL, &from);
		pvm_upkint(&n, 1, 1);
		tell(from, 3, n);
	} while (n >= 0);
	return pvm_exit();
}

int main(int argc, char **argv)
{
	char *host = "127.0.0.3", *role[] = { "stays", NULL };
	int parent = enroll(), rounds = argc > 1 ? atoi(argv[1]) : 0, tid, info, i, good = 0;

	if (parent > 0)
		return stays(parent);
	srand(1);
	pvm_addhosts(&host, 1, &info);
	pvm_spawn(program_invocation_short_name, role, PvmTaskHost, host, 1, &tid);
	hear(tid, 1);
	for (i = 0; i < rounds; i++) {
		tell(tid, 2, i);
		if (within(20000, tid, 3) <= 0)
			break;
		pvm_upkint(&info, 1, 1);
		good += info == i;
		/* The direct way is begun about now. */
		usleep(rand() % 200);
		pvm_exit();
		pvm_mytid();
	}
	say("answers missing %d", rounds - good);
	tell(tid, 2, -1);
	return pvm_exit();
}
