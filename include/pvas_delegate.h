/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvas_delegate.h - Delegation: a task of a space asks another one, the delegatee, to do
 * work on its behalf, and passes addresses, not data.
 *
 * The delegatee opens a queue, registers an operation for each operation number, and serves
 * requests with any number of threads. Any number of tasks may then call it, or submit
 * requests and test or wait for their answers. A request carries up to
 * PVAS_DELEGATE_PAYLOAD bytes (the first PVAS_DELEGATE_INLINE are in the request's one
 * cache line). Requests arrive in the order in which they were sent; an answer is one
 * number. All else goes by address: the delegatee works on the requester's memory in place.
 * A waiter spins for a short time and then sleeps in the kernel.
 *
 * Any task may be killed at any instant. While the delegatee works on a request, the
 * requester's memory remains mapped and its ID taken, even if the requester ends. If the
 * delegatee ends, its requesters get ECONNRESET within some 20 ms.
 *
 * A call returns 0 on success, or -1 with errno set, except where noted;
 * pvas_delegate_error() then has the reason in words. All calls fail with ESRCH if the
 * caller is no task, as in a child of one by fork(2), and with EOPNOTSUPP in a protected job
 * (nagaya run --protect). Times are in milliseconds: 0 does not
 * wait, less than 0 waits without limit.
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

/* Largest payload, in bytes, and the bytes that fit into the request's first cache line. */
#define PVAS_DELEGATE_PAYLOAD 1000
#define PVAS_DELEGATE_INLINE  40

/* The operation numbers of programs are below this. pvas_delegate_mpi.h and
 * pvas_delegate_ucx.h use the last two. */
#define PVAS_DELEGATE_OPERATIONS 256

/* ---- the delegatee --------------------------------------------------------------- */

/* Ready-made operations, for pvas_delegate_open. */
#define PVAS_DELEGATE_FILES   (1u << 0) /* PVAS_DELEGATE_PREADV, PVAS_DELEGATE_PWRITEV */
#define PVAS_DELEGATE_SOCKETS (1u << 1) /* PVAS_DELEGATE_SENDMSG, PVAS_DELEGATE_RECVMSG */
/* With either: the operations use descriptors that the requester has passed
 * (pvas_delegate_pass_fd), not the caller's own. A thread accepts them. */
#define PVAS_DELEGATE_PASSED  (1u << 2)

/* Makes the calling task a delegatee. The queue has room for `requests` small requests, at
 * most 32768, rounded up to a power of two; 0 means 256. A queue that is opened again after
 * pvas_delegate_close keeps its size. `flags` selects ready-made operations. They use the
 * caller's descriptors, unless PVAS_DELEGATE_PASSED is among the flags.
 * Errors: EBUSY (open already), EINVAL, ENOMEM, ENOSPC (see pvas_export). */
int pvas_delegate_open(size_t requests, unsigned flags);

/* A request in progress. */
struct pvas_delegate_job {
	int         requester; /* ID of the requesting task */
	unsigned    operation;
	const void *payload;   /* a copy of the request's payload, aligned to 8 bytes */
	size_t      length;    /* bytes of the payload */
	const void *job;       /* the library's */
};

/* Performs a request. Returns the requester's result: a number that is not negative, or a
 * negative errno; or defers the request (pvas_delegate_keep). It may access the requester's
 * memory by plain loads and stores if it trusts the addresses, and by the calls below if it
 * does not. */
typedef long (*pvas_delegate_operation)(const struct pvas_delegate_job *job, void *context);

/* Registers the operation for requests with this number; NULL: none. The queue must have
 * been opened once. Errors: EINVAL, EBADF (never opened). */
int pvas_delegate_register(unsigned number, pvas_delegate_operation operation, void *context);

/* Serves one request, and waits for it. Any number of threads may serve at the same time,
 * and 11 of them may perform requests. Returns 1, or 0 after the time limit.
 * Errors: EBADF (no queue is open, or it was closed during the wait), EIO (a task has
 * overwritten the queue). */
int pvas_delegate_serve(int timeout_ms);

/* Closes the queue. Requests that have not started get ECANCELED; deferred ones must still
 * be answered. Error: EBADF. */
int pvas_delegate_close(void);

/* Copies from and to the requester's memory, before the answer. Error: EFAULT (a part is not
 * mapped, or not in the requester's segment). */
int pvas_delegate_read(const struct pvas_delegate_job *job, void *to, const void *from,
                       size_t length);
int pvas_delegate_write(const struct pvas_delegate_job *job, void *to, const void *from,
                        size_t length);

/* Checks an address before it is passed on: all bytes must be in the requester's segment,
 * and readable (PROT_READ) or writable (PROT_WRITE) now. Probes each page. Errors: EFAULT,
 * EINVAL. */
int pvas_delegate_check(const struct pvas_delegate_job *job, const void *at, size_t length,
                        int access);

/* Returns 1 if the requester has cancelled the request or has ended, else 0. A long
 * operation should check this from time to time: the ID of an ended requester remains taken
 * until the answer. */
int pvas_delegate_cancelled(const struct pvas_delegate_job *job);

/* Defers the request: it is answered later, and the operation's own result is ignored. So one
 * thread can have any number of requests in progress. Returns the job to continue with,
 * including the payload, or NULL on error. Errors: EALREADY, EAGAIN (requests of 255 tasks
 * are deferred). */
