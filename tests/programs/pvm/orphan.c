/* A task whose daemon is killed while it waits for a message. */
#include "say.h"

int main(void)
{
	int mine = pvm_mytid();

	say("waiting");
	say("recv %s", code(pvm_recv(-1, 99)));
	say("nrecv %s", code(pvm_nrecv(-1, 99)));
	say("send %s", code(pvm_send(mine + 1, 9)));
	say("initsend %s", code(pvm_initsend(PvmDataDefault)));
	say("config %s", code(pvm_config(NULL, NULL, NULL)));
	say("spawn %s", code(pvm_spawn("x", NULL, 0, NULL, 1, NULL)));
	say("same tid %s", pvm_mytid() == mine ? "yes" : "no");
	say("exit %s", code(pvm_exit()));
	say("exit %s", code(pvm_exit()));
	say("mytid %s", code(pvm_mytid()));
	return 0;
}
