/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * nagaya_span.h - for programs that run under nagaya span(1): which node a thread runs on, and
 * how it goes to another. Nothing has to be linked; a program that uses this runs alone, too.
 */
#ifndef NAGAYA_SPAN_H
#define NAGAYA_SPAN_H

#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A system call that no kernel has: alone it fails with ENOSYS. */
#define NAGAYA_SPAN_CALL 0x4e616761L

/* The calling thread goes on on this node, from 0, with all of its registers, its signal mask
 * and its identity. Returns 0 there; or -1 with errno EINVAL (there is no such node), or ENOSYS
 * (the program does not run under nagaya span). */
static inline int nagaya_migrate(int node)
{
	return (int)syscall(NAGAYA_SPAN_CALL, 0L, (long)(unsigned)node);
}

/* The node on which the calling thread runs; or -1 with errno ENOSYS. */
static inline int nagaya_node(void)
{
	return (int)syscall(NAGAYA_SPAN_CALL, 1L);
}

/* Returns the number of nodes, or -1 with errno ENOSYS. */
static inline int nagaya_nodes(void)
{
	return (int)syscall(NAGAYA_SPAN_CALL, 2L);
}

#ifdef __cplusplus
}
#endif

#endif
