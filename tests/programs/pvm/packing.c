/* Packing and unpacking every type in every encoding, between two tasks; formats; messages
 * in messages; headers. message/pvm/wire/tests covers a single task. */
#include "say.h"

static short h[4] = { -1, 2, -3, 4 };
static int n[4] = { -100000, 200000, -300000, 400000 };
static long l[4] = { 1, 2000000000, 3, 4 };
static unsigned short uh[4] = { 65535, 2, 3, 4 };
static unsigned un[4] = { 4294967295u, 2, 3, 4 };
static unsigned long ul[4] = { 1, 4294967295u, 3, 4 };
static float f[8] = { 0.5f, -1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f, 7.5f };
static double d[8] = { 0.25, -1.25, 2.25, 3.25, 4.25, 5.25, 6.25, 7.25 };

static void pack(int stride)
{
	int r = 0;

	r += pvm_pkbyte("bytes!!", 4, stride);
	r += pvm_pkshort(h, 4 / stride, stride);
	r += pvm_pkint(n, 4 / stride, stride);
	r += pvm_pklong(l, 4 / stride, stride);
	r += pvm_pkushort(uh, 4 / stride, stride);
	r += pvm_pkuint(un, 4 / stride, stride);
	r += pvm_pkulong(ul, 4 / stride, stride);
	r += pvm_pkfloat(f, 4 / stride, stride);
	r += pvm_pkcplx(f, 4 / stride, stride);
	r += pvm_pkdouble(d, 4 / stride, stride);
	r += pvm_pkdcplx(d, 4 / stride, stride);
	if (r)
		say("pack: %s", code(r));
}

/* Unpacks with another stride. Returns the number of unchanged items. */
static int unpack(int sent_stride)
{
	char b[8] = "", *bytes = "bytes!!";
	short h2[8];
	int n2[8], good = 0, i, count = 4 / sent_stride, s = sent_stride;
	long l2[8];
	unsigned short uh2[8];
	unsigned un2[8];
	unsigned long ul2[8];
	float f2[8], c2[16];
	double d2[8], z2[16];

	good -= pvm_upkbyte(b, 4, 1);
	good -= pvm_upkshort(h2, count, 2);
	good -= pvm_upkint(n2, count, 1);
	good -= pvm_upklong(l2, count, 1);
	good -= pvm_upkushort(uh2, count, 1);
	good -= pvm_upkuint(un2, count, 1);
	good -= pvm_upkulong(ul2, count, 2);
	good -= pvm_upkfloat(f2, count, 1);
	good -= pvm_upkcplx(c2, count, 1);
	good -= pvm_upkdouble(d2, count, 1);
	good -= pvm_upkdcplx(z2, count, 2);
	for (i = 0; i < 4; i++)
		good += b[i] == bytes[i * s];
	for (i = 0; i < count; i++)
		good += (h2[2 * i] == h[i * s]) + (n2[i] == n[i * s]) + (l2[i] == l[i * s]) +
			(uh2[i] == uh[i * s]) + (un2[i] == un[i * s]) +
			(ul2[2 * i] == ul[i * s]) + (f2[i] == f[i * s]) +
			(c2[2 * i] == f[2 * i * s]) + (c2[2 * i + 1] == f[2 * i * s + 1]) +
			(d2[i] == d[i * s]) + (z2[4 * i] == d[2 * i * s]) +
			(z2[4 * i + 1] == d[2 * i * s + 1]);
	return good;
}

static int child(int parent)
{
	int i, k, tag, inner, rbuf;
	double x;
	char text[50];

	for (i = 0; i < 5; i++) {
		pvm_recv(parent, 1);
		tell(parent, 2, unpack(i % 2 + 1));
	}
	/* Formats. */
	pvm_recv(parent, 3);
	k = pvm_unpackf("%d %lf %s %2d", &i, &x, text, &tag);
	tell(parent, 4, k);
	tell(parent, 4, i);
	tell(parent, 4, (int)(x * 1000));
	tell(parent, 4, (int)strlen(text));
	/* A message in a message, and its own content behind it. */
	rbuf = pvm_recv(parent, 5);
	inner = pvm_upkmesg();
	pvm_upkint(&i, 1, 1);
	tell(parent, 6, i);
	pvm_setrbuf(inner);
	pvm_bufinfo(inner, &k, &tag, NULL);
	pvm_upkint(&i, 1, 1);
	tell(parent, 6, tag);
	tell(parent, 6, i);
	pvm_setrbuf(rbuf);
	/* The body of another. */
	pvm_recv(parent, 7);
	pvm_upkint(&i, 1, 1);
	pvm_upkint(&k, 1, 1);
	tell(parent, 8, i * 1000 + k);
	return pvm_exit();
}

