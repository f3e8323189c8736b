/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * openmp_bound.c - on which node each thread of OpenMP is, in the order of their numbers.
 */
#include "nagaya_span.h"

#include <omp.h>
#include <stdio.h>

int main(void)
{
	int nodes[64];

	for (int round = 0; round < 20; round++)
#pragma omp parallel
		nodes[omp_get_thread_num()] = nagaya_node();
	for (int thread = 0; thread < omp_get_max_threads(); thread++)
		printf("%d ", nodes[thread]);
	puts("");
	return 0;
}
