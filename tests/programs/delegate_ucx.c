/* Delegated UCX between the tasks of a space: task 0 is the delegatee, task 1 the accepter, to
 * which its endpoint leads, the others are requesters, which never call UCX.
 *
 * Under "dies" the program owns a space, and kills a requester.
 *
 * usage: delegate_ucx CASE */
#include "filled.h"

#include <limits.h>
#include <pvas.h>
#include <pvas_delegate_ucx_serve.h>
#include <stdatomic.h>

extern char **environ;

/* Operations of the delegatee's, and the active message. */
enum { FINISHED = 1, MESSAGE = 3 };
enum { REGION = 8 << 20, LARGE = 4 << 20, SHORT = 4000 };

static int me, tasks;
static pvas_delegatee *zero;

static void *import(int id, const char *name, size_t *size)
{
	void *at;
	CHECK_EQ(pvas_import(PVAS_SELF, id, name, &at, size, 60000), 0);
	return at;
}

/* ---- tasks with UCX --------------------------------------------------------------- */

static ucp_context_h context;

static ucp_worker_h worker(void)
{
	ucp_config_t *config;
	ucp_worker_h worker;
	CHECK_EQ(ucp_config_read(NULL, NULL, &config), UCS_OK);
	ucp_params_t parameters = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA,
	};
	CHECK_EQ(ucp_init(&parameters, config, &context), UCS_OK);
	ucp_config_release(config);
	ucp_worker_params_t mode = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	CHECK_EQ(ucp_worker_create(context, &mode, &worker), UCS_OK);
	return worker;
}

static int finished;

static long has_finished(const struct pvas_delegate_job *job, void *context)
{
	(void)job, (void)context;
	finished++;
	return 0;
}

static void delegatee(int requesters)
{
	struct pvas_delegate_ucx_server ucx;
	ucp_worker_h mine = worker();
	ucp_ep_params_t to = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	to.address = import(1, "worker", NULL);
	ucp_ep_h endpoint;
	ucp_rkey_h key;
	CHECK_EQ(ucp_ep_create(mine, &to, &endpoint), UCS_OK);
	CHECK_EQ(ucp_ep_rkey_unpack(endpoint, import(1, "key", NULL), &key), UCS_OK);
	CHECK_EQ(pvas_delegate_open(0, 0), 0);
	CHECK_EQ(pvas_delegate_ucx_open(&ucx, mine), 0);
	CHECK_FAILS(pvas_delegate_ucx_add_key(&ucx, 0, key), EINVAL);
	CHECK_EQ(pvas_delegate_ucx_add(&ucx, endpoint), 0);
	CHECK_EQ(pvas_delegate_ucx_add_key(&ucx, 0, key), 0);
	CHECK_EQ(pvas_delegate_register(FINISHED, has_finished, NULL), 0);
	while (finished < requesters)
		CHECK(pvas_delegate_serve(pvas_delegate_ucx_progress(&ucx)) >= 0);
	CHECK_EQ(ucx.pending, 0);
	CHECK_EQ(pvas_delegate_close(), 0);
	CHECK_EQ(pvas_delegate_ucx_close(&ucx), 0);
}

/* The accepter's report and its orders. */
struct accepter {
	atomic_int messages, leave, receive; /* active ones so far; it may go; it receives now */
};

static ucs_status_t message(void *argument, const void *header, size_t header_length, void *data,
                            size_t length, const ucp_am_recv_param_t *parameters)
{
	(void)header, (void)header_length;
	struct accepter *accepter = argument;
	CHECK(!(parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV));
	check_filled(data, length, length);
	accepter->messages++;
	return UCS_OK;
}

static ucp_worker_h accepting;
static unsigned char *region;

/* Receives a message with this tag, which must be so long. */
static void accept_message(uint64_t tag, size_t length, uint64_t salt)
{
	unsigned char *in = calloc(1, length + 2);
	ucp_tag_recv_info_t info;
	ucp_request_param_t parameters = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
		.recv_info.tag_info = &info,
	};
	ucs_status_ptr_t request =
		ucp_tag_recv_nbx(accepting, in, length + 1, tag, (uint64_t)-1, &parameters);
	CHECK(UCS_PTR_IS_PTR(request));
	ucs_status_t status;
	while ((status = ucp_tag_recv_request_test(request, &info)) == UCS_INPROGRESS) {
		check_parent();
		if (!ucp_worker_progress(accepting))
			sched_yield();
	}
	CHECK_EQ(status, UCS_OK);
	CHECK_EQ(info.length, length);
	check_filled(in, length, salt);
	ucp_request_free(request);
	free(in);
}

