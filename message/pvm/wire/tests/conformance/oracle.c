/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs a script of PVM calls, read from standard input, against the stock libpvm3 and prints
 * the result of each: the other side of ours.rs.
 */
#include <pvm3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA 1048576
#define WORDS 32

static unsigned char arena[ARENA], out[ARENA];
static unsigned char *const middle = arena + ARENA / 2, *const out_middle = out + ARENA / 2;
static int self;

static uint64_t fnv(const unsigned char *at, size_t size)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ at[i]) * 0x100000001b3;
	return hash;
}

static void fill(uint64_t seed)
{
	for (int i = 0; i < ARENA; i += 8) {
		seed += 0x9e3779b97f4a7c15;
		uint64_t z = seed;
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
		z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
		z ^= z >> 31;
		memcpy(arena + i, &z, 8);
	}
	arena[ARENA - 1] = 0; /* the end of a string there */
}

static int pack(const char *kind, void *at, int count, int stride)
{
	switch (kind[0] == 'u' ? kind[1] - 32 : kind[0]) {
	case 'b': return pvm_pkbyte(at, count, stride);
	case 's': return pvm_pkshort(at, count, stride);
	case 'i': return pvm_pkint(at, count, stride);
	case 'l': return pvm_pklong(at, count, stride);
	case 'S': return pvm_pkushort(at, count, stride);
	case 'I': return pvm_pkuint(at, count, stride);
	case 'L': return pvm_pkulong(at, count, stride);
	case 'f': return pvm_pkfloat(at, count, stride);
	case 'd': return pvm_pkdouble(at, count, stride);
	case 'c': return pvm_pkcplx(at, count, stride);
	case 'z': return pvm_pkdcplx(at, count, stride);
	}
	abort();
}

static int unpack(const char *kind, void *at, int count, int stride)
{
	switch (kind[0] == 'u' ? kind[1] - 32 : kind[0]) {
	case 'b': return pvm_upkbyte(at, count, stride);
	case 's': return pvm_upkshort(at, count, stride);
	case 'i': return pvm_upkint(at, count, stride);
	case 'l': return pvm_upklong(at, count, stride);
	case 'S': return pvm_upkushort(at, count, stride);
	case 'I': return pvm_upkuint(at, count, stride);
	case 'L': return pvm_upkulong(at, count, stride);
	case 'f': return pvm_upkfloat(at, count, stride);
	case 'd': return pvm_upkdouble(at, count, stride);
	case 'c': return pvm_upkcplx(at, count, stride);
	case 'z': return pvm_upkdcplx(at, count, stride);
	}
	abort();
}

/* What a message looks like inside, fragment by fragment: what pvm_pkmesg makes of it. */
static void dump(int mid)
{
	int into = pvm_mkbuf(PvmDataRaw), sbuf = pvm_setsbuf(into), rbuf;
	int code = pvm_pkmesg(mid), length = 0, header[8], fragment;

	printf(" %d", code);
	rbuf = pvm_setrbuf(into);
	pvm_bufinfo(into, &length, NULL, NULL);
	if (code == 0) {
		pvm_upkint(header, 8, 1);
		printf(" %d:%d:%d:%d:%x:%d:%d:%d", header[0], header[1], header[2], header[3],
		       header[4], header[5], header[6] == self ? -1 : header[6],
		       header[7] == self ? -1 : header[7]);
		while (pvm_upkint(&fragment, 1, 1) == 0) {
			if (fragment < 0 || fragment > ARENA)
				abort();
			pvm_upkbyte((char *)out, fragment, 1);
			printf(" %d=%016llx", fragment, (unsigned long long)fnv(out, fragment));
			if (getenv("ORACLE_BYTES"))
				for (int i = 0; i < fragment; i++)
					printf("%s%02x", i % 4 ? "" : "_", out[i]);
		}
	}
	pvm_freebuf(into);
	pvm_setsbuf(sbuf);
	pvm_setrbuf(rbuf);
}

