/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvas_delegate_ucx.h - UCX sends and puts out of the caller's memory, made by another task on
 * endpoints that it owns: the requester's side of delegated UCX. It needs no UCX; the delegatee
 * has pvas_delegate_ucx_serve.h.
 *
 * A transfer is described by a function below, and then made (pvas_delegate_ucx_call) or started
 * (pvas_delegate_ucx_start). It is done when its bytes may change, which is all that UCX says of
 * it; that they have arrived, a flush says. Requests are begun in the order in which one task
 * makes them.
 *
 * Results: 0, or an error as pvas_delegate_call's, and
 *   EFAULT     the bytes are not, or not all, in the caller's segment, or cannot be read
 *   EINVAL     the delegatee knows no such endpoint or key; UCX takes no such arguments
 *   ECONNRESET the endpoint has failed (or the delegatee has ended)
 *   ENOMEM, EIO UCX has no memory, or failed otherwise
 *
 * The bytes must stay mapped until the answer is there. A transfer cannot be cancelled once it
 * has begun. Link with -lpvas_delegate. See pvas_delegate_ucx(3).
 */
#ifndef PVAS_DELEGATE_UCX_H
#define PVAS_DELEGATE_UCX_H

#include <pvas_delegate.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The operation that this is. */
#define PVAS_DELEGATE_UCX 254

/* Which transfer. */
enum {
	PVAS_DELEGATE_UCX_SEND,
	PVAS_DELEGATE_UCX_AM,
	PVAS_DELEGATE_UCX_PUT,
	PVAS_DELEGATE_UCX_FLUSH
};

/* A transfer: the request's payload, which fits into its first cache line. */
struct pvas_delegate_ucx {
	const void    *from;
	uint64_t       length;
	uint64_t       to; /* a tag, or an address on the other side */
	unsigned       endpoint;
	unsigned short number; /* of the active message, or the key */
	unsigned short what;
};

/* Makes the transfer, and waits until it is done. -1 on error, with errno. */
static inline long pvas_delegate_ucx_call(pvas_delegatee *delegatee,
                                          struct pvas_delegate_ucx transfer)
{
	return pvas_delegate_call(delegatee, PVAS_DELEGATE_UCX, &transfer, sizeof transfer);
}

/* Starts it; pvas_delegate_test and pvas_delegate_wait tell when it is done. NULL on error, see
 * pvas_delegate_submit. */
static inline pvas_delegate_request *pvas_delegate_ucx_start(pvas_delegatee *delegatee,
                                                             struct pvas_delegate_ucx transfer)
{
	return pvas_delegate_submit(delegatee, PVAS_DELEGATE_UCX, &transfer, sizeof transfer, -1);
}

static inline struct pvas_delegate_ucx pvas_delegate_ucx_(int what, unsigned endpoint,
                                                          const void *from, size_t length,
                                                          uint64_t to, unsigned number)
{
	struct pvas_delegate_ucx transfer;
	transfer.from = from, transfer.length = length, transfer.to = to;
	transfer.endpoint = endpoint, transfer.number = (unsigned short)number;
	transfer.what = (unsigned short)what;
	return transfer;
}

/* A tagged message (ucp_tag_send_nbx). `endpoint` is a number that the delegatee has given
 * (pvas_delegate_ucx_add): 0 is its first. */
static inline struct pvas_delegate_ucx
pvas_delegate_ucx_send(unsigned endpoint, const void *from, size_t length, uint64_t tag)
{
	return pvas_delegate_ucx_(PVAS_DELEGATE_UCX_SEND, endpoint, from, length, tag, 0);
}

/* An active message without a header (ucp_am_send_nbx). */
static inline struct pvas_delegate_ucx
pvas_delegate_ucx_am(unsigned endpoint, unsigned id, const void *from, size_t length)
{
	return pvas_delegate_ucx_(PVAS_DELEGATE_UCX_AM, endpoint, from, length, 0, id);
}

/* A write into the other side's memory (ucp_put_nbx). `key` is a number that the delegatee has
 * given for a remote key of this endpoint (pvas_delegate_ucx_add_key). */
static inline struct pvas_delegate_ucx pvas_delegate_ucx_put(unsigned endpoint, const void *from,
                                                             size_t length, uint64_t to,
                                                             unsigned key)
{
	return pvas_delegate_ucx_(PVAS_DELEGATE_UCX_PUT, endpoint, from, length, to, key);
}

/* Done when all that was begun on the endpoint before has arrived (ucp_ep_flush_nbx). */
static inline struct pvas_delegate_ucx pvas_delegate_ucx_flush(unsigned endpoint)
{
	return pvas_delegate_ucx_(PVAS_DELEGATE_UCX_FLUSH, endpoint, NULL, 0, 0, 0);
}

#ifdef __cplusplus
}
#endif
#endif
