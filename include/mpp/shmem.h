/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * mpp/shmem.h - deprecated place of shmem.h.
 */
#include "../shmem.h"
