/* What tells of news through the provider for libfabric: counters of remote accesses, of
 * endpoints and of memory regions (FI_RMA_EVENT), poll sets, and wait sets. */
#include "ofi.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <time.h>

static struct fid_cntr *written, *read_, *region_written;
static struct fid_wait *set;
static uint64_t window[64];
static struct fid_mr *region;

static struct fid_cntr *counter(struct fid_wait *in, void *context)
{
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP,
	                            .wait_obj = in ? FI_WAIT_SET : FI_WAIT_UNSPEC,
	                            .wait_set = in};
	struct fid_cntr *made;
	CHECK_EQ(fi_cntr_open(domain, &attr, &made, context), 0);
	return made;
}

static void start(void)
{
	me = pvas_getid();
	other = (me + 1) % others;
	struct fi_info *hints = fi_allocinfo();
	hints->caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("nagaya");
	CHECK_EQ(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
	CHECK(info->caps & FI_RMA_EVENT);
	fi_freeinfo(hints);
	CHECK_EQ(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	CHECK_EQ(fi_domain(fabric, info, &domain, NULL), 0);
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	CHECK_EQ(fi_av_open(domain, &av_attr, &av, NULL), 0);
	struct fi_wait_attr wait_attr = {.wait_obj = FI_WAIT_UNSPEC};
	CHECK_EQ(fi_wait_open(fabric, &wait_attr, &set), 0);
	CHECK_EQ(fi_wait(set, 0), -FI_EINVAL);
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET};
	CHECK_EQ(fi_cq_open(domain, &cq_attr, &cq, NULL), -FI_EINVAL);
	cq_attr.wait_set = set;
	CHECK_EQ(fi_cq_open(domain, &cq_attr, &cq, &cq), 0);
	written = counter(set, &written);
	read_ = counter(NULL, &read_);
	region_written = counter(NULL, &region_written);
	CHECK_EQ(fi_endpoint(domain, info, &ep, NULL), 0);
	CHECK_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
	CHECK_EQ(fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV), 0);
	CHECK_EQ(fi_ep_bind(ep, &written->fid, FI_REMOTE_WRITE), 0);
	CHECK_EQ(fi_ep_bind(ep, &read_->fid, FI_REMOTE_READ), 0);
	CHECK_EQ(fi_enable(ep), 0);
	CHECK_EQ(fi_mr_reg(domain, window, sizeof window, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1,
	                   FI_RMA_EVENT, &region, NULL), 0);
	CHECK_EQ(fi_mr_bind(region, &cq->fid, FI_REMOTE_WRITE), -FI_EINVAL);
	CHECK_EQ(fi_mr_bind(region, NULL, FI_REMOTE_WRITE), -FI_EINVAL);
	CHECK_EQ(fi_mr_bind(region, &region_written->fid, FI_REMOTE_WRITE), 0);
	CHECK_EQ(fi_mr_bind(region, &ep->fid, 0), 0);
	CHECK_EQ(fi_mr_enable(region), 0);
	static char own[64];
	size_t length = sizeof own;
	CHECK_EQ(fi_getname(&ep->fid, own, &length), 0);
	CHECK_EQ(pvas_export("name", own, length), 0);
	for (int task = 0; task < others; task++)
		CHECK_EQ(fi_av_insert(av, theirs(task, "name"), 1, &address[task], 0, NULL), 1);
	meet();
}

static void finish(void)
{
	meet();
	CHECK_EQ(fi_close(&ep->fid), 0);
	CHECK_EQ(fi_close(&region->fid), 0);
	CHECK_EQ(fi_close(&set->fid), -FI_EBUSY);
	CHECK_EQ(fi_close(&written->fid), 0);
	CHECK_EQ(fi_close(&read_->fid), 0);
	CHECK_EQ(fi_close(&region_written->fid), 0);
	CHECK_EQ(fi_close(&cq->fid), 0);
	CHECK_EQ(fi_close(&set->fid), 0);
	CHECK_EQ(fi_close(&av->fid), 0);
	CHECK_EQ(fi_close(&domain->fid), 0);
	CHECK_EQ(fi_close(&fabric->fid), 0);
	fi_freeinfo(info);
	part();
}