const struct pvas_delegate_job *pvas_delegate_keep(const struct pvas_delegate_job *job);

/* Answers a deferred job, from any thread; the result is like an operation's. Afterwards
 * neither this job nor that of the operation may be used. */
int pvas_delegate_answer(const struct pvas_delegate_job *kept, long result);

/* ---- the requester --------------------------------------------------------------- */

/* The route to a delegatee. All threads may use it. */
typedef struct pvas_delegatee pvas_delegatee;

/* The node server's delegatee, which nagaya run --delegatee starts: it has the ready-made
 * operations, with passed descriptors. */
#define PVAS_DELEGATE_SERVER (-2)

/* Finds the queue of task `pvid`, or PVAS_DELEGATE_SERVER's. Waits until it is opened, also if
 * no task with this ID has started yet. Returns NULL on error. Errors: EINVAL (no such ID),
 * ECONNREFUSED (not open, and timeout_ms is 0), ETIMEDOUT, ESRCH (there is no such task, or it
 * ended; or the job's node server has no delegatee), EINTR. */
pvas_delegatee *pvas_delegate_find(int pvid, int timeout_ms);

/* Releases the route. Requests in progress remain valid. NULL is allowed. */
void pvas_delegate_release(pvas_delegatee *delegatee);

/* Sends a request, waits for its answer, and returns it. Errors: those of the operation, and
 *   ESRCH         the delegatee had ended before
 *   ECONNRESET    it ended before it answered; the work may have been done
 *   ECONNREFUSED  it has closed its queue before
 *   ECANCELED     it has closed its queue before it started the request
 *   ENOSYS        it has no such operation
 *   EMSGSIZE      more than PVAS_DELEGATE_PAYLOAD bytes: pass an address
 *   EFAULT        also: payload or delegatee is NULL */
long pvas_delegate_call(pvas_delegatee *delegatee, unsigned operation, const void *payload,
                        size_t length);

/* A submitted request. */
typedef struct pvas_delegate_request pvas_delegate_request;

/* Sends a request without waiting for the answer; waits for room in the queue. Returns NULL
 * on error. Memory to which the payload points must remain valid until the answer. Errors:
 * as pvas_delegate_call, EAGAIN (no room in time, or the caller's requests take a quarter of
 * the queue: wait for one of them). */
pvas_delegate_request *pvas_delegate_submit(pvas_delegatee *delegatee, unsigned operation,
                                            const void *payload, size_t length, int timeout_ms);

/* Tests for the answer. If it is there, stores it in *result unless that is NULL (a number
 * that is not negative, or a negative errno), frees the request and returns 1; else returns
 * 0. */
int pvas_delegate_test(pvas_delegate_request *request, long *result);

/* The same, but waits for the answer. */
int pvas_delegate_wait(pvas_delegate_request *request, long *result, int timeout_ms);

/* Cancels the request. It still gets an answer: ECANCELED if it had not started, otherwise
 * its result. */
int pvas_delegate_cancel(pvas_delegate_request *request);

/* Passes the delegatee a copy of a descriptor, for ready-made operations. Returns its number
 * there, which is valid in the caller's requests only. The copy is closed by
 * pvas_delegate_close_fd, when the caller releases the delegatee, and when the caller ends.
 * Errors: EBADF, EOPNOTSUPP (the delegatee has no PVAS_DELEGATE_PASSED, or is on another
 * machine), ESRCH, ECONNREFUSED, ECONNRESET, ENFILE. */
int pvas_delegate_pass_fd(pvas_delegatee *delegatee, int fd);

/* Closes a passed descriptor after the requests that use it. Error: EBADF (no such descriptor
 * was passed on this route). */
int pvas_delegate_close_fd(pvas_delegatee *delegatee, int number);

/* ---- ready-made operations ------------------------------------------------------- */

/* Operation numbers, and their payloads. Descriptors are the delegatee's, or passed to it. All
 * addresses must be in the requester's segment (EFAULT), with at most 1024 vectors (EINVAL).
 * The answer is that of the system call. Offsets are not negative. Sockets: no control data,
 * no MSG_WAITALL (EINVAL); MSG_NOSIGNAL is implied; stream sockets may send less than all. */
enum {
	PVAS_DELEGATE_PREADV = PVAS_DELEGATE_OPERATIONS,  /* struct pvas_delegate_file_io */
	PVAS_DELEGATE_PWRITEV,                            /* struct pvas_delegate_file_io */
	PVAS_DELEGATE_SENDMSG,                            /* struct pvas_delegate_socket_io */
	PVAS_DELEGATE_RECVMSG,                            /* struct pvas_delegate_socket_io */
};

struct pvas_delegate_file_io {
	int                 fd;
	int                 flags;   /* RWF_*, see preadv2(2) */
	int64_t             offset;  /* in the file, in bytes */
	const struct iovec *vectors;
	size_t              count;
};

struct pvas_delegate_socket_io {
	int            fd;
	int            flags;        /* MSG_*, see sendmsg(2) and recvmsg(2) */
	struct msghdr *message;      /* after a receive: msg_namelen and msg_flags are set */
};

/* ---- errors ---------------------------------------------------------------------- */

/* Returns the reason for this thread's last error in one line. Never NULL; valid until its
 * next call. */
const char *pvas_delegate_error(void);

#ifdef __cplusplus
}
#endif
#endif
