/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pshmem.h - OpenSHMEM's profiling interface. shmem.h declares both names of each function.
 */
#ifndef NAGAYA_PSHMEM_H
#define NAGAYA_PSHMEM_H

#include "shmem.h"

#endif /* NAGAYA_PSHMEM_H */