static void header(int tid)
{
	struct pvmminfo info, its;
	int result;

	pvm_initsend(PvmDataDefault);
	pvm_pkint(n, 2, 1);
	say("getminfo %s", code(pvm_getminfo(pvm_getsbuf(), &info)));
	say("of a new message: len %d ctx %d tag %d wid %d crc %d src %d dst %d", info.len,
	    info.ctx, info.tag, info.wid, info.crc, info.src, info.dst);
	info.ctx = pvm_getcontext();
	info.tag = 77;
	info.wid = 4711;
	info.src = tid;
	info.dst = tid;
	info.len = 1;
	say("setminfo %s", code(pvm_setminfo(pvm_getsbuf(), &info)));
	result = pvm_getminfo(pvm_getsbuf(), &its);
	say("%s: len %d ctx %d tag %d wid %d src set %s dst set %s", code(result), its.len,
	    its.ctx, its.tag, its.wid, yes(its.src == tid), yes(its.dst == tid));
	pvm_send(pvm_mytid(), 78);
	pvm_recv(-1, 78);
	result = pvm_getminfo(pvm_getrbuf(), &its);
	say("%s: len %d tag %d wid %d src me %s dst me %s enc %s", code(result), its.len, its.tag,
	    its.wid, yes(its.src == pvm_mytid()), yes(its.dst == pvm_mytid()),
	    yes(its.enc == info.enc));
	say("getminfo of none %s", code(pvm_getminfo(9999, &info)));
	say("setminfo of none %s", code(pvm_setminfo(9999, &info)));
	say("getminfo of 0 %s", code(pvm_getminfo(0, &info)));
}

int main(void)
{
	static const int encodings[] = { PvmDataDefault, PvmDataRaw };
	int parent = enroll(), tid, i, k = 42, inner, outer, bytes;

	if (parent > 0)
		return child(parent);
	spawn(1, &tid, "child");
	for (i = 0; i < 5; i++) {
		pvm_initsend(i == 4 ? PvmDataInPlace : encodings[i / 2]);
		pack(i % 2 + 1);
		pvm_bufinfo(pvm_getsbuf(), &bytes, NULL, NULL);
		pvm_send(tid, 1);
		say("message %d of %d bytes: %d good", i, bytes, hear(tid, 2));
	}
	say("packf %s", code(pvm_packf("%+ %d %lf %s %2d", PvmDataRaw, k, 1.5, "text", n)));
	pvm_send(tid, 3);
	for (i = 0; i < 4; i++)
		say("unpacked %d", hear(tid, 4));
	inner = pvm_mkbuf(PvmDataDefault);
	pvm_setsbuf(inner);
	pvm_pkint(&k, 1, 1);
	outer = pvm_mkbuf(PvmDataRaw);
	pvm_setsbuf(outer);
	say("pkmesg %s", code(pvm_pkmesg(inner)));
	k = 43;
	pvm_pkint(&k, 1, 1);
	pvm_send(tid, 5);
	for (i = 0; i < 3; i++)
		say("from within %d", hear(tid, 6));
	pvm_initsend(PvmDataDefault);
	say("pkmesgbody %s", code(pvm_pkmesgbody(inner)));
	pvm_pkint(&k, 1, 1);
	pvm_send(tid, 7);
	say("both %d", hear(tid, 8));
	say("pkmesg of none %s", code(pvm_pkmesg(9999)));
	say("pkmesgbody of none %s", code(pvm_pkmesgbody(9999)));
	pvm_initsend(PvmDataRaw);
	say("pkmesgbody of another encoding %s", code(pvm_pkmesgbody(inner)));
	header(tid);
	return pvm_exit();
}
