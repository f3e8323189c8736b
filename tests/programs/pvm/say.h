/* What PVM's conformance programs share. They print what depends on neither tids, nor times,
 * nor chance, so that two implementations can be compared line by line. A program spawns
 * itself with a role as its argument; children answer by messages, for what they print goes
 * to the daemon's log. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pvm3.h>
#include <pvmtev.h>

/* No tid: a task's, and a daemon's. */
enum { NOBODY = 0x0004ffff, NOWHERE = (int)0x83fc0000 };

/* A line. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

/* A return code by its name; all positive ones look the same. */
static inline const char *code(int n)
{
	static const struct { int code; const char *name; } names[] = {
#define NAME(c) { c, #c }
		NAME(PvmOk), NAME(PvmBadParam), NAME(PvmMismatch), NAME(PvmOverflow),
		NAME(PvmNoData), NAME(PvmNoHost), NAME(PvmNoFile), NAME(PvmDenied),
		NAME(PvmNoMem), NAME(PvmBadMsg), NAME(PvmSysErr), NAME(PvmNoBuf),
		NAME(PvmNoSuchBuf), NAME(PvmNullGroup), NAME(PvmDupGroup), NAME(PvmNoGroup),
		NAME(PvmNotInGroup), NAME(PvmNoInst), NAME(PvmHostFail), NAME(PvmNoParent),
		NAME(PvmNotImpl), NAME(PvmDSysErr), NAME(PvmBadVersion), NAME(PvmOutOfRes),
		NAME(PvmDupHost), NAME(PvmCantStart), NAME(PvmAlready), NAME(PvmNoTask),
		NAME(PvmNotFound), NAME(PvmExists), NAME(PvmHostrNMstr),
		NAME(PvmParentNotSet), NAME(PvmIPLoopback),
#undef NAME
	};
	static char other[8][16];
	static int next;
	size_t i;

	for (i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].code == n)
			return names[i].name;
	if (n > 0)
		return "positive";
	next = (next + 1) % 8;
	snprintf(other[next], sizeof other[next], "%d", n);
	return other[next];
}

static inline const char *yes(int holds)
{
	return holds ? "yes" : "no";
}

/* Spawns this program `n` times in a role; ends if that fails. */
static inline void spawn(int n, int *tids, char *role)
{
	char *argv[] = { role, NULL };
	int started = pvm_spawn(program_invocation_short_name, argv, PvmTaskDefault, "", n, tids);

	if (started != n) {
		say("spawned %d of %d: %s", started, n, code(tids[0]));
		exit(1);
	}
}

/* Sends an int. */
static inline int tell(int tid, int tag, int n)
{
	pvm_initsend(PvmDataDefault);
	pvm_pkint(&n, 1, 1);
	return pvm_send(tid, tag);
}

/* Receives an int. */
static inline int hear(int tid, int tag)
{
	int n = -9999;

	pvm_recv(tid, tag);
	pvm_upkint(&n, 1, 1);
	return n;
}

/* Waits for messages of `tag` for `ms` at most; the buffer, or 0. */
static inline int within(int ms, int tid, int tag)
{
	struct timeval limit = { ms / 1000, ms % 1000 * 1000 };

	return pvm_trecv(tid, tag, &limit);
}

/* The task's parent, or -1; errors are returned, not printed. */
static inline int enroll(void)
{
	int parent;

	pvm_setopt(PvmAutoErr, 0);
	pvm_mytid();
	parent = pvm_parent();
	return parent > 0 ? parent : -1;
}
