/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvas_delegate_mpi_serve.h - MPI calls on the memory of other tasks: the delegatee's side of
 * pvas_delegate_mpi.h. The delegatee is an MPI rank, compiled with the compiler of whatever MPI
 * it uses: all is in this header, since MPIs agree on no binary interface.
 *
 *     MPI_Init(&argc, &argv);
 *     pvas_delegate_open(0, 0);
 *     struct pvas_delegate_mpi_server mpi;
 *     pvas_delegate_mpi_open(&mpi);
 *     pvas_delegate_mpi_add(&mpi, MPI_COMM_WORLD);
 *     while (!finished)
 *         pvas_delegate_serve(pvas_delegate_mpi_progress(&mpi));
 *     pvas_delegate_close();
 *     pvas_delegate_mpi_close(&mpi);
 *     MPI_Finalize();
 *
 * One thread does all this: MPI_THREAD_SINGLE is enough. Each call is started without
 * blocking, and answered when MPI has done it; any number are on their way at once. While some
 * are, the loop polls, as MPI does; else it sleeps, and looks after MPI now and then.
 *
 * A requester that is killed keeps its memory until MPI is done with it: its receives are
 * cancelled, other calls must find their peers. Unless said otherwise functions return 0, or
 * -1 with errno. Link with -lpvas_delegate.
 */
#ifndef PVAS_DELEGATE_MPI_SERVE_H
#define PVAS_DELEGATE_MPI_SERVE_H

#include <errno.h>
#include <mpi.h>
#include <pvas_delegate_mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A call that MPI has not done yet. */
struct pvas_delegate_mpi_pending_ {
	const struct pvas_delegate_job *job;
	int cancelled;
};

struct pvas_delegate_mpi_server {
	MPI_Comm *communicators;
	int communicator_count;
	int tag_max;
	/* Calls in flight: their number, and the room for them; three adjacent arrays, since
	 * MPI takes its requests in one. */
	int pending, room;
	MPI_Request *requests;
	struct pvas_delegate_mpi_pending_ *calls;
	int *done;
	MPI_Status *statuses;
	unsigned turn;
	int closing;
};

/* ---- arguments ------------------------------------------------------------------- */

static inline MPI_Datatype pvas_delegate_mpi_type_(unsigned type)
{
	switch (type) {
	case PVAS_DELEGATE_MPI_BYTE: return MPI_BYTE;
	case PVAS_DELEGATE_MPI_CHAR: return MPI_SIGNED_CHAR;
	case PVAS_DELEGATE_MPI_UNSIGNED_CHAR: return MPI_UNSIGNED_CHAR;
	case PVAS_DELEGATE_MPI_SHORT: return MPI_SHORT;
	case PVAS_DELEGATE_MPI_UNSIGNED_SHORT: return MPI_UNSIGNED_SHORT;
	case PVAS_DELEGATE_MPI_INT: return MPI_INT;
	case PVAS_DELEGATE_MPI_UNSIGNED: return MPI_UNSIGNED;
	case PVAS_DELEGATE_MPI_LONG: return MPI_LONG;
	case PVAS_DELEGATE_MPI_UNSIGNED_LONG: return MPI_UNSIGNED_LONG;
	case PVAS_DELEGATE_MPI_FLOAT: return MPI_FLOAT;
	case PVAS_DELEGATE_MPI_DOUBLE: return MPI_DOUBLE;
	case PVAS_DELEGATE_MPI_LONG_DOUBLE: return MPI_LONG_DOUBLE;
	case PVAS_DELEGATE_MPI_FLOAT_COMPLEX: return MPI_C_FLOAT_COMPLEX;
	case PVAS_DELEGATE_MPI_DOUBLE_COMPLEX: return MPI_C_DOUBLE_COMPLEX;
	default: return MPI_DATATYPE_NULL;
	}
}

