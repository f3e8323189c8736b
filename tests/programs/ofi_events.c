/* Event objects of the provider for libfabric: counters of remote accesses, of endpoints
 * and of memory regions (FI_RMA_EVENT), poll sets, wait sets, and descriptors. */
#include "ofi.h"

#include <poll.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <time.h>

static struct fid_cntr *written, *read_, *region_written;
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

static void start_with(enum fi_wait_obj wait)
{
	struct fi_info *hints =
		hints_for("nagaya", FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT);
	CHECK_EQ(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), 0);
	CHECK(info->caps & FI_RMA_EVENT);
	fi_freeinfo(hints);
	open_domain(FI_AV_TABLE);
	struct fi_wait_attr wait_attr = {.wait_obj = wait};
	CHECK_EQ(fi_wait_open(fabric, &wait_attr, &set), 0);
	CHECK_EQ(fi_wait(set, 0), -FI_EINVAL);
	open_queue(FI_WAIT_SET, &cq);
	written = counter(set, &written);
	read_ = counter(NULL, &read_);
	region_written = counter(NULL, &region_written);
	ep = open_endpoint(info, 0);
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
	export_name(own, sizeof own);
	for (int task = 0; task < others; task++)
		insert(task);
	meet();
}

static void start(void)
{
	start_with(FI_WAIT_UNSPEC);
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
	leave();
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
	/* A read counts as a read, and a change of the region as its change, too. */
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
	/* A refused operation does not count. */
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
	/* Messages too, though no thread reads the queue. */
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

/* A waiter at a set is woken by its queue and by its counter, and sleeps no longer than its
 * limit. */
static void waits(void)
{
	start();
	const double before = now();
	CHECK_EQ(fi_wait(set, 50), -FI_ETIMEDOUT);
	CHECK(now() - before >= 0.05);
	struct fi_poll_attr attr = {.flags = 0};
	struct fid_poll *polled;
	CHECK_EQ(fi_poll_open(domain, &attr, &polled), 0);
	CHECK_EQ(fi_poll_add(polled, &written->fid, 0), 0);
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
		/* An event that a wait set has reported is also reported by a poll set. */
		void *news;
		CHECK_EQ(fi_poll(polled, &news, 1), 1);
		CHECK(news == &written);
	}
	CHECK_EQ(fi_close(&polled->fid), 0);
	finish();
}

/* A set with a descriptor: poll(2) waits for its queue and its counter, and a poll set
 * shows the one with an event. */
static void descriptors(void)
{
	start_with(FI_WAIT_FD);
	enum fi_wait_obj object;
	int fd = -1, same = -2;
	CHECK_EQ(fi_control(&set->fid, FI_GETWAITOBJ, &object), 0);
	CHECK_EQ(object, FI_WAIT_FD);
	CHECK_EQ(fi_control(&set->fid, FI_GETWAIT, &fd), 0);
	CHECK_EQ(fi_control(&set->fid, FI_GETWAIT, NULL), -FI_EINVAL);
	CHECK_EQ(fi_control(&set->fid, FI_GETOPSFLAG, &same), -FI_ENOSYS);
	CHECK_EQ(fi_control(&cq->fid, FI_GETWAIT, &same), 0);
	CHECK_EQ(same, fd);
	CHECK_EQ(fi_control(&written->fid, FI_GETWAITOBJ, &object), 0);
	CHECK_EQ(object, FI_WAIT_SET);
	/* A counter outside of the set has its own descriptor. */
	CHECK_EQ(fi_control(&region_written->fid, FI_GETWAIT, &same), 0);
	CHECK(same >= 0 && same != fd);

	struct fi_poll_attr poll_attr = {.flags = 0};
	struct fid_poll *polled;
	CHECK_EQ(fi_poll_open(domain, &poll_attr, &polled), 0);
	CHECK_EQ(fi_poll_add(polled, &cq->fid, 0), 0);
	CHECK_EQ(fi_poll_add(polled, &written->fid, 0), 0);
	struct fid *fids[] = {&set->fid, &region_written->fid};
	struct pollfd polls[] = {{fd, POLLIN, 0}, {same, POLLIN, 0}};
	CHECK_EQ(fi_trywait(fabric, fids, 2), 0);
	CHECK_EQ(poll(polls, 2, 20), 0);
	uint64_t value = 1, in;
	for (uint64_t n = 0; n < 10; n++) {
		meet();
		if (me % 2 == (int)n % 2) {
			usleep(20000);
			UNTIL_DONE(fi_inject(ep, &value, 8, address[other]));
			usleep(n % 4 < 2 ? 20000 : 0);
			CHECK_EQ(fi_inject_write(ep, &value, 8, address[other], 0, 1), 0);
			continue;
		}
		CHECK_EQ(fi_recv(ep, &in, 8, NULL, FI_ADDR_UNSPEC, &in), 0);
		int has_come = 0, has_counted = 0;
		while (!has_come || !has_counted) {
			if (fi_trywait(fabric, fids, 1) == 0)
				CHECK_EQ(poll(polls, 1, 60000), 1);
			void *news[2];
			int found = fi_poll(polled, news, 2);
			for (int k = 0; k < found; k++)
				if (news[k] == &cq) {
					CHECK(next().op_context == &in);
					has_come = 1;
				} else {
					CHECK(news[k] == &written);
					CHECK_EQ(fi_cntr_read(written), n / 2 + 1);
					has_counted = 1;
				}
		}
		while (fi_trywait(fabric, fids + 1, 1) == 0)
			CHECK_EQ(poll(polls + 1, 1, 60000), 1);
		CHECK_EQ(fi_cntr_read(region_written), n / 2 + 1);
	}
	CHECK_EQ(fi_close(&polled->fid), 0);
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
	else if (strcmp(argv[1], "descriptors") == 0)
		descriptors();
	else
		return 2;
	return 0;
}
