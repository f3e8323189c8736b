/* Two tasks of one job, which find each other by a mailbox, send each other messages of all
 * sizes. NAGAYA_TASK_ID is 0 and 1. */
#include "say.h"

#define MOST (1 << 20)

static char data[MOST];

static void send_to(int tid, int size)
{
	memset(data, 'a' + size % 26, size);
	pvm_initsend(size < 1000 ? PvmDataRaw : PvmDataInPlace);
	pvm_pkbyte(data, size, 1);
	if (pvm_send(tid, size) < 0)
		exit(1);
}

static void receive(int tid, int size)
{
	if (pvm_recv(tid, size) < 0 || pvm_upkbyte(data, size, 1) < 0)
		exit(2);
	for (int at = 0; at < size; at++)
		if (data[at] != 'a' + size % 26)
			exit(3);
}

int main(void)
{
	static char *boxes[] = {"first", "second"};
	int me = atoi(getenv("NAGAYA_TASK_ID")), tid = pvm_mytid(), other;

	pvm_initsend(PvmDataRaw);
	pvm_pkint(&tid, 1, 1);
	if (tid < 0 || pvm_putinfo(boxes[me], pvm_getsbuf(), PvmMboxDefault) < 0)
		return 4;
	if (pvm_recvinfo(boxes[!me], 0, PvmMboxWaitForInfo) < 0)
		return 5;
	pvm_upkint(&other, 1, 1);
	for (int size = 1; size <= MOST; size *= 2)
		for (int half = 0; half < 2; half++)
			if (half == me)
				send_to(other, size);
			else
				receive(other, size);
	if (me == 0)
		say("messages of PVM arrived");
	pvm_exit();
	return 0;
}
