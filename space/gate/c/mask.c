/* mask.c - the threads that are known to take SIGSEGV and SIGBUS, so a copy needs no system
 * call.
 *
 * The fault handler answers a fault in a copy, but a fault kills the process if its signal
 * is blocked, and progress threads block all signals. So a copy first unblocks the two. If
 * a thread had blocked neither, the gate records its thread pointer, until the thread does
 * something that might block them: sigprocmask, a handler for one of them, a new thread
 * with that pointer. Other handlers run with the two unblocked, whatever their sa_mask. Two
 * cases are not covered: handlers that run inside sigsuspend, ppoll and the like with a
 * mask that blocks the two, and masks that handlers write into their ucontext. */
#include "gate.h"

#define FAULT_SIGNALS (1ul << (11 - 1) | 1ul << (7 - 1)) /* SIGSEGV, SIGBUS */
#define SIG_UNBLOCK 1
#define SIG_SETMASK 2

/* Returns the table entry for a thread pointer. */
static u64 *entry_of(struct task *t, u64 pointer)
{
	return &t->takes_faults[(pointer >> 6 ^ pointer >> 12 ^ pointer >> 18) % THREADS_REMEMBERED];
}

/* Returns the calling thread's pointer, or 0 if only the kernel could provide it. */
static u64 thread_pointer(void)
{
	u64 pointer = 0;
	if (space.copy.features & COPY_FSGSBASE)
		__asm__ volatile("rdfsbase %0" : "=r"(pointer));
	return pointer;
}

void forget_thread(struct task *t, u64 pointer)
{
	u64 known = pointer;
	__atomic_compare_exchange_n(entry_of(t, pointer), &known, 0, 0, __ATOMIC_RELAXED,
	                            __ATOMIC_RELAXED);
}

void forget_this_thread(struct task *t)
{
	forget_thread(t, thread_pointer());
}

/* Makes faults safe; returns what `end_copies` wants. */
u64 begin_copies(struct task *t)
{
	u64 pointer = thread_pointer(), signals = FAULT_SIGNALS, blocked;
	if (pointer && __atomic_load_n(entry_of(t, pointer), __ATOMIC_RELAXED) == pointer)
		return 0;
	raw6(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&signals, (long)&blocked, 8, 0, 0);
	if (blocked & FAULT_SIGNALS)
		return blocked;
	__atomic_store_n(entry_of(t, pointer), pointer, __ATOMIC_RELAXED);
	return 0;
}

void end_copies(u64 blocked)
{
	if (blocked)
		raw6(SYS_rt_sigprocmask, SIG_SETMASK, (long)&blocked, 0, 8, 0, 0);
}

enum verdict gate_sigprocmask(struct task *t, struct regs *r)
{
	if (r->a2 && r->a1 != SIG_UNBLOCK)
		forget_this_thread(t);
	return PASS;
}

/* rt_sigaction of any other signal: the two signals in its sa_mask are reported back, but
 * not applied. The kernel comes first, since the pointers may be bad. */
enum verdict gate_other_sigaction(struct task *t, struct regs *r)
{
	const struct ksigaction *wanted = (void *)r->a2;
	struct ksigaction *old = (void *)r->a3;
	u64 signal = r->a1, bit = 1ul << ((signal - 1) & 63);
	u64 kept = (t->masks_fault[0] & bit ? 1ul << (11 - 1) : 0) |
	           (t->masks_fault[1] & bit ? 1ul << (7 - 1) : 0);
	struct ksigaction now = {0, 0, 0, 0};
	long result = raw6(r->nr, r->a1, r->a2, r->a3, r->a4, 0, 0);
	if (!result && wanted && wanted != old)
		now = *wanted;
	else if (!result && wanted) /* overwritten */
		raw6(r->nr, signal, 0, (long)&now, 8, 0, 0);
	/* A vfork child has its own signal table. */
	int concerns_us = !result && (kept || now.mask & FAULT_SIGNALS) &&
	                  raw1(SYS_getpid, 0) == t->pid;
	if (concerns_us && wanted) {
		struct ksigaction without = now;
		u64 mask = now.mask;
		without.mask &= ~FAULT_SIGNALS;
		if (mask & FAULT_SIGNALS)
			raw6(r->nr, signal, (long)&without, 0, 8, 0, 0);
		for (int i = 0; i < 2; i++) {
			if (mask & (i ? 1ul << (7 - 1) : 1ul << (11 - 1)))
				__atomic_fetch_or(&t->masks_fault[i], bit, __ATOMIC_RELAXED);
			else
				__atomic_fetch_and(&t->masks_fault[i], ~bit, __ATOMIC_RELAXED);
		}
	}
	if (concerns_us && old)
		old->mask |= kept;
	r->nr = result;
	return DONE;
}
