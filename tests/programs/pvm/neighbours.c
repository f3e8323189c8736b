/* Tasks of one space that send each other long messages, of all encodings, straight from their
 * memory; started by one outside, which may kill some. What comes is whole, also the second
 * time that it is unpacked or handed on. Arguments: "flood" or "turns", how many, largest size; or
 * "senders" or "receivers", how many of these are killed, seed. */
#include "say.h"
#include <signal.h>

enum { BALL = 1, START, REPORT, PID, SIZE = 400000, ROUNDS = 40 };

static char *data;

static void send_one(int to, int number, int size)
{
	memset(data, number, size);
	pvm_initsend(number % 3);
	pvm_pkint(&number, 1, 1);
	pvm_pkint(&size, 1, 1);
	pvm_pkbyte(data, size, 1);
	if (pvm_send(to, BALL))
		exit(1);
	/* The buffer may be reused. */
	memset(data, 0xee, size);
	number = size = -1;
}

enum { BROKEN = -1, LOST = -2 };

/* Unpacks the active receive buffer. Returns the number of the message, BROKEN if its data are
 * wrong, or LOST if an unpack call fails: the sender was killed before all data were copied. */
static int unpack(int max)
{
	int number, size;

	if (pvm_upkint(&number, 1, 1) || pvm_upkint(&size, 1, 1))
		return LOST;
	if (size < 0 || size > max)
		return BROKEN;
	if (pvm_upkbyte(data, size, 1))
		return LOST;
	for (int k = 0; k < size; k++)
		if (data[k] != (char)number)
			return BROKEN;
	return number;
}

/* Sends `n` messages to the other and receives as many; some are sent back from the buffer
 * in which they arrived. Returns the number of wrong messages. */
static int flood(int other, int n, int max)
{
	unsigned seed = pvm_mytid();
	int wrong = 0, forwarded = 0, i;

	for (i = 0; i < n; i++) {
		send_one(other, i, rand_r(&seed) % 3 ? rand_r(&seed) % 300 : rand_r(&seed) % max);
	}
	for (i = 0; i < n; i++) {
		int id = pvm_recv(other, BALL);
		/* Not at all, in part, or all of it was read when it is handed on. */
		int how = rand_r(&seed) % 4, first;
		if (how == 1)
			pvm_upkint(&first, 1, 1);
		if (how > 1)
			wrong += unpack(max) != i;
		if (how < 3) {
			int old = pvm_setsbuf(id);
			pvm_send(other, START);
			pvm_freebuf(pvm_setsbuf(old));
			forwarded++;
		}
	}
	tell(other, PID, forwarded);
	for (int left = hear(other, PID); left > 0; left--) {
		pvm_recv(other, START);
		wrong += unpack(max) < 0;
	}
	return wrong;
}

/* A message of this size goes to the other and comes back, so often. */
static int take_turns(int other, int n, int size)
{
	int wrong = 0, begins = pvm_mytid() < other;

	for (int i = 0; i < n; i++) {
		if (begins)
			send_one(other, i, size);
		pvm_recv(other, BALL);
		wrong += unpack(size) != i;
		if (!begins)
			send_one(other, i, size);
	}
	return wrong;
}

/* Each sender, and the number of its next message; the sender that is not killed. */
static int seen[64][2], tasks, honest;

/* Polls for a message and checks it. Returns 1 if it is broken or out of order. A sender that is
 * killed may lose its last message, which is being unpacked then. */
static int take(void)
{
	int from, t, number, id = pvm_nrecv(-1, BALL);

	if (id <= 0)
		return 0;
	pvm_bufinfo(id, NULL, NULL, &from);
	for (t = 0; t < tasks && seen[t][0] != from; t++)
		;
	if (t == tasks)
		seen[tasks++][0] = from;
	number = unpack(SIZE);
	if (number == LOST && from != honest) {
		pvm_perror("a killed sender's last message");
		seen[t][1] = LOST;
		return 0;
	}
	return number != seen[t][1]++;
}