/* MPI_OP_NULL where MPI does not define the reduction for the type. */
static inline MPI_Op pvas_delegate_mpi_op_(int op, unsigned type)
{
	int number = type != PVAS_DELEGATE_MPI_BYTE;
	int whole = type < PVAS_DELEGATE_MPI_FLOAT;
	int ordered = number && type < PVAS_DELEGATE_MPI_FLOAT_COMPLEX;
	switch (op) {
	case PVAS_DELEGATE_MPI_SUM: return number ? MPI_SUM : MPI_OP_NULL;
	case PVAS_DELEGATE_MPI_PROD: return number ? MPI_PROD : MPI_OP_NULL;
	case PVAS_DELEGATE_MPI_MIN: return ordered ? MPI_MIN : MPI_OP_NULL;
	case PVAS_DELEGATE_MPI_MAX: return ordered ? MPI_MAX : MPI_OP_NULL;
	case PVAS_DELEGATE_MPI_LAND: return number && whole ? MPI_LAND : MPI_OP_NULL;
	case PVAS_DELEGATE_MPI_LOR: return number && whole ? MPI_LOR : MPI_OP_NULL;
	case PVAS_DELEGATE_MPI_LXOR: return number && whole ? MPI_LXOR : MPI_OP_NULL;
	case PVAS_DELEGATE_MPI_BAND: return whole ? MPI_BAND : MPI_OP_NULL;
	case PVAS_DELEGATE_MPI_BOR: return whole ? MPI_BOR : MPI_OP_NULL;
	case PVAS_DELEGATE_MPI_BXOR: return whole ? MPI_BXOR : MPI_OP_NULL;
	default: return MPI_OP_NULL;
	}
}

static inline long pvas_delegate_mpi_error_(int code)
{
	int kind = MPI_ERR_OTHER;
	if (code == MPI_SUCCESS)
		return 0;
	MPI_Error_class(code, &kind);
	switch (kind) {
	case MPI_ERR_TRUNCATE: return -EMSGSIZE;
	case MPI_ERR_BUFFER:
	case MPI_ERR_COUNT:
	case MPI_ERR_TYPE:
	case MPI_ERR_TAG:
	case MPI_ERR_COMM:
	case MPI_ERR_RANK:
	case MPI_ERR_ROOT:
	case MPI_ERR_OP:
	case MPI_ERR_ARG: return -EINVAL;
	default: return -EIO;
	}
}

/* Checks that MPI may read this many bytes there, and write this many here. MPI_IN_PLACE
 * needs none. */
static inline long pvas_delegate_mpi_reach_(const struct pvas_delegate_job *job, const void *from,
                                            size_t reads, const void *to, size_t writes)
{
	if (from != PVAS_DELEGATE_MPI_IN_PLACE && reads &&
	    pvas_delegate_check(job, from, reads, PROT_READ) != 0)
		return -errno;
	if (to != PVAS_DELEGATE_MPI_IN_PLACE && writes &&
	    pvas_delegate_check(job, to, writes, PROT_WRITE) != 0)
		return -errno;
	return 0;
}

