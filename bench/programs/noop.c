/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * noop.c - the smallest dynamic program, for the cost of a spawn.
 *
 *     noop        returns at once
 *     noop FD     writes one byte to descriptor FD and sleeps until it is killed
 */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 2)
		return 0;
	if (write(atoi(argv[1]), "", 1) != 1)
		return 1;
	for (;;)
		pause();
}
