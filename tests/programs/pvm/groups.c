/* Groups: instances, barriers with right and wrong counts, collective calls of all types and
 * operations, frozen groups. */
#include "say.h"

enum { N = 4 };

static int inst, talks;

#define SAY(...) do { if (talks) say(__VA_ARGS__); } while (0)

static void own(int *type, void *x, void *y, int *count, int *info)
{
	int *a = x, *b = y, i;

	for (i = 0; i < *count; i++)
		a[i] = a[i] * 10 + b[i] + *type * 0;
	*info = PvmOk;
}

/* Sum, product, minimum and maximum of each type. */
static void reduce(int tag)
{
	static void (*const functions[])(int *, void *, void *, int *, int *) = {
		PvmSum, PvmProduct, PvmMin, PvmMax
	};
	static const char *const names[] = { "sum", "product", "min", "max" };
	int f, type, result, a, b;

	for (f = 0; f < 4; f++) {
		for (type = 0; type <= 11; type++) {
			union {
				char bytes[2];
				short shorts[2];
				int ints[2];
				float floats[4];
				double doubles[4];
				long longs[2];
				unsigned short ushorts[2];
				unsigned uints[2];
				unsigned long ulongs[2];
			} d;

			memset(&d, 0, sizeof d);
			a = inst + 2;
			b = inst % 2 ? -3 : 2;
			switch (type) {
			case PVM_BYTE: d.bytes[0] = (char)a; d.bytes[1] = (char)b; break;
			case PVM_SHORT: d.shorts[0] = (short)a; d.shorts[1] = (short)b; break;
			case PVM_INT: d.ints[0] = a; d.ints[1] = b; break;
			case PVM_FLOAT: d.floats[0] = a; d.floats[1] = b; break;
			case PVM_CPLX: d.floats[0] = a; d.floats[1] = b; d.floats[2] = b; d.floats[3] = 1; break;
			case PVM_DOUBLE: d.doubles[0] = a; d.doubles[1] = b; break;
			case PVM_DCPLX: d.doubles[0] = a; d.doubles[1] = b; d.doubles[2] = b; d.doubles[3] = 1; break;
			case PVM_LONG: d.longs[0] = a; d.longs[1] = b; break;
			case PVM_USHORT: d.ushorts[0] = (unsigned short)a; d.ushorts[1] = 7; break;
			case PVM_UINT: d.uints[0] = (unsigned)a; d.uints[1] = 7; break;
			case PVM_ULONG: d.ulongs[0] = (unsigned long)a; d.ulongs[1] = 7; break;
			}
			result = pvm_reduce(functions[f], &d, 2, type, tag + 20 * f + type, "team", 0);
			if (result < 0) {
				SAY("%s of type %d: %s", names[f], type, code(result));
				pvm_barrier("team", N);
				continue;
			}
			switch (type) {
			case PVM_BYTE: SAY("%s bytes %d %d", names[f], d.bytes[0], d.bytes[1]); break;
			case PVM_SHORT: SAY("%s shorts %d %d", names[f], d.shorts[0], d.shorts[1]); break;
			case PVM_INT: SAY("%s ints %d %d", names[f], d.ints[0], d.ints[1]); break;
			case PVM_FLOAT: SAY("%s floats %g %g", names[f], d.floats[0], d.floats[1]); break;
			case PVM_CPLX:
				SAY("%s cplx %g %g %g %g", names[f], d.floats[0], d.floats[1],
				    d.floats[2], d.floats[3]);
				break;
			case PVM_DOUBLE: SAY("%s doubles %g %g", names[f], d.doubles[0], d.doubles[1]); break;
			case PVM_DCPLX:
				SAY("%s dcplx %g %g %g %g", names[f], d.doubles[0], d.doubles[1],
				    d.doubles[2], d.doubles[3]);
				break;
			case PVM_LONG: SAY("%s longs %ld %ld", names[f], d.longs[0], d.longs[1]); break;
			case PVM_USHORT: SAY("%s ushorts %u %u", names[f], d.ushorts[0], d.ushorts[1]); break;
			case PVM_UINT: SAY("%s uints %u %u", names[f], d.uints[0], d.uints[1]); break;
			case PVM_ULONG: SAY("%s ulongs %lu %lu", names[f], d.ulongs[0], d.ulongs[1]); break;
			}
			pvm_barrier("team", N);
		}
	}
}