/* Remote writes and reads count at the target, by its endpoint and by the region. */
static void counts(void)
{
	start();
	uint64_t value = 5, old;
	const fi_addr_t to = address[other];
	CHECK_EQ(fi_write(ep, &value, 8, NULL, to, 0, 1, &value), 0);
	next();
	CHECK_EQ(fi_inject_write(ep, &value, 8, to, 8, 1), 0);
	CHECK_EQ(fi_atomic(ep, &value, 1, NULL, to, 16, 1, FI_UINT64, FI_SUM, &value), 0);
	next();
	meet();
	CHECK_EQ(fi_cntr_wait(written, 3, 60000), 0);
	CHECK_EQ(fi_cntr_read(written), 3);
	CHECK_EQ(fi_cntr_wait(region_written, 3, 60000), 0);
	CHECK_EQ(fi_cntr_read(read_), 0);
	CHECK(window[0] == 5 && window[1] == 5 && window[2] == 5);
	meet();
	/* What reads counts as a read; what changes the region as its change, too. */
	CHECK_EQ(fi_read(ep, &old, 8, NULL, to, 0, 1, &value), 0);
	next();
	CHECK_EQ(fi_fetch_atomic(ep, &value, 1, NULL, &old, NULL, to, 24, 1, FI_UINT64, FI_SUM,
	                         &value), 0);
	next();
	meet();
	CHECK_EQ(fi_cntr_wait(read_, 2, 60000), 0);
	CHECK_EQ(fi_cntr_read(read_), 2);
	CHECK_EQ(fi_cntr_read(written), 3);
	CHECK_EQ(fi_cntr_read(region_written), 4);
	/* What is refused does not count. */
	CHECK_EQ(fi_write(ep, &value, 8, NULL, to, sizeof window, 1, &value), -FI_EINVAL);
	meet();
	CHECK_EQ(fi_cntr_read(written), 3);
	/* Another region of the same key has no counter. */
	CHECK_EQ(fi_close(&region->fid), 0);
	CHECK_EQ(fi_mr_reg(domain, window, sizeof window, FI_REMOTE_WRITE, 0, 1, 0, &region, NULL), 0);
	meet();
	CHECK_EQ(fi_inject_write(ep, &value, 8, to, 8, 1), 0);
	meet();
	CHECK_EQ(fi_cntr_read(written), 4);
	CHECK_EQ(fi_cntr_read(region_written), 4);
	finish();
}

/* A poll set returns those that have news, and no others. */
static void polls(void)
{
	start();
	struct fi_poll_attr attr = {.flags = 1};
	struct fid_poll *polled;
	CHECK_EQ(fi_poll_open(domain, &attr, &polled), -FI_EINVAL);
	attr.flags = 0;
	CHECK_EQ(fi_poll_open(domain, &attr, &polled), 0);
	CHECK_EQ(fi_poll_add(polled, &ep->fid, 0), -FI_EINVAL);
	CHECK_EQ(fi_poll_add(polled, NULL, 0), -FI_EINVAL);
	CHECK_EQ(fi_poll_add(polled, &cq->fid, 0), 0);
	CHECK_EQ(fi_poll_add(polled, &cq->fid, 0), -FI_EALREADY);
	CHECK_EQ(fi_poll_add(polled, &written->fid, 0), 0);
	void *news[3];
	CHECK_EQ(fi_poll(polled, NULL, 2), -FI_EINVAL);
	CHECK_EQ(fi_poll(polled, news, 3), 0);
	meet();
	uint64_t value = 1, in;
	CHECK_EQ(fi_inject_write(ep, &value, 8, address[other], 0, 1), 0);
	meet();
	CHECK_EQ(fi_poll(polled, news, 3), 1);
	CHECK(news[0] == &written);
	CHECK_EQ(fi_poll(polled, news, 3), 0);
	CHECK_EQ(fi_cntr_set(written, 7), 0);
	CHECK_EQ(fi_poll(polled, news, 3), 0);
	/* Messages too, though nobody reads the queue. */
	CHECK_EQ(fi_recv(ep, &in, 8, NULL, FI_ADDR_UNSPEC, &in), 0);
	meet();
	UNTIL_DONE(fi_inject(ep, &value, 8, address[other]));
	while (fi_poll(polled, news, 3) == 0)
		;
	CHECK(news[0] == &cq);
	CHECK_EQ(fi_poll(polled, news, 3), 1);
	CHECK_EQ(fi_poll(polled, news, 0), 0);
	CHECK(next().op_context == &in);
	CHECK_EQ(fi_poll(polled, news, 3), 0);
	meet();
	CHECK_EQ(fi_poll_del(polled, &written->fid, 0), 0);
	CHECK_EQ(fi_inject_write(ep, &value, 8, address[other], 0, 1), 0);
	meet();
	CHECK_EQ(fi_poll(polled, news, 3), 0);
	CHECK_EQ(fi_close(&polled->fid), 0);
	finish();
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Who waits for a set is woken by its queue and by its counter, and sleeps no longer than told. */
static void waits(void)
{
	start();
	const double before = now();
	CHECK_EQ(fi_wait(set, 50), -FI_ETIMEDOUT);
	CHECK(now() - before >= 0.05);
	uint64_t value = 1, in;
	for (int n = 0; n < 10; n++) {
		meet();
		if (me % 2 == n % 2) {
			usleep(20000);
			UNTIL_DONE(fi_inject(ep, &value, 8, address[other]));
			CHECK_EQ(fi_inject_write(ep, &value, 8, address[other], 0, 1), 0);
			continue;
		}
		CHECK_EQ(fi_recv(ep, &in, 8, NULL, FI_ADDR_UNSPEC, &in), 0);
		CHECK_EQ(fi_wait(set, -1), 0);
		while (fi_cntr_read(written) != (uint64_t)(n / 2 + 1))
			fi_wait(set, 60000);
		CHECK(next().op_context == &in);
	}
	finish();
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	others = atoi(argv[2]);
	if (strcmp(argv[1], "counts") == 0)
		counts();
	else if (strcmp(argv[1], "polls") == 0)
		polls();
	else if (strcmp(argv[1], "waits") == 0)
		waits();
	else
		return 2;
	return 0;
}
