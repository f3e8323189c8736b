/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvas_delegate_mpi.h - MPI calls on the caller's memory, made by another task: the requester's
 * side of delegated MPI. It needs no MPI; the delegatee, a rank, has
 * pvas_delegate_mpi_serve.h.
 *
 * A call is described by a function below, and then made:
 *
 *     pvas_delegate_mpi_call(rank, pvas_delegate_mpi_send(data, 100, PVAS_DELEGATE_MPI_INT,
 *                                                         1, 7, 0));
 *
 * as MPI's blocking call, or started, as its non-blocking one:
 *
 *     request = pvas_delegate_mpi_start(rank, pvas_delegate_mpi_allreduce(...));
 *     ... compute ...
 *     pvas_delegate_wait(request, &result, -1);
 *
 * Requests are begun in the order in which one task makes them. Ranks, tags, and which calls
 * belong together are MPI's: to all others, the delegatee's rank sends and receives. On one
 * communicator, let only one of a rank's requesters make collective calls, or have them agree
 * on an order, as MPI asks of threads.
 *
 * Results: 0; of a receive, how many bytes came; or an error as pvas_delegate_call's, and
 *   EFAULT    a buffer is not, or not all, in the caller's segment, or cannot be read or written
 *   EINVAL    MPI takes no such arguments
 *   EMSGSIZE  a message was longer than its receive
 *   ECANCELED a receive was cancelled (pvas_delegate_cancel), or the delegatee has closed
 *   EAGAIN    the delegatee has the calls of 255 tasks on their way
 *   EIO       MPI failed
 *
 * Buffers must stay mapped until the answer is there, even if the request is cancelled. Other
 * calls than receives cannot be cancelled once they have begun: MPI has no means for it. Link
 * with -lpvas_delegate. See pvas_delegate_mpi(3).
 */
#ifndef PVAS_DELEGATE_MPI_H
#define PVAS_DELEGATE_MPI_H

#include <pvas_delegate.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The operation that this is. */
#define PVAS_DELEGATE_MPI 255

/* Datatypes: those of C, as MPI's. */
enum {
	PVAS_DELEGATE_MPI_BYTE,
	PVAS_DELEGATE_MPI_CHAR, /* as signed char where numbers are meant */
	PVAS_DELEGATE_MPI_UNSIGNED_CHAR,
	PVAS_DELEGATE_MPI_SHORT,
	PVAS_DELEGATE_MPI_UNSIGNED_SHORT,
	PVAS_DELEGATE_MPI_INT,
	PVAS_DELEGATE_MPI_UNSIGNED,
	PVAS_DELEGATE_MPI_LONG, /* and long long */
	PVAS_DELEGATE_MPI_UNSIGNED_LONG,
	PVAS_DELEGATE_MPI_FLOAT,
	PVAS_DELEGATE_MPI_DOUBLE,
	PVAS_DELEGATE_MPI_LONG_DOUBLE,
	PVAS_DELEGATE_MPI_FLOAT_COMPLEX,
	PVAS_DELEGATE_MPI_DOUBLE_COMPLEX,
	PVAS_DELEGATE_MPI_TYPES
};

/* The operation of a reduction. */
enum {
	PVAS_DELEGATE_MPI_SUM,
	PVAS_DELEGATE_MPI_PROD,
	PVAS_DELEGATE_MPI_MIN,
	PVAS_DELEGATE_MPI_MAX,
	PVAS_DELEGATE_MPI_LAND,
	PVAS_DELEGATE_MPI_LOR,
	PVAS_DELEGATE_MPI_LXOR,
	PVAS_DELEGATE_MPI_BAND,
	PVAS_DELEGATE_MPI_BOR,
	PVAS_DELEGATE_MPI_BXOR,
	PVAS_DELEGATE_MPI_OPS
};

/* A receive takes what comes. */
#define PVAS_DELEGATE_MPI_ANY_SOURCE (-1)
#define PVAS_DELEGATE_MPI_ANY_TAG    (-1)

/* For `from`, of a scatter for `to`, where MPI_IN_PLACE may stand. */
#define PVAS_DELEGATE_MPI_IN_PLACE ((void *)-1)

/* The source of a message. */
struct pvas_delegate_mpi_status {
	int source, tag;
};

/* The call. */
enum {
	PVAS_DELEGATE_MPI_RANK,
	PVAS_DELEGATE_MPI_SIZE,
	PVAS_DELEGATE_MPI_SEND,
	PVAS_DELEGATE_MPI_RECV,
	PVAS_DELEGATE_MPI_BARRIER,
	PVAS_DELEGATE_MPI_BCAST,
	PVAS_DELEGATE_MPI_REDUCE,
	PVAS_DELEGATE_MPI_ALLREDUCE,
	PVAS_DELEGATE_MPI_SCAN,
	PVAS_DELEGATE_MPI_REDUCE_SCATTER_BLOCK,
	PVAS_DELEGATE_MPI_GATHER,
	PVAS_DELEGATE_MPI_SCATTER,
	PVAS_DELEGATE_MPI_ALLGATHER,
	PVAS_DELEGATE_MPI_ALLTOALL,
	PVAS_DELEGATE_MPI_CALLS
};

