/* What the programs of nagaya span(1)'s tests share: a check that says where it failed, and on
 * which node. */
#ifndef SPAN_CHECK_H
#define SPAN_CHECK_H

#include "nagaya_span.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define CHECK(that) ((that) ? (void)0 : fail(#that, __LINE__))

/* Ends the program with status 1. */
static void fail(const char *what, int line)
{
	int error = errno;

	printf("line %d: not %s (errno %d, node %d, process %d)\n", line, what, error, nagaya_node(),
	       getpid());
	fflush(stdout);
	_exit(1);
}

#endif