/* Starts the call. Returns 0 or a negative errno; a request only where it is 0. */
static inline long pvas_delegate_mpi_begin_(struct pvas_delegate_mpi_server *server,
                                            const struct pvas_delegate_job *job,
                                            const struct pvas_delegate_mpi *call,
                                            MPI_Request *request)
{
	MPI_Comm comm = server->communicators[call->communicator];
	MPI_Datatype type = pvas_delegate_mpi_type_(call->type);
	MPI_Op op = MPI_OP_NULL;
	int size, ranks, rank, n = call->count;
	size_t reads, writes, bytes;
	const void *from = call->from;
	void *to = call->to;
	long error;

	if (type == MPI_DATATYPE_NULL || n < 0)
		return -EINVAL;
	MPI_Type_size(type, &size);
	MPI_Comm_size(comm, &ranks);
	MPI_Comm_rank(comm, &rank);
	bytes = (size_t)n * (size_t)size;
	int any = call->what == PVAS_DELEGATE_MPI_RECV;
	int by_peer = call->peer < 0 || call->peer >= ranks;
	int is_root = call->peer == rank;

	/* The bytes to read and to write. */
	reads = writes = bytes;
	switch (call->what) {
	case PVAS_DELEGATE_MPI_SEND:
	case PVAS_DELEGATE_MPI_RECV:
		if (by_peer && !(any && call->peer == PVAS_DELEGATE_MPI_ANY_SOURCE))
			return -EINVAL;
		if (call->tag > server->tag_max ||
		    (call->tag < 0 && !(any && call->tag == PVAS_DELEGATE_MPI_ANY_TAG)))
			return -EINVAL;
		*(any ? &reads : &writes) = 0;
		break;
	case PVAS_DELEGATE_MPI_BARRIER:
		reads = writes = 0;
		break;
	case PVAS_DELEGATE_MPI_BCAST:
		from = to;
		*(is_root ? &writes : &reads) = 0;
		break;
	case PVAS_DELEGATE_MPI_REDUCE:
		writes = is_root ? bytes : 0;
		break;
	case PVAS_DELEGATE_MPI_ALLREDUCE:
	case PVAS_DELEGATE_MPI_SCAN:
		break;
	case PVAS_DELEGATE_MPI_REDUCE_SCATTER_BLOCK:
		reads *= (size_t)ranks;
		if (from == PVAS_DELEGATE_MPI_IN_PLACE)
			writes *= (size_t)ranks;
		break;
	case PVAS_DELEGATE_MPI_GATHER:
		writes = is_root ? bytes * (size_t)ranks : 0;
		break;
	case PVAS_DELEGATE_MPI_SCATTER:
		reads = is_root ? bytes * (size_t)ranks : 0;
		break;
	case PVAS_DELEGATE_MPI_ALLGATHER:
		writes *= (size_t)ranks;
		break;
	case PVAS_DELEGATE_MPI_ALLTOALL:
		reads *= (size_t)ranks, writes *= (size_t)ranks;
		break;
	default:
		return -EINVAL;
	}
	switch (call->what) {
	case PVAS_DELEGATE_MPI_BCAST:
	case PVAS_DELEGATE_MPI_REDUCE:
	case PVAS_DELEGATE_MPI_GATHER:
	case PVAS_DELEGATE_MPI_SCATTER:
		if (by_peer)
			return -EINVAL;
	}
	/* In place: only where MPI knows that. */
	int whose = call->what == PVAS_DELEGATE_MPI_REDUCE || call->what == PVAS_DELEGATE_MPI_GATHER;
	if (call->from == PVAS_DELEGATE_MPI_IN_PLACE &&
	    (call->what < PVAS_DELEGATE_MPI_REDUCE || call->what == PVAS_DELEGATE_MPI_SCATTER ||
	     (whose && !is_root)))
		return -EINVAL;
	if (to == PVAS_DELEGATE_MPI_IN_PLACE &&
	    !(call->what == PVAS_DELEGATE_MPI_SCATTER && is_root))
		return -EINVAL;
	if (call->what >= PVAS_DELEGATE_MPI_REDUCE &&
	    call->what <= PVAS_DELEGATE_MPI_REDUCE_SCATTER_BLOCK) {
		op = pvas_delegate_mpi_op_(call->tag, call->type);
		if (op == MPI_OP_NULL)
			return -EINVAL;
	}
	error = pvas_delegate_mpi_reach_(job, from, reads, to, writes);
	if (error)
		return error;
	if (from == PVAS_DELEGATE_MPI_IN_PLACE)
		from = MPI_IN_PLACE;
	if (to == PVAS_DELEGATE_MPI_IN_PLACE)
		to = MPI_IN_PLACE;

	int code = MPI_ERR_OTHER, peer = call->peer, tag = call->tag;
	switch (call->what) {
	case PVAS_DELEGATE_MPI_SEND:
		code = MPI_Isend(from, n, type, peer, tag, comm, request);
		break;
	case PVAS_DELEGATE_MPI_RECV:
		peer = peer == PVAS_DELEGATE_MPI_ANY_SOURCE ? MPI_ANY_SOURCE : peer;
		tag = tag == PVAS_DELEGATE_MPI_ANY_TAG ? MPI_ANY_TAG : tag;
		code = MPI_Irecv(to, n, type, peer, tag, comm, request);
		break;
	case PVAS_DELEGATE_MPI_BARRIER:
		code = MPI_Ibarrier(comm, request);
		break;
	case PVAS_DELEGATE_MPI_BCAST:
		code = MPI_Ibcast(to, n, type, peer, comm, request);
		break;
	case PVAS_DELEGATE_MPI_REDUCE:
		code = MPI_Ireduce(from, to, n, type, op, peer, comm, request);
		break;
	case PVAS_DELEGATE_MPI_ALLREDUCE:
		code = MPI_Iallreduce(from, to, n, type, op, comm, request);
		break;
	case PVAS_DELEGATE_MPI_SCAN:
		code = MPI_Iscan(from, to, n, type, op, comm, request);
		break;
	case PVAS_DELEGATE_MPI_REDUCE_SCATTER_BLOCK:
		code = MPI_Ireduce_scatter_block(from, to, n, type, op, comm, request);
		break;
	case PVAS_DELEGATE_MPI_GATHER:
		code = MPI_Igather(from, n, type, to, n, type, peer, comm, request);
		break;
	case PVAS_DELEGATE_MPI_SCATTER:
		code = MPI_Iscatter(from, n, type, to, n, type, peer, comm, request);
		break;
	case PVAS_DELEGATE_MPI_ALLGATHER:
		code = MPI_Iallgather(from, n, type, to, n, type, comm, request);
		break;
	case PVAS_DELEGATE_MPI_ALLTOALL:
		code = MPI_Ialltoall(from, n, type, to, n, type, comm, request);
		break;
	}
	return pvas_delegate_mpi_error_(code);
}

