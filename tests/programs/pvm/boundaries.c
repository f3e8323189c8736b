/* Message sizes around PVM's fragments, in all encodings, on both routes, packed at once
 * and in pieces: received equals sent. */
#include "say.h"

enum { MAX = 200000 };
static char sent[MAX], came[MAX];

/* A sum that depends on order. */
static unsigned sum(const char *bytes, int n)
{
	unsigned s = 1;
	int i;

	for (i = 0; i < n; i++)
		s = s * 31 + (unsigned char)bytes[i];
	return s;
}

/* Answers each message with its size and sum. */
static int echo(int parent)
{
	int n, pieces, i, results[3];

	for (;;) {
		pvm_recv(parent, 1);
		pvm_upkint(&n, 1, 1);
		if (n < 0)
			return pvm_exit();
		pvm_upkint(&pieces, 1, 1);
		memset(came, 0, sizeof came);
		for (i = 0; i < pieces; i++)
			results[0] = pvm_upkbyte(came + (long)n * i / pieces,
						 (int)((long)n * (i + 1) / pieces -
						       (long)n * i / pieces), 1);
		results[1] = (int)sum(came, n);
		results[2] = pvm_upkbyte(came, 1, 1);
		pvm_initsend(PvmDataDefault);
		pvm_pkint(results, 3, 1);
		pvm_send(parent, 2);
	}
}

static int wrong;

static void send(int tid, int encoding, int n, int pieces)
{
	int i, results[3] = { 9, 9, 9 }, bytes = -1, size[2] = { n, pieces };

	pvm_initsend(encoding);
	pvm_pkint(size, 2, 1);
	for (i = 0; i < pieces; i++)
		pvm_pkbyte(sent + (long)n * i / pieces,
			   (int)((long)n * (i + 1) / pieces - (long)n * i / pieces), 1);
	pvm_bufinfo(pvm_getsbuf(), &bytes, NULL, NULL);
	pvm_send(tid, 1);
	pvm_recv(tid, 2);
	pvm_upkint(results, 3, 1);
	if (results[0] || results[1] != (int)sum(sent, n) || results[2] != PvmNoData) {
		say("encoding %d, %d bytes in %d pieces: %s, %s, then %s", encoding, n, pieces,
		    code(results[0]), results[1] == (int)sum(sent, n) ? "same" : "wrong",
		    code(results[2]));
		wrong++;
	}
}

int main(void)
{
	static const int encodings[] = { PvmDataDefault, PvmDataRaw, PvmDataInPlace };
	static const int pieces[] = { 1, 2, 7, 20 };
	int parent = enroll(), tid, route, e, p, fragment, k, d, messages, bytes, i;

	if (parent > 0)
		return echo(parent);
	for (i = 0; i < MAX; i++)
		sent[i] = (char)(i * 7 + i / 256);
	fragment = pvm_getopt(PvmFragSize);
	say("fragments of %d", fragment);
	spawn(1, &tid, "echo");
	for (route = PvmDontRoute; route <= PvmRouteDirect; route += 2) {
		pvm_setopt(PvmRoute, route);
		for (e = 0; e < 3; e++) {
			messages = 0;
			for (k = 0; k <= 3; k++)
				for (d = k ? -72 : 0; d <= 8; d += k == 1 ? 1 : 4)
					for (p = 0; p < 4; p++, messages++)
						send(tid, encodings[e], k * fragment + d, pieces[p]);
			for (i = 65536 - 8; i <= 65536 + 8; i += 8, messages++)
				send(tid, encodings[e], i, 1);
			send(tid, encodings[e], MAX, 3);
			say("route %d, encoding %d: %d messages, %d wrong", route, encodings[e],
			    messages + 1, wrong);
		}
	}
	/* Other fragment sizes. */
	for (i = 0; i < 6; i++) {
		static const int sizes[] = { 0, 1000, 1024, 8192, 1 << 20, (1 << 20) + 1 };

		k = pvm_setopt(PvmFragSize, sizes[i]);
		say("fragments of %d: %s, now %d", sizes[i], k < 0 ? code(k) : "set",
		    pvm_getopt(PvmFragSize));
		for (e = 0; e < 3; e++)
			send(tid, encodings[e], 100000, 3);
	}
	say("%d wrong", wrong);
	/* The size of a message with pieces of all types. */
	for (e = 0; e < 3; e++) {
		short h[3] = { 1, 2, 3 };
		double x[5] = { 1, 2, 3, 4, 5 };
		long l[3] = { -1, 0, 1 };

		pvm_initsend(encodings[e]);
		pvm_pkshort(h, 3, 1);
		pvm_pkdouble(x, 5, 1);
		pvm_pklong(l, 3, 1);
		pvm_pkstr("string");
		pvm_bufinfo(pvm_getsbuf(), &bytes, NULL, NULL);
		say("encoding %d: %d bytes", encodings[e], bytes);
	}
	tell(tid, 1, -1);
	return pvm_exit();
}
