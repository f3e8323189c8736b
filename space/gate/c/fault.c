/* fault.c - SIGSEGV and SIGBUS, which the gate must handle before the program does.
 *
 * A copy in user space meets the bad addresses that the kernel would answer with EFAULT. So
 * the kernel's handler for these two signals is always the gate's. The program's action is
 * stored in its control block, returned on request, and called with the program's flags,
 * mask and stack. A fault without a handler is repeated with the default action, so status
 * and core file are the right ones. */
#include "gate.h"

#define SIG_DFL 0
#define SIG_IGN 1
#define SA_SIGINFO 4ul
#define SA_RESTORER 0x04000000ul
#define SA_ONSTACK 0x08000000ul
#define SA_RESETHAND 0x80000000ul

#define UCONTEXT_RIP 21 /* 64-bit words into ucontext_t: uc_mcontext.gregs[REG_RIP] */

static int index_of(int signal)
{
	return signal == 11 ? 0 : 1;
}

/* Returns the action to install in the kernel when the program wants `wanted`. */
static struct ksigaction kernel_action(struct task *t, struct ksigaction wanted)
{
	struct ksigaction k = wanted;
	if (wanted.handler <= SIG_IGN) {
		k.flags = SA_ONSTACK;
		k.mask = 0;
	}
	if (!(k.flags & SA_RESTORER))
		k.restorer = (u64)gate_restore;
	k.flags = (k.flags & ~SA_RESETHAND) | SA_SIGINFO | SA_RESTORER;
	k.handler = t->thunk;
	return k;
}

static long set_action(int signal, struct ksigaction *action, struct ksigaction *old)
{
	return raw6(SYS_rt_sigaction, signal, (long)action, (long)old, 8, 0, 0);
}

static const int fault_signals[2] = {11, 7};

/* Called once in the new task by its starter, with the inherited actions in place. */
void gate_faults_init(struct task *t)
{
	for (int i = 0; i < 2; i++) {
		struct ksigaction now = {SIG_DFL, 0, 0, 0};
		set_action(fault_signals[i], 0, &now);
		t->fault_actions[i] = (struct ksigaction){now.handler == SIG_IGN, 0, 0, 0};
	}
	gate_faults_restore(t);
}

void gate_faults_restore(struct task *t)
{
	for (int i = 0; i < 2; i++) {
		struct ksigaction k = kernel_action(t, t->fault_actions[i]);
		set_action(fault_signals[i], &k, 0);
	}
}

/* exec keeps ignored signals ignored, and gives caught ones their default action. */
void gate_faults_before_exec(struct task *t)
{
	for (int i = 0; i < 2; i++) {
		struct ksigaction now, ignore = {SIG_IGN, SA_RESTORER, (u64)gate_restore, 0};
		if (t->fault_actions[i].handler == SIG_IGN && !set_action(fault_signals[i], 0, &now) &&
		    now.handler == t->thunk)
			set_action(fault_signals[i], &ignore, 0);
	}
}

enum verdict gate_sigaction(struct task *t, struct regs *r)
{
	int signal = r->a1;
	if (r->a4 != 8)
		return PASS;
	if (signal != 11 && signal != 7)
		return gate_other_sigaction(t, r);
	if (raw1(SYS_getpid, 0) != t->pid)
		return PASS; /* a vfork child has a signal table of its own */
	struct ksigaction *shadow = &t->fault_actions[index_of(signal)], old = *shadow, wanted;
	if (r->a2) {
		if (safe_copy(&wanted, (void *)r->a2, sizeof wanted)) {
			r->nr = -EFAULT;
			return DONE;
		}
		struct ksigaction k = kernel_action(t, wanted);
		*shadow = wanted;
		set_action(signal, &k, 0);
	}
	r->nr = r->a3 && safe_copy((void *)r->a3, &old, sizeof old) ? -EFAULT : 0;
	return DONE;
}

/* Limits the core file to the dying task's segment. The owner's watcher removes the marks
 * when the task has ended. */
static void dump_only(struct task *t)
{
	if (t->detached || t->no_madvise)
		return;
	__atomic_store_n(&space.dump_marks, 1, __ATOMIC_SEQ_CST);
	for (u32 id = 0; id < space.tasks_high; id++)
		if (id != t->id && space.slots[id].pid)
			raw3(SYS_madvise, space.base + id * space.segment_size, space.segment_size,
			     16 /* MADV_DONTDUMP */);
	raw3(SYS_madvise, t->segment, t->segment_end - t->segment, 17 /* MADV_DODUMP */);
}

/* Returns the program's handler to run, or 0 to return from the signal. */
u64 gate_fault(int signal, int *info, u64 *context,
                                                     struct task *t)
{
	int code = info[2];
	u64 at = context[UCONTEXT_RIP] - (u64)gate_head;
	for (const u32 *range = copy_faults; code > 0 && *range; range += 3) {
		if (at >= range[0] && at < range[1]) {
			context[UCONTEXT_RIP] = (u64)gate_head + range[2];
			return 0;
		}
	}
	if (signal == 7 && code > 0 && far_fault(t, ((u64 *)info)[2] /* si_addr */))
		return 0;
	struct ksigaction *shadow = &t->fault_actions[index_of(signal)];
	u64 handler = shadow->handler;
	if (handler > SIG_IGN) {
		if (shadow->flags & SA_RESETHAND)
			shadow->handler = SIG_DFL;
		forget_this_thread(t); /* the signal is blocked in its handler */
		return handler;
	}
	if (handler == SIG_IGN && code <= 0)
		return 0; /* a fault kills all the same */
	struct ksigaction fatal = {SIG_DFL, SA_RESTORER, (u64)gate_restore, 0};
	dump_only(t);
	set_action(signal, &fatal, 0);
	if (code <= 0) /* sent, not caused: it will not happen again by itself */
		raw6(SYS_rt_tgsigqueueinfo, raw1(SYS_getpid, 0), raw1(SYS_gettid, 0), signal, (long)info,
		     0, 0);
	return 0;
}

/* abort, raise and the like: a signal to oneself that ends the program with a core file. */
enum verdict gate_tgkill(struct task *t, struct regs *r)
{
	const u32 dumping = 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 8 | 1u << 24 | 1u << 25 | 1u << 31;
	struct ksigaction now;
	if (r->a1 == t->pid && r->a3 < 32 && dumping >> r->a3 & 1 &&
	    !set_action(r->a3, 0, &now) && now.handler == SIG_DFL)
		dump_only(t);
	return PASS;
}
