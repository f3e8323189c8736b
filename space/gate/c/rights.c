/* rights.c - calls that change a task's rights, and its death signal.
 *
 * A task's owner has it killed at the owner's end by its death signal (PR_SET_PDEATHSIG). The
 * kernel clears that signal of a thread whose effective or file-system IDs change, or which gets
 * a capability. So the gate makes these calls, and then sets the signal again. The program's own
 * PR_SET_PDEATHSIG must not replace it: its value is stored, and only reported.
 *
 * A task that gives up rights for good would keep what they gave access to: the memory of tasks
 * that still have them. So such calls are refused with EPERM, unless NAGAYA_KEEP_ACCESS was set for
 * the space. A change that the task can undo passes, such as seteuid. So do changes of what only
 * execve uses (bounding and ambient set, no_new_privs), since a task leaves the space there. */
#include "gate.h"

#define SIGNAL_MAX 64
#define CAPABILITIES_1 0x19980330u /* _LINUX_CAPABILITY_VERSION_1 .. 3 */
#define CAPABILITIES_2 0x20071026u
#define CAPABILITIES_3 0x20080522u
#define CAP_SETGID 6
#define CAP_SETUID 7
#define CLONE_NEWUSER 0x10000000u
#define NS_GET_NSTYPE 0xb703
#define F_GETFD 1
#define GROUPS_MAX 65536u
#define KEEP 0xffffffffu /* an ID that is not to change */

struct ids {
	u32 real, effective, saved;
};

static int has(const struct ids *ids, u32 id)
{
	return ids->real == id || ids->effective == id || ids->saved == id;
}

struct capabilities {
	u64 effective, permitted;
};

static struct capabilities capabilities(void)
{
	u32 header[2] = {CAPABILITIES_3, 0}, data[6] = {0};
	raw3(SYS_capget, header, data, 0);
	return (struct capabilities){data[0] | (u64)data[3] << 32, data[1] | (u64)data[4] << 32};
}

/* Returns true if the kernel permits the change of `ids`, and what it makes of them. */
static int change(const struct regs *r, int privileged, struct ids *ids)
{
	const struct ids old = *ids;
	u32 a = r->a1, b = r->a2, c = r->a3;
	switch (r->nr) {
	case SYS_setuid:
	case SYS_setgid:
		ids->effective = a;
		if (privileged)
			ids->real = ids->saved = a;
		return a != KEEP && (privileged || has(&old, a));
	case SYS_setreuid:
	case SYS_setregid:
		if (a != KEEP)
			ids->real = a;
		if (b != KEEP)
			ids->effective = b;
		if (a != KEEP || (b != KEEP && b != old.real))
			ids->saved = ids->effective;
		break;
	case SYS_setresuid:
	case SYS_setresgid:
		if (a != KEEP)
			ids->real = a;
		if (b != KEEP)
			ids->effective = b;
		if (c != KEEP)
			ids->saved = c;
		break;
	default: /* setfsuid, setfsgid: can be undone */
		return 0;
	}
	return privileged || (has(&old, ids->real) && has(&old, ids->effective) && has(&old, ids->saved));
}

/* Returns true if the task could not get the owner's user or group back. A task that has another
 * one already must keep its real ID. */
static int loses_id(const struct regs *r)
{
	int is_user = r->nr == SYS_setuid || r->nr == SYS_setreuid || r->nr == SYS_setresuid;
	u64 bit = 1ul << (is_user ? CAP_SETUID : CAP_SETGID);
	u32 owner = is_user ? space.uid : space.gid;
	struct ids ids = {0};
	raw3(is_user ? SYS_getresuid : SYS_getresgid, &ids.real, &ids.effective, &ids.saved);
	u32 kept = has(&ids, owner) ? owner : ids.real;
	return change(r, (capabilities().effective & bit) != 0, &ids) && !has(&ids, kept);
}

