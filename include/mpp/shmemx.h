/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * mpp/shmemx.h - deprecated place of shmemx.h.
 */
#include "../shmemx.h"
