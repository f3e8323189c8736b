/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvas_delegate.h - Delegation: a task of a space asks another one, the delegatee, to do
 * work on its behalf, and passes addresses, not data.
 *
 * The delegatee opens a queue, says what it does for which operation number, and serves
 * requests with as many threads as it likes. Any number of tasks may then call it, or
 * submit requests and look or wait for their answers. A request carries up to
 * PVAS_DELEGATE_PAYLOAD bytes (the first PVAS_DELEGATE_INLINE travel in the request's one
 * cache line) and comes in the order in which requests were sent; its answer is one number.
 * All else goes by address: the delegatee works on the requester's memory in place. Who
 * waits looks for a short time and then sleeps in the kernel.
 *
 * Any task may be killed at any instant. While a request is worked on, the requester's
 * memory stays where it is and its ID is nobody else's, even if it ends meanwhile. If the
 * delegatee ends, its requesters learn so within some 20 ms: ECONNRESET.
 *
 * Unless said otherwise a call returns 0 on success, or -1 with errno set;
 * pvas_delegate_error() then has the reason in words. All calls fail with ESRCH where the
 * caller is no task, as in a child of one by fork(2). Times are in milliseconds: 0 does not
 * wait, less than 0 waits as long as it takes.
 *
 * Linux 5.15 or newer, x86-64. Link with -lpvas_delegate (pkg-config pvas_delegate). See
 * pvas_delegate(3).
 */
#ifndef PVAS_DELEGATE_H
#define PVAS_DELEGATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most bytes of a payload, and how many of them fit into the request's first cache line. */
#define PVAS_DELEGATE_PAYLOAD 1000
#define PVAS_DELEGATE_INLINE  40

/* Numbers of operations that a program registers are below this. The last two are
 * pvas_delegate_mpi.h's and pvas_delegate_ucx.h's, where it uses them. */
#define PVAS_DELEGATE_OPERATIONS 256

/* ---- the delegatee --------------------------------------------------------------- */

/* Ready-made operations, for pvas_delegate_open. */
#define PVAS_DELEGATE_FILES   (1u << 0) /* PVAS_DELEGATE_PREADV, PVAS_DELEGATE_PWRITEV */
#define PVAS_DELEGATE_SOCKETS (1u << 1) /* PVAS_DELEGATE_SENDMSG, PVAS_DELEGATE_RECVMSG */
/* With either: they use descriptors that the requester has passed (pvas_delegate_pass_fd),
 * not the caller's own. A thread looks after them. */
#define PVAS_DELEGATE_PASSED  (1u << 2)

/* Makes the calling task a delegatee. `requests` is how many small requests find room in
 * the queue, at most 32768, rounded up to a power of two; 0 means 256. If the queue is
 * opened again after pvas_delegate_close, it is as large as the first time. `flags` says
 * which ready-made operations others may ask for: they use the caller's descriptors, unless
 * PVAS_DELEGATE_PASSED is among them.
 * Errors: EBUSY (open already), EINVAL, ENOMEM, ENOSPC (see pvas_export). */
int pvas_delegate_open(size_t requests, unsigned flags);

/* A request that is worked on. */
struct pvas_delegate_job {
	int         requester; /* ID of the task that asks */
	unsigned    operation;
	const void *payload;   /* a copy of what it sent, aligned to 8 bytes */
	size_t      length;    /* bytes of it */
	const void *job;       /* the library's */
};

/* Does what is asked. Returns a number that is not negative, or a negative errno, which
 * the requester gets, or keeps the request (pvas_delegate_keep). It may use the requester's
 * memory by plain loads and stores, where it trusts the addresses, and by the calls below,
 * where it does not. */
typedef long (*pvas_delegate_operation)(const struct pvas_delegate_job *job, void *context);

/* Says what requests with this number mean, from now on; NULL: nothing. The queue must
 * have been opened once. Errors: EINVAL, EBADF (never opened). */
int pvas_delegate_register(unsigned number, pvas_delegate_operation operation, void *context);

/* Serves one request; waits for it. Any number of threads may serve at once, and 11 may
 * be at work. Returns 1, or 0 when the time is over.
 * Errors: EBADF (no queue is open, or it was closed meanwhile), EIO (somebody has
 * overwritten the queue). */
int pvas_delegate_serve(int timeout_ms);

/* Serves no more. Requests that have not been begun get ECANCELED; those that are kept are
 * still to be answered. Error: EBADF. */
int pvas_delegate_close(void);

/* Copies from and to the requester's memory, before the answer. Error: EFAULT (not all of
 * it is mapped, and in the requester's segment). */
int pvas_delegate_read(const struct pvas_delegate_job *job, void *to, const void *from,
                       size_t length);
int pvas_delegate_write(const struct pvas_delegate_job *job, void *to, const void *from,
                        size_t length);

/* For addresses that are handed on: whether so many bytes are in the requester's segment,
 * and can be read (PROT_READ) or written (PROT_WRITE), now. Costs a look at each page. Errors:
 * EFAULT, EINVAL. */
int pvas_delegate_check(const struct pvas_delegate_job *job, const void *at, size_t length,
                        int access);

/* Whether nobody wants the result any more: 1 if the requester has cancelled the request
 * or has ended, else 0. What takes long asks this now and then: until it has answered, the
 * ID of a requester that has ended stays taken. */
int pvas_delegate_cancelled(const struct pvas_delegate_job *job);

