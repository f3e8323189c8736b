/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * xpmem.h - XPMEM's interface (github.com/hpc/xpmem) for the tasks of one space.
 *
 * A task *makes* a segment of its memory known: others *get* a permit to it and *attach*
 * parts of it. In a space an attachment is the memory itself, at the address that it has
 * in its task: no mapping is made, no page table grows, no page faults.
 *
 * Source and binary compatible with XPMEM 2.6.5. Unless said otherwise a call returns -1
 * with errno set on error. Every call fails with ENOENT in a process that is no task of
 * a space, and in a protected job (nagaya run --protect), as the real library's do where
 * there is no /dev/xpmem. All calls may be made
 * by several threads at once. Link with -lxpmem (pkg-config cray-xpmem). See xpmem(7),
 * also for what differs from XPMEM.
 */
#ifndef XPMEM_H
#define XPMEM_H

#include <linux/types.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names a segment in all tasks of a space; positive. */
typedef __s64 xpmem_segid_t;

/* Names an access permit in the task that got it; positive. */
typedef __s64 xpmem_apid_t;

/* The memory for xpmem_attach. */
struct xpmem_addr {
	xpmem_apid_t apid; /* permit to the segment */
	off_t offset;      /* from the segment's start, in bytes */
};

/* As the size of a segment: all memory from its address on. */
#define XPMEM_MAXADDR_SIZE ((size_t)(-1L))

/* For xpmem_get. What has been got for reading only cannot be attached: attachments
 * can always be written. */
#define XPMEM_RDONLY 0x1
#define XPMEM_RDWR 0x2

/* The only permit type. Permit values are modes, such as (void *)0600. */
enum {
	XPMEM_PERMIT_MODE = 0x1,
};

/* An errno that the real kernel module knows. It never occurs here. */
#define XPMEM_ERRNO_NOPROC 2004

/* 0x00026005: the interface of XPMEM 2.6.5. */
int xpmem_version(void);

/* Returns 0 if the other calls can work, or -1 with ENOENT. Need not be called. */
int xpmem_init(void);

/* Makes `size` bytes at `vaddr` known, both multiples of the page size; returns the
 * segid. Memory need not be mapped yet. With NULL and XPMEM_MAXADDR_SIZE it is the whole
 * address space, and offsets are addresses. `permit_value` is a mode that says whose
 * tasks may get the segment.
 * Errors: EINVAL (size 0, not on page boundaries, beyond the address space, another
 * permit type, mode bits beyond 0777), ENOMEM (also: 65,536 segments, or no room for a
 * name in the task's export area). */
xpmem_segid_t xpmem_make(void *vaddr, size_t size, int permit_type, void *permit_value);

/* Takes a segment of the calling task back. Nobody can get or attach it from now on.
 * Errors: EINVAL (not positive), ENOENT (no such segment), EACCES (another task's). */
int xpmem_remove(xpmem_segid_t segid);

/* Gets a permit to a segment; returns the apid. `flags` is XPMEM_RDWR or XPMEM_RDONLY;
 * `permit_value` is not used.
 * Errors: EINVAL (segid not positive, other flags, another permit type), ENOENT (no such
 * segment in the caller's space, or its task has ended), EACCES (its mode denies it),
 * EBUSY (2,147,483,647 permits got). */
xpmem_apid_t xpmem_get(xpmem_segid_t segid, int flags, int permit_type,
                       void *permit_value);

/* Gives a permit and all its attachments up.
 * Errors: EINVAL (not positive), ENOENT (no such permit), EACCES (another task's). */
int xpmem_release(xpmem_apid_t apid);

/* Attaches `size` bytes, rounded up to pages, of a segment; returns where they are: the
 * address that they have in their task. `vaddr` is NULL or just that address.
 * Returns (void *)-1 on error.
 * Errors: EINVAL (apid not positive, offset or vaddr not on a page boundary, size 0, not
 * within the segment, vaddr another address), ENOENT (no such permit; the segment was
 * removed, or its task has ended), EACCES (the permit is for reading only, or another
 * task's). */
void *xpmem_attach(struct xpmem_addr addr, size_t size, void *vaddr);

/* Gives up the attachment that `vaddr` lies in. Of several at one place the one that
 * begins last goes, and of those the newest. 0 also where nothing is mapped.
 * Error: EINVAL (memory that is not attached). */
int xpmem_detach(void *vaddr);

#ifdef __cplusplus
}
#endif

#endif
