/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * parallel.c - the program that figure6 runs: a task prints its ID and its address.
 */
#include <pvas.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	static int own; /* every task has its own */
	struct pvas_space_info space;
	char *segment;
	int id;

	id = pvas_getid();
	if (id < 0 || pvas_getspace(PVAS_SELF, &space) < 0 ||
	    (segment = pvas_segment(PVAS_SELF, id)) == NULL) {
		fprintf(stderr, "parallel: %s\n", pvas_error());
		return 1;
	}
	printf("task %d: process %d, segment %p-%p, static variable at %p\n",
	       id, (int)getpid(), (void *)segment,
	       (void *)(segment + space.segment_size), (void *)&own);

	/* All memory of this program lies in its segment. */
	return pvas_id_of(PVAS_SELF, &own) == id ? 0 : 1;
}
