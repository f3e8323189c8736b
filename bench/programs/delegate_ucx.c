/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * delegate_ucx.c - the system test of the Multiple PVAS paper: a requester sends and puts to an
 * accepter, by its own UCX endpoint, and by one of a delegatee. Three tasks: delegatee, accepter,
 * requester. UCX_TLS selects the transport.
 *
 * usage: delegate_ucx REPETITIONS MILLISECONDS SIZE...
 *
 * prints for each repetition
 *
 *     send|put direct|delegated BYTES NS
 *
 * of one transfer, from its call until its bytes may change. Direct and delegated batches
 * alternate. The accepter receives between batches, outside the measured intervals.
 */
#define _GNU_SOURCE
#include "cores.h"
#include "times.h"

#include <pvas.h>
#include <pvas_delegate_ucx_serve.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { LARGEST = 4 << 20, POSTED = 16, SMALL = 8192, BATCHES_MAX = 4000, LEAVE = 1 };

static void fail(const char *what)
{
	fprintf(stderr, "delegate_ucx: %s: %s\n", what, pvas_delegate_error());
	exit(1);
}

static void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK) {
		fprintf(stderr, "delegate_ucx: %s: %s\n", what, ucs_status_string(status));
		exit(1);
	}
}

static void *import(int id, const char *name)
{
	void *at;
	if (pvas_import(PVAS_SELF, id, name, &at, NULL, 20000))
		fail(name);
	return at;
}

/* Shared state of accepter and requester. */
struct board {
	_Atomic long received;
	_Atomic int attentive, leave;
	void *region;
};

static ucp_context_h context;
static ucp_worker_h worker;
static struct board board;

static void begin(void)
{
	ucp_params_t parameters = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA,
	};
	ucp_worker_params_t mode = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	check(ucp_init(&parameters, NULL, &context), "ucp_init");
	check(ucp_worker_create(context, &mode, &worker), "ucp_worker_create");
}

/* ---- the accepter ---------------------------------------------------------------- */

static char *places[POSTED];

static void received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                     void *place);

static void post(char *place)
{
	ucp_request_param_t parameters = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
		                UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
		.cb.recv = received, .user_data = place,
	};
	ucs_status_ptr_t request = ucp_tag_recv_nbx(worker, place, LARGEST, 1, ~0ul, &parameters);
	if (!UCS_PTR_IS_PTR(request))
		check(UCS_PTR_STATUS(request), "ucp_tag_recv_nbx");
}

static void received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                     void *place)
{
	(void)info;
	check(status, "receive");
	ucp_request_free(request);
	board.received++;
	post(place);
}

static void accepter(void)
{
	ucp_mem_map_params_t map = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
		.length = LARGEST, .flags = UCP_MEM_MAP_ALLOCATE,
	};
	ucp_mem_attr_t where = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };
	ucp_mem_h memory;
	ucp_address_t *address;
	size_t length;
	void *key;
	begin();
	check(ucp_mem_map(context, &map, &memory), "ucp_mem_map");
	check(ucp_mem_query(memory, &where), "ucp_mem_query");
	memset(where.address, 1, LARGEST);
	board.region = where.address;
	check(ucp_rkey_pack(context, memory, &key, &length), "ucp_rkey_pack");
	pvas_export("key", key, length);
	check(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
	for (int i = 0; i < POSTED; i++) {
		places[i] = malloc(LARGEST);
		memset(places[i], 1, LARGEST);
		post(places[i]);
	}
	pvas_export("board", &board, sizeof board);
	pvas_export("worker", address, length);
	/* It works only when needed: there may be fewer cores than tasks. */
	while (!board.leave)
		if (!ucp_worker_progress(worker)) {
			if (board.attentive)
				sched_yield();
			else
				usleep(200);
		}
}

/* ---- the senders ------------------------------------------------------------------ */

static ucp_ep_h endpoint;
static ucp_rkey_h key;

static void connect_to_accepter(void)
{
	ucp_ep_params_t to = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	begin();
	to.address = import(1, "worker");
	check(ucp_ep_create(worker, &to, &endpoint), "ucp_ep_create");
	check(ucp_ep_rkey_unpack(endpoint, import(1, "key"), &key), "ucp_ep_rkey_unpack");
}

static int left;

static long leave(const struct pvas_delegate_job *job, void *context)
{
	(void)job, (void)context;
	left = 1;
	return 0;
}