static struct accepter *accepter_begins(void)
{
	static struct accepter accepter;
	ucp_address_t *address;
	size_t length;
	void *key;
	ucp_mem_h memory;
	accepting = worker();
	ucp_am_handler_param_t handler = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
		              UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = MESSAGE, .cb = message, .arg = &accepter,
	};
	CHECK_EQ(ucp_worker_set_am_recv_handler(accepting, &handler), UCS_OK);
	ucp_mem_map_params_t map = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
		.length = REGION, .flags = UCP_MEM_MAP_ALLOCATE,
	};
	ucp_mem_attr_t where = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };
	CHECK_EQ(ucp_mem_map(context, &map, &memory), UCS_OK);
	CHECK_EQ(ucp_mem_query(memory, &where), UCS_OK);
	region = where.address;
	CHECK_EQ(ucp_rkey_pack(context, memory, &key, &length), UCS_OK);
	CHECK_EQ(pvas_export("key", key, length), 0);
	CHECK_EQ(pvas_export("region", &region, sizeof region), 0);
	CHECK_EQ(pvas_export("accepter", &accepter, sizeof accepter), 0);
	CHECK_EQ(ucp_worker_get_address(accepting, &address, &length), UCS_OK);
	CHECK_EQ(pvas_export("worker", address, length), 0);
	return &accepter;
}

/* Lets UCX go on until it may leave: puts and active messages need that. */
static void accept_until_left(struct accepter *accepter)
{
	while (accepter->leave < tasks - 2) {
		check_parent();
		if (!ucp_worker_progress(accepting))
			sched_yield();
	}
}

static void leave(void)
{
	struct accepter *accepter = import(1, "accepter", NULL);
	accepter->leave++;
	CHECK_EQ(pvas_delegate_call(zero, FINISHED, NULL, 0), 0);
}

/* ---- requesters ------------------------------------------------------------------- */

static long call(struct pvas_delegate_ucx transfer)
{
	return pvas_delegate_ucx_call(zero, transfer);
}

static pvas_delegate_request *start(struct pvas_delegate_ucx transfer)
{
	pvas_delegate_request *request = pvas_delegate_ucx_start(zero, transfer);
	CHECK(request);
	return request;
}

static long result_of(pvas_delegate_request *request)
{
	long result;
	CHECK_EQ(pvas_delegate_wait(request, &result, -1), 1);
	return result;
}

static const size_t sizes[] = { 0, 1, 8, 100, 2000, 9000, 70000, 1 << 20, 5 << 20 };
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Tagged messages of several requesters, one at a time and many, each as it was sent. */
static void sends(void)
{
	if (me == 1) {
		accepter_begins();
		for (int s = 0; s < SIZES; s++)
			for (int from = tasks - 1; from > 1; from--)
				for (int n = 0; n < 3; n++)
					accept_message((uint64_t)(from * 100 + s * 3 + n), sizes[s],
					               (uint64_t)(from + n));
		return;
	}
	for (int s = 0; s < SIZES; s++) {
		unsigned char *out[3];
		pvas_delegate_request *requests[3];
		for (int n = 0; n < 3; n++) {
			out[n] = filled(sizes[s], (uint64_t)(me + n));
			requests[n] = start(pvas_delegate_ucx_send(0, out[n], sizes[s],
			                                           (uint64_t)(me * 100 + s * 3 + n)));
		}
		for (int n = 0; n < 3; n++) {
			CHECK_EQ(result_of(requests[n]), 0);
			memset(out[n], 0xee, sizes[s]); /* may change now */
			free(out[n]);
		}
	}
	CHECK_EQ(pvas_delegate_call(zero, FINISHED, NULL, 0), 0);
}

static void puts_and_messages(void)
{
	if (me == 1) {
		accept_until_left(accepter_begins());
		return;
	}
	struct accepter *accepter = import(1, "accepter", NULL);
	unsigned char *to = *(unsigned char **)import(1, "region", NULL) + (me - 2) * (REGION / 4);
	for (size_t bytes = 1; bytes <= REGION / 4; bytes *= 8) {
		unsigned char *out = filled(bytes, bytes);
		CHECK_EQ(call(pvas_delegate_ucx_put(0, out, bytes, (uintptr_t)to, 0)), 0);
		memset(out, 0xee, bytes);
		CHECK_EQ(call(pvas_delegate_ucx_flush(0)), 0);
		check_filled(to, bytes, bytes);
		free(out);
	}
	size_t length = 0;
	for (int i = 0; i < 50; i++, length = length * 3 % SHORT + 1) {
		unsigned char *out = filled(length, length);
		CHECK_EQ(call(pvas_delegate_ucx_am(0, MESSAGE, out, length)), 0);
		free(out);
	}
	CHECK_EQ(call(pvas_delegate_ucx_flush(0)), 0);
	while (accepter->messages < 50 * (tasks - 2))
		sched_yield();
	leave();
}

