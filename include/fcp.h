/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * fcp.h - FCP: messages between processes through shared memory, and VCL, the windows of
 * shared memory that they go through.
 *
 * A *window* is shared memory that several processes map: anonymous memory, a file, huge
 * pages, a DAX device, or the memory of a PCI device that several machines share. A
 * process takes a *port* in it, under an ID that is its own among the window's members,
 * and then sends to any other's ID: there is no connection to set up, and any number may
 * send to one. Messages arrive, once, whole and in the order in which their sender sent
 * them, or the sender learns that they did not. Any process may be killed at any
 * instant: the others go on, and its place can be taken anew.
 *
 * Three protocols of Kikuchi et al. (Design and evaluation of PVM on the parallel
 * computer system FOLON) carry them: see enum FCP_protocol.
 *
 * Calls return 0 or a number that is not negative on success, or one of enum FCP_error,
 * all negative; FCP_reason() then has one line that says what, where, and what to do.
 * Times are in seconds: 0 does not wait, less than 0 waits as long as it takes. A port is
 * one thread's at a time: a second thread gets FCP_EBUSY. A window may be used by all. A
 * forked child must open the window and take a port of its own.
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
	FCP_EINVAL = -1,   /* an argument that makes no sense */
	FCP_EWINDOW = -2,  /* the window, or a place in it, cannot be had: FCP_reason() */
	FCP_EGONE = -3,    /* nobody has this ID, or no longer */
	FCP_EDEAD = -4,    /* its owner has ended; noticed while waiting for it */
	FCP_ETIMEOUT = -5, /* the time was over first */
	FCP_ETOOLONG = -6, /* longer than the protocol can carry */
	FCP_EFORKED = -7,  /* the port is the parent's */
	FCP_ECORRUPT = -8, /* some process has overwritten our receive buffer */
	FCP_EBUSY = -9,    /* another thread uses the port */
};

enum FCP_protocol {
	/* The receiver is looked up in a table of the window for every message, and its
	 * buffer changed under a lock. For many users' programs that come and go. */
	FCP_PROTOCOL_FCP = 1,
	/* The same, and what was found is remembered. Goes together with the one above. */
	FCP_PROTOCOL_PLUS = 2,
	/* The place is computed from the ID (ID modulo the window's members), and the
	 * buffer has no lock. Long messages are copied straight from the sender's memory
	 * where that is allowed and faster. The fastest, and the default. */
	FCP_PROTOCOL_II = 3,
};

/* ---- VCL: windows ------------------------------------------------------------- */

/* A window that this process has open. */
typedef struct VCL_window VCL_window;

/* What a window is for. `fields` says which members are meant; the others take their
 * defaults. Later versions add members behind these. */
struct VCL_plan {
	uint64_t fields;   /* VCL_PLAN_* flags */
	uint32_t members;  /* most at a time, 1 to 4096; default 64 */
	int32_t  protocol; /* an FCP_protocol; default FCP_PROTOCOL_II */
	size_t   messages; /* bytes for receive buffers; default 256 KiB for each member */
	size_t   plain;    /* bytes of memory for the program; default 64 KiB */
};
#define VCL_PLAN_MEMBERS  0x1
#define VCL_PLAN_PROTOCOL 0x2
#define VCL_PLAN_MESSAGES 0x4
#define VCL_PLAN_PLAIN    0x8

/* Opens a window, and makes it first where there is none yet. Several processes may do so
 * at once: they get the same one.
 *   where   NULL or "": new anonymous memory, to be passed on by VCL_descriptor;
 *           "fd:N": what descriptor N is open on (N stays open);
 *           a name without '/': a name in /dev/shm;
 *           a path: a file, one on hugetlbfs, /dev/daxN.M, or the resourceN of a PCI
 *           memory device in /sys (its size is the device's)
 *   plan    what it is for; NULL to open only what is a window already
 *   window  the window, to be closed by VCL_close
 * A window that is there must have been made by the same plan. Errors: FCP_EINVAL,
 * FCP_EWINDOW. */
int VCL_open(const char *where, const struct VCL_plan *plan, VCL_window **window);

/* Closes the window. Its ports keep it until they are freed. NULL is allowed. */
void VCL_close(VCL_window *window);

