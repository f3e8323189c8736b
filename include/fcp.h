/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * fcp.h - FCP: messages between processes through shared memory, and VCL, the windows of
 * shared memory for these messages.
 *
 * A *window* is shared memory that several processes map: anonymous memory, a file, huge
 * pages, a DAX device, or the memory of a PCI device that several machines share. A
 * process allocates a *port* in it, under an ID that is unique among the window's members,
 * and then sends to the IDs of others. There are no connections, and any number of members
 * may send to one. Each message arrives once, whole and in the order in which its sender
 * sent it, or the sender gets an error. Any process may be killed at any instant: the
 * others continue, and another process can take its place.
 *
 * The messages use one of three protocols of Kikuchi et al. (Design and evaluation of PVM
 * on the parallel computer system FOLON): see enum FCP_protocol.
 *
 * Calls return 0 or a number that is not negative on success, or one of enum FCP_error,
 * all negative; FCP_reason() then has one line: what failed, where, and what to do. Times
 * are in seconds: 0 does not wait, less than 0 waits without limit. One thread at a time
 * uses a port: a second one gets FCP_EBUSY. All threads may use a window. A forked child
 * must open the window and allocate a port of its own.
 *
 * Linux 5.15 or newer. Link with -lfcp (pkg-config fcp). See fcp(3) and vcl(3).
 */
#ifndef FCP_H
#define FCP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum FCP_error {
	FCP_EINVAL = -1,   /* an argument is invalid */
	FCP_EWINDOW = -2,  /* the window, or a place in it, is not available: FCP_reason() */
	FCP_EGONE = -3,    /* no member has this ID, or no longer */
	FCP_EDEAD = -4,    /* the receiver has ended, noticed during a wait for it */
	FCP_ETIMEOUT = -5, /* the time limit has passed */
	FCP_ETOOLONG = -6, /* the message is too long for the protocol */
	FCP_EFORKED = -7,  /* the port is the parent's */
	FCP_ECORRUPT = -8, /* a process has overwritten the receive buffer */
	FCP_EBUSY = -9,    /* another thread uses the port */
};

enum FCP_protocol {
	/* The sender looks the receiver up in a table of the window for each message, and
	 * changes its buffer under a lock. For programs of many users that come and go. */
	FCP_PROTOCOL_FCP = 1,
	/* The same, but the sender caches what it found. Both can be used in one window. */
	FCP_PROTOCOL_PLUS = 2,
	/* The receiver's place is its ID modulo the window's members, and the buffer has no
	 * lock. The receiver copies long messages directly from the sender's memory if that
	 * is allowed and faster. The fastest protocol, and the default. */
	FCP_PROTOCOL_II = 3,
};

/* ---- VCL: windows ------------------------------------------------------------- */

/* A window that this process has open. */
typedef struct VCL_window VCL_window;

/* The plan of a window. `fields` names the members that are set; the others have their
 * defaults. Later versions add members behind these. */
struct VCL_plan {
	uint64_t fields;   /* VCL_PLAN_* flags */
	uint32_t members;  /* largest number at a time, 1 to 4096; default 64 */
	int32_t  protocol; /* an FCP_protocol; default FCP_PROTOCOL_II */
	size_t   messages; /* bytes for receive buffers; default 256 KiB for each member */
	size_t   plain;    /* bytes of memory for the program; default 64 KiB */
};
#define VCL_PLAN_MEMBERS  0x1
#define VCL_PLAN_PROTOCOL 0x2
#define VCL_PLAN_MESSAGES 0x4
#define VCL_PLAN_PLAIN    0x8

/* Opens a window, and makes it first if there is none. Several processes may do so at the
 * same time: they get the same one.
 *   where   NULL or "": new anonymous memory, to be passed on by VCL_descriptor;
 *           "fd:N": the memory of descriptor N (which remains open);
 *           a name without '/': a name in /dev/shm;
 *           a path: a file, one on hugetlbfs, /dev/daxN.M, or the resourceN of a PCI
 *           memory device in /sys (its size is the device's)
 *   plan    its plan; NULL opens only an existing window
 *   window  the window, to be closed by VCL_close
 * An existing window must have the same plan. Errors: FCP_EINVAL, FCP_EWINDOW. */
int VCL_open(const char *where, const struct VCL_plan *plan, VCL_window **window);

