/* Calls that a console traces: some with arrays and strings, some twice. */
#include <pvm3.h>

int main(void)
{
	int self = pvm_mytid(), numbers[2] = { 1, 2 }, tids[2];
	char *arguments[] = { "one", "and two", NULL };
	double real = 2.5;

	pvm_initsend(PvmDataDefault);
	pvm_pkint(numbers, 2, 1);
	pvm_pkdouble(&real, 1, 1);
	pvm_pkstr("text");
	pvm_send(self, 3);
	pvm_recv(-1, 3);
	pvm_upkint(numbers, 2, 1);
	pvm_spawn("nosuch", arguments, 0, "", 2, tids);
	pvm_mcast(tids, 0, 4);
	pvm_exit();
	return 0;
}
