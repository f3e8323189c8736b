/* A PVM task that a script drives: a line of the file that its argument names is a call of the
 * group library, a line of standard output its result and pvm_errno, and what it gave. */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ITEMS_MAX 4096

/* Exported, and in no header. */
extern int pvm_errno;

static long longs[ITEMS_MAX], results[ITEMS_MAX];

/* A user-defined reduction: x - y, or an error. */
static void difference(int *datatype, void *x, void *y, int *num, int *info)
{
	for (int i = 0; i < *num; i++)
		((int *)x)[i] -= ((int *)y)[i];
	*info = *datatype == PVM_INT ? PvmOk : -77;
}

typedef void reduction(int *, void *, void *, int *, int *);

static reduction *function(const char *name)
{
	switch (name[0]) {
	case 'm': return name[1] == 'a' ? PvmMax : PvmMin;
	case 's': return PvmSum;
	case 'p': return PvmProduct;
	default: return difference;
	}
}

/* Fills an array of any type with `base`, `base + 1`…, or shows it. */
static void fill(void *array, int type, int count, int base)
{
	for (int i = 0; i < count; i++)
		switch (type) {
		case PVM_BYTE: ((char *)array)[i] = base + i; break;
		case PVM_SHORT: ((short *)array)[i] = base + i; break;
		case PVM_INT: ((int *)array)[i] = base + i; break;
		case PVM_LONG: ((long *)array)[i] = base + i; break;
		case PVM_FLOAT: ((float *)array)[i] = base + i; break;
		case PVM_DOUBLE: ((double *)array)[i] = base + i; break;
		case PVM_CPLX:
			((float *)array)[2 * i] = base + i;
			((float *)array)[2 * i + 1] = -base;
			break;
		case PVM_DCPLX:
			((double *)array)[2 * i] = base + i;
			((double *)array)[2 * i + 1] = -base;
			break;
		}
}

static void show(const void *array, int type, int count)
{
	for (int i = 0; i < count; i++)
		switch (type) {
		case PVM_BYTE: printf(" %d", ((char *)array)[i]); break;
		case PVM_SHORT: printf(" %d", ((short *)array)[i]); break;
		case PVM_INT: printf(" %d", ((int *)array)[i]); break;
		case PVM_LONG: printf(" %ld", ((long *)array)[i]); break;
		case PVM_FLOAT: printf(" %g", ((float *)array)[i]); break;
		case PVM_DOUBLE: printf(" %g", ((double *)array)[i]); break;
		case PVM_CPLX:
			printf(" %g%+gi", ((float *)array)[2 * i], ((float *)array)[2 * i + 1]);
			break;
		case PVM_DCPLX:
			printf(" %g%+gi", ((double *)array)[2 * i], ((double *)array)[2 * i + 1]);
			break;
		}
}