/* The requester's result of a call that MPI has completed with this error. */
static inline long pvas_delegate_mpi_result_(const struct pvas_delegate_job *job, int code,
                                             MPI_Status *status)
{
	const struct pvas_delegate_mpi *call = (const struct pvas_delegate_mpi *)job->payload;
	int cancelled = 0, count, size;
	if (code != MPI_SUCCESS)
		return pvas_delegate_mpi_error_(code);
	if (call->what != PVAS_DELEGATE_MPI_RECV)
		return 0;
	MPI_Test_cancelled(status, &cancelled);
	if (cancelled)
		return -ECANCELED;
	MPI_Datatype type = pvas_delegate_mpi_type_(call->type);
	MPI_Get_count(status, type, &count);
	MPI_Type_size(type, &size);
	if (call->status) {
		struct pvas_delegate_mpi_status from = { status->MPI_SOURCE, status->MPI_TAG };
		if (pvas_delegate_write(job, call->status, &from, sizeof from) != 0)
			return -errno;
	}
	/* No whole number of the type: it was sent as another. */
	return count == MPI_UNDEFINED ? -EINVAL : (long)count * size;
}

/* ---- calls on their way ---------------------------------------------------------- */

static inline int pvas_delegate_mpi_grow_(struct pvas_delegate_mpi_server *server)
{
	size_t room = server->room ? (size_t)server->room * 2 : 64;
	void *at;
	if (server->pending < server->room)
		return 0;
	if (!(at = realloc(server->requests, room * sizeof *server->requests)))
		return -1;
	server->requests = (MPI_Request *)at;
	if (!(at = realloc(server->calls, room * sizeof *server->calls)))
		return -1;
	server->calls = (struct pvas_delegate_mpi_pending_ *)at;
	if (!(at = realloc(server->done, room * sizeof *server->done)))
		return -1;
	server->done = (int *)at;
	if (!(at = realloc(server->statuses, room * sizeof *server->statuses)))
		return -1;
	server->statuses = (MPI_Status *)at;
	server->room = (int)room;
	return 0;
}

/* Asks MPI to cancel a receive that is not wanted any more. MPI still has to complete it. */
static inline void pvas_delegate_mpi_cancel_(struct pvas_delegate_mpi_server *server, int index)
{
	struct pvas_delegate_mpi_pending_ *call = &server->calls[index];
	const struct pvas_delegate_mpi *what = (const struct pvas_delegate_mpi *)call->job->payload;
	if (call->cancelled || what->what != PVAS_DELEGATE_MPI_RECV)
		return;
	if (server->closing || pvas_delegate_cancelled(call->job)) {
		call->cancelled = 1;
		MPI_Cancel(&server->requests[index]);
	}
}

/* Answers the calls that MPI has done since, and lets it go on with the others. Returns how
 * long pvas_delegate_serve may wait before this is called again, in milliseconds. */
static inline int pvas_delegate_mpi_progress(struct pvas_delegate_mpi_server *server)
{
	/* MPI may not yet have sent data that it has taken from a sender. */
	enum { LATER_TURNS = 256, LATER_MS = 10, LOOKS = 16 };
	int count = 0, left = 0;
	if (!server->pending) {
		int later = ++server->turn >= LATER_TURNS;
		/* The next request is more likely. */
		if (server->communicator_count && (later || server->turn % LOOKS == 0))
			MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, server->communicators[0], &count,
			           MPI_STATUS_IGNORE);
		return later ? LATER_MS : 0;
	}
	int code = MPI_Testsome(server->pending, server->requests, &count, server->done,
	                        server->statuses);
	if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
		count = 0;
	if (count <= 0) {
		/* Checks one request each turn; a poll in vain yields the processor. */
		pvas_delegate_mpi_cancel_(server, (int)(server->turn++ % (unsigned)server->pending));
		if (server->turn % 16 == 0)
			sched_yield();
		return 0;
	}
	for (int i = 0; i < count; i++) {
		MPI_Status *status = &server->statuses[i];
		struct pvas_delegate_mpi_pending_ *call = &server->calls[server->done[i]];
		int error = code == MPI_ERR_IN_STATUS ? status->MPI_ERROR : MPI_SUCCESS;
		pvas_delegate_answer(call->job, pvas_delegate_mpi_result_(call->job, error, status));
		call->job = NULL;
	}
	for (int i = 0; i < server->pending; i++)
		if (server->calls[i].job) {
			server->calls[left] = server->calls[i];
			server->requests[left++] = server->requests[i];
		}
	server->pending = left;
	return server->turn = 0;
}