static void collective(void)
{
	int mine[3] = { inst, 10 * inst, 100 * inst }, all[3 * N], part[3], root, i, one;
	static int large[5000], gathered[5000 * N];

	for (root = 0; root < N; root += N - 1) {
		memset(all, 0xff, sizeof all);
		i = pvm_gather(all, mine, 3, PVM_INT, 100 + root, "team", root);
		SAY("gather at %d %s", root, code(i));
		if (inst == root)
			for (i = 1; i < N; i++)
				if (all[3 * i + 2] != 100 * i)
					tell(pvm_gettid("team", 0), 99, all[3 * i + 2]);
		for (i = 0; i < 3 * N; i++)
			all[i] = 1000 * root + i;
		i = pvm_scatter(part, all, 3, PVM_INT, 110 + root, "team", root);
		SAY("scatter from %d %s: %d %d %d", root, code(i), part[0], part[1], part[2]);
		pvm_barrier("team", N);
	}
	SAY("nothing was wrong %s", yes(pvm_nrecv(-1, 99) == 0));
	for (i = 0; i < 5000; i++)
		large[i] = inst * 5000 + i;
	pvm_gather(gathered, large, 5000, PVM_INT, 120, "team", 0);
	for (i = 0; talks && i < 5000 * N && gathered[i] == i; i++)
		;
	SAY("a large gather %d", i);
	one = inst + 1;
	i = pvm_reduce(own, &one, 1, PVM_INT, 121, "team", 2);
	SAY("own function %s", code(i));
	pvm_barrier("team", N);
}

/* Outsiders, and groups that do not exist. */
static void bad(void)
{
	int data[N] = { 1 }, tid = pvm_mytid();

	say("join without name %s", code(pvm_joingroup("")));
	say("join of NULL %s", code(pvm_joingroup(NULL)));
	say("leave unknown %s", code(pvm_lvgroup("unknown")));
	say("leave without name %s", code(pvm_lvgroup("")));
	say("size of unknown %s", code(pvm_gsize("unknown")));
	say("size without name %s", code(pvm_gsize("")));
	say("inst in unknown %s", code(pvm_getinst("unknown", tid)));
	say("inst without name %s", code(pvm_getinst("", tid)));
	say("tid in unknown %s", code(pvm_gettid("unknown", 0)));
	say("barrier of unknown %s", code(pvm_barrier("unknown", 1)));
	say("barrier without name %s", code(pvm_barrier("", 1)));
	pvm_initsend(PvmDataDefault);
	say("bcast to unknown %s", code(pvm_bcast("unknown", 1)));
	say("bcast without name %s", code(pvm_bcast("", 1)));
	say("gather of unknown %s", code(pvm_gather(data, data, 1, PVM_INT, 1, "unknown", 0)));
	say("scatter of unknown %s", code(pvm_scatter(data, data, 1, PVM_INT, 1, "unknown", 0)));
	say("reduce of unknown %s", code(pvm_reduce(PvmSum, data, 1, PVM_INT, 1, "unknown", 0)));
	say("freeze unknown %s", code(pvm_freezegroup("unknown", 1)));
}

static void alone(void)
{
	int data[2] = { 5, 6 }, result[2] = { 0, 0 }, me = pvm_mytid();

	say("joined as %d", pvm_joingroup("alone"));
	say("joined again %s", code(pvm_joingroup("alone")));
	say("size %d", pvm_gsize("alone"));
	say("instance %d", pvm_getinst("alone", me));
	say("tid %s", yes(pvm_gettid("alone", 0) == me));
	say("instance 1 %s", code(pvm_gettid("alone", 1)));
	say("instance -1 %s", code(pvm_gettid("alone", -1)));
	say("of nobody %s", code(pvm_getinst("alone", NOBODY)));
	say("barrier of 1 %s", code(pvm_barrier("alone", 1)));
	say("barrier of 0 %s", code(pvm_barrier("alone", 0)));
	say("barrier of all %s", code(pvm_barrier("alone", -1)));
	say("gather %s", code(pvm_gather(result, data, 2, PVM_INT, 3, "alone", 0)));
	say("%d %d", result[0], result[1]);
	say("gather at 1 %s", code(pvm_gather(result, data, 2, PVM_INT, 3, "alone", 1)));
	say("gather of -1 %s", code(pvm_gather(result, data, -1, PVM_INT, 3, "alone", 0)));
	say("gather of type 99 %s", code(pvm_gather(result, data, 2, 99, 3, "alone", 0)));
	say("scatter %s", code(pvm_scatter(result, data, 1, PVM_INT, 3, "alone", 0)));
	say("scatter from 1 %s", code(pvm_scatter(result, data, 1, PVM_INT, 3, "alone", 1)));
	say("reduce %s", code(pvm_reduce(PvmSum, data, 2, PVM_INT, 3, "alone", 0)));
	say("reduce at 1 %s", code(pvm_reduce(PvmSum, data, 2, PVM_INT, 3, "alone", 1)));
	say("reduce of -1 %s", code(pvm_reduce(PvmSum, data, -1, PVM_INT, 3, "alone", 0)));
	say("reduce of strings %s", code(pvm_reduce(PvmSum, data, 2, PVM_STR, 3, "alone", 0)));
	say("reduce without function %s", code(pvm_reduce(NULL, data, 2, PVM_INT, 3, "alone", 0)));
	pvm_initsend(PvmDataDefault);
	say("bcast to oneself %s", code(pvm_bcast("alone", 5)));
	say("it does not come %s", yes(within(50, -1, 5) == 0));
	say("left %s", code(pvm_lvgroup("alone")));
	say("left again %s", code(pvm_lvgroup("alone")));
	say("size %s", code(pvm_gsize("alone")));
	say("joined anew as %d", pvm_joingroup("alone"));
	pvm_lvgroup("alone");
}