int main(int argc, char **argv)
{
	FILE *script = argc > 1 ? fopen(argv[1], "r") : stdin;
	char line[8192], command[32], name[8000], word[32];
	int a, b, c, d, e;

	pvm_setopt(PvmAutoErr, 0);
	/* Stock PVM starts its group server at the first such call. */
	pvm_gsize("no group");
	printf("t%x\n", pvm_mytid());
	fflush(stdout);
	while (script && fgets(line, sizeof line, script)) {
		char *group = name;
		int result = 0, bytes = 0, tag = 0, from = 0, value = 0;

		a = b = c = d = e = 0;
		name[0] = 0;
		if (sscanf(line, "%31s %7999s", command, name) < 1)
			continue;
		if (!strcmp(name, "NULL"))
			group = NULL;
		if (!strcmp(name, "EMPTY"))
			name[0] = 0;
		pvm_errno = 0;
		if (!strcmp(command, "join")) {
			result = pvm_joingroup(group);
		} else if (!strcmp(command, "leave")) {
			result = pvm_lvgroup(group);
		} else if (!strcmp(command, "size")) {
			result = pvm_gsize(group);
		} else if (!strcmp(command, "inst")) {
			sscanf(line, "%*s %*s t%x", (unsigned *)&a);
			result = pvm_getinst(group, a);
		} else if (!strcmp(command, "tid")) {
			sscanf(line, "%*s %*s %d", &a);
			result = pvm_gettid(group, a);
			if (result > 0) {
				printf("t%x %d\n", result, pvm_errno);
				fflush(stdout);
				continue;
			}
		} else if (!strcmp(command, "barrier")) {
			sscanf(line, "%*s %*s %d", &a);
			result = pvm_barrier(group, a);
		} else if (!strcmp(command, "barriers")) {
			/* So many in a row. */
			sscanf(line, "%*s %*s %d %d", &a, &b);
			for (c = 0; c < b && result == 0; c++)
				result = pvm_barrier(group, a);
		} else if (!strcmp(command, "freeze")) {
			sscanf(line, "%*s %*s %d", &a);
			result = pvm_freezegroup(group, a);
		} else if (!strcmp(command, "bcast")) {
			sscanf(line, "%*s %*s %d %d", &tag, &value);
			pvm_initsend(PvmDataDefault);
			pvm_pkint(&value, 1, 1);
			result = pvm_bcast(group, tag);
		} else if (!strcmp(command, "bcast-nothing")) {
			pvm_freebuf(pvm_setsbuf(0));
			result = pvm_bcast(group, 1);
		} else if (!strcmp(command, "recv")) {
			sscanf(line, "%*s %d", &tag);
			pvm_recv(-1, tag);
			pvm_bufinfo(pvm_getrbuf(), &bytes, &tag, &from);
			pvm_upkint(&value, 1, 1);
			printf("t%x %d: %d\n", from, tag, value);
			fflush(stdout);
			continue;
		} else if (!strcmp(command, "probe")) {
			sscanf(line, "%*s %d", &tag);
			result = pvm_probe(-1, tag) > 0;
		} else if (!strcmp(command, "reduce")) {
			/* reduce group function type count tag root base */
			sscanf(line, "%*s %*s %31s %d %d %d %d %d", word, &a, &b, &c, &d, &e);
			fill(longs, a, b, e);
			result = pvm_reduce(function(word), e == -1 ? NULL : longs, b, a, c, group, d);
			printf("%d %d:", result, pvm_errno);
			if (result == 0 && pvm_gettid(group, d) == pvm_mytid())
				show(longs, a, b);
			printf("\n");
			fflush(stdout);
			continue;
		} else if (!strcmp(command, "gather") || !strcmp(command, "scatter")) {
			/* gather group type count tag root base; bases -1 and -2 are null pointers */
			int gather = command[0] == 'g';
			sscanf(line, "%*s %*s %d %d %d %d %d", &a, &b, &c, &d, &e);
			fill(longs, a, gather ? b : ITEMS_MAX / 2, e);
			memset(results, 0, sizeof results);
			result = gather ? pvm_gather(e == -2 ? NULL : results, e == -1 ? NULL : longs, b, a, c, group, d)
				: pvm_scatter(e == -1 ? NULL : results, e == -2 ? NULL : longs, b, a, c, group, d);
			printf("%d %d:", result, pvm_errno);
			if (result == 0 && (!gather || pvm_gettid(group, d) == pvm_mytid()))
				show(results, a, gather ? b * pvm_gsize(group) : b);
			printf("\n");
			fflush(stdout);
			continue;
		} else if (!strcmp(command, "flood")) {
			/* flood tid count bytes: `count` messages */
			static char bytes_sent[1 << 16];
			sscanf(line, "%*s t%x %d %d", (unsigned *)&a, &b, &c);
			for (d = 0; d < b && result >= 0; d++) {
				pvm_initsend(PvmDataRaw);
				pvm_pkint(&d, 1, 1);
				pvm_pkbyte(bytes_sent, c, 1);
				result = pvm_send(a, 99);
			}
		} else if (!strcmp(command, "drain")) {
			/* drain count: takes them in, in order */
			sscanf(line, "%*s %d", &a);
			for (b = 0; b < a && result == 0; b++) {
				pvm_recv(-1, 99);
				pvm_upkint(&value, 1, 1);
				result = value == b ? 0 : -1;
			}
		} else if (!strcmp(command, "addhost")) {
			result = pvm_addhosts(&group, 1, &a);
			result = result == 1 && a > 0 ? 0 : a;
		} else if (!strcmp(command, "context")) {
			result = pvm_getcontext();
		} else if (!strcmp(command, "exit")) {
			result = pvm_exit();
		} else if (!strcmp(command, "call")) {
			/* A reducer alone: call function type x y */
			int one = 1, info = 99;
			sscanf(line, "%*s %31s %d %d %d", word, &a, &b, &c);
			fill(longs, a, 1, b);
			fill(results, a, 1, c);
			function(word)(&a, longs, results, &one, &info);
			printf("%d:", info);
			show(longs, a, 1);
			printf("\n");
			fflush(stdout);
			continue;
		} else if (!strcmp(command, "bye")) {
			break;
		} else {
			printf("what is %s?\n", command);
			fflush(stdout);
			continue;
		}
		printf("%d %d\n", result, pvm_errno);
		fflush(stdout);
	}
	pvm_exit();
	return 0;
}
