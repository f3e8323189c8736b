/* Two tasks exchange tagged messages by libfabric's `lnx`, which owns the queue and the receives
 * of our provider.
 * usage: ofi_lnx; or ofi_lnx alone, where libfabric has no such peers as we know. */
#include "ofi.h"

#define LARGEST (1 << 20)

static char name[2][512];
static unsigned char out[LARGEST], in[LARGEST + 1];

static int ask(const char *provider, uint64_t caps)
{
	struct fi_info *hints = hints_for(provider, caps);
	hints->domain_attr->av_type = FI_AV_TABLE;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	int result = fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info);
	fi_freeinfo(hints);
	return result;
}

static void start(void)
{
	others = 2;
	CHECK_EQ(ask("lnx", FI_TAGGED | FI_DIRECTED_RECV), 0);
	open_domain(FI_AV_TABLE);
	open_queue(FI_WAIT_NONE, NULL);
	ep = open_endpoint(info, 0);
	CHECK_EQ(fi_enable(ep), 0);
	export_name(name[me], sizeof name[0]);
}

/* Takes in arrived messages. */
static void look(void)
{
	CHECK_EQ(again(-FI_EAGAIN), -FI_EAGAIN);
}

static struct fi_cq_err_entry next_error(void)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = {0};
	ssize_t read;
	while ((read = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		;
	CHECK_EQ(read, -FI_EAVAIL);
	CHECK_EQ(fi_cq_readerr(cq, &error, 0), 1);
	return error;
}

/* Messages of an unknown sender are assigned to it as soon as it is inserted. */
static void from_strangers(void)
{
	char received, sent;
	if (me == 1) {
		insert(0);
		fill(out, 200000, 5);
		UNTIL_DONE(fi_tsend(ep, out, 100, NULL, address[0], 1, &sent));
		CHECK(next().op_context == &sent);
		UNTIL_DONE(fi_tsend(ep, out, 200000, NULL, address[0], 2, &sent));
		meet();
		CHECK(next().op_context == &sent);
		return;
	}
	meet();
	look();
	/* So the names of the endpoints' owners are not their numbers. */
	insert(0);
	insert(1);
	for (int tag = 2; tag > 0; tag--) {
		size_t size = tag == 1 ? 100 : 200000;
		CHECK_EQ(fi_trecv(ep, in, size, NULL, address[1], tag, 0, &received), 0);
		struct fi_cq_tagged_entry done = next();
		CHECK(done.op_context == &received);
		CHECK_EQ(done.len, size);
		check(in, size, 5);
	}
}

/* Asked for before it comes, and after. */
static void of_all_sizes(void)
{
	const size_t sizes[] = {0, 1, 100, 3000, 5000, 65536, LARGEST};
	char received, sent;
	struct fi_cq_tagged_entry done;
	for (size_t n = 0; n < 2 * sizeof sizes / sizeof *sizes; n++) {
		size_t size = sizes[n / 2];
		int first = n % 2;
		fi_addr_t from = n % 3 == 0 ? FI_ADDR_UNSPEC : address[other];
		fill(out, size, (unsigned)n + me);
		memset(in, 0xee, size + 1);
		meet();
		struct iovec places[2] = {{in, size / 2}, {in + size / 2, size - size / 2}};
		if (first)
			CHECK_EQ(fi_trecvv(ep, places, NULL, 2, from, 0x10, 0xf, &received), 0);
		meet();
		UNTIL_DONE(fi_tsenddata(ep, out, size, NULL, 40 + me, address[other], 0x12, &sent));
		meet();
		look();
		if (!first)
			CHECK_EQ(fi_trecvv(ep, places, NULL, 2, from, 0x10, 0xf, &received), 0);
		both(&received, &sent, &done);
		check(in, size, (unsigned)n + other);
		CHECK_EQ(in[size], 0xee);
		CHECK_EQ(done.len, size);
		CHECK_EQ(done.tag, 0x12);
		CHECK_EQ(done.data, 40 + other);
		CHECK_EQ(done.flags & (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA),
		         FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
	}
	/* Many come in the order in which they were sent, asked for or not; more than the owner has
	 * entries for (65535), if it does not get them back. */
	enum { MANY = 2000, ROUNDS = 80 };
	static uint32_t got[MANY];
	for (int round = 0; round < ROUNDS; round++) {
		int first = round % 2;
		for (int pass = 0; pass < 2; pass++) {
			if (pass == first)
				for (uint32_t i = 0; i < MANY; i++)
					UNTIL_DONE(fi_tinject(ep, &i, sizeof i, address[other], i % 2));
			else
				/* Odd tags first. */
				for (uint32_t n = 0; n < MANY; n++) {
					uint32_t odd = n < MANY / 2, i = 2 * n % MANY + odd;
					CHECK_EQ(fi_trecv(ep, &got[i], sizeof *got, NULL, address[other], odd, 0,
					                  &got[i]),
					         0);
				}
			meet();
			if (pass == 0 && !first)
				look();
		}
		for (uint32_t n = 0; n < MANY; n++)
			next();
		for (uint32_t i = 0; i < MANY; i++)
			CHECK_EQ(got[i], i);
		memset(got, 0xee, sizeof got);
		meet();
	}
}

/* Returns the next completion that is not of a message sent here; those are counted. */
static struct fi_cq_tagged_entry next_but(void *sent, int *count)
{
	struct fi_cq_tagged_entry entry;
	while ((entry = next()).op_context == sent)
		++*count;
	return entry;
}

/* Too long, looked at, and not wanted. */
static void others_wishes(void)
{
	char sent;
	struct fi_context2 context;
	for (int first = 0; first < 2; first++)
		for (size_t size = 1000; size <= 100000; size *= 100) {
			meet();
			if (first)
				CHECK_EQ(fi_trecv(ep, in, size / 2, NULL, address[other], 3, 0, &context), 0);
			meet();
			UNTIL_DONE(fi_tsend(ep, out, size, NULL, address[other], 3, &sent));
			/* The sender of a large one waits for its receiver. */
			int is_told = size == 1000;
			if (is_told)
				CHECK(next().op_context == &sent);
			meet();
			if (!first)
				CHECK_EQ(fi_trecv(ep, in, size / 2, NULL, address[other], 3, 0, &context), 0);
			struct fi_cq_err_entry error = {0};
			while (error.err == 0 || !is_told) {
				struct fi_cq_tagged_entry entry;
				ssize_t read = fi_cq_read(cq, &entry, 1);
				if (read == -FI_EAVAIL)
					CHECK_EQ(fi_cq_readerr(cq, &error, 0), 1);
				else if (read == 1)
					is_told = 1;
			}
			CHECK(error.err == FI_ETRUNC && error.op_context == &context);
			CHECK_EQ(error.len, size / 2);
			CHECK_EQ(error.olen, size - size / 2);
		}
	struct iovec place = {in, sizeof in};
	struct fi_msg_tagged wish = {.msg_iov = &place, .iov_count = 1, .addr = address[other],
	                             .tag = 4, .context = &context};
	for (size_t size = 1000; size <= 100000; size *= 100) {
		meet();
		CHECK_EQ(fi_trecvmsg(ep, &wish, FI_PEEK), 0);
		CHECK_EQ(next_error().err, FI_ENOMSG);
		meet();
		fill(out, size, 8 + me);
		int told = 0;
		for (int n = 0; n < 2; n++)
			UNTIL_DONE(fi_tsend(ep, out, size, NULL, address[other], 4, &sent));
		meet();
		look();
		CHECK_EQ(fi_trecvmsg(ep, &wish, FI_PEEK), 0);
		CHECK_EQ(next_but(&sent, &told).len, size);
		CHECK_EQ(fi_trecvmsg(ep, &wish, FI_PEEK | FI_DISCARD), 0);
		CHECK_EQ(next_but(&sent, &told).len, size);
		CHECK_EQ(fi_trecvmsg(ep, &wish, FI_PEEK | FI_CLAIM), 0);
		CHECK_EQ(next_but(&sent, &told).len, size);
		CHECK_EQ(fi_trecvmsg(ep, &wish, FI_CLAIM), 0);
		CHECK(next_but(&sent, &told).op_context == &context);
		while (told < 2) {
			CHECK(next().op_context == &sent);
			told++;
		}
		check(in, size, 8 + other);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "alone") == 0) {
		CHECK_EQ(ask("nagaya", FI_TAGGED), 0);
		CHECK_EQ(ask("nagaya", FI_TAGGED | FI_PEER), -FI_ENODATA);
		return 0;
	}
	start();
	from_strangers();
	if (me == 1)
		insert(1);
	of_all_sizes();
	others_wishes();
	meet();
	CHECK_EQ(fi_close(&ep->fid), 0);
	leave();
	return 0;
}
