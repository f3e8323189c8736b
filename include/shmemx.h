/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * shmemx.h - the specification's place for extensions with the prefix shmemx_. Nagaya has none.
 */
#ifndef NAGAYA_SHMEMX_H
#define NAGAYA_SHMEMX_H

#include "shmem.h"

#endif /* NAGAYA_SHMEMX_H */
