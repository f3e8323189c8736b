/* filter.c - seccomp filters that a task installs.
 *
 * For some calls of the program the gate makes others: madvise after mmap, so that forks of
 * other tasks do not copy the memory; mmap for brk. A filter that allows the first and forbids
 * the second would kill the task at its next mmap. So the gate evaluates each filter before it
 * passes it to the kernel.
 *
 * It has to be permitted by NAGAYA_KEEP_ACCESS at all: a filter takes nothing from a task that the
 * other tasks still have; see rights.c.
 *
 * Without madvise, private segments still work: forks of other tasks then copy this segment,
 * which costs them time. All other such filters are refused, with one line. */
#include "gate.h"

#define SECCOMP_MODE_STRICT 1
#define SECCOMP_MODE_FILTER 2
#define SECCOMP_SET_MODE_STRICT 0
#define SECCOMP_SET_MODE_FILTER 1
#define SECCOMP_RET_ACTION 0xffff0000u
#define SECCOMP_RET_LOG 0x7ffc0000u
#define SECCOMP_RET_ALLOW 0x7fff0000u
#define AUDIT_ARCH_X86_64 0xc000003eu
#define MADV_REMOVE 9
#define MADV_DONTFORK 10
#define MADV_DOFORK 11
#define INSTRUCTIONS_MAX 4096

/* struct sock_filter, sock_fprog, seccomp_data of the kernel. */
struct instruction {
	u16 code;
	u8 if_true, if_false;
	u32 k;
};
struct program {
	u16 length;
	const struct instruction *at;
};
struct call {
	u32 nr, arch;
	u64 at, arguments[6];
};

static u32 compute(u16 operation, u32 a, u32 b)
{
	switch (operation) {
	case 0x00: return a + b;
	case 0x10: return a - b;
	case 0x20: return a * b;
	case 0x30: return a / b; /* `b` is not 0 */
	case 0x40: return a | b;
	case 0x50: return a & b;
	case 0x60: return a << (b & 31);
	case 0x70: return a >> (b & 31);
	case 0x80: return -a;
	}
	return a ^ b; /* 0xa0 */
}

static int jumps(u16 operation, u32 a, u32 b)
{
	switch (operation) {
	case 0x10: return a == b;
	case 0x20: return a > b;
	case 0x30: return a >= b;
	}
	return (a & b) != 0; /* 0x40 */
}

/* Classic BPF. Returns the filter's value for this call; 0, which kills, if it is malformed
 * (the kernel then refuses it). */
static u32 evaluate(const struct program *program, const struct call *call)
{
	const u32 *words = (const u32 *)call;
	u32 a = 0, x = 0, memory[16] = {0};
	struct instruction i;
	for (u32 at = 0; at < program->length && at < INSTRUCTIONS_MAX; at++) {
		if (safe_copy(&i, &program->at[at], sizeof i))
			return 0;
		u32 operand = i.code & 8 ? x : i.k, operation = i.code & 0xf0;
		switch (i.code & 7) {
		case 0: case 1: { /* ld, ldx: by mode */
			u32 value = i.k;
			if ((i.code & 0xe0) == 0x20)
				value = i.k < sizeof *call ? words[i.k / 4] : 0;
			else if ((i.code & 0xe0) == 0x60)
				value = memory[i.k & 15];
			else if ((i.code & 0xe0) == 0x80)
				value = sizeof *call;
			if (i.code & 1)
				x = value;
			else
				a = value;
			break;
		}
		case 2: memory[i.k & 15] = a; break;
		case 3: memory[i.k & 15] = x; break;
		case 4:
			if (operation == 0x30 && !operand)
				return 0; /* as in the kernel */
			a = compute(operation, a, operand);
			break;
		case 5:
			if (!operation && i.k >= program->length)
				return 0; /* the sum could wrap around, and lead back */
			at += !operation ? i.k : jumps(operation, a, operand) ? i.if_true : i.if_false;
			break;
		case 6: return i.code & 0x10 ? a : i.k;
		default: /* tax, txa */
			if (i.code & 0x80)
				a = x;
			else
				x = a;
		}
	}
	return 0;
}

static int allows(const struct program *program, u32 nr, u64 a1, u64 a2, u64 a3)
{
	struct call call = {nr, AUDIT_ARCH_X86_64, (u64)gate_entry, {a1, a2, a3, 0, 0, 0}};
	if (nr == SYS_mmap)
		call.arguments[3] = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	u32 action = evaluate(program, &call) & SECCOMP_RET_ACTION;
	return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
}

