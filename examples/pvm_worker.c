/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Tasks of PVM that the console starts together: each sends its square to the first one, which
 * prints the sum.
 *
 *     make pvm_worker && cp pvm_worker worker
 *     nagaya pvm -c 'spawn -4 -> ./worker'
 */
#include <pvm3.h>
#include <stdio.h>

enum { SQUARE = 1 };

int main(void)
{
	int *tids, me = pvm_mytid(), rank = 0;
	int count = pvm_siblings(&tids);

	if (me < 0 || count < 0)
		return 1;
	while (rank < count && tids[rank] != me)
		rank++;
	printf("task %d of %d\n", rank, count);
	if (rank != 0) {
		int square = rank * rank;

		pvm_initsend(PvmDataDefault);
		pvm_pkint(&square, 1, 1);
		pvm_send(tids[0], SQUARE);
	} else {
		int sum = 0;

		for (int i = 1; i < count; i++) {
			int square;

			pvm_recv(-1, SQUARE);
			pvm_upkint(&square, 1, 1);
			sum += square;
		}
		printf("sum of squares: %d\n", sum);
	}
	pvm_exit();
	return 0;
}