static void errors(void)
{
	if (me == 1) {
		struct accepter *accepter = accepter_begins();
		accept_until_left(accepter);
		for (int from = 2; from < tasks; from++)
			accept_message((uint64_t)from, 100, 9);
		return;
	}
	unsigned char *to = *(unsigned char **)import(1, "region", NULL);
	char *gone = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(gone != MAP_FAILED && munmap(gone + 8192, 8192) == 0);
	const void *bad[] = { NULL, (void *)64, gone + 8192, gone + 8190, to, (void *)-100L };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		CHECK_FAILS(call(pvas_delegate_ucx_send(0, bad[i], 8000, 1)), EFAULT);
		CHECK_FAILS(call(pvas_delegate_ucx_am(0, MESSAGE, bad[i], 8000)), EFAULT);
		CHECK_FAILS(call(pvas_delegate_ucx_put(0, bad[i], 8000, (uintptr_t)to, 0)), EFAULT);
	}
	CHECK_FAILS(call(pvas_delegate_ucx_send(1, gone, 1, 1)), EINVAL);
	CHECK_FAILS(call(pvas_delegate_ucx_put(0, gone, 1, (uintptr_t)to, 1)), EINVAL);
	CHECK_FAILS(call(pvas_delegate_ucx_flush(1)), EINVAL);
	CHECK_FAILS(call(pvas_delegate_ucx_(77, 0, gone, 1, 0, 0)), EINVAL);
	struct pvas_delegate_ucx short_one = pvas_delegate_ucx_send(0, gone, 1, 1);
	CHECK_FAILS(pvas_delegate_call(zero, PVAS_DELEGATE_UCX, &short_one, 39), EINVAL);
	/* The delegatee is there as before. */
	unsigned char *out = filled(100, 9);
	CHECK_EQ(call(pvas_delegate_ucx_send(0, out, 100, (uint64_t)me)), 0);
	leave();
}

/* ---- a requester that is killed ---------------------------------------------------- */

static void victim(void)
{
	unsigned char *out = filled(LARGE, 1);
	static atomic_int begun;
	pvas_delegate_request *send = start(pvas_delegate_ucx_send(0, out, LARGE, 5));
	/* It has come round, so the send is begun. */
	CHECK_FAILS(call(pvas_delegate_ucx_flush(9)), EINVAL);
	CHECK_EQ(pvas_delegate_test(send, NULL), 0);
	CHECK_EQ(pvas_export("begun", &begun, sizeof begun), 0);
	for (;;)
		pause();
}

static void dies(const char *self, const char *role)
{
	tasks = 3;
	if (role) {
		if (strcmp(role, "delegatee") == 0) {
			delegatee(1);
			return;
		}
		if (strcmp(role, "accepter") == 0) {
			struct accepter *accepter = accepter_begins();
			while (!accepter->receive) {
				check_parent();
				ucp_worker_progress(accepting);
				usleep(100);
			}
			accept_message(5, LARGE, 1);
			accept_message(6, 1000, 2);
			return;
		}
		CHECK(zero = pvas_delegate_find(0, -1));
		if (strcmp(role, "victim") == 0)
			victim();
		unsigned char *out = filled(1000, 2);
		CHECK_EQ(call(pvas_delegate_ucx_send(0, out, 1000, 6)), 0);
		CHECK_EQ(pvas_delegate_call(zero, FINISHED, NULL, 0), 0);
		return;
	}
	static const char *const roles[] = { "delegatee", "accepter", "victim" };
	struct pvas_spawn_attr attr = { .fields = PVAS_SPAWN_PDEATHSIG, .pdeathsig = SIGKILL };
	pid_t pids[3];
	void *at;
	int pvd = pvas_create(), status;
	CHECK(pvd >= 0);
	for (int id = 0; id < 3; id++) {
		char *argv[] = { (char *)self, "dies", (char *)roles[id], NULL };
		CHECK((pids[id] = pvas_spawn(pvd, id, self, argv, environ, &attr)) > 0);
	}
	CHECK_EQ(pvas_import(pvd, 1, "accepter", &at, NULL, 60000), 0);
	struct accepter *accepter = at;
	CHECK_EQ(pvas_import(pvd, 2, "begun", &at, NULL, 60000), 0);
	CHECK_EQ(kill(pids[2], SIGKILL), 0);
	CHECK_EQ(waitpid(pids[2], &status, 0), pids[2]);
	usleep(20000);
	/* UCX still reads its memory; then it may have a successor. */
	char *argv[] = { (char *)self, "dies", "successor", NULL };
	CHECK_FAILS(pvas_spawn(pvd, 2, self, argv, environ, &attr), EBUSY);
	accepter->receive = 1;
	while ((pids[2] = pvas_spawn(pvd, 2, self, argv, environ, &attr)) < 0) {
		int error = errno;
		CHECK_EQ(error, EBUSY);
		usleep(500);
	}
	for (int id = 0; id < 3; id++) {
		CHECK_EQ(waitpid(pids[id], &status, 0), pids[id]);
		CHECK_EQ(status, 0);
	}
	CHECK_EQ(pvas_destroy(pvd), 0);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		{ "sends", sends },
		{ "puts_and_messages", puts_and_messages },
		{ "errors", errors },
		{ NULL, NULL },
	};
	CHECK(argc >= 2);
	if (strcmp(argv[1], "dies") == 0) {
		static char self[PATH_MAX];
		CHECK(argv[2] || realpath("/proc/self/exe", self) != NULL);
		dies(self, argv[2]);
		return 0;
	}
	me = atoi(getenv("NAGAYA_TASK_ID")), tasks = atoi(getenv("NAGAYA_TASKS"));
	if (me == 0) {
		delegatee(tasks - 2);
		return 0;
	}
	if (me > 1)
		CHECK(zero = pvas_delegate_find(0, -1));
	return check_main(cases, argc, argv);
}