int main(void)
{
	static char line[4096];

	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	self = pvm_mytid();
	if (self < 0)
		return 1;
	pvm_setopt(PvmAutoErr, 0);
	/* Number 7 is left from the library's talk with its daemon: a new message takes its place. */
	pvm_freebuf(7);
	if (pvm_mkbuf(PvmDataDefault) != 7)
		return 1;
	printf("%d %d\n", self, pvm_getopt(PvmFragSize));
	while (fgets(line, sizeof line, stdin)) {
		char *word[WORDS] = {0};
		long n[WORDS] = {0};
		int words = 0;

		for (char *w = strtok(line, " \n"); w && words < WORDS; w = strtok(NULL, " \n")) {
			word[words] = w;
			n[words++] = *w == '@' ? (long)(middle + atol(w + 1))
				: *w == '>' ? (long)(out_middle + atol(w + 1)) : atol(w);
		}
		if (!words)
			continue;
		printf("%s", word[0]);
		memset(out, 0xaa, ARENA);
#define IS(name) (strcmp(word[0], name) == 0)
#define OUT() printf(" %016llx", (unsigned long long)fnv(out, ARENA))
		if (IS("fill")) fill(n[1]);
		else if (IS("option")) printf(" %d", pvm_setopt(PvmFragSize, n[1]));
		else if (IS("mkbuf")) printf(" %d", pvm_mkbuf(n[1]));
		else if (IS("initsend")) printf(" %d", pvm_initsend(n[1]));
		else if (IS("freebuf")) printf(" %d", pvm_freebuf(n[1]));
		else if (IS("setsbuf")) printf(" %d", pvm_setsbuf(n[1]));
		else if (IS("setrbuf")) printf(" %d", pvm_setrbuf(n[1]));
		else if (IS("getsbuf")) printf(" %d", pvm_getsbuf());
		else if (IS("getrbuf")) printf(" %d", pvm_getrbuf());
		else if (IS("bufinfo")) {
			int length = -99, tag = -99, tid = -99;
			int code = pvm_bufinfo(n[1], &length, &tag, &tid);
			printf(" %d %d %d %d", code, length, tag, tid == self ? -1 : tid);
		} else if (IS("getminfo")) {
			struct pvmminfo m = {0};
			int code = pvm_getminfo(n[1], &m);
			printf(" %d %d:%d:%d:%d:%x:%d:%d:%d", code, m.len, m.ctx, m.tag, m.wid, m.enc,
			       m.crc, m.src == self ? -1 : m.src,
			       m.dst == self ? -1 : m.dst);
		} else if (IS("setminfo")) {
			struct pvmminfo m = {99, n[2], n[3], n[4], 99, 99, n[5], n[6]};
			printf(" %d", pvm_setminfo(n[1], &m));
		} else if (IS("pack")) printf(" %d", pack(word[1], (void *)n[2], n[3], n[4]));
		else if (IS("unpack")) {
			printf(" %d", unpack(word[1], (void *)n[2], n[3], n[4]));
			OUT();
		} else if (IS("packstr")) {
			char *s = malloc(n[1] + 1);
			memset(s, 'p', n[1]);
			s[n[1]] = 0;
			printf(" %d", pvm_pkstr(s));
			free(s);
		} else if (IS("unpackstr")) {
			printf(" %d", pvm_upkstr((char *)out_middle));
			OUT();
		} else if (IS("packf")) {
			printf(" %d", pvm_packf(word[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9],
						1.5, -2.25, 3e300, 4.0, 0.1));
		} else if (IS("unpackf")) {
			printf(" %d", pvm_unpackf(word[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9]));
			OUT();
		} else if (IS("pkmesg")) printf(" %d", pvm_pkmesg(n[1]));
		else if (IS("pkmesgbody")) printf(" %d", pvm_pkmesgbody(n[1]));
		else if (IS("upkmesg")) printf(" %d", pvm_upkmesg());
		else if (IS("dump")) dump(n[1]);
		else if (IS("loop")) {
			/*
			 * To itself and back. Freed first: pvm_send may take in what comes, and so
			 * choose its number before pvm_recv frees the buffer before it.
			 */
			if (pvm_getsbuf())
				pvm_freebuf(pvm_getrbuf());
			int code = pvm_send(self, n[1]);
			printf(" %d", code);
			if (code == 0)
				printf(" %d", pvm_recv(-1, n[1]));
		} else
			abort();
		printf("\n");
	}
	fflush(stdout);
	pvm_exit();
	return 0;
}