/* The window's descriptor, for children and for other processes (SCM_RIGHTS). It is
 * close-on-exec, and closed with the window. */
int VCL_descriptor(const VCL_window *window);

/* The program's own memory in the window, zero at first, and, where size is not NULL, its
 * bytes. Each process may have it at another address. */
void *VCL_memory(const VCL_window *window, size_t *size);

/* Sets the word; whether it was set before. If not, it is the caller's to clear. */
int VCL_test_and_set(uint32_t *word);

/* Clears what VCL_test_and_set has set. What was written before is seen by who sets it
 * next. */
void VCL_clear(uint32_t *word);

/* ---- FCP: messages ------------------------------------------------------------ */

/* A place in a window, with a receive buffer. */
typedef struct FCP_port FCP_port;

/* Takes a place with a receive buffer.
 *   id, group  who we are for others: the ID must be ours alone in the group, with
 *              FCP_PROTOCOL_II in the window
 *   protocol   an FCP_protocol that the window was made for, 0 for FCP_PROTOCOL_II, or
 *              FCP_PROTOCOL_PLUS in a window that was made for FCP_PROTOCOL_FCP
 *   port       the port, to be freed by FCP_free
 * Errors: FCP_EINVAL; FCP_EWINDOW: the place is taken. */
int FCP_alloc(VCL_window *window, uint32_t id, uint32_t group, int protocol, FCP_port **port);

/* Leaves. What has come and was not received is lost. NULL is allowed. */
void FCP_free(FCP_port *port);

/* Sends to the member with ID `to` (of our group, but with FCP_PROTOCOL_II). Waits until
 * there is room, or until a long message was copied. What comes for ourselves meanwhile
 * is kept, so two may send to each other. Returns 0, or FCP_EGONE, FCP_EDEAD,
 * FCP_ETIMEOUT, FCP_ETOOLONG, FCP_EFORKED, FCP_EBUSY, FCP_EINVAL. */
int FCP_send(FCP_port *port, uint32_t to, const void *message, size_t length, double seconds);

/* Receives the next message, from one of `count` sources, or from anybody if there are
 * none. Copies its first `size` bytes; the rest is lost. Stores the sender's ID unless
 * `source` is NULL. Returns the message's length, which may be more than `size`, or
 * FCP_ETIMEOUT, FCP_ECORRUPT, FCP_EFORKED, FCP_EBUSY, FCP_EINVAL. */
int64_t FCP_recv(FCP_port *port, const uint32_t *sources, size_t count, void *message,
		 size_t size, uint32_t *source, double seconds);

/* Waits for a message as FCP_recv does, and leaves it there. Returns its length. */
int64_t FCP_select(FCP_port *port, const uint32_t *sources, size_t count, uint32_t *source,
		   double seconds);

/* Ends a wait in FCP_recv or FCP_select from another thread, now or the next time that it
 * would wait: it returns FCP_ETIMEOUT. Error: FCP_EINVAL. */
int FCP_interrupt(FCP_port *port);

/* Takes the lock that is a word of VCL_memory, zero at first: an exclusion that survives
 * its holder. Returns 0; or 1 if a holder died in the middle of a change and nobody has
 * repaired it since; or FCP_ETIMEOUT, FCP_EINVAL, FCP_EBUSY. */
int VCL_lock(FCP_port *port, uint64_t *word, double seconds);

/* Lets go of it. With `doubt` set, the next who takes it is told that what it protects is
 * in doubt. */
int VCL_unlock(FCP_port *port, uint64_t *word, int doubt);

/* ---- who is there ------------------------------------------------------------- */

struct FCP_proc {
	uint32_t id;
	uint32_t group;
	int32_t  pid;   /* in its own PID namespace */
	int32_t  lives; /* 1; 0: has ended; -1: another machine's, which alone can tell */
	uint32_t place;
	uint32_t reserved[3];
};

/* Stores up to `most` members of the window. Returns how many there are. */
int FCP_procs(const VCL_window *window, struct FCP_proc *procs, int most);

/* What an FCP_error means, in words. */
const char *FCP_strerror(int error);

/* Why this thread's last call failed: one line, valid until its next call. */
const char *FCP_reason(void);

#ifdef __cplusplus
}
#endif
#endif
