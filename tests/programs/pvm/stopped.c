/* A task is stopped while another one sends it more than anybody keeps. The sender waits; all
 * others go on. Continued, the task gets everything, in order. Arguments: megabytes, largest
 * message in bytes, the host of the stopped task, or "." */
#include "say.h"
#include <signal.h>

enum { TAG_PID = 1, TAG_GO, TAG_DATA, TAG_DONE, TAG_PING, SIZE_MAX_ = 1 << 20 };

static char data[SIZE_MAX_];

static int size_of(int i, int max)
{
	unsigned seed = i;

	return rand_r(&seed) % max;
}

static int count_of(int megabytes, int max)
{
	long long left = (long long)megabytes << 20;
	int i = 0;

	while (left > 0)
		left -= size_of(i++, max) + 1;
	return i;
}

static void receive_all(int count, int max)
{
	int parent = pvm_parent(), i, wrong = 0;

	tell(parent, TAG_PID, getpid());
	for (i = 0; i < count; i++) {
		int number = -1, size = size_of(i, max);
		pvm_recv(-1, TAG_DATA);
		pvm_upkint(&number, 1, 1);
		if (number != i || pvm_upkbyte(data, size, 1))
			wrong++;
		else if (size && (data[0] != (char)i || data[size - 1] != (char)i))
			wrong++;
	}
	tell(parent, TAG_DONE, wrong);
}

static void send_all(int count, int max)
{
	int parent = pvm_parent(), to = hear(parent, TAG_GO), i;

	pvm_setopt(PvmRoute, PvmDontRoute);
	for (i = 0; i < count; i++) {
		int size = size_of(i, max);
		memset(data, i, size);
		pvm_initsend(PvmDataRaw);
		pvm_pkint(&i, 1, 1);
		pvm_pkbyte(data, size, 1);
		if (pvm_send(to, TAG_DATA))
			break;
	}
	tell(parent, TAG_DONE, i != count);
}

static void echo(void)
{
	pvm_setopt(PvmRoute, PvmDontRoute);
	for (;;)
		tell(pvm_parent(), TAG_PING, hear(-1, TAG_PING));
}

static int start(char *role, char *const *job, char *where)
{
	char *argv[] = { role, job[0], job[1], NULL };
	int tid, flag = *where == '.' ? PvmTaskDefault : PvmTaskHost;

	if (pvm_spawn(program_invocation_short_name, argv, flag, where, 1, &tid) != 1) {
		say("%s was not started: %s", role, code(tid));
		exit(1);
	}
	return tid;
}

int main(int argc, char **argv)
{
	char *role = argc > 3 ? argv[1] : "";
	char *const *job = argv + (pvm_parent() > 0 ? 2 : 1);
	int max = atoi(job[1]), count = count_of(atoi(job[0]), max), status;

	if (pvm_parent() > 0) {
		if (!strcmp(role, "receiver"))
			receive_all(count, max);
		else if (!strcmp(role, "sender"))
			send_all(count, max);
		else
			echo();
		pvm_exit();
		return 0;
	}
	char *host = argv[3];
	if (*host != '.' && pvm_addhosts(&host, 1, &status) != 1)
		say("%s was not added: %s", host, code(status));
	int receiver = start("receiver", job, host), pid = hear(receiver, TAG_PID);
	int sender = start("sender", job, "."), echoes = start("echo", job, host), i, hosts;
	kill(pid, SIGSTOP);
	tell(sender, TAG_GO, receiver);
	pvm_setopt(PvmRoute, PvmDontRoute);
	for (i = 0; i < 200; i++) {
		usleep(10000);
		tell(echoes, TAG_PING, i);
		if (hear(echoes, TAG_PING) != i || pvm_config(&hosts, NULL, NULL))
			say("others are disturbed");
		if (pvm_pstat(receiver))
			say("the stopped task is taken for dead");
	}
	say("the sender waits: %s", yes(!pvm_probe(sender, TAG_DONE)));
	kill(pid, SIGCONT);
	say("wrong or out of order: %d", hear(receiver, TAG_DONE));
	say("not sent: %d", hear(sender, TAG_DONE));
	pvm_kill(echoes);
	pvm_exit();
	return 0;
}
