/* rights.c - calls that change a task's rights, and its death signal.
 *
 * A task's owner has it killed at the owner's end by its death signal (PR_SET_PDEATHSIG). The
 * kernel clears that signal of a thread whose effective or file-system IDs change, or which gets
 * a capability. So the gate makes these calls, and then sets the signal again. The program's own
 * PR_SET_PDEATHSIG must not replace it: its value is stored, and only reported. */
#include "gate.h"

#define PR_SET_PDEATHSIG 1
#define PR_GET_PDEATHSIG 2
#define PR_SET_SECCOMP 22
#define SIGNAL_MAX 64

/* Sets the death signal of the calling thread again, if the kernel has cleared it. */
static void keep_death_signal(struct task *t)
{
	u32 now = 0;
	if (!t->death_signal || raw3(SYS_prctl, PR_GET_PDEATHSIG, &now, 0) || now)
		return;
	/* Other threads than the first one have no such signal at first. */
	if (raw1(SYS_gettid, 0) == t->pid)
		__atomic_store_n(&t->own_death_signal, 0, __ATOMIC_RELAXED);
	raw3(SYS_prctl, PR_SET_PDEATHSIG, t->death_signal, 0);
	/* The owner may have ended in between. */
	if (raw1(SYS_getppid, 0) != t->parent)
		raw3(SYS_kill, t->pid, t->death_signal, 0);
}

/* setuid and its relatives, capset. */
enum verdict gate_rights(struct task *t, struct regs *r)
{
	/* The child of a fork is no task, and that of a vfork will exec. */
	if (t->detached || raw1(SYS_getpid, 0) != t->pid)
		return PASS;
	r->nr = raw3(r->nr, r->a1, r->a2, r->a3);
	keep_death_signal(t);
	return DONE;
}

enum verdict gate_prctl(struct task *t, struct regs *r)
{
	if (r->a1 == PR_SET_SECCOMP)
		return gate_seccomp(t, r);
	if ((r->a1 != PR_SET_PDEATHSIG && r->a1 != PR_GET_PDEATHSIG) || t->detached ||
	    !t->death_signal || raw1(SYS_getpid, 0) != t->pid)
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
