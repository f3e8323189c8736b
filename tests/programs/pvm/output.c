/* Output of children: caught, forwarded to a task, labelled or not. */
#include "say.h"

#include <fcntl.h>

static int child(int parent, const char *role)
{
	if (!strcmp(role, "prints")) {
		printf("first\n");
		fflush(stdout);
		usleep(50000);
		printf("second\nthird\n");
		fprintf(stderr, "an error\n");
		fflush(stdout);
		usleep(50000);
		printf("no newline");
		fflush(stdout);
	}
	if (parent > 0)
		return pvm_exit();
	return 0;
}

/* The lines of a file, tids left out, sorted by nothing. */
static void show(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[200], *text;

	while (file && fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		text = line;
		if (line[0] == '[' && strchr(line, ']')) {
			text = strchr(line, ']') + 1;
			say("[tid]%s", text);
		} else {
			say("%s", text);
		}
	}
	if (file)
		fclose(file);
}

static void caught(int labels)
{
	char *argv[] = { "prints", NULL };
	FILE *file = fopen("caught", "w+");
	int tid;

	say("labels %d, before %d", labels, pvm_setopt(PvmShowTids, labels));
	say("catchout %s", code(pvm_catchout(file)));
	pvm_spawn(program_invocation_short_name, argv, 0, NULL, 1, &tid);
	/* Returns once all output has come. */
	say("exit %s", code(pvm_exit()));
	fclose(file);
	show("caught");
	unlink("caught");
}

/* The messages that a task gets that wants the output: each has the task's tid, a number of
 * bytes or what has happened, and the bytes. */
static void forwarded(void)
{
	char *argv[] = { "prints", NULL }, text[1000], all[1000] = "";
	int tid, from, count, events = 0, spawned = 0, begun = 0, ended = 0, before;

	before = pvm_setopt(PvmOutputTid, pvm_mytid());
	say("output went to somebody %s", yes(before != 0));
	before = pvm_setopt(PvmOutputCode, 1234);
	say("with a tag %s", yes(before != 0));
	pvm_spawn(program_invocation_short_name, argv, 0, NULL, 1, &tid);
	while (!ended && within(5000, -1, 1234) > 0) {
		pvm_upkint(&from, 1, 1);
		pvm_upkint(&count, 1, 1);
		if (from != tid)
			say("from somebody else");
		if (count > 0) {
			pvm_upkbyte(text, count, 1);
			text[count] = 0;
			strcat(all, text);
			events++;
		}
		spawned += count == -1;
		begun += count == -2;
		ended += count == 0;
	}
	say("spawned %d, begun %d, ended %d, output %s", spawned, begun, ended, yes(events > 0));
	say("%s", all);
	pvm_setopt(PvmOutputTid, 0);
	pvm_setopt(PvmOutputCode, 0);
}

int main(int argc, char **argv)
{
	int parent = enroll();

	if (argc > 1)
		return child(parent, argv[1]);
	caught(1);
	caught(0);
	say("no longer %s", code(pvm_catchout(NULL)));
	forwarded();
	return pvm_exit();
}
