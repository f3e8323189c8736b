/* The properties of the provider for libfabric, case by case: tasks of one space exchange
 * messages and access each other's memory. Every task runs the same case; pvas_export
 * exchanges names of endpoints. */
#include "ofi.h"

#include <complex.h>
#include <poll.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <sys/resource.h>

#define ALL_CAPS                                                                              \
	(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE |         \
	 FI_LOCAL_COMM | FI_REMOTE_COMM)
#define LARGEST (4 << 20)

static struct fid_cntr *reads, *writes, *remote_writes;
static char name[256][64];

static struct fi_info *ask(uint64_t caps, uint64_t tx_flags)
{
	struct fi_info *hints = hints_for("nagaya", caps), *found;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->cq_data_size = 8;
	/* Threads take turns, by our word: then there is no lock. */
	const enum fi_threading threading = getenv("TURNS") ? FI_THREAD_DOMAIN : FI_THREAD_SAFE;
	hints->domain_attr->threading = threading;
	hints->tx_attr->op_flags = tx_flags;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	CHECK_EQ(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &found), 0);
	CHECK_EQ(found->domain_attr->threading, threading);
	fi_freeinfo(hints);
	return found;
}

static void start(enum fi_wait_obj wait, uint64_t tx_flags, uint64_t selective)
{
	info = ask(ALL_CAPS, tx_flags);
	open_domain(pvas_getid() % 2 ? FI_AV_MAP : FI_AV_TABLE);
	open_queue(wait, NULL);
	struct fi_cntr_attr cntr_attr = {.events = FI_CNTR_EVENTS_COMP};
	CHECK_EQ(fi_cntr_open(domain, &cntr_attr, &reads, NULL), 0);
	CHECK_EQ(fi_cntr_open(domain, &cntr_attr, &writes, NULL), 0);
	CHECK_EQ(fi_cntr_open(domain, &cntr_attr, &remote_writes, NULL), 0);
	struct fid_ep *unbound;
	CHECK_EQ(fi_endpoint(domain, info, &unbound, NULL), 0);
	CHECK_EQ(fi_enable(unbound), -FI_ENOAV);
	CHECK_EQ(fi_close(&unbound->fid), 0);
	ep = open_endpoint(info, selective);
	CHECK_EQ(fi_ep_bind(ep, &reads->fid, FI_READ), 0);
	CHECK_EQ(fi_ep_bind(ep, &writes->fid, FI_WRITE), 0);
	CHECK_EQ(fi_ep_bind(ep, &remote_writes->fid, FI_REMOTE_WRITE), 0);
	CHECK_EQ(fi_recv(ep, NULL, 0, NULL, 0, NULL), -FI_EOPBADSTATE);
	CHECK_EQ(fi_enable(ep), 0);
	size_t length = 1;
	CHECK_EQ(fi_getname(&ep->fid, name[me], &length), -FI_ETOOSMALL);
	CHECK(length <= sizeof name[0]);
	CHECK_EQ(export_name(name[me], length), length);
	for (int task = 0; task < others; task++) {
		insert(task);
		char back[64];
		size_t room = sizeof back;
		CHECK_EQ(fi_av_lookup(av, address[task], back, &room), 0);
		CHECK(room == length && memcmp(back, theirs(task, "name"), length) == 0);
	}
	meet();
}

static void finish(void)
{
	meet();
	CHECK_EQ(fi_close(&domain->fid), -FI_EBUSY);
	CHECK_EQ(fi_close(&cq->fid), -FI_EBUSY);
	CHECK_EQ(fi_close(&ep->fid), 0);
	CHECK_EQ(fi_close(&reads->fid), 0);
	CHECK_EQ(fi_close(&writes->fid), 0);
	CHECK_EQ(fi_close(&remote_writes->fid), 0);
	leave();
}

static struct fi_cq_err_entry next_error(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	ssize_t read;
	do
		read = fi_cq_sread(cq, &entry, 1, NULL, 1000);
	while (read == -FI_EAGAIN);
	CHECK_EQ(read, -FI_EAVAIL);
	CHECK_EQ(fi_cq_readerr(cq, &error, 0), 1);
	CHECK_EQ(fi_cq_readerr(cq, &error, 0), -FI_EAGAIN);
	return error;
}

/* Messages of all sizes, posted first and not, by each call. */
static void messages(void)
{
	start(FI_WAIT_NONE, 0, 0);
	unsigned char *out = malloc(LARGEST + 1), *in = malloc(LARGEST + 1);
	char sent, received;
	for (size_t base = 1; base <= LARGEST; base *= 2)
		for (size_t size = base - 1; size <= base + 1 && size <= LARGEST; size++) {
			unsigned salt = (unsigned)(size % 251);
			struct fi_cq_tagged_entry done;

			fill(out, size, salt + me);
			memset(in, 0xee, size + 1);
			CHECK_EQ(fi_trecv(ep, in, size, NULL, address[other], 0x1200, 0xff, &received), 0);
			if (others > 1 && base >= 4096)
				meet();
			UNTIL_DONE(fi_tsenddata(ep, out, size, NULL, 77 + me, address[other], 0x1234,
			                        &sent));
			both(&received, &sent, &done);
			check(in, size, salt + other);
			CHECK_EQ(in[size], 0xee);
			CHECK_EQ(done.len, size);
			CHECK_EQ(done.tag, 0x1234);
			CHECK_EQ(done.data, 77 + other);
			CHECK_EQ(done.flags & (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA),
			         FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);

			/* Sent before anybody asks; in parts. */
			fill(out, size, salt + 9 + me);
			memset(in, 0xee, size + 1);
			struct iovec parts[3] = {{out, size / 3}, {out + size / 3, 0},
			                         {out + size / 3, size - size / 3}};
			UNTIL_DONE(fi_sendv(ep, parts, NULL, 3, address[other], &sent));
			meet();
			struct iovec places[2] = {{in, size / 2}, {in + size / 2, size - size / 2}};
			CHECK_EQ(fi_recvv(ep, places, NULL, 2, FI_ADDR_UNSPEC, &received), 0);
			both(&received, &sent, &done);
			check(in, size, salt + 9 + other);
			CHECK_EQ(in[size], 0xee);
			CHECK_EQ(done.len, size);
			CHECK_EQ(done.flags, FI_RECV | FI_MSG);

			if (size > info->tx_attr->inject_size) {
				CHECK_EQ(fi_inject(ep, out, size, address[other]), -FI_EMSGSIZE);
				continue;
			}
			fill(out, size, salt + 5 + me);
			UNTIL_DONE(fi_tinject(ep, out, size, address[other], 3));
			memset(out, 0xdd, size);
			CHECK_EQ(fi_trecv(ep, in, size, NULL, FI_ADDR_UNSPEC, 3, 0, &received), 0);
			CHECK(next().op_context == &received);
			check(in, size, salt + 5 + other);
		}
	struct fi_cq_tagged_entry none;
	CHECK_EQ(fi_cq_read(cq, &none, 1), -FI_EAGAIN);
	free(out);
	free(in);
	finish();
}

