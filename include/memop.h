/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * memop.h - memory operations on another process: the calls that Kokaji, Shiba and Okada
 * (Sharing address spaces using distributed shared memory technique) added to their kernel,
 * on a stock one.
 *
 * They return 0, or -1 and errno: ESRCH, there is no such process, or it ended meanwhile;
 * EPERM, the caller may not trace it (ptrace(2)), or somebody else does; EINVAL, an address
 * or a length is not a multiple of the page size; and what is said below.
 *
 * Linux 5.15 or newer, x86-64. Link with -lmemop (pkg-config memop). See memop(3).
 */
#ifndef MEMOP_H
#define MEMOP_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of the process's own at `addr`, which can be neither read nor written until
 * memop_mprotect() says so. EEXIST where something is mapped already; ENOMEM. */
int memop_mmap(pid_t pid, void *addr, size_t len);

/* What is mapped there is mapped no more. */
int memop_munmap(pid_t pid, void *addr, size_t len);

/* PROT_NONE, or of PROT_READ, PROT_WRITE and PROT_EXEC. ENOMEM where nothing is mapped;
 * EACCES where a file's mode forbids it. */
int memop_mprotect(pid_t pid, void *addr, size_t len, int prot);

/* Copies the page at `addr` of the process to `data`, whatever its protection. EFAULT where
 * nothing is mapped. */
int memop_peekpage(pid_t pid, const void *addr, void *data);

/* Copies a page from `data` to the page at `addr` of the process, whatever its protection.
 * EFAULT where nothing is mapped, or memory that is shared and not writable. */
int memop_pokepage(pid_t pid, void *addr, const void *data);

#ifdef __cplusplus
}
#endif

#endif