/* Closes the window. Its ports keep it until they are freed. NULL is allowed. */
void VCL_close(VCL_window *window);

/* Returns the window's descriptor, for children and for other processes (SCM_RIGHTS). It is
 * close-on-exec, and closed with the window. */
int VCL_descriptor(const VCL_window *window);

/* Returns the program's own memory in the window, which is zero at first, and stores its
 * bytes unless size is NULL. Each process may have it at another address. */
void *VCL_memory(const VCL_window *window, size_t *size);

/* Sets the word. Returns whether it was set before. If it was not, the caller must clear it. */
int VCL_test_and_set(uint32_t *word);

/* Clears a word that VCL_test_and_set has set. The next process that sets it sees all writes
 * before this call. */
void VCL_clear(uint32_t *word);

/* ---- FCP: messages ------------------------------------------------------------ */

/* A place in a window, with a receive buffer. */
typedef struct FCP_port FCP_port;

/* Allocates a place with a receive buffer.
 *   id, group  the name of this member: the ID must be unique in the group, and with
 *              FCP_PROTOCOL_II in the window
 *   protocol   an FCP_protocol that the window was made for, 0 for FCP_PROTOCOL_II, or
 *              FCP_PROTOCOL_PLUS in a window that was made for FCP_PROTOCOL_FCP
 *   port       the port, to be freed by FCP_free
 * Errors: FCP_EINVAL; FCP_EWINDOW: the place is taken. */
int FCP_alloc(VCL_window *window, uint32_t id, uint32_t group, int protocol, FCP_port **port);

/* Frees the port. Messages that were not received are lost. NULL is allowed. */
void FCP_free(FCP_port *port);

/* Sends to the member with ID `to` (of the same group, unless with FCP_PROTOCOL_II). Waits
 * until there is room, or until a long message was copied. Stores messages that arrive
 * during the wait, so two members may send to each other. Returns 0, or FCP_EGONE, FCP_EDEAD,
 * FCP_ETIMEOUT, FCP_ETOOLONG, FCP_EFORKED, FCP_EBUSY, FCP_EINVAL. */
int FCP_send(FCP_port *port, uint32_t to, const void *message, size_t length, double seconds);

/* Receives the next message, from one of `count` sources, or from any if count is 0. Copies
 * its first `size` bytes; the rest is lost. Stores the sender's ID unless `source` is NULL.
 * Returns the message's length, which may be more than `size`, or FCP_ETIMEOUT,
 * FCP_ECORRUPT, FCP_EFORKED, FCP_EBUSY, FCP_EINVAL. */
int64_t FCP_recv(FCP_port *port, const uint32_t *sources, size_t count, void *message,
		 size_t size, uint32_t *source, double seconds);

/* Waits for a message as FCP_recv does, but does not receive it. Returns its length. */
int64_t FCP_select(FCP_port *port, const uint32_t *sources, size_t count, uint32_t *source,
		   double seconds);

/* Ends a wait in FCP_recv or FCP_select from another thread, now or the next time that it
 * would wait: it returns FCP_ETIMEOUT. Error: FCP_EINVAL. */
int FCP_interrupt(FCP_port *port);

/* Takes the lock in a word of VCL_memory, which is zero at first. The lock survives its
 * holder. Returns 0; or 1 if a holder died in the middle of a change and no holder has
 * repaired the state since; or FCP_ETIMEOUT, FCP_EINVAL, FCP_EBUSY. */
int VCL_lock(FCP_port *port, uint64_t *word, double seconds);

/* Releases the lock. With `doubt` set, VCL_lock tells the next holder that the protected
 * state is in doubt. */
int VCL_unlock(FCP_port *port, uint64_t *word, int doubt);

/* ---- members ------------------------------------------------------------------ */

struct FCP_proc {
	uint32_t id;
	uint32_t group;
	int32_t  pid;   /* in its own PID namespace */
	int32_t  lives; /* 1: yes; 0: it has ended; -1: only its own machine knows */
	uint32_t place;
	uint32_t reserved[3];
};

/* Stores up to `most` members of the window. Returns the number of all members. */
int FCP_procs(const VCL_window *window, struct FCP_proc *procs, int most);

/* Returns the meaning of an FCP_error in words. */
const char *FCP_strerror(int error);

/* Returns the reason why this thread's last call failed: one line, valid until its next call. */
const char *FCP_reason(void);

#ifdef __cplusplus
}
#endif
#endif
