/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * cores.h - binding to a core.
 */
#ifndef CORES_H
#define CORES_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>

/* Binds to the nth of the usable cores, from 0. With fewer cores it uses all. */
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