/* A receiver waits for the matching message, and messages stay in order. */
static void matching(void)
{
	start(FI_WAIT_NONE, 0, 0);
	enum { MANY = 1000 };
	static uint32_t out[MANY], in[MANY];
	static char contexts[MANY];
	/* Even tags first, then odd ones: each kind comes in the order in which it was sent. */
	for (uint32_t i = 0; i < MANY; i++) {
		out[i] = i;
		UNTIL_DONE(fi_tinject(ep, &out[i], sizeof out[i], address[other], i % 2));
	}
	for (int odd = 0; odd < 2; odd++)
		for (uint32_t i = 0; i < MANY / 2; i++) {
			CHECK_EQ(fi_trecv(ep, &in[i], 4, NULL, address[other], odd, 0, &contexts[i]), 0);
			CHECK(next().op_context == &contexts[i]);
			CHECK_EQ(in[i], 2 * i + odd);
		}
	/* Receives from one only, among messages from two. */
	UNTIL_DONE(fi_tinject(ep, &out[1], 4, address[me], 8));
	UNTIL_DONE(fi_tinject(ep, &out[2], 4, address[other], 8));
	CHECK_EQ(fi_trecv(ep, &in[0], 4, NULL, address[other], 8, 0, &contexts[0]), 0);
	struct fi_cq_tagged_entry entry;
	fi_addr_t from;
	while (fi_cq_readfrom(cq, &entry, 1, &from) == -FI_EAGAIN)
		;
	CHECK(in[0] == 2 && from == address[other]);
	CHECK_EQ(fi_trecv(ep, &in[0], 4, NULL, address[me], 8, 0, &contexts[0]), 0);
	next();
	CHECK_EQ(in[0], 1);

	/* Too long a message: as much as fits, and an error; both ways. */
	static unsigned char large[100000], small[50000];
	fill(large, sizeof large, me);
	for (size_t size = 100; size <= sizeof large; size *= 1000) {
		UNTIL_DONE(fi_tinject(ep, large, 0, address[other], 1));
		CHECK_EQ(fi_trecv(ep, small, size / 2, NULL, FI_ADDR_UNSPEC, 5, 0, &contexts[1]), 0);
		UNTIL_DONE(fi_tsend(ep, large, size, NULL, address[other], 5, &contexts[2]));
		struct fi_cq_err_entry error = {0};
		int sent = 0;
		while (error.err == 0) {
			ssize_t read = fi_cq_read(cq, &entry, 1);
			if (read == -FI_EAVAIL)
				CHECK_EQ(fi_cq_readerr(cq, &error, 0), 1);
			else if (read == 1)
				sent++;
		}
		if (!sent)
			next();
		CHECK(error.op_context == &contexts[1] && error.err == FI_ETRUNC);
		CHECK_EQ(error.len, size / 2);
		CHECK_EQ(error.olen, size - size / 2);
		check(small, size / 2, other);
		CHECK_EQ(fi_trecv(ep, NULL, 0, NULL, FI_ADDR_UNSPEC, 1, 0, &contexts[3]), 0);
		CHECK(next().op_context == &contexts[3]);
	}

	/* Cancelled receives get nothing. */
	CHECK_EQ(fi_cancel(&ep->fid, &contexts[4]), -FI_ENOENT);
	CHECK_EQ(fi_trecv(ep, in, 4, NULL, FI_ADDR_UNSPEC, 6, 0, &contexts[4]), 0);
	CHECK_EQ(fi_cancel(&ep->fid, &contexts[4]), 0);
	struct fi_cq_err_entry error = next_error();
	CHECK(error.err == FI_ECANCELED && error.op_context == &contexts[4]);
	meet();
	UNTIL_DONE(fi_tinject(ep, &out[9], 4, address[other], 6));
	meet();

	/* Looking before receiving. */
	struct iovec place = {in, 4};
	struct fi_msg_tagged look = {.msg_iov = &place, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
	                             .tag = 7, .context = &contexts[5]};
	CHECK_EQ(fi_trecvmsg(ep, &look, FI_PEEK), 0);
	error = next_error();
	CHECK(error.err == FI_ENOMSG && error.op_context == &contexts[5]);
	look.tag = 6;
	in[0] = 0;
	CHECK_EQ(fi_trecvmsg(ep, &look, FI_PEEK), 0);
	entry = next();
	CHECK(entry.op_context == &contexts[5] && entry.len == 4 && entry.tag == 6 && in[0] == 0);
	CHECK_EQ(fi_trecvmsg(ep, &look, FI_PEEK | FI_CLAIM), 0);
	CHECK_EQ(next().len, 4);
	look.context = &contexts[6];
	CHECK_EQ(fi_trecvmsg(ep, &look, FI_PEEK), 0);
	CHECK_EQ(next_error().err, FI_ENOMSG);
	look.context = &contexts[5];
	CHECK_EQ(fi_trecvmsg(ep, &look, FI_CLAIM), 0);
	CHECK(next().op_context == &contexts[5] && in[0] == 9);
	meet();
	/* Dropped: a small one, and a large one, which is reported to the sender. */
	UNTIL_DONE(fi_tinject(ep, &out[9], 4, address[other], 6));
	UNTIL_DONE(fi_tsend(ep, large, sizeof large, NULL, address[other], 6, &contexts[7]));
	meet();
	CHECK_EQ(fi_trecvmsg(ep, &look, FI_PEEK | FI_DISCARD), 0);
	CHECK_EQ(next().len, 4);
	CHECK_EQ(fi_trecvmsg(ep, &look, FI_PEEK | FI_CLAIM), 0);
	CHECK_EQ(next().len, sizeof large);
	meet();
	CHECK_EQ(fi_trecvmsg(ep, &look, FI_CLAIM | FI_DISCARD), 0);
	both(&contexts[5], &contexts[7], &entry);
	finish();
}