static int child(int parent, const char *role)
{
	int others[2], n, max, wrong = 0;
	unsigned seed = getpid();

	data = malloc(4 << 20);
	tell(parent, PID, getpid());
	if (!strcmp(role, "flood") || !strcmp(role, "turns")) {
		pvm_recv(parent, START);
		pvm_upkint(others, 1, 1);
		pvm_upkint(&n, 1, 1);
		pvm_upkint(&max, 1, 1);
		wrong = (*role == 'f' ? flood : take_turns)(others[0], n, max);
		tell(parent, REPORT, wrong);
		/* So that it can be asked for its copies. */
		if (!strcmp(role, "turns"))
			pvm_recv(parent, START);
	} else if (!strcmp(role, "sender")) {
		int to = hear(parent, START);
		for (n = 0; pvm_probe(parent, START) <= 0; n++)
			send_one(to, n, rand_r(&seed) % SIZE);
		tell(to, START, n);
		tell(parent, REPORT, n);
	} else {
		/* Until the honest sender has reported their number, and all of them have arrived. */
		int all = -1, t;

		honest = hear(parent, START);
		for (;;) {
			wrong += take();
			if (pvm_nrecv(honest, START) > 0)
				pvm_upkint(&all, 1, 1);
			for (t = 0; t < tasks && seen[t][0] != honest; t++)
				;
			if (all >= 0 && t < tasks && seen[t][1] == all)
				break;
		}
		tell(parent, REPORT, wrong);
	}
	return 0;
}

static void start(int n, int *tids, char *role, int *pids)
{
	spawn(n, tids, role);
	for (int i = 0; i < n; i++)
		pids[i] = hear(tids[i], PID);
}

/* One sender after the other is killed; another one lives, and all of its messages come. */
static void kill_senders(int rounds, unsigned seed)
{
	int receiver, honest, victim, pid;

	start(1, &receiver, "receiver", &pid);
	start(1, &honest, "sender", &pid);
	tell(receiver, START, honest);
	tell(honest, START, receiver);
	for (int i = 0; i < rounds; i++) {
		start(1, &victim, "sender", &pid);
		tell(victim, START, receiver);
		usleep(rand_r(&seed) % 20000);
		kill(pid, SIGKILL);
	}
	tell(honest, START, 0);
	say("the honest sender was done: %s", yes(hear(honest, REPORT) > 0));
	say("messages that are broken or out of order: %d", hear(receiver, REPORT));
}

/* One receiver after the other is killed; their sender goes on. */
static void kill_receivers(int rounds, unsigned seed)
{
	int receiver, sender, nobody, pid, done = 0;

	for (int i = 0; i < rounds; i++) {
		start(1, &receiver, "receiver", &pid);
		start(1, &nobody, "flood", &(int){ 0 });
		start(1, &sender, "sender", &(int){ 0 });
		tell(receiver, START, nobody);
		tell(sender, START, receiver);
		usleep(rand_r(&seed) % 20000);
		kill(pid, SIGKILL);
		usleep(rand_r(&seed) % 1000);
		tell(sender, START, 0);
		done += hear(sender, REPORT) >= 0;
		pvm_kill(nobody);
	}
	say("senders that were done: %d", done);
	/* The remaining tasks work as before. */
	start(1, &receiver, "receiver", &pid);
	start(1, &sender, "sender", &pid);
	tell(receiver, START, sender);
	tell(sender, START, receiver);
	usleep(20000);
	tell(sender, START, 0);
	hear(sender, REPORT);
	say("messages that are broken or out of order: %d", hear(receiver, REPORT));
}

int main(int argc, char **argv)
{
	int parent = enroll(), tids[2], pids[2];

	if (parent > 0)
		return child(parent, argv[argc - 1]);
	if (argc < 4)
		return 2;
	int n = atoi(argv[2]), max = atoi(argv[3]);
	if (!strcmp(argv[1], "senders")) {
		kill_senders(n, max);
	} else if (!strcmp(argv[1], "receivers")) {
		kill_receivers(n, max);
	} else {
		start(2, tids, argv[1], pids);
		for (int i = 0; i < 2; i++) {
			pvm_initsend(PvmDataDefault);
			pvm_pkint(&tids[!i], 1, 1);
			pvm_pkint(&n, 1, 1);
			pvm_pkint(&max, 1, 1);
			pvm_send(tids[i], START);
		}
		int wrong = hear(tids[0], REPORT);
		say("wrong messages: %d", wrong + hear(tids[1], REPORT));
	}
	pvm_exit();
	return 0;
}
