/* Spawns a program by a relative name, as its argument says, in a directory that is not the one in
 * which tasks run. */
#include "say.h"

int main(int argc, char **argv)
{
	int tid = 0, started;

	if (argc < 2)
		return 2;
	started = pvm_spawn(argv[1], NULL, PvmTaskDefault, NULL, 1, &tid);
	say("%d: %s", started, code(tid));
	pvm_exit();
	return 0;
}