/* One receive for many messages. */
static void multiple(void)
{
	start(FI_WAIT_NONE, 0, 0);
	size_t least = 10000, got, length = sizeof got;
	CHECK_EQ(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least), 0);
	CHECK_EQ(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &got, &length), 0);
	CHECK_EQ(got, least);
	static unsigned char room[2][30000], out[10000];
	const size_t sizes[] = {10, 9000, 1, 0, 2500, 6000, 30, 10000};
	char contexts[2];
	for (int n = 0; n < 2; n++) {
		struct iovec place = {room[n], sizeof room[n]};
		struct fi_msg message = {.msg_iov = &place, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		                         .context = &contexts[n]};
		CHECK_EQ(fi_recvmsg(ep, &message, FI_MULTI_RECV), 0);
	}
	meet();
	int received = 0, sent = 0, released = 0;
	unsigned char *expected = room[0];
	const int many = 16;
	for (int n = 0; n < many; n++) {
		fill(out, sizes[n % 8], (unsigned)(n + me));
		UNTIL_DONE(fi_send(ep, out, sizes[n % 8], NULL, address[other], out));
		for (int told = 0; told < 2;) {
			struct fi_cq_tagged_entry entry = next();
			told++;
			if (entry.op_context == out) {
				sent++;
				continue;
			}
			size_t size = sizes[received % 8];
			if (released < 2 && entry.buf != expected)
				CHECK(entry.buf == room[1]);
			CHECK_EQ(entry.len, size);
			check(entry.buf, size, (unsigned)(received + other));
			expected = (unsigned char *)entry.buf + size;
			if (entry.flags & FI_MULTI_RECV) {
				CHECK(entry.op_context == &contexts[released % 2]);
				CHECK(sizeof room[0] - (size_t)(expected - room[released % 2]) < least);
				struct iovec place = {room[released % 2], sizeof room[0]};
				struct fi_msg message = {.msg_iov = &place, .iov_count = 1,
				                         .addr = FI_ADDR_UNSPEC,
				                         .context = &contexts[released % 2]};
				CHECK_EQ(fi_recvmsg(ep, &message, FI_MULTI_RECV), 0);
				released++;
			}
			received++;
		}
		meet();
	}
	CHECK(received == many && sent == many && released == 2);
	finish();
}

