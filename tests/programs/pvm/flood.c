/* Two tasks that send to each other before either receives: messages of all sizes, encodings
 * and routes. All come, whole and in order. Arguments: how many, largest size in bytes, and a
 * route, if they are to take only one. */
#include "say.h"
#include <sys/wait.h>

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 2000, max = argc > 2 ? atoi(argv[2]) : 100000;
	int route = argc > 3 ? atoi(argv[3]) : 0, there[2], back[2], mine, other, i, k;

	if (pipe(there) || pipe(back))
		return 2;
	int first = fork() != 0;
	mine = pvm_mytid();
	if (write(first ? there[1] : back[1], &mine, sizeof mine) != sizeof mine ||
	    read(first ? back[0] : there[0], &other, sizeof other) != sizeof other)
		return 2;
	char *data = malloc(max + 1);
	unsigned seed = 7 + first;
	for (i = 0; i < n; i++) {
		int size = rand_r(&seed) % 4 ? rand_r(&seed) % 300 : rand_r(&seed);
		size %= max;
		memset(data, i, size);
		pvm_initsend(i % 3);
		pvm_pkint(&i, 1, 1);
		pvm_pkint(&size, 1, 1);
		pvm_pkbyte(data, size, 1);
		pvm_setopt(PvmRoute, route ? route : i / 50 % 3 + 1);
		if (pvm_send(other, 5)) {
			say("message %d was not sent", i);
			return 1;
		}
	}
	for (i = 0; i < n; i++) {
		int number = -1, size = -1;
		if (pvm_recv(other, 5) <= 0)
			return 1;
		pvm_upkint(&number, 1, 1);
		pvm_upkint(&size, 1, 1);
		if (number != i || size < 0 || size > max || pvm_upkbyte(data, size, 1)) {
			say("message %d is %d, of %d bytes", i, number, size);
			return 1;
		}
		for (k = 0; k < size; k++)
			if (data[k] != (char)i) {
				say("message %d is not what was sent", i);
				return 1;
			}
	}
	pvm_exit();
	if (!first)
		return 0;
	int status;
	wait(&status);
	say("all came: %s", status ? "no" : "yes");
	return status != 0;
}
