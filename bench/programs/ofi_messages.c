/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * ofi_messages.c - tagged messages through libfabric, by the given provider.
 *
 *     ofi_messages FILE PROVIDER REPETITIONS MILLISECONDS SIZE...
 *
 * FILE is empty, and in memory (/dev/shm). Prints lines as in pair.h; one for a stream of messages
 * of 8 bytes, PROVIDER rate 8 NS_EACH 0 0; and one for a message to a computing receiver,
 * PROVIDER away 1048576 NS_UNTIL_SENT 0 0. Under `nagaya run -n 2` the two tasks are
 * the pair; otherwise the program forks.
 */
#include "pair.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

static struct fid_ep *endpoint;
static struct fid_cq *queue;
static fi_addr_t other;
static size_t inject_max;
static int sent, received; /* completions that were read and not yet waited for */
static struct fi_context2 send_context, receive_context;

static void check(ssize_t status, const char *what)
{
	if (status < 0) {
		fprintf(stderr, "process %d: %s: %s\n", me, what, fi_strerror((int)-status));
		exit(1);
	}
}

static inline void progress(void)
{
	struct fi_cq_tagged_entry entry;
	ssize_t read = fi_cq_read(queue, &entry, 1);
	if (read == 1) {
		if (entry.flags & FI_RECV)
			received++;
		else
			sent++;
	} else if (read != -FI_EAGAIN) {
		check(read, "fi_cq_read");
	}
}

static inline void ofi_send(size_t bytes)
{
	ssize_t status;
	if (bytes <= inject_max) {
		while ((status = fi_tinject(endpoint, out_buffer, bytes, other, 1)) == -FI_EAGAIN)
			progress();
		check(status, "fi_tinject");
		return;
	}
	while ((status = fi_tsend(endpoint, out_buffer, bytes, NULL, other, 1, &send_context)) ==
	       -FI_EAGAIN)
		progress();
	check(status, "fi_tsend");
	while (!sent)
		progress();
	sent--;
}

static inline void ofi_post(size_t bytes)
{
	ssize_t status;
	while ((status = fi_trecv(endpoint, in_buffer, bytes, NULL, FI_ADDR_UNSPEC, 1, 0,
	                          &receive_context)) == -FI_EAGAIN)
		progress();
	check(status, "fi_trecv");
}

static inline void ofi_receive(size_t bytes)
{
	ofi_post(bytes);
	while (!received)
		progress();
	received--;
}

static void start(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_TAGGED;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->mr_mode = 0;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->fabric_attr->prov_name = strdup(provider);
	check(fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &info), "fi_getinfo");
	inject_max = info->tx_attr->inject_size;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
	check(fi_cq_open(domain, &cq_attr, &queue, NULL), "fi_cq_open");
	check(fi_endpoint(domain, info, &endpoint, NULL), "fi_endpoint");
	check(fi_ep_bind(endpoint, &av->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(endpoint, &queue->fid, FI_SEND | FI_RECV), "fi_ep_bind");
	check(fi_enable(endpoint), "fi_enable");
	/* The names are exchanged through the common window. */
	size_t length = sizeof shared->window[0];
	check(fi_getname(&endpoint->fid, shared->window[me], &length), "fi_getname");
	meet();
	if (fi_av_insert(av, shared->window[!me], 1, &other, 0, NULL) != 1)
		check(-FI_EADDRNOTAVAIL, "fi_av_insert");
	meet();
}

/* One sends, the other receives, at full speed. */
static double stream_ns(int milliseconds)
{
	enum { EACH = 1000 };
	int64_t begin = now_ns();
	long count = 0;
	meet();
	for (int go = 1; go;) {
		for (int i = 0; i < EACH; i++)
			me == 0 ? ofi_send(8) : ofi_receive(8);
		count += EACH;
		if (me == 0)
			atomic_store(&shared->count, now_ns() - begin < milliseconds * 1000000LL);
		meet();
		go = atomic_load(&shared->count);
		meet();
	}
	return (double)(now_ns() - begin) / (double)count;
}

/* One has posted a receive and computes, until the send of the other completes. */
static double away_ns(size_t bytes)
{
	enum { TIMES = 5, COMPUTES_NS = 5000000 };
	double each[TIMES];
	for (int n = 0; n < TIMES; n++) {
		if (me == 1)
			ofi_post(bytes);
		meet();
		int64_t begin = now_ns();
		if (me == 0) {
			ofi_send(bytes);
			each[n] = (double)(now_ns() - begin);
		} else {
			while (now_ns() - begin < COMPUTES_NS)
				relax();
			while (!received)
				progress();
			received--;
		}
		meet();
	}
	qsort(each, me == 0 ? TIMES : 0, sizeof *each, by_value);
	return each[TIMES / 2];
}

int main(int argc, char **argv)
{
	if (argc < 6) {
		fprintf(stderr, "usage: %s FILE PROVIDER REPETITIONS MILLISECONDS SIZE...\n", argv[0]);
		return 1;
	}
	pid_t child = pair_begin_both(argv[1]);
	int repetitions = atoi(argv[3]), milliseconds = atoi(argv[4]);
	start(argv[2]);
	for (int a = 5; a < argc; a++)
		measure(argv[2], ofi_send, ofi_receive, strtoul(argv[a], NULL, 10), repetitions,
		        milliseconds);
	for (int r = 0; r < repetitions; r++) {
		double ns = stream_ns(milliseconds);
		if (me == 0)
			printf("%s rate 8 %.1f 0 0\n", argv[2], ns);
	}
	for (int r = 0; r < repetitions; r++) {
		double ns = away_ns(1 << 20);
		if (me == 0)
			printf("%s away %d %.1f 0 0\n", argv[2], 1 << 20, ns);
	}
	fflush(stdout);
	meet();
	return pair_end(child);
}