/* Others' memory. */
static void memory(void)
{
	start(FI_WAIT_NONE, 0, 0);
	static unsigned char window[100000], mine[100000];
	static uint64_t key[1];
	struct fid_mr *region, *all;
	CHECK_EQ(fi_mr_reg(domain, window, sizeof window, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 42, 0,
	                   &region, NULL), 0);
	struct fid_mr *twice;
	CHECK(fi_mr_reg(domain, window, 1, FI_REMOTE_READ, 0, 42, 0, &twice, NULL) < 0);
	CHECK_EQ(fi_mr_reg(domain, NULL, SIZE_MAX, FI_REMOTE_READ, 0, 43, 0, &all, NULL), 0);
	key[0] = fi_mr_key(region);
	CHECK_EQ(pvas_export("key", key, sizeof key), 0);
	uint64_t *their_key = theirs(other, "key");
	CHECK_EQ(pvas_export("window", window, sizeof window), 0);
	unsigned char *their_window = theirs(other, "window");
	fill(mine, sizeof mine, (unsigned)me);
	meet();
	CHECK_EQ(fi_write(ep, mine, sizeof mine, NULL, address[other], 0, *their_key, mine), 0);
	struct fi_cq_tagged_entry entry = next();
	CHECK(entry.op_context == mine && entry.flags == (FI_RMA | FI_WRITE));
	CHECK_EQ(fi_cntr_read(writes), 1);
	CHECK_EQ(fi_cntr_wait(remote_writes, 1, 60000), 0);
	check(window, sizeof window, (unsigned)other);
	meet();
	struct iovec parts[2] = {{mine + 10, 5}, {mine + 20, 6}};
	struct fi_rma_iov places[2] = {{100, 1, *their_key}, {200, 10, *their_key}};
	memset(mine, 0, sizeof mine);
	struct fi_msg_rma message = {.msg_iov = parts, .iov_count = 2, .addr = address[other],
	                             .rma_iov = places, .rma_iov_count = 2, .context = mine};
	CHECK_EQ(fi_readmsg(ep, &message, FI_COMPLETION), 0);
	CHECK_EQ(next().flags, FI_RMA | FI_READ);
	CHECK_EQ(fi_cntr_read(reads), 1);
	CHECK(mine[10] == byte(100, me) && mine[11] == byte(200, me) && mine[25] == byte(209, me));
	CHECK(mine[9] == 0 && mine[15] == 0 && mine[26] == 0);
	meet();
	/* By addresses, where everything is registered. */
	CHECK_EQ(fi_read(ep, mine, 8, NULL, address[other], (uintptr_t)their_window, 43, mine), 0);
	next();
	check(mine, 8, (unsigned)me);
	/* Data go to the target's queue. */
	CHECK_EQ(fi_inject_writedata(ep, mine, 1, 99, address[other], 7, *their_key), 0);
	entry = next();
	CHECK_EQ(entry.data, 99);
	CHECK_EQ(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
	CHECK(window[7] == byte(0, other));
	/* Not beyond the end, not by another key, not what is not allowed, not what is not there. */
	CHECK(fi_write(ep, mine, 2, NULL, address[other], sizeof window - 1, *their_key, mine) < 0);
	CHECK_EQ(fi_write(ep, mine, 2, NULL, address[other], 0, 41, mine), -FI_ENOKEY);
	CHECK_EQ(fi_write(ep, mine, 2, NULL, address[other], (uintptr_t)window, 43, mine), -FI_EACCES);
	CHECK_EQ(fi_read(ep, mine, 2, NULL, address[other], 8, 43, mine), 0);
	struct fi_cq_err_entry error = next_error();
	CHECK(error.op_context == mine && error.err == EFAULT);
	CHECK_EQ(fi_cntr_readerr(reads), 1);
	meet();
	CHECK_EQ(fi_close(&region->fid), 0);
	CHECK_EQ(fi_close(&all->fid), 0);
	meet();
	CHECK_EQ(fi_write(ep, mine, 2, NULL, address[other], 0, *their_key, mine), -FI_ENOKEY);
	finish();
}

/* All change each other's numbers at once, and none is lost. */
static void atomics(void)
{
	start(FI_WAIT_NONE, 0, 0);
	static struct {
		uint64_t sum, swapped;
		uint32_t bits, unused;
		double real;
		int8_t least, beside[7];
		long double longer;
		double complex plane;
		float complex turned; /* by a right angle at each turn */
	} numbers = {.least = 100, .turned = 1};
	const uint64_t key = 7;
	struct fid_mr *region, *readable;
	CHECK_EQ(fi_mr_reg(domain, &numbers, sizeof numbers, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key,
	                   0, &region, NULL), 0);
	CHECK_EQ(fi_mr_reg(domain, &numbers, 8, FI_REMOTE_READ, 0, 8, 0, &readable, NULL), 0);
	CHECK_EQ(pvas_export("numbers", &numbers, sizeof numbers), 0);
	meet();
	enum { TURNS_EACH = 10000 };
	uint64_t one = 1, before, last = 0;
	char context;
#define AT(field) ((uintptr_t)&numbers.field - (uintptr_t)&numbers)
	for (int turn = 0; turn < TURNS_EACH; turn++) {
		int whose = (me + turn) % others;
		CHECK_EQ(fi_fetch_atomic(ep, &one, 1, NULL, &before, NULL, address[whose], AT(sum), key,
		                         FI_UINT64, FI_SUM, &context), 0);
		struct fi_cq_tagged_entry entry = next();
		CHECK(entry.op_context == &context && entry.flags == (FI_ATOMIC | FI_READ));
		if (whose == me) {
			CHECK(before >= last);
			last = before + 1;
		}
		/* The same by comparing and swapping. */
		uint64_t old = 0, new, seen;
		for (;; old = seen) {
			new = old + 1;
			CHECK_EQ(fi_compare_atomic(ep, &new, 1, NULL, &old, NULL, &seen, NULL,
			                           address[whose], AT(swapped), key, FI_UINT64, FI_CSWAP,
			                           &context), 0);
			next();
			if (seen == old)
				break;
		}
		double half = 0.5;
		CHECK_EQ(fi_atomic(ep, &half, 1, NULL, address[whose], AT(real), key, FI_DOUBLE, FI_SUM,
		                   &context), 0);
		CHECK_EQ(next().flags, FI_ATOMIC | FI_WRITE);
		/* Types that no single instruction changes. */
		const long double more = 0.25L;
		const double complex both = 1 - 2 * I;
		const float complex angle = I;
		CHECK_EQ(fi_atomic(ep, &more, 1, NULL, address[whose], AT(longer), key, FI_LONG_DOUBLE,
		                   FI_SUM, &context), 0);
		next();
		CHECK_EQ(fi_atomic(ep, &both, 1, NULL, address[whose], AT(plane), key,
		                   FI_DOUBLE_COMPLEX, FI_SUM, &context), 0);
		next();
		float complex before_turn;
		CHECK_EQ(fi_fetch_atomic(ep, &angle, 1, NULL, &before_turn, NULL, address[whose],
		                         AT(turned), key, FI_FLOAT_COMPLEX, FI_PROD, &context), 0);
		next();
		CHECK(crealf(before_turn * conjf(before_turn)) == 1);
	}
	uint32_t bit = 1u << me;
	int8_t least = (int8_t)(-me);
	for (int whose = 0; whose < others; whose++) {
		CHECK_EQ(fi_inject_atomic(ep, &bit, 1, address[whose], AT(bits), key, FI_UINT32, FI_BXOR), 0);
		CHECK_EQ(fi_inject_atomic(ep, &least, 1, address[whose], AT(least), key, FI_INT8, FI_MIN), 0);
	}
	meet();
	CHECK_EQ(numbers.sum, TURNS_EACH);
	CHECK_EQ(numbers.swapped, TURNS_EACH);
	CHECK(numbers.real == TURNS_EACH / 2);
	CHECK(numbers.longer == TURNS_EACH / 4);
	CHECK(numbers.plane == TURNS_EACH - 2.0 * TURNS_EACH * I);
	CHECK(numbers.turned == 1); /* a multiple of four times */
	CHECK_EQ(numbers.bits, (1u << others) - 1);
	CHECK_EQ(numbers.least, 1 - others);
	CHECK(numbers.unused == 0 && numbers.beside[0] == 0);
	struct fi_ioc results[2] = {{&before, 1}, {&last, 1}};
	struct fi_rma_ioc places[2] = {{AT(sum), 1, key}, {AT(swapped), 1, key}};
	struct fi_msg_atomic message = {.rma_iov = places, .rma_iov_count = 2, .addr = address[other],
	                                .datatype = FI_UINT64, .op = FI_ATOMIC_READ,
	                                .context = &context};
	CHECK_EQ(fi_fetch_atomicmsg(ep, &message, results, NULL, 2, FI_COMPLETION), 0);
	next();
	CHECK(before == TURNS_EACH && last == TURNS_EACH);
	/* Data go to the target's queue, if it is done. */
	uint64_t none = 0;
	struct fi_ioc operand = {&none, 1};
	struct fi_rma_ioc place = {AT(sum) + 4, 1, key};
	struct fi_msg_atomic telling = {.msg_iov = &operand, .iov_count = 1, .addr = address[other],
	                                .rma_iov = &place, .rma_iov_count = 1, .datatype = FI_UINT64,
	                                .op = FI_SUM, .context = &context, .data = 55};
	CHECK_EQ(fi_atomicmsg(ep, &telling, FI_REMOTE_CQ_DATA), -FI_EINVAL);
	place.addr = AT(sum);
	telling.data = 66 + (uint64_t)me;
	CHECK_EQ(fi_atomicmsg(ep, &telling, FI_REMOTE_CQ_DATA), 0);
	for (int told = 0; told < 2; told++) {
		struct fi_cq_tagged_entry entry = next();
		if (entry.op_context == &context)
			continue;
		CHECK_EQ(entry.flags, FI_ATOMIC | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
		CHECK(entry.data == 66 + (uint64_t)((me + others - 1) % others) && entry.len == 8);
	}
	/* Not beyond the end, not across numbers, not what is not allowed or not there. */
	size_t count;
	struct fi_atomic_attr attr;
	CHECK_EQ(fi_atomicvalid(ep, FI_DOUBLE, FI_BXOR, &count), -FI_EOPNOTSUPP);
	CHECK_EQ(fi_query_atomic(domain, FI_INT32, FI_CSWAP, &attr, FI_COMPARE_ATOMIC), 0);
	CHECK(attr.size == 4 && attr.count >= 1024);
	CHECK_EQ(fi_inject_atomic(ep, &one, 1, address[other], 0, key, FI_LONG_DOUBLE, FI_BOR),
	         -FI_EOPNOTSUPP);
	CHECK_EQ(fi_inject_atomic(ep, &one, 1, address[other], 4, key, FI_UINT64, FI_SUM), -FI_EINVAL);
	CHECK_EQ(fi_inject_atomic(ep, &one, 1, address[other], sizeof numbers, key, FI_UINT64, FI_SUM),
	         -FI_EINVAL);
	CHECK_EQ(fi_inject_atomic(ep, &one, 1, address[other], 0, 8, FI_UINT64, FI_SUM), -FI_EACCES);
	CHECK_EQ(fi_fetch_atomic(ep, NULL, 1, NULL, &before, NULL, address[other], 0, 8, FI_UINT64,
	                         FI_ATOMIC_READ, &context), 0);
	next();
	CHECK_EQ(before, TURNS_EACH);
	meet();
	CHECK_EQ(fi_close(&readable->fid), 0);
	CHECK_EQ(fi_mr_reg(domain, NULL, SIZE_MAX, 0, 0, 8, 0, &readable, NULL), 0);
	meet();
	CHECK_EQ(fi_atomic(ep, &one, 1, NULL, address[other], 4096, 8, FI_UINT64, FI_SUM, &context), 0);
	CHECK_EQ(next_error().err, EFAULT);
	meet();
	CHECK_EQ(fi_close(&region->fid), 0);
	CHECK_EQ(fi_close(&readable->fid), 0);
	finish();
}

/* Only operations with a completion request complete; delivery is reported on request. */
static void completions(void)
{
	start(FI_WAIT_NONE, 0, FI_SELECTIVE_COMPLETION);
	char out = 1, in, context;
	struct fi_cq_tagged_entry entry;
	CHECK_EQ(fi_recv(ep, &in, 1, NULL, FI_ADDR_UNSPEC, &in), 0);
	meet();
	UNTIL_DONE(fi_send(ep, &out, 1, NULL, address[other], &out));
	meet();
	CHECK_EQ(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
	struct iovec part = {&out, 1};
	struct fi_msg message = {.msg_iov = &part, .iov_count = 1, .addr = address[other],
	                         .context = &context};
	UNTIL_DONE(fi_sendmsg(ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	for (int n = 0; n < 1000; n++)
		CHECK_EQ(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
	meet();
	struct iovec place = {&in, 1};
	struct fi_msg receive = {.msg_iov = &place, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
	                         .context = &in};
	CHECK_EQ(fi_recvmsg(ep, &receive, FI_COMPLETION), 0);
	both(&context, &in, &entry);
	CHECK_EQ(entry.flags, FI_SEND | FI_MSG);
	finish();
}

static double cpu_seconds(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
	       1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void *signal_later(void *unused)
{
	usleep(50000);
	CHECK_EQ(fi_cq_signal(cq), 0);
	return unused;
}

/* A waiter sleeps, and is woken. */
static void waiting(void)
{
	start(FI_WAIT_FD, 0, 0);
	int fd;
	CHECK_EQ(fi_control(&cq->fid, FI_GETWAIT, &fd), 0);
	struct fi_cq_tagged_entry entry;
	double before = cpu_seconds();
	CHECK_EQ(fi_cq_sread(cq, &entry, 1, NULL, 1000), -FI_EAGAIN);
	CHECK(cpu_seconds() - before < 0.5);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, signal_later, NULL), 0);
	CHECK_EQ(fi_cq_sread(cq, &entry, 1, NULL, -1), -FI_EAGAIN);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	unsigned in = 0;
	for (unsigned n = 1; n < 200; n++) {
		/* A large one, too: its sender is woken when it is received. */
		CHECK_EQ(fi_recv(ep, &in, sizeof in, NULL, FI_ADDR_UNSPEC, &in), 0);
		if (me == 1 || n > 1)
			while (in != n - (unsigned)(me == 0)) {
				struct fid *fids[] = {&cq->fid};
				if (n % 2) {
					CHECK_EQ(fi_cq_sread(cq, &entry, 1, NULL, -1), 1);
				} else {
					while (fi_cq_read(cq, &entry, 1) == -FI_EAGAIN)
						if (fi_trywait(fabric, fids, 1) == 0) {
							struct pollfd poll_ = {fd, POLLIN, 0};
							CHECK(poll(&poll_, 1, 60000) == 1);
						}
				}
			}
		if (n % 10 == 0)
			usleep(1000);
		UNTIL_DONE(fi_inject(ep, &n, sizeof n, address[other]));
	}
	finish();
}

/* All send to all, faster than they receive; a sender without room tries again. */
static void flood(void)
{
	start(FI_WAIT_NONE, 0, 0);
	enum { EACH = 3000 };
	static unsigned char out[4096], in[64][4096];
	static uint32_t next_from[256], sent_to[256];
	int left = EACH * others, to_send = EACH * others;
	for (int n = 0; n < 64; n++)
		CHECK_EQ(fi_trecv(ep, in[n], sizeof in[n], NULL, FI_ADDR_UNSPEC, 0, ~0ull, in[n]), 0);
	uint32_t random = 12345u + (uint32_t)me;
	while (left > 0 || to_send > 0) {
		for (int burst = 0; burst < 100 && to_send > 0; burst++) {
			random = random * 1664525 + 1013904223;
			int to = (int)(random >> 16) % others;
			if (sent_to[to] == EACH)
				continue;
			uint32_t header[2] = {(uint32_t)me, sent_to[to]};
			size_t length = 8 + (random >> 8) % (info->tx_attr->inject_size - 8);
			memcpy(out, header, sizeof header);
			memset(out + 8, (int)(header[1] & 0xff), length - 8);
			ssize_t sent = fi_tinject(ep, out, length, address[to], header[1]);
			if (sent == -FI_EAGAIN)
				break;
			CHECK_EQ(sent, 0);
			sent_to[to]++;
			to_send--;
		}
		struct fi_cq_tagged_entry entry;
		while (fi_cq_read(cq, &entry, 1) == 1) {
			unsigned char *got = entry.op_context;
			uint32_t header[2];
			memcpy(header, got, sizeof header);
			CHECK(header[0] < (uint32_t)others);
			CHECK_EQ(header[1], next_from[header[0]]++);
			for (size_t i = 8; i < entry.len; i++)
				CHECK(got[i] == (header[1] & 0xff));
			CHECK_EQ(fi_trecv(ep, got, 4096, NULL, FI_ADDR_UNSPEC, 0, ~0ull, got), 0);
			left--;
		}
	}
	struct fi_cq_tagged_entry entry;
	CHECK_EQ(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
	finish();
}

/* Many large messages find their receives one after the other, before anybody looks what has
 * become of them; their sender helps to copy them all. */
static void heap(void)
{
	enum { MANY = 64, BYTES = 80000 };
	start(FI_WAIT_NONE, 0, 0);
	static unsigned char out[MANY][BYTES], in[MANY][BYTES];
	for (unsigned round = 0; round < 100; round++) {
		int left = MANY;
		for (unsigned n = 0; n < MANY; n++)
			fill(out[n], BYTES, n + round);
		for (int n = 0; me == 0 && n < MANY; n++)
			UNTIL_DONE(fi_tsend(ep, out[n], BYTES, NULL, address[1], n, out[n]));
		meet();
		if (me == 1) {
			fi_cq_read(cq, NULL, 0);
			for (int n = MANY - 1; n >= 0; n--)
				CHECK_EQ(fi_trecv(ep, in[n], BYTES, NULL, address[0], n, 0, in[n]), 0);
		}
		while (me < 2 && left > 0) {
			struct fi_cq_tagged_entry entry;
			if (fi_cq_read(cq, &entry, 1) == 1)
				left--;
		}
		for (unsigned n = 0; me == 1 && n < MANY; n++)
			check(in[n], BYTES, n + round);
		meet();
	}
	finish();
}

enum { THREADS = 4, TURNS = 200 };

static void *chat(void *number)
{
	uint64_t tag = (uintptr_t)number;
	size_t size = tag % 2 ? 300000 : 50;
	unsigned char *out = malloc(size), *in = malloc(size);
	struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP};
	struct fid_cntr *none;
	CHECK_EQ(fi_cntr_open(domain, &attr, &none, NULL), 0);
	for (int turn = 0; turn < TURNS; turn++) {
		/* Any thread may read the completions: these words show that this thread's have
		 * been read. */
		_Atomic int sent = 0, received = 0;
		fill(out, size, (unsigned)(turn + me));
		CHECK_EQ(fi_trecv(ep, in, size, NULL, address[other], tag, 0, (void *)&received), 0);
		while (fi_tsend(ep, out, size, NULL, address[other], tag, (void *)&sent) != 0) {
			struct fi_cq_tagged_entry entry;
			if (fi_cq_read(cq, &entry, 1) == 1)
				*(_Atomic int *)entry.op_context = 1;
		}
		while (!sent || !received) {
			struct fi_cq_tagged_entry entry;
			if (fi_cq_read(cq, &entry, 1) == 1)
				*(_Atomic int *)entry.op_context = 1;
			else
				sched_yield();
		}
		check(in, size, (unsigned)(turn + other));
	}
	CHECK_EQ(fi_close(&none->fid), 0);
	free(out);
	free(in);
	return NULL;
}

/* Several threads use one endpoint. */
static void threads(void)
{
	start(FI_WAIT_NONE, 0, 0);
	pthread_t all[THREADS];
	for (uintptr_t n = 0; n < THREADS; n++)
		CHECK_EQ(pthread_create(&all[n], NULL, chat, (void *)n), 0);
	for (int n = 0; n < THREADS; n++)
		CHECK_EQ(pthread_join(all[n], NULL), 0);
	finish();
}

/* A send to an absent endpoint fails; a send to one that has ended reports that. */
static void ends(void)
{
	start(FI_WAIT_UNSPEC, 0, 0);
	char wrong[64];
	memcpy(wrong, name[me], sizeof wrong);
	fi_addr_t nobody;
	for (int at = 0; at < 32; at += 8) {
		/* A task that does not live may have ended. */
		if (at == 16)
			continue;
		wrong[at] ^= 64;
		CHECK_EQ(fi_av_insert(av, wrong, 1, &nobody, 0, NULL), 0);
		CHECK(nobody == FI_ADDR_NOTAVAIL);
		wrong[at] ^= 64;
	}
	CHECK_EQ(fi_inject(ep, wrong, 1, 1000), -FI_EINVAL);
	fi_addr_t twice;
	CHECK_EQ(fi_av_insert(av, name[me], 1, &twice, 0, NULL), 1);
	CHECK_EQ(fi_av_remove(av, &twice, 1, 0), 0);
	CHECK_EQ(fi_inject(ep, wrong, 1, twice), -FI_EINVAL);
	static unsigned char large[1 << 20];
	CHECK_EQ(pvas_export("large", large, sizeof large), 0);
	meet();
	if (me == 1) {
		sleep(60);
		return;
	}
	const void *memory = theirs(other, "large");
	UNTIL_DONE(fi_tsend(ep, large, sizeof large, NULL, address[other], 1, large));
	CHECK_EQ(kill(pvas_getpid(PVAS_SELF, other), SIGKILL), 0);
	struct fi_cq_err_entry error = next_error();
	CHECK(error.op_context == large && error.err == ECONNRESET);
	/* Nobody keeps what the dead had. */
	int pipes[2], looks = 0;
	CHECK_EQ(pipe(pipes), 0);
	for (struct fi_cq_tagged_entry entry; write(pipes[1], memory, 1) == 1; usleep(1000)) {
		for (int n = 0; n < 1000; n++)
			CHECK_EQ(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
		CHECK(++looks < 10000);
	}
	const int why = errno;
	CHECK_EQ(why, EFAULT);
	ssize_t sent;
	while ((sent = fi_tinject(ep, large, 1, address[other], 1)) == 0 || sent == -FI_EAGAIN)
		usleep(1000);
	CHECK_EQ(sent, -ECONNRESET);
	printf("ended well\n");
}

/* Task 1 is killed again and again while it sends; task 0 goes on with the next that comes. */
static void chaos_sender(void)
{
	static unsigned char out[300000];
	fill(out, sizeof out, 3);
	uint32_t random = (uint32_t)getpid();
	for (;;) {
		random = random * 1664525 + 1013904223;
		size_t size = random >> 31 ? sizeof out : (random >> 16) % 4000;
		struct fi_cq_tagged_entry entry;
		while (fi_tsend(ep, out, size, NULL, address[0], 1, out) != 0)
			fi_cq_read(cq, &entry, 1);
		while (fi_cq_read(cq, &entry, 1) != 1)
			;
	}
}

static void chaos(void)
{
	start(FI_WAIT_UNSPEC, 0, 0);
	if (me == 1)
		chaos_sender();
	static unsigned char in[300000];
	struct fi_cq_tagged_entry entry;
	long received = 0;
	const long enough = 100 + getpid() % 1000;
	int killed = 0;
	for (int idle = 0; idle < 3;) {
		CHECK_EQ(fi_trecv(ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 1, 0, in), 0);
		ssize_t read;
		while ((read = fi_cq_sread(cq, &entry, 1, NULL, 100)) == -FI_EAGAIN && idle < 3)
			idle += killed;
		if (read == 1) {
			received++;
			check(in, entry.len, 3);
		} else if (read == -FI_EAVAIL) {
			struct fi_cq_err_entry error = {0};
			CHECK_EQ(fi_cq_readerr(cq, &error, 0), 1);
			CHECK_EQ(error.err, ECONNRESET);
		}
		if (!killed && received > enough) {
			CHECK_EQ(kill(pvas_getpid(PVAS_SELF, 1), SIGKILL), 0);
			killed = 1;
		}
	}
	/* Still alive and well. */
	CHECK_EQ(fi_cancel(&ep->fid, in), 0);
	CHECK_EQ(next_error().err, FI_ECANCELED);
	UNTIL_DONE(fi_tinject(ep, in, 100, address[0], 2));
	CHECK_EQ(fi_trecv(ep, in, 100, NULL, address[0], 2, 0, in), 0);
	CHECK_EQ(next().len, 100);
	printf("ended well\n");
}

/* The next completion, of any of these operations. Returns its number among the contexts. */
static int next_of(char *contexts, struct fi_cq_tagged_entry *entry)
{
	*entry = next();
	return (int)((char *)entry->op_context - contexts);
}

/* A large message is there though its receiver does nothing but to look at its memory. */
static void nobody_looks(unsigned char *out, unsigned char *in, size_t size)
{
	struct fi_cq_tagged_entry entry;
	if (me == 1) {
		in[size - 1] = (unsigned char)~byte(size - 1, 7);
		CHECK_EQ(fi_trecv(ep, in, size, NULL, FI_ADDR_UNSPEC, 0x10, 0xf, in), 0);
		meet();
		while (((volatile unsigned char *)in)[size - 1] != byte(size - 1, 7))
			;
		meet(); /* the sender has been told */
		check(in, size, 7);
		entry = next();
		CHECK(entry.op_context == in && entry.len == size && entry.data == 70);
		CHECK_EQ(entry.tag, 0x17);
	} else {
		fill(out, size, 7);
		meet();
		UNTIL_DONE(fi_tsenddata(ep, out, size, NULL, 70, address[1], 0x17, out));
		CHECK(next().op_context == out);
		meet();
	}
	meet();
}

/* Large messages find the receives that are posted, and are there, though the receiver does not
 * look; and each finds the one that it would find if he did. Task 0 sends, task 1 receives. */
static void placed(void)
{
	start(FI_WAIT_NONE, 0, 0);
	enum { LARGE = 1 << 20, LESS = 300000, MANY = 100 };
	static unsigned char out[LARGE], in[3][LARGE];
	static unsigned char(*many)[LESS], small[8] = "smaller";
	static char contexts[MANY + 1];
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error;
#define POST(n, size, tag, ignore)                                                            \
	CHECK_EQ(fi_trecv(ep, in[n], size, NULL, FI_ADDR_UNSPEC, tag, ignore, &contexts[n]), 0)
#define SEND(n, size, tag)                                                                    \
	do {                                                                                  \
		fill(out, size, n);                                                           \
		UNTIL_DONE(fi_tsenddata(ep, out, size, NULL, n, address[1], tag, &contexts[n])); \
		CHECK_EQ(next_of(contexts, &entry), n);                                       \
	} while (0)
#define GOT(n, size, sent)                                                                    \
	do {                                                                                  \
		CHECK_EQ(next_of(contexts, &entry), n);                                       \
		CHECK(entry.len == (size) && entry.data == (sent));                           \
		check(in[n], size, sent);                                                     \
	} while (0)

	/* Places are used again. */
	for (int n = 0; n < MANY; n++)
		nobody_looks(out, in[0], 1 << 16);
	nobody_looks(out, in[0], LARGE);

	/* Two, then a small one: in order, and there before they are looked for. */
	if (me == 1) {
		for (int n = 0; n < 3; n++)
			POST(n, n == 1 ? LESS : LARGE, 1, 0);
		meet();
		meet();
		check(in[0], LARGE, 1);
		check(in[1], LESS, 2);
		for (int n = 0; n < 3; n++) {
			int which = next_of(contexts, &entry);
			CHECK_EQ(entry.data, which + 1);
		}
		check(in[2], 8, 3);
	} else {
		meet();
		SEND(1, LARGE, 1);
		SEND(2, LESS, 1);
		SEND(3, 8, 1);
		meet();
	}
	meet();

	/* A small one that waits is not overtaken, for any name of its receiver. */
	for (int twice = 0; twice < 2; twice++) {
		fi_addr_t other_name = address[1];
		if (twice)
			CHECK_EQ(fi_av_insert(av, theirs(1, "name"), 1, &other_name, 0, NULL), 1);
		if (me == 1) {
			POST(0, LARGE, 1, 0);
			POST(1, LARGE, 1, 0);
			meet();
			meet();
			GOT(0, 8, 3);
			GOT(1, LARGE, 4);
		} else {
			meet();
			SEND(3, 8, 1);
			fill(out, LARGE, 4);
			UNTIL_DONE(fi_tsenddata(ep, out, LARGE, NULL, 4, other_name, 1, contexts));
			meet();
			CHECK_EQ(next_of(contexts, &entry), 0);
		}
		if (twice)
			CHECK_EQ(fi_av_remove(av, &other_name, 1, 0), 0);
		meet();
	}
	CHECK_EQ(fi_av_remove(av, &address[1], 1, 0), 0);
	CHECK_EQ(fi_av_insert(av, theirs(1, "name"), 1, &address[1], 0, NULL), 1);
	meet();

	/* An older receive that is too small gets it all the same; one with another tag does not. */
	if (me == 1) {
		POST(0, 8, 2, 0);
		POST(2, LARGE, 3, 0);
		POST(1, LARGE, 0, ~0ull);
		meet();
		error = next_error();
		CHECK(error.op_context == &contexts[0] && error.err == FI_ETRUNC && error.len == 8);
		GOT(2, LESS, 6);
		CHECK_EQ(fi_cancel(&ep->fid, &contexts[1]), 0);
		CHECK_EQ(next_error().err, FI_ECANCELED);
	} else {
		meet();
		SEND(5, LARGE, 2);
		SEND(6, LESS, 3);
	}
	meet();

	/* Too long. */
	if (me == 1) {
		memset(in[0], 0xee, LARGE);
		POST(0, LESS, 1, 0);
		meet();
		meet();
		error = next_error();
		CHECK(error.op_context == &contexts[0] && error.err == FI_ETRUNC);
		CHECK(error.len == LESS && error.olen == LARGE - LESS);
		check(in[0], LESS, 7);
		CHECK_EQ(in[0][LESS], 0xee);
	} else {
		meet();
		SEND(7, LARGE, 1);
		meet();
	}
	meet();

	/* Cancelled in time, and not. */
	if (me == 1) {
		POST(0, LARGE, 1, 0);
		CHECK_EQ(fi_cancel(&ep->fid, &contexts[0]), 0);
		CHECK_EQ(next_error().err, FI_ECANCELED);
		memset(in[0], 0xee, LARGE);
		POST(1, LARGE, 1, 0);
		meet();
		meet();
		CHECK_EQ(fi_cancel(&ep->fid, &contexts[1]), -FI_ENOENT);
		GOT(1, LARGE, 8);
		CHECK(in[0][0] == 0xee && in[0][LARGE - 1] == 0xee);
	} else {
		meet();
		SEND(8, LARGE, 1);
		meet();
	}
	meet();

	/* More than there are places, some of them for small messages. */
	many = calloc(MANY, sizeof *many);
	if (me == 1) {
		for (int n = 0; n < MANY; n++)
			CHECK_EQ(fi_trecv(ep, many[n], LESS, NULL, address[0], 1, 0, &contexts[n]), 0);
		meet();
		for (int n = 0; n < MANY; n++) {
			int which = next_of(contexts, &entry);
			CHECK_EQ(entry.data, which);
			check(many[which], entry.len, (unsigned)which);
		}
	} else {
		meet();
		for (int n = 0; n < MANY; n++) {
			size_t size = n % 7 == 3 ? 100 : LESS;
			fill(many[n], size, (unsigned)n);
			UNTIL_DONE(fi_tsenddata(ep, many[n], size, NULL, (uint64_t)n, address[1], 1,
			                        &contexts[n]));
		}
		for (int n = 0; n < MANY; n++)
			next();
	}
	free(many);
	meet();
	nobody_looks(out, in[0], LARGE);

	/* One that came before, from another, gets the receive that is left. */
	if (me == 1) {
		POST(0, LARGE, 1, 0);
		POST(1, LARGE, 1, 0);
		UNTIL_DONE(fi_tinjectdata(ep, small, 8, 2, address[1], 1));
		meet();
		meet();
		for (int n = 0; n < 2; n++) {
			int which = next_of(contexts, &entry);
			CHECK_EQ(entry.data, which + 1);
			CHECK_EQ(entry.len, which == 0 ? LARGE : 8);
		}
	} else {
		meet();
		SEND(1, LARGE, 1);
		meet();
	}
	meet();

	/* A cancelled receive gets no message. */
	if (me == 1) {
		POST(0, LARGE, 1, 0);
		meet();
		CHECK_EQ(fi_close(&ep->fid), 0);
		memset(in[0], 0xee, LARGE);
		meet();
		CHECK(in[0][0] == 0xee && in[0][LARGE - 1] == 0xee);
		part();
		return;
	}
	meet();
	meet();
	CHECK_EQ(fi_tsend(ep, out, LARGE, NULL, address[1], 1, contexts), -ECONNRESET);
	part();
}

/* A sender may end once its send is reported. */
static void gone(void)
{
	start(FI_WAIT_NONE, 0, 0);
	enum { LARGE = 1 << 20 };
	static unsigned char out[LARGE], in[LARGE];
	if (me == 1) {
		CHECK_EQ(fi_recv(ep, in, LARGE, NULL, FI_ADDR_UNSPEC, in), 0);
		CHECK_EQ(pvas_export("posted", in, 1), 0);
		while (pvas_getpid(PVAS_SELF, 0) > 0)
			sched_yield();
		struct fi_cq_tagged_entry entry = next();
		CHECK(entry.op_context == in && entry.len == LARGE);
		check(in, LARGE, 9);
		printf("ended well\n");
		return;
	}
	fill(out, LARGE, 9);
	theirs(1, "posted");
	UNTIL_DONE(fi_send(ep, out, LARGE, NULL, address[1], out));
	CHECK(next().op_context == out);
	_exit(0);
}

/* A receiver may end, too, before its sender polls, which has sent to another by then. */
static void received(void)
{
	start(FI_WAIT_NONE, 0, 0);
	enum { LARGE = 1 << 20 };
	static unsigned char out[LARGE], in[LARGE];
	if (me != 0) {
		size_t size = me == 1 ? LARGE : 8;
		CHECK_EQ(fi_recv(ep, in, size, NULL, FI_ADDR_UNSPEC, in), 0);
		CHECK_EQ(pvas_export("posted", in, 1), 0);
		struct fi_cq_tagged_entry entry = next();
		CHECK(entry.op_context == in && entry.len == size);
		check(in, size, 9);
		_exit(0);
	}
	fill(out, LARGE, 9);
	/* Both have left the meeting: a task that is still there would wait for one that has
	 * ended. */
	theirs(1, "posted");
	theirs(2, "posted");
	UNTIL_DONE(fi_send(ep, out, LARGE, NULL, address[1], out));
	UNTIL_DONE(fi_inject(ep, out, 8, address[2]));
	while (pvas_getpid(PVAS_SELF, 1) > 0)
		sched_yield();
	CHECK(next().op_context == out);
	printf("ended well\n");
}

/* Task 1 is killed while it receives; task 0 is notified. */
static void chaos_receiver(void)
{
	static unsigned char in[4][300000];
	for (int n = 0; n < 4; n++)
		CHECK_EQ(fi_trecv(ep, in[n], sizeof in[n], NULL, FI_ADDR_UNSPEC, 1, 0, in[n]), 0);
	for (;;) {
		struct fi_cq_tagged_entry entry = next();
		check(entry.op_context, entry.len, 3);
		CHECK_EQ(fi_trecv(ep, entry.op_context, sizeof in[0], NULL, FI_ADDR_UNSPEC, 1, 0,
		                  entry.op_context), 0);
	}
}

static void *kill_later(void *unused)
{
	usleep((useconds_t)(getpid() % 97) * 200);
	CHECK_EQ(kill(pvas_getpid(PVAS_SELF, 1), SIGKILL), 0);
	return unused;
}

static void deaf(void)
{
	start(FI_WAIT_UNSPEC, 0, 0);
	if (me == 1)
		chaos_receiver();
	static unsigned char out[300000];
	fill(out, sizeof out, 3);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, kill_later, NULL), 0);
	for (;;) {
		ssize_t sent = fi_tsend(ep, out, sizeof out, NULL, address[1], 1, out);
		if (sent == -FI_EAGAIN) {
			fi_cq_read(cq, NULL, 0);
			continue;
		}
		if (sent == -ECONNRESET)
			break;
		CHECK_EQ(sent, 0);
		struct fi_cq_tagged_entry entry;
		ssize_t read;
		while ((read = fi_cq_sread(cq, &entry, 1, NULL, 1000)) == -FI_EAGAIN)
			;
		if (read == -FI_EAVAIL) {
			struct fi_cq_err_entry error = {0};
			CHECK_EQ(fi_cq_readerr(cq, &error, 0), 1);
			CHECK_EQ(error.err, ECONNRESET);
		}
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	printf("ended well\n");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{"messages", messages},       {"matching", matching}, {"multiple", multiple},
		{"memory", memory},           {"atomics", atomics},
		{"completions", completions},
		{"waiting", waiting},         {"flood", flood},       {"threads", threads},
		{"heap", heap},
		{"ends", ends},               {"chaos", chaos},
		{"placed", placed},           {"gone", gone},         {"received", received},
		{"deaf", deaf},
	};
	CHECK(argc == 3);
	others = atoi(argv[2]);
	for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
		if (strcmp(cases[n].name, argv[1]) == 0) {
			cases[n].run();
			return 0;
		}
	return 2;
}
