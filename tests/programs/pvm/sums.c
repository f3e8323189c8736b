/* A master whose workers add up numbers that it sends. It is told if a worker has ended, and the
 * workers are told if it has. */
#include "say.h"

enum { WORKERS = 3, ROUNDS = 60, NUMBERS = 5000 };
enum { WORK = 1, RESULT, ENDED };

static int numbers[NUMBERS];

static int work(int master)
{
	pvm_notify(PvmTaskExit, ENDED, 1, &master);
	for (;;) {
		int count = 0, tag = 0, id = pvm_recv(-1, -1);
		if (id < 0 || pvm_bufinfo(id, NULL, &tag, NULL) || tag == ENDED)
			return 1;
		pvm_upkint(&count, 1, 1);
		if (!count)
			break;
		pvm_upkint(numbers, count, 1);
		long sum = 0;
		for (int i = 0; i < count; i++)
			sum += numbers[i];
		usleep(3000);
		pvm_initsend(PvmDataDefault);
		pvm_pklong(&sum, 1, 1);
		if (pvm_send(master, RESULT))
			return 1;
	}
	pvm_exit();
	return 0;
}

static void hand_out(int worker, int count)
{
	pvm_initsend(PvmDataDefault);
	pvm_pkint(&count, 1, 1);
	pvm_pkint(numbers, count, 1);
	pvm_send(worker, WORK);
}

int main(void)
{
	int parent = enroll(), workers[WORKERS];

	if (parent != -1)
		return work(parent);
	for (int i = 0; i < NUMBERS; i++)
		numbers[i] = i;
	spawn(WORKERS, workers, "worker");
	pvm_notify(PvmTaskExit, ENDED, WORKERS, workers);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < WORKERS; i++)
			hand_out(workers[i], NUMBERS);
		for (int i = 0; i < WORKERS; i++) {
			long sum = 0;
			int tag = 0, id = pvm_recv(-1, -1);
			if (id < 0 || pvm_bufinfo(id, NULL, &tag, NULL)) {
				say("the daemon has ended: %s", code(id));
				return 1;
			}
			if (tag == ENDED) {
				say("a worker has ended");
				return 1;
			}
			pvm_upklong(&sum, 1, 1);
			if (sum != NUMBERS * (NUMBERS - 1L) / 2) {
				say("a sum is wrong: %ld", sum);
				return 2;
			}
		}
	}
	for (int i = 0; i < WORKERS; i++)
		hand_out(workers[i], 0);
	say("all sums are right");
	pvm_exit();
	return 0;
}
