/* Senders are killed while they send. What comes of them is whole and in order, and nothing
 * of another sender's is lost. Arguments: how many are killed, seed. */
#include "say.h"
#include <signal.h>
#include <sys/wait.h>

enum { SIZE_MAX_ = 300000, HONEST = 3000 };

static void send_for_ever(int to, int limit, unsigned seed)
{
	char *data = malloc(SIZE_MAX_);
	for (int i = 0; i < limit; i++) {
		int size = rand_r(&seed) % 3 ? rand_r(&seed) % 200 : rand_r(&seed) % SIZE_MAX_;
		if (limit == HONEST)
			size %= 500;
		memset(data, i, size);
		pvm_initsend(rand_r(&seed) % 3);
		pvm_pkint(&i, 1, 1);
		pvm_pkint(&size, 1, 1);
		pvm_pkbyte(data, size, 1);
		if (pvm_send(to, 7))
			_exit(1);
	}
	pvm_exit();
	_exit(0);
}

static int broken;
static struct { int tid, next; } seen[4096];
static int tasks;

/* Takes a message, and checks it. */
static int take(int wait)
{
	static char data[SIZE_MAX_];
	int id = wait ? pvm_recv(-1, 7) : pvm_nrecv(-1, 7), number = -1, size = -1, tid, t;

	if (id <= 0)
		return 0;
	pvm_bufinfo(id, NULL, NULL, &tid);
	pvm_upkint(&number, 1, 1);
	pvm_upkint(&size, 1, 1);
	for (t = 0; t < tasks && seen[t].tid != tid; t++)
		;
	if (t == tasks)
		seen[tasks++].tid = tid;
	if (number != seen[t].next++ || size < 0 || size > SIZE_MAX_ || pvm_upkbyte(data, size, 1))
		broken++;
	for (int k = 0; k < size; k++)
		if (data[k] != (char)number) {
			broken++;
			break;
		}
	return t + 1;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 40;
	unsigned seed = argc > 2 ? atoi(argv[2]) : 1;
	int mine = pvm_mytid(), honest, victim, i, got = 0;

	if ((honest = fork()) == 0)
		send_for_ever(mine, HONEST, 3);
	while (!take(1))
		;
	got = 1; /* the first to come is the honest one: there is no other yet */
	for (i = 0; i < rounds; i++) {
		if ((victim = fork()) == 0)
			send_for_ever(mine, 1 << 30, seed + i);
		/* Its first message has come; then at some instant. */
		for (int before = tasks; tasks == before;)
			got += take(1) == 1;
		int naps = rand_r(&seed) % 100;
		for (int nap = 0; nap < naps; nap++) {
			got += take(0) == 1;
			if (nap % 8 == 0)
				usleep(rand_r(&seed) % 100);
		}
		kill(victim, SIGKILL);
		waitpid(victim, NULL, 0);
	}
	while (got < HONEST)
		got += take(1) == 1;
	waitpid(honest, NULL, 0);
	say("messages that are broken or out of order: %d", broken);
	say("tasks that sent: %d", tasks);
	pvm_exit();
	return broken != 0;
}
