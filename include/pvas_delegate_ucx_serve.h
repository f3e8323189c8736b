/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvas_delegate_ucx_serve.h - UCX transfers out of the memory of other tasks: the delegatee's
 * side of pvas_delegate_ucx.h, all of it in this header. It makes worker and endpoints as it
 * likes, with UCP_FEATURE_TAG, _AM or _RMA as requesters need:
 *
 *     pvas_delegate_open(0, 0);
 *     struct pvas_delegate_ucx_server ucx;
 *     pvas_delegate_ucx_open(&ucx, worker);
 *     pvas_delegate_ucx_add(&ucx, endpoint);
 *     while (!finished)
 *         pvas_delegate_serve(pvas_delegate_ucx_progress(&ucx));
 *     pvas_delegate_close();
 *     pvas_delegate_ucx_close(&ucx);
 *
 * One thread does all this. While transfers are on their way, the loop polls; else it sleeps. A
 * delegatee that also waits for what others send to its worker calls pvas_delegate_serve with
 * a shorter time.
 *
 * A requester that is killed keeps its memory until its transfers are done. Let endpoints have
 * UCP_ERR_HANDLING_MODE_PEER, so that the end of the other side ends them. Functions return 0,
 * or -1 with errno, unless said otherwise. Link with -lucp -lpvas_delegate.
 */
#ifndef PVAS_DELEGATE_UCX_SERVE_H
#define PVAS_DELEGATE_UCX_SERVE_H

#include <errno.h>
#include <pvas_delegate_ucx.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A transfer that UCX may not have done yet. */
struct pvas_delegate_ucx_pending_ {
	struct pvas_delegate_ucx_server   *server;
	const struct pvas_delegate_job    *job; /* kept, or NULL */
	int                                done;
	ucs_status_t                       status;
	struct pvas_delegate_ucx_pending_ *next; /* while it is free */
};

struct pvas_delegate_ucx_server {
	ucp_worker_h                       worker;
	ucp_ep_h                          *endpoints;
	ucp_rkey_h                        *keys;
	unsigned                          *key_endpoints;
	unsigned                           endpoint_count, key_count;
	int                                pending;
	unsigned                           idle;
	int                                unflushed, flushing;
	struct pvas_delegate_ucx_pending_ *free;
};

static inline long pvas_delegate_ucx_error_(ucs_status_t status)
{
	switch (status) {
	case UCS_OK: return 0;
	case UCS_ERR_INVALID_PARAM:
	case UCS_ERR_INVALID_ADDR:
	case UCS_ERR_UNSUPPORTED: return -EINVAL;
	case UCS_ERR_NO_MEMORY:
	case UCS_ERR_NO_RESOURCE: return -ENOMEM;
	case UCS_ERR_CANCELED:
	case UCS_ERR_CONNECTION_RESET:
	case UCS_ERR_ENDPOINT_TIMEOUT:
	case UCS_ERR_NOT_CONNECTED:
	case UCS_ERR_UNREACHABLE: return -ECONNRESET;
	default: return -EIO;
	}
}

/* UCX has done it. */
static inline void pvas_delegate_ucx_done_(void *request, ucs_status_t status, void *user)
{
	struct pvas_delegate_ucx_pending_ *pending = (struct pvas_delegate_ucx_pending_ *)user;
	struct pvas_delegate_ucx_server *server = pending->server;
	ucp_request_free(request);
	pending->done = 1, pending->status = status;
	if (!pending->job)
		return; /* pvas_delegate_ucx_serve_ waits for it */
	pvas_delegate_answer(pending->job, pvas_delegate_ucx_error_(status));
	pending->next = server->free, server->free = pending;
	server->pending--;
}

static inline void pvas_delegate_ucx_flushed_(void *request, ucs_status_t status, void *user)
{
	(void)status;
	((struct pvas_delegate_ucx_server *)user)->flushing = 0;
	ucp_request_free(request);
}

/* Lets UCX go on, which answers what is done. Returns how long pvas_delegate_serve may wait
 * before this is called again, in milliseconds. */
static inline int pvas_delegate_ucx_progress(struct pvas_delegate_ucx_server *server)
{
	enum { LATER_TURNS = 256, LOOKS = 16 };
	/* With nothing on its way, the next request is more likely than something for UCX,
	 * which makes system calls to find out. */
	if (!server->pending && !server->flushing && server->unflushed && ++server->idle % LOOKS)
		return 0;
	if (ucp_worker_progress(server->worker))
		server->idle = 0;
	else if (++server->idle % 16 == 0 && server->pending)
		sched_yield(); /* who polls in vain lets others have the processor */
	if (server->pending || server->flushing)
		return 0;
	if (!server->unflushed)
		return -1;
	if (server->idle < LATER_TURNS)
		return 0;
	/* What is done may not have been sent yet: before we sleep, it is. */
	ucp_request_param_t parameters;
	parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
	parameters.cb.send = pvas_delegate_ucx_flushed_;
	parameters.user_data = server;
	server->flushing = UCS_PTR_IS_PTR(ucp_worker_flush_nbx(server->worker, &parameters));
	return server->unflushed = 0;
}

