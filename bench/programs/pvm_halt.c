/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvm_halt.c - ends the virtual machine, all its hosts and tasks.
 */
#include <pvm3.h>

int main(void)
{
	return pvm_halt() < 0;
}