/* Returns true if setgroups would remove a supplementary group. */
static int loses_group(const struct regs *r)
{
	long count = raw1(SYS_getgroups, 0);
	u32 wanted = r->a1;
	int loses = 0;
	if (count <= 0 || wanted > GROUPS_MAX || !(capabilities().effective >> CAP_SETGID & 1))
		return 0; /* nothing to lose, or the kernel refuses it */
	u64 size = align_up((count + wanted) * sizeof(u32), PAGE);
	u32 *groups = (u32 *)raw6(SYS_mmap, 0, size, PROT_READ | PROT_WRITE,
	                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (is_error(groups))
		return 1;
	u32 *new = groups + count;
	if (raw3(SYS_getgroups, count, groups, 0) == count &&
	    !safe_copy(new, (void *)r->a2, wanted * sizeof *new)) {
		for (long i = 0; i < count && !loses; i++) {
			u32 at = 0;
			while (at < wanted && new[at] != groups[i])
				at++;
			loses = at == wanted;
		}
	}
	raw3(SYS_munmap, groups, size, 0);
	return loses;
}

/* Returns true if capset would remove a permitted capability. */
static int loses_capability(const struct regs *r)
{
	u32 header[2], data[6] = {0};
	if (safe_copy(header, (void *)r->a1, sizeof header) ||
	    (header[0] != CAPABILITIES_1 && header[0] != CAPABILITIES_2 && header[0] != CAPABILITIES_3) ||
	    safe_copy(data, (void *)r->a2, header[0] == CAPABILITIES_1 ? 12 : sizeof data))
		return 0; /* the kernel refuses it */
	return (capabilities().permitted & ~(data[1] | (u64)data[4] << 32)) != 0;
}

/* Returns true for the descriptor of a user namespace, and flags that ask for one. */
static int is_user_namespace(const struct regs *r)
{
	u32 flags = r->nr == SYS_unshare ? r->a1 : r->a2;
	return (flags & CLONE_NEWUSER) || (r->nr == SYS_setns && !flags &&
	                                   raw3(SYS_ioctl, r->a1, NS_GET_NSTYPE, 0) == CLONE_NEWUSER);
}

static int loses(const struct regs *r)
{
	switch (r->nr) {
	case SYS_setgroups: return loses_group(r);
	case SYS_capset: return loses_capability(r);
	case SYS_unshare: /* capabilities count in the new namespace only */
	case SYS_setns: return is_user_namespace(r) && capabilities().permitted;
	case SYS_landlock_restrict_self: return raw3(SYS_fcntl, r->a1, F_GETFD, 0) >= 0;
	}
	return loses_id(r);
}

static const char *name_of(u64 nr)
{
	switch (nr) {
	case SYS_setuid: return "setuid";
	case SYS_setgid: return "setgid";
	case SYS_setreuid: return "setreuid";
	case SYS_setregid: return "setregid";
	case SYS_setresuid: return "setresuid";
	case SYS_setresgid: return "setresgid";
	case SYS_setgroups: return "setgroups";
	case SYS_capset: return "capset";
	case SYS_unshare: return "unshare(CLONE_NEWUSER)";
	case SYS_setns: return "setns to a user namespace";
	case SYS_landlock_restrict_self: return "landlock_restrict_self";
	}
	return "seccomp";
}

/* Begins a line to standard error: "nagaya: PROGRAM: ". */
char *put_program(char *to, const struct task *t)
{
	enum { EXE_SHOWN = 160 };
	to = put_text(to, "nagaya: ");
	for (int i = 0; i < EXE_SHOWN && t->exe[i]; i++)
		*to++ = t->exe[i];
	return put_text(to, ": ");
}

/* Refuses a call that gives up rights, with one line for each task. */
enum verdict refuse_loss(struct task *t, struct regs *r)
{
	char line[512], *end = put_program(line, t);
	end = put_text(end, name_of(r->nr));
	end = put_text(end, " is refused: the task would keep access to the memory of tasks that keep "
	                    "their rights. Run the program as an ordinary process, or permit this by "
	                    "NAGAYA_KEEP_ACCESS=1 in the environment of the job\n");
	if (!__atomic_exchange_n(&t->loss_reported, 1, __ATOMIC_RELAXED))
		raw3(SYS_write, 2, line, end - line);
	return answer(r, -EPERM);
}

/* Sets the death signal of the calling thread again, if the kernel has cleared it. */
static void keep_death_signal(struct task *t)
{
	u32 now = 0;
	if (!t->death_signal || raw3(SYS_prctl, PR_GET_PDEATHSIG, &now, 0) || now)
		return;
	__atomic_store_n(&t->own_death_signal, 0, __ATOMIC_RELAXED);
	raw3(SYS_prctl, PR_SET_PDEATHSIG, t->death_signal, 0);
	/* The owner may have ended in between. A filter may forbid to look. */
	long parent = raw1(SYS_getppid, 0);
	if (!is_error(parent) && parent != t->parent)
		raw3(SYS_kill, t->pid, t->death_signal, 0);
}

/* setuid and its relatives, setgroups, capset, unshare, setns, landlock_restrict_self. */
enum verdict gate_rights(struct task *t, struct regs *r)
{
	/* The child of a fork is no task, and that of a vfork will exec. */
	if (t->detached || raw1(SYS_getpid, 0) != t->pid)
		return PASS;
	if (!space.keep_access && loses(r))
		return refuse_loss(t, r);
	r->nr = raw3(r->nr, r->a1, r->a2, r->a3);
	keep_death_signal(t);
	return DONE;
}

/* prctl(PR_SET_PDEATHSIG) and prctl(PR_GET_PDEATHSIG). */
enum verdict gate_death_signal(struct task *t, struct regs *r)
{
	if (t->detached || !t->death_signal || raw1(SYS_getpid, 0) != t->pid)
		return PASS;
	if (r->a1 == PR_SET_PDEATHSIG) {
		if (r->a2 > SIGNAL_MAX)
			return answer(r, -EINVAL);
		__atomic_store_n(&t->own_death_signal, r->a2, __ATOMIC_RELAXED);
		return answer(r, 0);
	}
	u32 signal = __atomic_load_n(&t->own_death_signal, __ATOMIC_RELAXED);
	return answer(r, safe_copy((void *)r->a2, &signal, sizeof signal) ? -EFAULT : 0);
}