/* A call: the request's payload, which fits into its first cache line. */
struct pvas_delegate_mpi {
	const void                      *from;
	void                            *to;
	struct pvas_delegate_mpi_status *status; /* of a receive; NULL: not wanted */
	int                              count;
	int                              peer; /* or the root */
	int                              tag;  /* or the reduction */
	unsigned short                   communicator;
	unsigned char                    type, what;
};

/* Makes the call, and waits until it is done, asleep if need be. -1 on error, with errno. */
static inline long pvas_delegate_mpi_call(pvas_delegatee *rank, struct pvas_delegate_mpi call)
{
	return pvas_delegate_call(rank, PVAS_DELEGATE_MPI, &call, sizeof call);
}

/* Starts the call; pvas_delegate_test and pvas_delegate_wait report its completion. NULL on
 * error, see pvas_delegate_submit. */
static inline pvas_delegate_request *pvas_delegate_mpi_start(pvas_delegatee *rank,
                                                             struct pvas_delegate_mpi call)
{
	return pvas_delegate_submit(rank, PVAS_DELEGATE_MPI, &call, sizeof call, -1);
}

/* ---- calls ----------------------------------------------------------------------- */

/* `communicator` is a number that the delegatee has assigned (pvas_delegate_mpi_add): 0 is
 * its first. Counts are those of MPI, between two ranks. */

static inline struct pvas_delegate_mpi pvas_delegate_mpi_(int what, const void *from, void *to,
                                                          int count, int type, int peer, int tag,
                                                          int communicator)
{
	struct pvas_delegate_mpi call;
	call.from = from, call.to = to, call.status = (struct pvas_delegate_mpi_status *)0;
	call.count = count, call.peer = peer, call.tag = tag;
	call.communicator = (unsigned short)communicator;
	call.type = (unsigned char)type, call.what = (unsigned char)what;
	return call;
}

/* The result is the delegatee's rank. */
static inline struct pvas_delegate_mpi pvas_delegate_mpi_rank(int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_RANK, NULL, NULL, 0, 0, 0, 0, communicator);
}

/* The result is how many ranks there are. */
static inline struct pvas_delegate_mpi pvas_delegate_mpi_size(int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_SIZE, NULL, NULL, 0, 0, 0, 0, communicator);
}

static inline struct pvas_delegate_mpi
pvas_delegate_mpi_send(const void *from, int count, int type, int to_rank, int tag,
                       int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_SEND, from, NULL, count, type, to_rank, tag,
	                          communicator);
}

/* The result is how many bytes came. */
static inline struct pvas_delegate_mpi
pvas_delegate_mpi_recv(void *to, int count, int type, int from_rank, int tag, int communicator,
                       struct pvas_delegate_mpi_status *status)
{
	struct pvas_delegate_mpi call = pvas_delegate_mpi_(
		PVAS_DELEGATE_MPI_RECV, NULL, to, count, type, from_rank, tag, communicator);
	call.status = status;
	return call;
}

static inline struct pvas_delegate_mpi pvas_delegate_mpi_barrier(int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_BARRIER, NULL, NULL, 0, 0, 0, 0, communicator);
}

static inline struct pvas_delegate_mpi pvas_delegate_mpi_bcast(void *data, int count, int type,
                                                               int root, int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_BCAST, NULL, data, count, type, root, 0,
	                          communicator);
}

static inline struct pvas_delegate_mpi
pvas_delegate_mpi_reduce(const void *from, void *to, int count, int type, int op, int root,
                         int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_REDUCE, from, to, count, type, root, op,
	                          communicator);
}

static inline struct pvas_delegate_mpi pvas_delegate_mpi_allreduce(const void *from, void *to,
                                                                   int count, int type, int op,
                                                                   int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_ALLREDUCE, from, to, count, type, 0, op,
	                          communicator);
}

static inline struct pvas_delegate_mpi pvas_delegate_mpi_scan(const void *from, void *to,
                                                              int count, int type, int op,
                                                              int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_SCAN, from, to, count, type, 0, op,
	                          communicator);
}

static inline struct pvas_delegate_mpi
pvas_delegate_mpi_reduce_scatter_block(const void *from, void *to, int count, int type, int op,
                                       int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_REDUCE_SCATTER_BLOCK, from, to, count, type, 0,
	                          op, communicator);
}

static inline struct pvas_delegate_mpi pvas_delegate_mpi_gather(const void *from, void *to,
                                                                int count, int type, int root,
                                                                int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_GATHER, from, to, count, type, root, 0,
	                          communicator);
}

static inline struct pvas_delegate_mpi pvas_delegate_mpi_scatter(const void *from, void *to,
                                                                 int count, int type, int root,
                                                                 int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_SCATTER, from, to, count, type, root, 0,
	                          communicator);
}

static inline struct pvas_delegate_mpi pvas_delegate_mpi_allgather(const void *from, void *to,
                                                                   int count, int type,
                                                                   int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_ALLGATHER, from, to, count, type, 0, 0,
	                          communicator);
}

static inline struct pvas_delegate_mpi pvas_delegate_mpi_alltoall(const void *from, void *to,
                                                                  int count, int type,
                                                                  int communicator)
{
	return pvas_delegate_mpi_(PVAS_DELEGATE_MPI_ALLTOALL, from, to, count, type, 0, 0,
	                          communicator);
}

#ifdef __cplusplus
}
#endif
#endif
