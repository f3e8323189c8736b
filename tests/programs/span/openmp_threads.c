/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * openmp_threads.c - how many processors and threads OpenMP has, if nobody says.
 */
#include <omp.h>
#include <stdio.h>

int main(void)
{
	int threads = 0;

#pragma omp parallel
#pragma omp single
	threads = omp_get_num_threads();
	printf("%d %d\n", omp_get_num_procs(), threads);
	return 0;
}
