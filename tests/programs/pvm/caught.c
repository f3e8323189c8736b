/* All output of children on two hosts arrives before the parent's pvm_exit returns. */
#include "say.h"

enum { CHILDREN = 4, ROUNDS = 8 };

static int round_of_children(void)
{
	char *argv[] = { "prints", NULL }, line[200];
	int tids[CHILDREN], lines = 0;
	FILE *file = tmpfile();

	pvm_catchout(file);
	pvm_spawn(program_invocation_short_name, argv, 0, NULL, CHILDREN, tids);
	pvm_exit();
	rewind(file);
	while (fgets(line, sizeof line, file))
		lines += strstr(line, "printed") != NULL;
	fclose(file);
	return lines;
}

int main(int argc, char **argv)
{
	char *second = "127.0.0.3";
	int i, info;

	(void)argv;
	if (argc > 1) {
		/* Not a task: only its output shows its end. */
		printf("printed\n");
		return 0;
	}
	enroll();
	say("added %d", pvm_addhosts(&second, 1, &info));
	for (i = 0; i < ROUNDS; i++)
		say("lines %d", round_of_children());
	enroll();
	say("deleted %d", pvm_delhosts(&second, 1, &info));
	return pvm_exit();
}
