/* The search for endpoints through the provider for libfabric: node and service, names,
 * addresses as strings, ended and future endpoints, and calls without addresses. */
#include "ofi.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>

#define SERVICE "7471"

static struct fi_info *asked(uint32_t format)
{
	struct fi_info *hints =
		hints_for("nagaya", FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE);
	hints->addr_format = format;
	return hints;
}

static struct fi_info *find(uint32_t format, const char *node, const char *service,
                            uint64_t flags)
{
	struct fi_info *hints = asked(format), *found = NULL;
	CHECK_EQ(fi_getinfo(FI_VERSION(1, 9), node, service, flags, hints, &found), 0);
	fi_freeinfo(hints);
	return found;
}

/* Opens all by this answer. */
static void start(struct fi_info *answer)
{
	info = answer;
	open_domain(FI_AV_MAP);
	open_queue(FI_WAIT_NONE, NULL);
	ep = open_endpoint(info, 0);
	CHECK_EQ(fi_enable(ep), 0);
}

static void finish(void)
{
	CHECK_EQ(fi_close(&ep->fid), 0);
	leave();
}

static int refused(struct fi_info *hints, const char *node, const char *service, uint64_t flags)
{
	struct fi_info *found = NULL;
	int result = fi_getinfo(FI_VERSION(1, 9), node, service, flags, hints, &found);
	fi_freeinfo(found);
	return result;
}

/* Results and refusals of fi_getinfo. */
static void answers(void)
{
	char host[256];
	CHECK_EQ(gethostname(host, sizeof host), 0);
	struct fi_info *source = find(0, host, SERVICE, FI_SOURCE);
	CHECK(source->src_addr && source->src_addrlen && !source->dest_addr);
	const char *nodes[] = {NULL, "localhost", "127.0.0.1", host};
	for (int n = 0; n < 4; n++) {
		struct fi_info *found = find(0, nodes[n], SERVICE, n == 2 ? FI_NUMERICHOST : 0);
		CHECK(found->src_addr && found->src_addrlen == found->dest_addrlen);
		CHECK_EQ(found->dest_addrlen, source->src_addrlen);
		CHECK(memcmp(found->dest_addr, source->src_addr, source->src_addrlen) == 0);
		fi_freeinfo(found);
	}
	/* Without node and service there is a source all the same. */
	struct fi_info *found = find(0, NULL, NULL, 0);
	CHECK(found->src_addr && found->src_addrlen && !found->dest_addr);
	/* Either type of address vector will do. */
	CHECK_EQ(found->domain_attr->av_type, FI_AV_UNSPEC);
	fi_freeinfo(found);

	/* Hints' addresses are given back. */
	struct fi_info *hints = asked(0);
	hints->src_addr = hints->dest_addr = source->src_addr;
	hints->src_addrlen = hints->dest_addrlen = source->src_addrlen;
	CHECK_EQ(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &found), 0);
	CHECK(memcmp(found->src_addr, source->src_addr, source->src_addrlen) == 0);
	CHECK(memcmp(found->dest_addr, source->src_addr, source->src_addrlen) == 0);
	fi_freeinfo(found);
	hints->src_addrlen = 4;
	CHECK_EQ(refused(hints, NULL, NULL, 0), -FI_ENODATA);
	CHECK_EQ(refused(hints, NULL, SERVICE, FI_SOURCE), 0);
	hints->src_addr = hints->dest_addr = NULL;
	hints->src_addrlen = hints->dest_addrlen = 0;

	CHECK(refused(hints, NULL, NULL, FI_SOURCE) < 0);
	CHECK_EQ(refused(hints, "192.0.2.1", SERVICE, 0), -FI_ENODATA);
	CHECK_EQ(refused(hints, "localhost", SERVICE, FI_NUMERICHOST), -FI_ENODATA);
	hints->addr_format = FI_SOCKADDR_IN;
	CHECK_EQ(refused(hints, NULL, NULL, 0), -FI_ENODATA);
	hints->addr_format = FI_FORMAT_UNSPEC;
	hints->ep_attr->max_order_raw_size = SIZE_MAX;
	CHECK_EQ(refused(hints, NULL, NULL, 0), -FI_ENODATA);
	hints->ep_attr->max_order_raw_size = 0;
	hints->ep_attr->max_msg_size = SIZE_MAX;
	CHECK_EQ(refused(hints, NULL, NULL, 0), -FI_ENODATA);
	hints->ep_attr->max_msg_size = 0;
	hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	CHECK_EQ(refused(hints, NULL, NULL, 0), -FI_ENODATA);
	hints->ep_attr->rx_ctx_cnt = 0;
	hints->domain_attr->caps = FI_SHARED_AV;
	CHECK_EQ(refused(hints, NULL, NULL, 0), -FI_ENODATA);
	hints->domain_attr->caps = 0;
	hints->tx_attr->size = 100000;
	hints->domain_attr->mr_mode = FI_MR_SCALABLE;
	hints->caps |= FI_RMA | FI_RMA_EVENT;
	CHECK_EQ(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &found), 0);
	CHECK(found->tx_attr->size >= 100000 && found->caps & FI_RMA_EVENT);
	CHECK_EQ(found->domain_attr->mr_mode, FI_MR_SCALABLE);
	fi_freeinfo(found);
	fi_freeinfo(hints);
	fi_freeinfo(source);
}

