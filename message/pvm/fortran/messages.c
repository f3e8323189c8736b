/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Fortran's view of buffers, packing, sending and receiving, message handlers, contexts and
 * mailboxes.
 */
#include <pvm3.h>

#include "text.h"

/* ---- Buffers */

void pvmfinitsend_(int *encoding, int *bufid) { *bufid = pvm_initsend(*encoding); }

void pvmfmkbuf_(int *encoding, int *bufid) { *bufid = pvm_mkbuf(*encoding); }

void pvmffreebuf_(int *bufid, int *info) { *info = pvm_freebuf(*bufid); }

void pvmfgetsbuf_(int *bufid) { *bufid = pvm_getsbuf(); }

void pvmfgetrbuf_(int *bufid) { *bufid = pvm_getrbuf(); }

void pvmfsetsbuf_(int *bufid, int *before) { *before = pvm_setsbuf(*bufid); }

void pvmfsetrbuf_(int *bufid, int *before) { *before = pvm_setrbuf(*bufid); }

void pvmfbufinfo_(int *bufid, int *bytes, int *tag, int *tid, int *info)
{
	*info = pvm_bufinfo(*bufid, bytes, tag, tid);
}

/* ---- Packing. Type STRING is characters, as many as the caller says. */

void pvmfpack_(int *type, void *items, int *count, int *stride, int *info)
{
	switch (*type) {
	case PVM_STR:
	case PVM_BYTE: *info = pvm_pkbyte(items, *count, *stride); break;
	case PVM_SHORT: *info = pvm_pkshort(items, *count, *stride); break;
	case PVM_INT: *info = pvm_pkint(items, *count, *stride); break;
	case PVM_LONG: *info = pvm_pklong(items, *count, *stride); break;
	case PVM_FLOAT: *info = pvm_pkfloat(items, *count, *stride); break;
	case PVM_CPLX: *info = pvm_pkcplx(items, *count, *stride); break;
	case PVM_DOUBLE: *info = pvm_pkdouble(items, *count, *stride); break;
	case PVM_DCPLX: *info = pvm_pkdcplx(items, *count, *stride); break;
	default: *info = PvmBadParam;
	}
}

void pvmfunpack_(int *type, void *items, int *count, int *stride, int *info)
{
	switch (*type) {
	case PVM_STR:
	case PVM_BYTE: *info = pvm_upkbyte(items, *count, *stride); break;
	case PVM_SHORT: *info = pvm_upkshort(items, *count, *stride); break;
	case PVM_INT: *info = pvm_upkint(items, *count, *stride); break;
	case PVM_LONG: *info = pvm_upklong(items, *count, *stride); break;
	case PVM_FLOAT: *info = pvm_upkfloat(items, *count, *stride); break;
	case PVM_CPLX: *info = pvm_upkcplx(items, *count, *stride); break;
	case PVM_DOUBLE: *info = pvm_upkdouble(items, *count, *stride); break;
	case PVM_DCPLX: *info = pvm_upkdcplx(items, *count, *stride); break;
	default: *info = PvmBadParam;
	}
}

/* ---- Sending and receiving */

void pvmfsend_(int *tid, int *tag, int *info) { *info = pvm_send(*tid, *tag); }

void pvmfmcast_(int *count, int *tids, int *tag, int *info)
{
	*info = pvm_mcast(tids, *count, *tag);
}

void pvmfpsend_(int *tid, int *tag, void *items, int *count, int *type, int *info)
{
	*info = pvm_psend(*tid, *tag, items, *count, *type);
}

void pvmfrecv_(int *tid, int *tag, int *bufid) { *bufid = pvm_recv(*tid, *tag); }

void pvmfnrecv_(int *tid, int *tag, int *bufid) { *bufid = pvm_nrecv(*tid, *tag); }

void pvmfprobe_(int *tid, int *tag, int *bufid) { *bufid = pvm_probe(*tid, *tag); }

/* -1 seconds are for ever. */
void pvmftrecv_(int *tid, int *tag, int *sec, int *usec, int *bufid)
{
	struct timeval timeout = { .tv_sec = *sec, .tv_usec = *usec };

	*bufid = pvm_trecv(*tid, *tag, *sec == -1 ? NULL : &timeout);
}

void pvmfprecv_(int *tid, int *tag, void *items, int *count, int *type, int *from_tid,
		int *from_tag, int *received, int *info)
{
	*info = pvm_precv(*tid, *tag, items, *count, *type, from_tid, from_tag, received);
}

/* ---- Message handlers and contexts */

/* The fourth argument is neither read nor written: the handler's number is in `info`. */
void pvmfaddmhf_(int *src, int *tag, int *ctx, int *unused, int (*handler)(int), int *info)
{
	(void)unused;
	*info = pvm_addmhf(*src, *tag, *ctx, handler);
}

void pvmfdelmhf_(int *handler, int *info) { *info = pvm_delmhf(*handler); }

void pvmfnewcontext_(int *ctx) { *ctx = pvm_newcontext(); }

void pvmfgetcontext_(int *ctx) { *ctx = pvm_getcontext(); }

void pvmfsetcontext_(int *ctx, int *before) { *before = pvm_setcontext(*ctx); }

/* PVM 3.4.6 calls pvm_setcontext here, by mistake. */
void pvmffreecontext_(int *ctx, int *info) { *info = pvm_freecontext(*ctx); }

/* ---- Mailboxes */

void pvmfputinfo_(char *name_text, int *bufid, int *flags, int *info, int name_len)
{
	C_STRING(name, NAME_MAX_LEN)
	*info = pvm_putinfo(name, *bufid, *flags);
}

void pvmfrecvinfo_(char *name_text, int *index, int *flags, int *info, int name_len)
{
	C_STRING(name, NAME_MAX_LEN)
	*info = pvm_recvinfo(name, *index, *flags);
}

void pvmfdelinfo_(char *name_text, int *index, int *flags, int *info, int name_len)
{
	C_STRING(name, NAME_MAX_LEN)
	*info = pvm_delinfo(name, *index, *flags);
}

/* One mailbox a call, 1 in `info`; after the last one PvmNotFound. Another pattern, or -1 in
 * `nclasses`, begins anew. (PVM 3.4.6 returns the first one over and over, and sets neither
 * `nclasses` nor `info`.) */
void pvmfgetmboxinfo_(char *pattern_text, char *name, int *nclasses, int *nentries,
		      int *indices, int *owners, int *flags, int *info, int pattern_len,
		      int name_len)
{
	static struct pvmmboxinfo *found;
	static int nfound, next = -1;
	static char last[NAME_MAX_LEN + 1];
	struct pvmmboxinfo *mbox;
	int i;

	C_STRING(pattern, NAME_MAX_LEN)
	if (next < 0 || *nclasses == -1 || strcmp(pattern, last) != 0) {
		next = -1;
		*info = pvm_getmboxinfo(pattern, &nfound, &found);
		if (*info < 0)
			return;
		strcpy(last, pattern);
		next = 0;
	}
	*nclasses = nfound;
	if (next == nfound) {
		next = -1;
		*info = PvmNotFound;
		return;
	}
	mbox = &found[next++];
	text_from_c(name, name_len, mbox->mi_name);
	*nentries = mbox->mi_nentries;
	for (i = 0; i < mbox->mi_nentries; i++) {
		indices[i] = mbox->mi_indices[i];
		owners[i] = mbox->mi_owners[i];
		flags[i] = mbox->mi_flags[i];
	}
	*info = 1;
}