/* The part of all members; instance 0 prints. */
static void team(void)
{
	int tids[N], i, n;

	n = pvm_barrier("team", N);
	SAY("barrier %s", code(n));
	for (i = 0; i < N; i++)
		tids[i] = pvm_gettid("team", i);
	SAY("size %d, first is me %s", pvm_gsize("team"), yes(tids[0] == pvm_mytid()));
	for (i = n = 0; i < N; i++)
		n += pvm_getinst("team", tids[i]) == i;
	SAY("instances %d", n);
	/* A broadcast of the first. */
	if (talks) {
		pvm_initsend(PvmDataDefault);
		n = 7;
		pvm_pkint(&n, 1, 1);
		say("bcast %s", code(pvm_bcast("team", 30)));
		for (i = 1; i < N; i++)
			say("answer %d", hear(tids[i], 31));
	} else {
		tell(tids[0], 31, hear(tids[0], 30) + inst);
	}
	pvm_barrier("team", N);
	for (i = 0; i < 100; i++)
		n = pvm_barrier("team", N);
	SAY("barriers %s", code(n));
	collective();
	reduce(200);
}

/* A barrier for two of four, wrong counts, a member that leaves, places that are filled. */
static void changes(int parent)
{
	int n;

	if (inst < 2) {
		n = pvm_barrier("team", 2);
		SAY("barrier of two %s", code(n));
	}
	if (inst == 3)
		n = pvm_lvgroup("team");
	pvm_barrier("all", N);
	SAY("size %d", pvm_gsize("team"));
	SAY("instance 3 %s", code(pvm_gettid("team", 3)));
	pvm_barrier("all", N);
	if (inst == 1)
		n = pvm_lvgroup("team");
	pvm_barrier("all", N);
	SAY("size %d", pvm_gsize("team"));
	SAY("instance 1 %s", code(pvm_gettid("team", 1)));
	pvm_barrier("all", N);
	if (inst == 3)
		tell(pvm_gettid("team", 0), 40, pvm_joingroup("team"));
	if (talks)
		say("who joins gets %d", hear(-1, 40));
	pvm_barrier("all", N);
	if (inst == 1)
		tell(pvm_gettid("team", 0), 40, pvm_joingroup("team"));
	if (talks)
		say("who joins gets %d", hear(-1, 40));
	pvm_barrier("all", N);
	/* Frozen. */
	n = pvm_freezegroup("team", N);
	SAY("frozen %s", code(n));
	SAY("size %d", pvm_gsize("team"));
	n = pvm_barrier("team", N);
	SAY("barrier of a frozen group %s", code(n));
	n = pvm_lvgroup("team");
	SAY("left a frozen group %s", code(n));
	pvm_barrier("all", N);
	(void)parent;
}

int main(void)
{
	int parent = enroll(), tids[N], i, tag = 77;

	if (parent < 0) {
		bad();
		alone();
		/* The group server's tid differs, so start it before. */
		talks = 1;
		inst = pvm_joingroup("team");
		say("instance %d", inst);
		pvm_joingroup("all");
		spawn(N - 1, tids, "member");
		pvm_notify(PvmTaskExit, tag, N - 1, tids);
		for (i = 0; i < N - 1; i++) {
			/* One after the other, so that instances are known. */
			tell(tids[i], 1, 0);
			say("instance %d", hear(tids[i], 2));
		}
	} else {
		hear(parent, 1);
		inst = pvm_joingroup("team");
		pvm_joingroup("all");
		tell(parent, 2, inst);
	}
	team();
	changes(parent);
	if (talks) {
		for (i = 0; i < N - 1; i++)
			hear(-1, tag);
		/* Members that ended have left. */
		usleep(200000);
		say("size of all %d", pvm_gsize("all"));
	}
	return pvm_exit();
}
