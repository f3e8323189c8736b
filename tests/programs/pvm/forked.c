/* A child that is forked, and calls PVM, is a task of its own; its parent goes on, even if it
 * was forked while another thread waits for a message. */
#include "say.h"
#include <pthread.h>
#include <sys/wait.h>

static void *wait_for_end(void *unused)
{
	(void)unused;
	return pvm_recv(-1, 99) > 0 ? "yes" : "no";
}

int main(void)
{
	int mine = pvm_mytid(), i, number = 41, from;
	pthread_t thread;
	void *ended;

	pvm_initsend(PvmDataRaw);
	pvm_pkint(&number, 1, 1);
	pthread_create(&thread, NULL, wait_for_end, NULL);
	usleep(20000);
	for (i = 0; i < 3; i++) {
		pid_t child = fork();
		if (child == 0) {
			int own = pvm_mytid();
			int answer[3] = {own != mine, pvm_parent(), pvm_nrecv(-1, -1)};
			pvm_initsend(PvmDataDefault);
			pvm_pkint(answer, 3, 1);
			pvm_send(mine, 3);
			/* One leaves, one ends, one is killed. */
			if (i == 0)
				pvm_exit();
			if (i == 2)
				abort();
			_exit(0);
		}
		int answer[3];
		int id = pvm_recv(-1, 3);
		pvm_upkint(answer, 3, 1);
		pvm_bufinfo(id, NULL, NULL, &from);
		say("child's tid is another %d, its parent %s, its messages %d", answer[0],
		    code(answer[1]), answer[2]);
		say("it sends as itself %s", from != mine ? "yes" : "no");
		waitpid(child, NULL, 0);
	}
	/* Data that were packed before are still present. */
	say("to itself %s", code(pvm_send(mine, 4)));
	pvm_recv(mine, 4);
	number = 0;
	pvm_upkint(&number, 1, 1);
	say("packed before %d, same tid %s", number, pvm_mytid() == mine ? "yes" : "no");
	pvm_initsend(PvmDataDefault);
	pvm_send(mine, 99);
	pthread_join(thread, &ended);
	say("the thread had its message %s", (char *)ended);
	say("exit %s", code(pvm_exit()));
	return 0;
}