/* A call that lacks an address returns an error. */
static void missing(uint32_t format)
{
	start(find(format, NULL, NULL, 0));
	fi_addr_t number;
	char text[64];
	size_t length = sizeof text;
	CHECK_EQ(fi_av_insert(av, NULL, 1, &number, 0, NULL), -FI_EINVAL);
	CHECK_EQ(fi_av_insert(av, info->src_addr, 1, &number, FI_SYNC_ERR, NULL), -FI_EINVAL);
	int error = 0;
	CHECK_EQ(fi_av_insert(av, info->src_addr, 1, &number, FI_SYNC_ERR, &error), 0);
	CHECK(number == FI_ADDR_NOTAVAIL && error == FI_EADDRNOTAVAIL);
	CHECK_EQ(fi_av_insertsvc(av, NULL, NULL, &number, 0, NULL), -FI_EINVAL);
	CHECK_EQ(fi_av_insertsvc(av, "192.0.2.1", SERVICE, &number, 0, NULL), 0);
	CHECK_EQ(fi_av_insertsym(av, NULL, 1, NULL, 1, &number, 0, NULL), -FI_EINVAL);
	CHECK_EQ(fi_av_remove(av, NULL, 1, 0), -FI_EINVAL);
	CHECK(fi_av_straddr(av, info->src_addr, NULL, NULL) == NULL);
	CHECK(fi_av_straddr(av, NULL, text, &length) == text);
	CHECK_EQ(fi_getname(&ep->fid, text, NULL), -FI_EINVAL);
	length = sizeof text;
	CHECK_EQ(fi_getname(&ep->fid, NULL, &length), -FI_EINVAL);
	CHECK_EQ(fi_av_lookup(av, 0, text, &length), -FI_EINVAL);
	char own[256];
	length = sizeof own;
	CHECK_EQ(fi_getname(&ep->fid, own, &length), 0);
	CHECK_EQ(fi_av_insert(av, own, 1, &number, 0, NULL), 1);
	CHECK_EQ(fi_av_lookup(av, number, NULL, &length), -FI_EINVAL);
	CHECK_EQ(fi_av_lookup(av, number, own, NULL), -FI_EINVAL);
	CHECK_EQ(fi_setname(&ep->fid, own, length), -FI_EBUSY);
	struct fid_ep *fresh = open_endpoint(info, 0);
	CHECK_EQ(fi_setname(&fresh->fid, NULL, 0), -FI_EINVAL);
	CHECK_EQ(fi_setname(&fresh->fid, own, length), -FI_EINVAL);
	CHECK_EQ(fi_close(&fresh->fid), 0);
	CHECK_EQ(fi_send(ep, own, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
	CHECK_EQ(fi_inject(ep, own, 1, FI_ADDR_UNSPEC), -FI_EINVAL);
	CHECK_EQ(fi_tsend(ep, own, 1, NULL, number + 1, 0, NULL), -FI_EINVAL);
	CHECK_EQ(fi_write(ep, own, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_EINVAL);
	CHECK_EQ(fi_sendmsg(ep, NULL, 0), -FI_EINVAL);
	CHECK_EQ(fi_trecvmsg(ep, NULL, 0), -FI_EINVAL);
	CHECK_EQ(fi_readmsg(ep, NULL, 0), -FI_EINVAL);
	struct fid_av *none;
	CHECK_EQ(fi_av_open(domain, NULL, &none, NULL), -FI_EINVAL);
	finish();
}

static void missing_in_each_format(void)
{
	missing(FI_FORMAT_UNSPEC);
	missing(FI_ADDR_STR);
}

/* Sends one byte to a peer that may not be there yet, and takes the answer. */
static void call(fi_addr_t to)
{
	char out = 42, in = 0;
	CHECK_EQ(fi_trecv(ep, &in, 1, NULL, FI_ADDR_UNSPEC, 2, 0, &in), 0);
	UNTIL_DONE(fi_tsend(ep, &out, 1, NULL, to, 1, &out));
	struct fi_cq_tagged_entry done;
	both(&in, &out, &done);
	CHECK_EQ(in, 43);
}

/* Introduces itself to the other by the first message, and serves one call. */
static void serve(void)
{
	char in[256], out;
	CHECK_EQ(fi_trecv(ep, in, sizeof in, NULL, FI_ADDR_UNSPEC, 0, 0, in), 0);
	CHECK(next().op_context == in);
	fi_addr_t client;
	CHECK_EQ(fi_av_insert(av, in, 1, &client, 0, NULL), 1);
	CHECK_EQ(fi_trecv(ep, in, 1, NULL, client, 1, 0, in), 0);
	CHECK(next().op_context == in);
	out = (char)(in[0] + 1);
	UNTIL_DONE(fi_tsend(ep, &out, 1, NULL, client, 2, &out));
	CHECK(next().op_context == &out);
}

static void introduce(fi_addr_t to)
{
	char own[256];
	size_t length = sizeof own;
	CHECK_EQ(fi_getname(&ep->fid, own, &length), 0);
	UNTIL_DONE(fi_tsend(ep, own, length, NULL, to, 0, own));
	CHECK(next().op_context == own);
}

/* A client finds a server by its service, before and after it starts, and after another has
 * taken its place. */
static void service(uint32_t format)
{
	me = pvas_getid();
	if (me == 0) {
		meet();
		/* Two servers, one after the other. */
		for (int n = 0; n < 2; n++) {
			start(find(format, NULL, SERVICE, FI_SOURCE));
			serve();
			CHECK_EQ(fi_close(&ep->fid), 0);
			meet();
			meet();
			if (n == 1)
				break;
			CHECK_EQ(fi_close(&cq->fid), 0);
			CHECK_EQ(fi_close(&av->fid), 0);
			CHECK_EQ(fi_close(&domain->fid), 0);
			CHECK_EQ(fi_close(&fabric->fid), 0);
			fi_freeinfo(info);
		}
		leave();
		return;
	}
	start(find(format, "localhost", SERVICE, 0));
	fi_addr_t server, again;
	CHECK_EQ(fi_av_insert(av, info->dest_addr, 1, &server, 0, NULL), 1);
	CHECK_EQ(fi_av_insertsvc(av, "127.0.0.1", SERVICE, &again, FI_NUMERICHOST, NULL), 1);
	char back[256];
	size_t length = sizeof back;
	CHECK_EQ(fi_av_lookup(av, again, back, &length), 0);
	CHECK(length == info->dest_addrlen && memcmp(back, info->dest_addr, length) == 0);
	char byte = 1;
	CHECK_EQ(fi_inject(ep, &byte, 1, server), -FI_EAGAIN);
	CHECK_EQ(fi_recv(ep, &byte, 1, NULL, server, NULL), -FI_EAGAIN);
	meet();
	for (int n = 0; n < 2; n++) {
		introduce(n == 0 ? server : again);
		call(server);
		meet();
		CHECK_EQ(fi_inject(ep, &byte, 1, server), -FI_ECONNRESET);
		meet();
	}
	finish();
}

static void service_found(void)
{
	service(FI_FORMAT_UNSPEC);
}

static void service_found_as_string(void)
{
	service(FI_ADDR_STR);
}

/* An endpoint has the name that it is given, and no other gets it. */
static void names(void)
{
	struct fi_info *answer = find(FI_ADDR_STR, NULL, NULL, 0);
	static char given[] = "fi_ns://a name", got[256];
	start(answer);
	size_t length = sizeof got;
	CHECK_EQ(fi_getname(&ep->fid, got, &length), 0);
	CHECK(strncmp(got, "fi_nagaya://", 12) == 0 && length == strlen(got) + 1);
	struct fid_ep *named = open_endpoint(info, 0);
	if (me == 0) {
		CHECK_EQ(fi_setname(&named->fid, given, sizeof given), 0);
		CHECK_EQ(fi_enable(named), 0);
		length = sizeof got;
		CHECK_EQ(fi_getname(&named->fid, got, &length), 0);
		CHECK(strcmp(got, given) == 0);
	}
	meet();
	struct fid_ep *second = open_endpoint(info, 0);
	CHECK_EQ(fi_setname(&second->fid, given, sizeof given), 0);
	CHECK_EQ(fi_enable(second), -FI_EADDRINUSE);
	CHECK_EQ(fi_close(&second->fid), 0);
	fi_addr_t number;
	CHECK_EQ(fi_av_insert(av, given, 1, &number, 0, NULL), 1);
	char out = 1, text[64];
	length = sizeof text;
	CHECK(strcmp(fi_av_straddr(av, given, text, &length), given) == 0);
	UNTIL_DONE(fi_inject(ep, &out, 1, number));
	if (me == 0)
		for (int n = 0; n < others; n++) {
			CHECK_EQ(fi_recv(named, &out, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
			next();
		}
	meet();
	CHECK_EQ(fi_close(&named->fid), 0);
	meet();
	CHECK_EQ(fi_inject(ep, &out, 1, number), -FI_ECONNRESET);
	/* All want it at once, and one gets it. */
	for (int round = 0; round < 20; round++) {
		struct fid_ep *one = open_endpoint(info, 0);
		static int has[32];
		CHECK_EQ(fi_setname(&one->fid, given, sizeof given), 0);
		meet();
		has[round] = fi_enable(one);
		CHECK(has[round] == 0 || has[round] == -FI_EADDRINUSE);
		char what[32];
		snprintf(what, sizeof what, "has%d", round);
		CHECK_EQ(pvas_export(what, &has[round], sizeof(int)), 0);
		int have = 0;
		for (int task = 0; task < others; task++)
			have += *(int *)theirs(task, what) == 0;
		CHECK_EQ(have, 1);
		meet();
		CHECK_EQ(fi_close(&one->fid), 0);
	}
	meet();
	finish();
}

/* Addresses of ended endpoints are accepted, and operations on them fail. Their earlier
 * messages arrive, with the right sender. */
static void ended(void)
{
	start(find(0, NULL, NULL, 0));
	static char own[64];
	static unsigned char memory[1 << 20];
	size_t length = export_name(own, sizeof own);
	char gone[64];
	memcpy(gone, theirs(other, "name"), length);
	meet();
	fi_addr_t number;
	char byte = 7;
	if (me == 1) {
		CHECK_EQ(fi_av_insert(av, gone, 1, &number, 0, NULL), 1);
		UNTIL_DONE(fi_tinject(ep, &byte, 1, number, 5));
		finish();
		return;
	}
	CHECK_EQ(pvas_export("done", own, 1), 0);
	CHECK_EQ(pvas_export("bye", own, 1), 0);
	while (pvas_getpid(PVAS_SELF, other) > 0)
		usleep(1000);
	CHECK_EQ(fi_av_insert(av, gone, 1, &number, 0, NULL), 1);
	char back[64];
	size_t room = sizeof back;
	CHECK_EQ(fi_av_lookup(av, number, back, &room), 0);
	CHECK(room == length && memcmp(back, gone, length) == 0);
	CHECK_EQ(fi_inject(ep, &byte, 1, number), -FI_ECONNRESET);
	CHECK_EQ(fi_tsend(ep, memory, sizeof memory, NULL, number, 0, &byte), -FI_ECONNRESET);
	CHECK_EQ(fi_write(ep, &byte, 1, NULL, number, 0, 0, &byte), -FI_ECONNRESET);
	byte = 0;
	CHECK_EQ(fi_trecv(ep, &byte, 1, NULL, number, 5, 0, &byte), 0);
	struct fi_cq_tagged_entry entry;
	fi_addr_t from = 0;
	ssize_t read;
	while ((read = fi_cq_readfrom(cq, &entry, 1, &from)) == -FI_EAGAIN)
		;
	CHECK(read == 1 && byte == 7 && from == number);
	CHECK_EQ(fi_av_remove(av, &number, 1, 0), 0);
	CHECK_EQ(fi_av_remove(av, &number, 1, 0), -FI_EINVAL);
	CHECK_EQ(fi_inject(ep, &byte, 1, number), -FI_EINVAL);
	printf("ended well\n");
}

/* An error entry ends before `err_data_size` for a program of an interface before 1.5. */
static void error_entries(void)
{
	static const uint32_t versions[] = {FI_VERSION(1, 4), FI_VERSION(1, 9)};
	for (int n = 0; n < 2; n++) {
		struct fi_info *hints = asked(0);
		CHECK_EQ(fi_getinfo(versions[n], NULL, NULL, 0, hints, &info), 0);
		fi_freeinfo(hints);
		open_domain(FI_AV_MAP);
		open_queue(FI_WAIT_NONE, NULL);
		ep = open_endpoint(info, 0);
		CHECK_EQ(fi_enable(ep), 0);
		char byte;
		CHECK_EQ(fi_trecv(ep, &byte, 1, NULL, FI_ADDR_UNSPEC, 1, 0, &byte), 0);
		CHECK_EQ(fi_cancel(&ep->fid, &byte), 0);
		struct fi_cq_err_entry error;
		memset(&error, 0xee, sizeof error);
		CHECK_EQ(fi_cq_readerr(cq, &error, 0), 1);
		CHECK(error.err == FI_ECANCELED && error.op_context == &byte);
		CHECK_EQ(error.err_data_size, n == 0 ? (size_t)0xeeeeeeeeeeeeeeee : 0);
		CHECK_EQ(fi_close(&ep->fid), 0);
		leave();
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{"answers", answers},
		{"missing", missing_in_each_format},
		{"service", service_found},
		{"strings", service_found_as_string},
		{"names", names},
		{"ended", ended},
		{"errors", error_entries},
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
