/* family.c - fork and execve: how a task leaves the space, or a copy of it does.
 *
 * fork copies an mm, and this one is everybody's. So all segments are kept
 * MADV_DONTFORK, and the caller's own is switched to MADV_DOFORK around the call, under
 * a lock. Marking is lazy: a task that has mapped something since its last mark is
 * dirty, and the next fork marks it, so that programs that never fork pay nothing. The
 * lock holds its owner's TID; a waiter takes it over from a dead owner, and the only
 * trace of that is a segment that stays DOFORK. */
#include "gate.h"

#define CLONE_VM 0x100ul
#define MADV_DONTFORK 10
#define MADV_DOFORK 11
#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129

static void lock_forks(u32 tid)
{
	for (;;) {
		u32 holder = 0;
		if (__atomic_compare_exchange_n(&space.fork_lock, &holder, tid, 0, __ATOMIC_ACQUIRE,
		                                __ATOMIC_RELAXED))
			return;
		u64 timeout[2] = {0, 20 * 1000 * 1000};
		raw6(SYS_futex, (long)&space.fork_lock, FUTEX_WAIT_PRIVATE, holder, (long)timeout, 0, 0);
		if (__atomic_load_n(&space.fork_lock, __ATOMIC_RELAXED) == holder &&
		    raw3(SYS_tkill, holder, 0, 0) == -ESRCH)
			__atomic_compare_exchange_n(&space.fork_lock, &holder, 0, 0, __ATOMIC_RELAXED,
			                            __ATOMIC_RELAXED);
	}
}

static void unlock_forks(void)
{
	__atomic_store_n(&space.fork_lock, 0, __ATOMIC_RELEASE);
	raw3(SYS_futex, &space.fork_lock, FUTEX_WAKE_PRIVATE, 1);
}

static void mark_others(struct task *t)
{
	u32 high = __atomic_load_n(&space.tasks_high, __ATOMIC_ACQUIRE);
	for (u32 id = 0; id < high; id++) {
		struct slot *s = &space.slots[id];
		if (id == t->id || !s->pid || !__atomic_exchange_n(&s->dirty, 0, __ATOMIC_ACQ_REL))
			continue;
		raw3(SYS_madvise, space.base + id * space.segment_size, space.segment_size, MADV_DONTFORK);
	}
}

enum verdict gate_clone(struct task *t, struct regs *r)
{
	u64 flags = 0, stack = 0;
	if (t->detached)
		return PASS;
	if (r->nr == SYS_clone) {
		flags = r->a1;
		stack = r->a2;
	} else if (r->nr == SYS_clone3) {
		u64 args[8];
		if (r->a2 < sizeof args || safe_copy(args, (void *)r->a1, sizeof args))
			return PASS;
		flags = args[0];
		stack = args[5];
	}
	if (flags & CLONE_VM)
		return PASS; /* a thread or a vfork: shares our segment as in any process */

	u64 all = ~0ul, mask;
	raw6(SYS_rt_sigprocmask, 2, (long)&all, (long)&mask, 8, 0, 0);
	lock_forks(raw1(SYS_gettid, 0));
	mark_others(t);
	u64 size = t->segment_end - t->segment;
	raw3(SYS_madvise, t->segment, size, MADV_DOFORK);
	if (stack) {
		/* The child starts on another stack, where our frame is not: the stub must make
		 * the call. Our segment stays DOFORK until another task's fork marks it. */
		space.slots[t->id].dirty = 1;
		unlock_forks();
		raw6(SYS_rt_sigprocmask, 2, (long)&mask, 0, 8, 0, 0);
		return PASS;
	}
	long child = raw6(r->nr, r->a1, r->a2, r->a3, r->a4, r->a5, r->a6);
	if (child == 0) {
		t->detached = 1;
		t->pid = raw1(SYS_getpid, 0);
	} else {
		raw3(SYS_madvise, t->segment, size, MADV_DONTFORK);
		unlock_forks();
	}
	raw6(SYS_rt_sigprocmask, 2, (long)&mask, 0, 8, 0, 0);
	r->nr = child;
	return DONE;
}

enum verdict gate_execve(struct task *t, struct regs *r)
{
	/* Byte by byte: what lies behind a string may not be mapped, and in a vfork child
	 * the fault handler may be blocked. */
	char path[64]; /* longer than any /proc/PID/exe */
	u64 *argument = r->nr == SYS_execve ? &r->a1 : &r->a2, length = 0;
	while (length < sizeof path - 1 && !safe_copy(&path[length], (char *)*argument + length, 1) &&
	       path[length])
		length++;
	path[length] = 0;
	if (is_own_exe(path))
		*argument = (u64)t->exe;
	u32 pid = raw1(SYS_getpid, 0);
	if (t->detached || pid != t->pid)
		return PASS;
	/* The kernel takes us out of this mm; peers must not look for us here any more, and
	 * the owner takes the segment back when it sees that we have gone. */
	struct slot *s = &space.slots[t->id];
	__atomic_store_n(&space.pids[pid], 0, __ATOMIC_RELEASE);
	__atomic_store_n(&s->state, SLOT_LEAVING, __ATOMIC_RELEASE);
	raw3(SYS_tgkill, space.owner_pid, space.watcher_tid, 23 /* SIGURG */);
	r->nr = raw6(r->nr, r->a1, r->a2, r->a3, r->a4, r->a5, 0);
	__atomic_store_n(&s->state, SLOT_RUNNING, __ATOMIC_RELEASE);
	__atomic_store_n(&space.pids[pid], t->id + 1, __ATOMIC_RELEASE);
	return DONE;
}
