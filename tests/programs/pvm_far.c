/*
 * Two tasks of different hosts. `pvm_far` prints its tid and answers whatever comes, until
 * tag 1000 comes; `pvm_far TID` sends to it: messages of growing length, by all encodings and
 * routes in turn, many before it receives, and checks that what comes back is the same, in
 * order. With a third argument it ends by exit() right after its last message.
 */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void answer(void)
{
	printf("%x\n", pvm_mytid());
	fflush(stdout);
	for (int received = 0;; received++) {
		int length, tag, from, number;
		int buffer = pvm_recv(-1, -1);
		if (pvm_bufinfo(buffer, &length, &tag, &from) < 0)
			exit(1);
		if (tag == 1000) {
			printf("after %d\n", received);
			return;
		}
		pvm_upkint(&number, 1, 1);
		char *bytes = malloc(number + 1);
		if (pvm_upkbyte(bytes, number, 1) < 0)
			exit(1);
		pvm_initsend(tag % 2 ? PvmDataRaw : PvmDataDefault);
		pvm_pkint(&number, 1, 1);
		pvm_pkbyte(bytes, number, 1);
		if (pvm_send(from, tag) < 0)
			exit(1);
		free(bytes);
	}
}

static void fill(char *bytes, int length)
{
	for (int i = 0; i < length; i++)
		bytes[i] = (char)(i * 7 + length);
}

int main(int argc, char **argv)
{
	if (pvm_mytid() < 0)
		return 1;
	if (argc == 1) {
		answer();
		pvm_exit();
		return 0;
	}
	static const int encodings[] = { PvmDataDefault, PvmDataRaw, PvmDataInPlace };
	static const int routes[] = { PvmRouteDirect, PvmDontRoute, PvmAllowDirect };
	enum { ROUNDS = 60, BATCH = 20 };
	int to = strtol(argv[1], NULL, 16), wrong = 0;
	for (int round = 0; round < ROUNDS; round++) {
		static int numbers[BATCH];
		char *sent[BATCH];
		for (int i = 0; i < BATCH; i++) {
			int length = numbers[i] = (round * round * 97 + i * 4099) % 300000;
			fill(sent[i] = malloc(length + 1), length);
			pvm_setopt(PvmRoute, routes[(round + i) % 3]);
			pvm_initsend(encodings[(round / 3 + i) % 3]);
			pvm_pkint(&numbers[i], 1, 1);
			pvm_pkbyte(sent[i], length, 1);
			if (pvm_send(to, round) < 0)
				return 1;
		}
		for (int i = 0; i < BATCH; i++) {
			int number = -1;
			char *back = malloc(numbers[i] + 1);
			pvm_recv(to, round);
			if (pvm_upkint(&number, 1, 1) < 0 || number != numbers[i] ||
			    pvm_upkbyte(back, number, 1) < 0 ||
			    memcmp(back, sent[i], number) != 0)
				wrong++;
			free(back);
			free(sent[i]);
		}
	}
	printf("%d wrong\n", wrong);
	fflush(stdout);
	pvm_setopt(PvmRoute, PvmRouteDirect);
	pvm_initsend(PvmDataRaw);
	if (pvm_send(to, 1000) < 0)
		return 1;
	if (argc > 2)
		exit(0);
	pvm_exit();
	return 0;
}
