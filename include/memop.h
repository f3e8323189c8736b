/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * memop.h - memory operations on another process: the calls that Kokaji, Shiba and Okada
 * (Sharing address spaces using distributed shared memory technique) added to their kernel,
 * on a stock one.
 *
 * They return 0, or -1 with errno: ESRCH, there is no such process, or it ended during the
 * call; EPERM, the caller may not trace it (ptrace(2)), or another process traces it; EINVAL,
 * an address or a length is not a multiple of the page size; and the errors below.
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

/* Maps private anonymous memory at `addr`. It can be neither read nor written until
 * memop_mprotect() allows it. EEXIST if something is mapped there; ENOMEM. */
int memop_mmap(pid_t pid, void *addr, size_t len);

/* Unmaps the memory at `addr`. */
int memop_munmap(pid_t pid, void *addr, size_t len);

/* Changes the protection: PROT_NONE, or of PROT_READ, PROT_WRITE and PROT_EXEC. ENOMEM if
 * nothing is mapped there; EACCES if a file's mode forbids it. */
int memop_mprotect(pid_t pid, void *addr, size_t len, int prot);

/* Copies the page at `addr` of the process to `data`, whatever its protection. EFAULT if
 * nothing is mapped there. */
int memop_peekpage(pid_t pid, const void *addr, void *data);

/* Copies a page from `data` to the page at `addr` of the process, whatever its protection.
 * EFAULT if nothing, or read-only shared memory, is mapped there. */
int memop_pokepage(pid_t pid, void *addr, const void *data);

#ifdef __cplusplus
}
#endif

#endif