/* A call of programs, and one that the gate makes for it. */
struct need {
	u32 of, needed;
	char of_name[12], name[12];
	int shared_only;
};

static void report(struct task *t, const struct need *need)
{
	char line[512], *end = put_program(line, t);
	end = put_text(end, "its seccomp filter is refused: it allows ");
	end = put_text(end, need->of_name);
	end = put_text(end, " without ");
	end = put_text(end, need->name);
	end = put_text(end, ", by which a task's ");
	end = put_text(end, need->of_name);
	end = put_text(end, need->shared_only ? " works in shared segments. Allow " : " works. Allow ");
	end = put_text(end, need->name);
	end = put_text(end, need->shared_only
	                        ? ", or run the program without PVAS_SHARED and --domains\n"
	                        : ", or run the program as an ordinary process\n");
	raw3(SYS_write, 2, line, end - line);
}

/* Returns true if the task can live with the filter. setuid needs what rights.c makes. */
static int check(struct task *t, const struct program *program)
{
	static const struct need needs[] = {
		{SYS_brk, SYS_mmap, "brk", "mmap", 0},
		{SYS_brk, SYS_munmap, "brk", "munmap", 0},
		{SYS_mremap, SYS_mmap, "mremap", "mmap", 0},
		{SYS_mremap, SYS_munmap, "mremap", "munmap", 0},
		{SYS_shmat, SYS_shmctl, "shmat", "shmctl", 0},
		{SYS_setuid, SYS_getpid, "setuid", "getpid", 0},
		{SYS_setuid, SYS_getppid, "setuid", "getppid", 0},
		{SYS_setuid, SYS_prctl, "setuid", "prctl", 0},
		{SYS_setresuid, SYS_getpid, "setresuid", "getpid", 0},
		{SYS_setresuid, SYS_getppid, "setresuid", "getppid", 0},
		{SYS_setresuid, SYS_prctl, "setresuid", "prctl", 0},
		{SYS_brk, SYS_mremap, "brk", "mremap", 1},
		{SYS_mmap, SYS_mremap, "mmap", "mremap", 1},
		{SYS_mmap, SYS_mprotect, "mmap", "mprotect", 1},
		{SYS_munmap, SYS_madvise, "munmap", "madvise", 1},
		{SYS_mmap, SYS_madvise, "mmap", "madvise", 1},
	};
	u64 at = t->mmap_start;
	for (u32 i = 0; i < sizeof needs / sizeof *needs; i++) {
		const struct need *n = &needs[i];
		u64 first = n->needed == SYS_prctl ? PR_SET_PDEATHSIG : at;
		u64 last = n->needed == SYS_madvise ? MADV_REMOVE : PROT_READ | PROT_WRITE;
		if ((!n->shared_only || has_shared(t)) &&
		    allows(program, n->of, at, PAGE, PROT_READ | PROT_WRITE) &&
		    !allows(program, n->needed, first, PAGE, last)) {
			report(t, n);
			return 0;
		}
	}
	return 1;
}

/* seccomp, and prctl with PR_SET_SECCOMP. */
enum verdict gate_seccomp(struct task *t, struct regs *r)
{
	struct program program;
	int is_prctl = r->nr == SYS_prctl;
	u64 mode = is_prctl ? r->a2 : r->a1;
	int is_filter = mode == (is_prctl ? SECCOMP_MODE_FILTER : SECCOMP_SET_MODE_FILTER);
	int is_strict = is_prctl ? mode == SECCOMP_MODE_STRICT
	                         : mode == SECCOMP_SET_MODE_STRICT && !r->a2 && !r->a3;
	/* The child of a fork has memory of its own. That of a vfork will exec. */
	if ((!is_filter && !is_strict) || t->detached || raw1(SYS_getpid, 0) != t->pid)
		return PASS;
	if (is_filter && safe_copy(&program, (void *)r->a3, sizeof program))
		return PASS; /* libraries test by a bad address for what the kernel can do */
	if (!space.keep_access)
		return refuse_loss(t, r);
	if (is_strict)
		return PASS;
	if (!check(t, &program))
		return answer(r, -EPERM);
	if (!allows(&program, SYS_madvise, t->mmap_start, PAGE, MADV_DONTFORK) ||
	    !allows(&program, SYS_madvise, t->mmap_start, PAGE, MADV_DOFORK)) {
		/* The flag comes first: later mappings are not marked. */
		__atomic_store_n(&t->no_madvise, 1, __ATOMIC_SEQ_CST);
		if (!has_shared(t))
			allow_forks(t);
	}
	return PASS;
}
