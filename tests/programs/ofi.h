/* Common parts of tests of libfabric's providers: tasks of one space that meet, an endpoint
 * with its queue, and messages whose every byte is known. */
#include "check.h"

#include <pvas.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

static int me, others, other;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_wait *set;
static struct fid_ep *ep;
static fi_addr_t address[256];

/* An address of the other tasks' that a name stands for. */
static void *theirs(int task, const char *what)
{
	void *at;
	CHECK_EQ(pvas_import(PVAS_SELF, task, what, &at, NULL, 60000), 0);
	return at;
}

/* All meet here. */
static void meet(void)
{
	static int times;
	static char words[32][32];
	char *what = words[times % 32];
	snprintf(what, 32, "meet%d", times++);
	CHECK_EQ(pvas_export(what, what, 1), 0);
	for (int task = 0; task < others; task++)
		theirs(task, what);
	if (times > 2) {
		char old[32];
		snprintf(old, sizeof old, "meet%d", times - 3);
		pvas_unexport(old);
	}
}

/* The last meeting: tasks that have been there may have ended. */
static void part(void)
{
	static const char *const what[] = {"done", "bye"};
	for (int n = 0; n < 2; n++) {
		CHECK_EQ(pvas_export(what[n], what, 1), 0);
		for (int task = 0; task < others; task++)
			while (n == 0 ? theirs(task, what[n]) == NULL
			              : pvas_import(PVAS_SELF, task, what[n], NULL, NULL, 0) != 0 &&
			                        pvas_getpid(PVAS_SELF, task) > 0)
				sched_yield();
	}
}

/* Returns hints for endpoints of a provider. */
static struct fi_info *hints_for(const char *provider, uint64_t caps)
{
	struct fi_info *hints = fi_allocinfo();
	hints->caps = caps;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup(provider);
	return hints;
}

/* Opens what `info` describes: a domain with an address vector. */
static void open_domain(enum fi_av_type type)
{
	me = pvas_getid();
	CHECK(me >= 0);
	other = (me + 1) % others;
	CHECK_EQ(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	CHECK_EQ(fi_domain(fabric, info, &domain, NULL), 0);
	struct fi_av_attr av_attr = {.type = type};
	CHECK_EQ(fi_av_open(domain, &av_attr, &av, NULL), 0);
}

/* Opens the domain's completion queue, in `set` if it waits by that. */
static void open_queue(enum fi_wait_obj wait, void *context)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait};
	if (wait == FI_WAIT_SET) {
		CHECK_EQ(fi_cq_open(domain, &cq_attr, &cq, context), -FI_EINVAL);
		cq_attr.wait_set = set;
	}
	CHECK_EQ(fi_cq_open(domain, &cq_attr, &cq, context), 0);
}

/* Opens an endpoint, bound to the vector and the queue. */
static struct fid_ep *open_endpoint(struct fi_info *of, uint64_t selective)
{
	struct fid_ep *made;
	CHECK_EQ(fi_endpoint(domain, of, &made, NULL), 0);
	CHECK_EQ(fi_ep_bind(made, &av->fid, 0), 0);
	CHECK_EQ(fi_ep_bind(made, &cq->fid, FI_SEND | FI_RECV | selective), 0);
	return made;
}

/* Exports the endpoint's name for the other tasks. Returns its length. */
static size_t export_name(char *name, size_t room)
{
	CHECK_EQ(fi_getname(&ep->fid, name, &room), 0);
	CHECK_EQ(pvas_export("name", name, room), 0);
	return room;
}

/* Inserts the address of a task that has exported its name. */
static void insert(int task)
{
	CHECK_EQ(fi_av_insert(av, theirs(task, "name"), 1, &address[task], 0, NULL), 1);
}

/* Closes what a closed endpoint needed; then all part. */
static void leave(void)
{
	CHECK_EQ(fi_close(&cq->fid), 0);
	if (set)
		CHECK_EQ(fi_close(&set->fid), 0);
	CHECK_EQ(fi_close(&av->fid), 0);
	CHECK_EQ(fi_close(&domain->fid), 0);
	CHECK_EQ(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	part();
}

static unsigned char byte(size_t at, unsigned salt)
{
	return (unsigned char)((at * 2654435761u >> 11) + salt);
}

static void fill(unsigned char *at, size_t length, unsigned salt)
{
	for (size_t i = 0; i < length; i++)
		at[i] = byte(i, salt);
}

static void check(const unsigned char *at, size_t length, unsigned salt)
{
	for (size_t i = 0; i < length; i++)
		if (at[i] != byte(i, salt)) {
			fprintf(stderr, "byte %zu of %zu is wrong\n", i, length);
			_exit(1);
		}
}

/* The next completion. */
static struct fi_cq_tagged_entry next(void)
{
	struct fi_cq_tagged_entry entry;
	ssize_t read;
	do
		read = fi_cq_read(cq, &entry, 1);
	while (read == -FI_EAGAIN);
	CHECK_EQ(read, 1);
	return entry;
}

/* Waits for these two, in any order. */
static void both(void *one, void *two, struct fi_cq_tagged_entry *entry_of_one)
{
	struct fi_cq_tagged_entry a = next(), b = next();
	CHECK((a.op_context == one && b.op_context == two) ||
	      (a.op_context == two && b.op_context == one));
	*entry_of_one = a.op_context == one ? a : b;
}

static ssize_t again(ssize_t result)
{
	if (result == -FI_EAGAIN) {
		/* Progress, also of this task, makes room. */
		fi_cq_read(cq, NULL, 0);
	}
	return result;
}

#define UNTIL_DONE(call)                                                                      \
	do {                                                                                  \
		ssize_t result_;                                                              \
		while ((result_ = again(call)) == -FI_EAGAIN)                                 \
			;                                                                     \
		CHECK_EQ(result_, 0);                                                         \
	} while (0)