static void delegatee(void)
{
	struct pvas_delegate_ucx_server ucx;
	connect_to_accepter();
	if (pvas_delegate_open(0, 0) || pvas_delegate_ucx_open(&ucx, worker) ||
	    pvas_delegate_ucx_add(&ucx, endpoint) != 0 ||
	    pvas_delegate_ucx_add_key(&ucx, 0, key) != 0 ||
	    pvas_delegate_register(LEAVE, leave, NULL))
		fail("pvas_delegate_open");
	while (!left)
		if (pvas_delegate_serve(pvas_delegate_ucx_progress(&ucx)) < 0)
			fail("pvas_delegate_serve");
}

static pvas_delegatee *zero;
static struct board *accepters;
static char *out;
static size_t length;

static void done(ucs_status_ptr_t request)
{
	ucs_status_t status;
	if (!UCS_PTR_IS_PTR(request)) {
		check(UCS_PTR_STATUS(request), "transfer");
		return;
	}
	for (int turn = 0; (status = ucp_request_check_status(request)) == UCS_INPROGRESS;)
		if (!ucp_worker_progress(worker) && ++turn % 16 == 0)
			sched_yield();
	check(status, "transfer");
	ucp_request_free(request);
}

static ucp_request_param_t host = { .op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE,
	                            .memory_type = UCS_MEMORY_TYPE_HOST };
static ucp_request_param_t plain;

static void direct_send(void)
{
	done(ucp_tag_send_nbx(endpoint, out, length, 1, &host));
}

static void direct_put(void)
{
	done(ucp_put_nbx(endpoint, out, length, (uintptr_t)accepters->region, key, &host));
}

static void delegated_send(void)
{
	if (pvas_delegate_ucx_call(zero, pvas_delegate_ucx_send(0, out, length, 1)))
		fail("send");
}

static void delegated_put(void)
{
	if (pvas_delegate_ucx_call(zero, pvas_delegate_ucx_put(0, out, length,
	                                                       (uintptr_t)accepters->region, 0)))
		fail("put");
}

/* Waits until all direct and delegated transfers have arrived. */
static void settle(long sent)
{
	accepters->attentive = 1;
	done(ucp_worker_flush_nbx(worker, &plain));
	if (pvas_delegate_ucx_call(zero, pvas_delegate_ucx_flush(0)))
		fail("flush");
	while (accepters->received != sent)
		if (!ucp_worker_progress(worker))
			sched_yield();
	accepters->attentive = length > SMALL;
}

static void measure(const char *what, int sends, void (*const ways[2])(void), int milliseconds)
{
	static long times[2][BATCHES_MAX];
	int each = length > SMALL ? 1 : POSTED / 2, batches = 0;
	long sent = accepters->received, end = now_ns() + milliseconds * 1000000L;
	for (int b = -2; (now_ns() < end || b < 3) && b < BATCHES_MAX; b++)
		for (int w = 0; w < 2; w++) {
			settle(sent);
			/* Awake, and the buffer in this core's cache. */
			memset(out, b, length);
			if (w == 1 && pvas_delegate_call(zero, 2, NULL, 0) != -1)
				fail("no operation");
			long begin = now_ns();
			for (int i = 0; i < each; i++)
				ways[w]();
			if (b >= 0) {
				times[w][b] = now_ns() - begin;
				batches = b + 1;
			}
			sent += sends ? each : 0;
		}
	settle(sent);
	for (int w = 0; w < 2; w++) {
		sort(times[w], batches);
		printf("%s %s %zu %.1f\n", what, w ? "delegated" : "direct", length,
		       (double)times[w][batches / 2] / each);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static void (*const sends[])(void) = { direct_send, delegated_send };
	static void (*const puts[])(void) = { direct_put, delegated_put };
	if (argc < 4) {
		fprintf(stderr, "usage: %s REPETITIONS MILLISECONDS SIZE...\n", argv[0]);
		return 1;
	}
	int me = atoi(getenv("NAGAYA_TASK_ID"));
	if (me != 1)
		/* Delegatee and requester have a core each, if there are two. */
		stay_on(me / 2);
	if (me < 2) {
		me == 0 ? delegatee() : accepter();
		return 0;
	}
	connect_to_accepter();
	accepters = import(1, "board");
	zero = pvas_delegate_find(0, 20000);
	out = malloc(LARGEST);
	if (!zero || !out)
		fail("pvas_delegate_find");
	for (int a = 3; a < argc; a++)
		for (int r = 0; r < atoi(argv[1]); r++) {
			length = strtoul(argv[a], NULL, 10);
			if (length > LARGEST)
				return 1;
			measure("send", 1, sends, atoi(argv[2]));
			measure("put", 0, puts, atoi(argv[2]));
		}
	accepters->leave = 1;
	return pvas_delegate_call(zero, LEAVE, NULL, 0) != 0;
}