static inline long pvas_delegate_ucx_serve_(const struct pvas_delegate_job *job, void *context)
{
	struct pvas_delegate_ucx_server *server = (struct pvas_delegate_ucx_server *)context;
	const struct pvas_delegate_ucx *transfer = (const struct pvas_delegate_ucx *)job->payload;
	struct pvas_delegate_ucx_pending_ *pending = server->free;
	ucp_request_param_t parameters;
	ucs_status_ptr_t request;

	if (job->length != sizeof *transfer || transfer->endpoint >= server->endpoint_count)
		return -EINVAL;
	if (transfer->what == PVAS_DELEGATE_UCX_PUT &&
	    (transfer->number >= server->key_count ||
	     server->key_endpoints[transfer->number] != transfer->endpoint))
		return -EINVAL;
	if (pvas_delegate_check(job, transfer->from, transfer->length, PROT_READ) != 0)
		return -errno;
	if (pending)
		server->free = pending->next;
	else if (!(pending = (struct pvas_delegate_ucx_pending_ *)malloc(sizeof *pending)))
		return -ENOMEM;
	pending->server = server, pending->job = NULL, pending->done = 0;
	server->unflushed = 1, server->idle = 0;

	parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
	                          UCP_OP_ATTR_FIELD_MEMORY_TYPE;
	parameters.cb.send = pvas_delegate_ucx_done_;
	parameters.user_data = pending;
	parameters.memory_type = UCS_MEMORY_TYPE_HOST;
	ucp_ep_h endpoint = server->endpoints[transfer->endpoint];
	size_t length = (size_t)transfer->length;
	switch (transfer->what) {
	case PVAS_DELEGATE_UCX_SEND:
		request = ucp_tag_send_nbx(endpoint, transfer->from, length, transfer->to,
		                           &parameters);
		break;
	case PVAS_DELEGATE_UCX_AM:
		request = ucp_am_send_nbx(endpoint, transfer->number, NULL, 0, transfer->from,
		                          length, &parameters);
		break;
	case PVAS_DELEGATE_UCX_PUT:
		request = ucp_put_nbx(endpoint, transfer->from, length, transfer->to,
		                      server->keys[transfer->number], &parameters);
		break;
	case PVAS_DELEGATE_UCX_FLUSH:
		parameters.op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
		request = ucp_ep_flush_nbx(endpoint, &parameters);
		break;
	default:
		request = UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
	}
	long result = 0;
	if (UCS_PTR_IS_PTR(request)) {
		/* Nobody but us lets UCX go on, so it is not done before it is kept. */
		while (!pending->done)
			if ((pending->job = pvas_delegate_keep(job)) != NULL)
				return server->pending++, 0;
			else
				pvas_delegate_ucx_progress(server);
		result = pvas_delegate_ucx_error_(pending->status);
	} else {
		result = pvas_delegate_ucx_error_(UCS_PTR_STATUS(request));
	}
	pending->next = server->free, server->free = pending;
	return result;
}

/* Lets requesters make transfers. The queue is open; worker, endpoints and keys stay until
 * pvas_delegate_ucx_close. Errors: as pvas_delegate_register. */
static inline int pvas_delegate_ucx_open(struct pvas_delegate_ucx_server *server,
                                         ucp_worker_h worker)
{
	memset(server, 0, sizeof *server);
	server->worker = worker;
	return pvas_delegate_register(PVAS_DELEGATE_UCX, pvas_delegate_ucx_serve_, server);
}

/* Lets requesters use the endpoint. Returns the number by which they name it: 0, 1 and so on.
 * Error: ENOMEM. */
static inline int pvas_delegate_ucx_add(struct pvas_delegate_ucx_server *server, ucp_ep_h endpoint)
{
	void *at = realloc(server->endpoints, (server->endpoint_count + 1) * sizeof endpoint);
	if (!at)
		return errno = ENOMEM, -1;
	server->endpoints = (ucp_ep_h *)at;
	server->endpoints[server->endpoint_count] = endpoint;
	return (int)server->endpoint_count++;
}

/* The same for a remote key, which was unpacked for the endpoint with this number. Errors:
 * ENOMEM, EINVAL (no such endpoint). */
static inline int pvas_delegate_ucx_add_key(struct pvas_delegate_ucx_server *server,
                                            unsigned endpoint, ucp_rkey_h key)
{
	void *at;
	if (endpoint >= server->endpoint_count)
		return errno = EINVAL, -1;
	if (server->key_count >= 65536)
		return errno = ENOMEM, -1;
	if (!(at = realloc(server->keys, (server->key_count + 1) * sizeof key)))
		return errno = ENOMEM, -1;
	server->keys = (ucp_rkey_h *)at;
	if (!(at = realloc(server->key_endpoints, (server->key_count + 1) * sizeof endpoint)))
		return errno = ENOMEM, -1;
	server->key_endpoints = (unsigned *)at;
	server->keys[server->key_count] = key;
	server->key_endpoints[server->key_count] = endpoint;
	return (int)server->key_count++;
}

/* Takes no more transfers, and waits for those that are on their way. */
static inline int pvas_delegate_ucx_close(struct pvas_delegate_ucx_server *server)
{
	struct pvas_delegate_ucx_pending_ *next;
	pvas_delegate_register(PVAS_DELEGATE_UCX, NULL, NULL);
	while (pvas_delegate_ucx_progress(server) == 0)
		;
	for (; server->free; server->free = next) {
		next = server->free->next;
		free(server->free);
	}
	free(server->endpoints);
	free(server->keys);
	free(server->key_endpoints);
	memset(server, 0, sizeof *server);
	return 0;
}

#ifdef __cplusplus
}
#endif
#endif
