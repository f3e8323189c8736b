/* Threads wait for messages while others send and receive; each has its own active buffers. */
#include "say.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 2000 };
static int mine;

static void *wait_for_long(void *tag)
{
	int number = -1;
	if (pvm_recv(-1, (int)(long)tag) <= 0)
		return NULL;
	pvm_upkint(&number, 1, 1);
	return (void *)(long)number;
}

/* Sends to itself and receives, with a separate tag. */
static void *talk(void *at)
{
	int tag = 10 + (int)(long)at, i, k, bad = 0;
	int numbers[50], back[50];

	for (i = 0; i < ROUNDS; i++) {
		for (k = 0; k < 50; k++)
			numbers[k] = i * tag + k;
		pvm_initsend(i % 2);
		pvm_pkint(numbers, 50, 1);
		pvm_send(mine, tag);
		if (i % 3 == 0)
			while (pvm_nrecv(-1, tag) <= 0)
				;
		else
			pvm_recv(-1, tag);
		pvm_upkint(back, 50, 1);
		bad += memcmp(numbers, back, sizeof back) != 0;
	}
	return (void *)(long)bad;
}

int main(void)
{
	pthread_t waits[2], talks[THREADS];
	void *result;
	long i, bad = 0;

	mine = pvm_mytid();
	for (i = 0; i < 2; i++)
		pthread_create(&waits[i], NULL, wait_for_long, (void *)(100 + i));
	usleep(20000);
	for (i = 0; i < THREADS; i++)
		pthread_create(&talks[i], NULL, talk, (void *)i);
	for (i = 0; i < THREADS; i++) {
		pthread_join(talks[i], &result);
		bad += (long)result;
	}
	say("wrong messages: %ld", bad);
	for (i = 0; i < 2; i++) {
		int number = 7 + i;
		pvm_initsend(PvmDataDefault);
		pvm_pkint(&number, 1, 1);
		pvm_send(mine, 100 + i);
	}
	for (i = 0; i < 2; i++) {
		pthread_join(waits[i], &result);
		say("waited for %ld", (long)result);
	}
	pvm_exit();
	return 0;
}