/* For what is answered later, so that one thread can have any number of requests on their
 * way: keeps the request beyond its operation, whose own result is then not looked at.
 * Returns the job to go on with, payload included, or NULL on error. Errors: EALREADY, EAGAIN
 * (the requests of 255 tasks are kept). */
const struct pvas_delegate_job *pvas_delegate_keep(const struct pvas_delegate_job *job);

/* Answers a job that was kept, from any thread: the result is as an operation's. Neither the
 * job nor the operation's may be used any more. */
int pvas_delegate_answer(const struct pvas_delegate_job *kept, long result);

/* ---- the requester --------------------------------------------------------------- */

/* The way to a delegatee. All threads may use it. */
typedef struct pvas_delegatee pvas_delegatee;

/* The node server's delegatee, which nagaya run --delegatee starts: it does what is ready made,
 * with passed descriptors. */
#define PVAS_DELEGATE_SERVER (-2)

/* Finds the queue of task `pvid`, or PVAS_DELEGATE_SERVER's; waits until it is opened, also where no task with this
 * ID has started yet. NULL on error. Errors: EINVAL (no such ID), ECONNREFUSED (not open,
 * and timeout_ms is 0), ETIMEDOUT, ESRCH (no such task, or it ended;
 * the job has no delegatee of the node server's), EINTR. */
pvas_delegatee *pvas_delegate_find(int pvid, int timeout_ms);

/* Gives it back. Requests on their way keep what they need. NULL is allowed. */
void pvas_delegate_release(pvas_delegatee *delegatee);

/* Asks, and waits for the answer, which is returned. Errors: those of the operation, and
 *   ESRCH         the delegatee had ended before
 *   ECONNRESET    it ended before it answered; the work may have been done
 *   ECONNREFUSED  it has closed its queue before
 *   ECANCELED     it has closed its queue meanwhile, and not begun
 *   ENOSYS        it knows no such operation
 *   EMSGSIZE      more than PVAS_DELEGATE_PAYLOAD bytes: pass an address
 *   EFAULT        also: payload or delegatee is NULL */
long pvas_delegate_call(pvas_delegatee *delegatee, unsigned operation, const void *payload,
                        size_t length);

/* A request on its way. */
typedef struct pvas_delegate_request pvas_delegate_request;

/* Asks without waiting for the answer; waits for room in the queue. NULL on error. What
 * the payload points to must stay until the answer is there. Errors: as
 * pvas_delegate_call, EAGAIN (no room in time, or a quarter of the queue's requests are
 * ours: wait for one of them). */
pvas_delegate_request *pvas_delegate_submit(pvas_delegatee *delegatee, unsigned operation,
                                            const void *payload, size_t length, int timeout_ms);

/* Looks for the answer. Returns 1 if it is there: stores it in *result, unless that is
 * NULL, as a number that is not negative or a negative errno, and frees the request; else
 * 0. */
int pvas_delegate_test(pvas_delegate_request *request, long *result);

/* The same, and waits for it. */
int pvas_delegate_wait(pvas_delegate_request *request, long *result, int timeout_ms);

/* Asks that the request be cancelled. It stays, and will be answered: by ECANCELED if it
 * had not been begun; otherwise by what comes of it. */
int pvas_delegate_cancel(pvas_delegate_request *request);

/* Passes the delegatee a copy of a descriptor of ours, for ready-made operations. Returns its
 * number there, by which our requests, and nobody else's, name it. It is closed there by
 * pvas_delegate_close_fd, when the delegatee is released by us, and when we end. Errors: EBADF,
 * EOPNOTSUPP (it takes none: no PVAS_DELEGATE_PASSED, or a task of another machine), ESRCH,
 * ECONNREFUSED, ECONNRESET, ENFILE. */
int pvas_delegate_pass_fd(pvas_delegatee *delegatee, int fd);

/* Closes what was passed, once the requests that use it are done. Error: EBADF (nothing of this
 * number was passed this way). */
int pvas_delegate_close_fd(pvas_delegatee *delegatee, int number);

/* ---- ready-made operations ------------------------------------------------------- */

/* Numbers, and what their payload is. Descriptors are the delegatee's, or passed to it; all addresses must
 * be in the requester's segment (EFAULT), at most 1024 vectors (EINVAL). The answer is that
 * of the system call. Offsets are not negative. Sockets: no control data, no MSG_WAITALL
 * (EINVAL); MSG_NOSIGNAL is implied; stream sockets may send less than all. */
enum {
	PVAS_DELEGATE_PREADV = PVAS_DELEGATE_OPERATIONS,  /* struct pvas_delegate_file_io */
	PVAS_DELEGATE_PWRITEV,                            /* struct pvas_delegate_file_io */
	PVAS_DELEGATE_SENDMSG,                            /* struct pvas_delegate_socket_io */
	PVAS_DELEGATE_RECVMSG,                            /* struct pvas_delegate_socket_io */
};

struct pvas_delegate_file_io {
	int                 fd;
	int                 flags;   /* RWF_*, see preadv2(2) */
	int64_t             offset;  /* bytes from the file's start */
	const struct iovec *vectors;
	size_t              count;
};

struct pvas_delegate_socket_io {
	int            fd;
	int            flags;        /* MSG_*, see sendmsg(2) and recvmsg(2) */
	struct msghdr *message;      /* after a receive: msg_namelen and msg_flags are set */
};

/* ---- errors ---------------------------------------------------------------------- */

/* The reason for this thread's last error, in one line. Never NULL; valid until its next
 * call. */
const char *pvas_delegate_error(void);

#ifdef __cplusplus
}
#endif
#endif
