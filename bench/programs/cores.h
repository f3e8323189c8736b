/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * cores.h - a core of one's own.
 */
#ifndef CORES_H
#define CORES_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>

/* Stays on the nth of the cores that this process may use, from 0; where there are fewer, it
 * stays on whatever is left. */
static void stay_on(int nth)
{
	cpu_set_t allowed, one;
	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof allowed, &allowed))
		return;
	for (int core = 0; core < CPU_SETSIZE; core++)
		if (CPU_ISSET(core, &allowed) && nth-- == 0) {
			CPU_SET(core, &one);
			sched_setaffinity(0, sizeof one, &one);
		}
}

#endif