static inline long pvas_delegate_mpi_serve_(const struct pvas_delegate_job *job, void *context)
{
	struct pvas_delegate_mpi_server *server = (struct pvas_delegate_mpi_server *)context;
	const struct pvas_delegate_mpi *call = (const struct pvas_delegate_mpi *)job->payload;
	const struct pvas_delegate_job *kept = NULL;
	MPI_Request request;
	MPI_Status status;
	int done = 0, answer = 0;
	long error;

	if (job->length != sizeof *call || call->communicator >= server->communicator_count)
		return -EINVAL;
	MPI_Comm comm = server->communicators[call->communicator];
	if (call->what == PVAS_DELEGATE_MPI_RANK)
		return MPI_Comm_rank(comm, &answer), answer;
	if (call->what == PVAS_DELEGATE_MPI_SIZE)
		return MPI_Comm_size(comm, &answer), answer;
	if (pvas_delegate_mpi_grow_(server) != 0)
		return -ENOMEM;
	server->turn = 0;
	/* Once MPI has begun there is no way back. Most sends are done at once: they are kept
	 * when it turns out that they are not. */
	if (call->what != PVAS_DELEGATE_MPI_SEND && !(kept = pvas_delegate_keep(job)))
		return -errno;
	error = pvas_delegate_mpi_begin_(server, job, call, &request);
	if (error)
		return kept ? pvas_delegate_answer(kept, error) : error;
	while (!kept) {
		int code = MPI_Test(&request, &done, &status);
		if (done || code != MPI_SUCCESS)
			return pvas_delegate_mpi_result_(job, code, &status);
		if (!(kept = pvas_delegate_keep(job)))
			pvas_delegate_mpi_progress(server);
	}
	server->requests[server->pending] = request;
	server->calls[server->pending].job = kept;
	server->calls[server->pending++].cancelled = 0;
	return 0;
}

/* ---- what a delegatee calls ------------------------------------------------------ */

/* Lets requesters make MPI calls. The queue is open, MPI initialised; neither it nor `server`
 * goes before pvas_delegate_mpi_close. Errors: as pvas_delegate_register. */
static inline int pvas_delegate_mpi_open(struct pvas_delegate_mpi_server *server)
{
	int *most, known = 0;
	memset(server, 0, sizeof *server);
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &known);
	server->tag_max = known ? *most : 32767;
	return pvas_delegate_register(PVAS_DELEGATE_MPI, pvas_delegate_mpi_serve_, server);
}

/* Lets requesters use the communicator. Returns the number by which they name it: 0, 1 and so
 * on. Errors of MPI's on it are returned from now on, not fatal, since requesters cause them.
 * It must stay until pvas_delegate_mpi_close. Errors: ENOMEM, EIO (MPI's). */
static inline int pvas_delegate_mpi_add(struct pvas_delegate_mpi_server *server,
                                        MPI_Comm communicator)
{
	size_t count = (size_t)server->communicator_count;
	void *at = count < 65536 ? realloc(server->communicators, (count + 1) * sizeof communicator)
	                         : NULL;
	if (!at)
		return errno = ENOMEM, -1;
	server->communicators = (MPI_Comm *)at;
	if (MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN) != MPI_SUCCESS)
		return errno = EIO, -1;
	server->communicators[count] = communicator;
	return server->communicator_count++;
}

/* Takes no more calls, cancels the receives that are on their way, and waits for the other
 * calls. */
static inline int pvas_delegate_mpi_close(struct pvas_delegate_mpi_server *server)
{
	pvas_delegate_register(PVAS_DELEGATE_MPI, NULL, NULL);
	server->closing = 1;
	while (server->pending)
		pvas_delegate_mpi_progress(server);
	free(server->communicators);
	free(server->requests);
	free(server->calls);
	free(server->done);
	free(server->statuses);
	memset(server, 0, sizeof *server);
	return 0;
}

#ifdef __cplusplus
}
#endif
#endif
