/* family.c - fork and execve: a task, or a copy of it, leaves the space.
 *
 * fork copies an mm, which here is shared by all tasks. So every mapping of a task is made
 * MADV_DONTFORK, and the caller's own segment is switched to MADV_DOFORK around the call. A
 * task changes only its own marks, so a task that is stopped or killed anywhere in here
 * delays no other. Threads of one task take turns. */
#include "gate.h"

#define CLONE_VM 0x100ul
#define CLONE_SETTLS 0x80000ul
#define MADV_DONTFORK 10
#define MADV_DOFORK 11

/* Marks a mapping that has just been made and that its maker does not know of yet. While
 * a fork of ours is under way the forking thread does it, at its end. */
void keep_from_forks(struct task *t, u64 address, u64 size)
{
	if (!t->detached && !t->no_madvise && !__atomic_load_n(&t->forking, __ATOMIC_ACQUIRE))
		raw3(SYS_madvise, address, size, MADV_DONTFORK);
}

/* MADV_DOFORK for a range that may hold device memory, which refuses it (EINVAL) and ends
 * the kernel's walk: then halve. Gaps make it ENOMEM after the rest has been done. */
static void allow_fork(u64 from, u64 to)
{
	if (raw3(SYS_madvise, from, to - from, MADV_DOFORK) != -EINVAL || to - from <= PAGE)
		return;
	u64 middle = from + align_down((to - from) / 2, PAGE);
	allow_fork(from, middle);
	allow_fork(middle, to);
}

/* Lets every fork copy the task's segment, as in any process. */
void allow_forks(struct task *t)
{
	allow_fork(t->segment, t->segment_end);
}

/* In the child of a fork, which is no task. */
void detach(struct task *t)
{
	t->detached = 1;
	t->pid = raw1(SYS_getpid, 0);
}

enum verdict gate_clone(struct task *t, struct regs *r)
{
	u64 flags = 0, stack = 0, tls = 0;
	if (t->detached)
		return PASS;
	if (r->nr == SYS_clone) {
		flags = r->a1;
		stack = r->a2;
		tls = r->a5;
	} else if (r->nr == SYS_clone3) {
		u64 args[8];
		if (r->a2 < sizeof args || safe_copy(args, (void *)r->a1, sizeof args))
			return PASS;
		flags = args[0];
		stack = args[5];
		tls = args[7];
	}
	if (flags & CLONE_SETTLS)
		forget_thread(t, tls);
	if (flags & CLONE_VM)
		return PASS; /* a thread or a vfork: shares our segment as in any process */

	u64 mask = lock(&t->fork_lock);
	u64 held = hold_mappings(t);
	ask_agent(t, ASK_BRING, t->segment, t->segment_end - t->segment);
	__atomic_store_n(&t->forking, 1, __ATOMIC_RELEASE);
	if (!t->no_madvise)
		allow_forks(t);
	int shared = has_shared(t);
	if (stack && !shared) {
		/* The child starts on another stack, without this frame, so the stub must make the
		 * call. The segment stays DOFORK until the next fork. Forks of other tasks copy it
		 * until then, which costs only time. */
		__atomic_store_n(&t->forking, 0, __ATOMIC_RELEASE);
		let_go_mappings(t, held);
		unlock(&t->fork_lock, mask);
		return PASS;
	}
	long child = shared ? fork_shared(t, r, flags, mask)
	                    : raw6(r->nr, r->a1, r->a2, r->a3, r->a4, r->a5, r->a6);
	if (child == 0) {
		detach(t);
		raw6(SYS_rt_sigprocmask, 2, (long)&mask, 0, 8, 0, 0);
	} else {
		/* The flag comes first: its maker marks each later mapping. */
		__atomic_store_n(&t->forking, 0, __ATOMIC_RELEASE);
		if (!t->no_madvise)
			raw3(SYS_madvise, t->segment, t->segment_end - t->segment, MADV_DONTFORK);
		let_go_mappings(t, held);
		unlock(&t->fork_lock, mask);
	}
	r->nr = child;
	return DONE;
}

enum verdict gate_execve(struct task *t, struct regs *r)
{
	/* Byte by byte, since the memory behind a string may be unmapped, and in a vfork child
	 * the fault handler may be blocked. */
	char path[64]; /* longer than any /proc/PID/exe */
	u64 *argument = r->nr == SYS_execve ? &r->a1 : &r->a2, length = 0;
	while (length < sizeof path - 1 && !safe_copy(&path[length], (char *)*argument + length, 1) &&
	       path[length])
		length++;
	path[length] = 0;
	if (is_own_exe(path))
		*argument = (u64)t->exe;
	gate_faults_before_exec(t);
	u32 pid = raw1(SYS_getpid, 0);
	if (t->detached || pid != t->pid)
		return PASS;
	/* The kernel removes this process from the mm. Peers must not find the task here any
	 * more, and the owner reclaims the segment when it sees that the task has left. */
	struct slot *s = &space.slots[t->id];
	__atomic_store_n(&space.pids[pid], 0, __ATOMIC_RELEASE);
	__atomic_store_n(&s->state, SLOT_LEAVING, __ATOMIC_RELEASE);
	raw3(SYS_tgkill, space.owner_pid, space.watcher_tid, 23 /* SIGURG */);
	r->nr = raw6(r->nr, r->a1, r->a2, r->a3, r->a4, r->a5, 0);
	__atomic_store_n(&s->state, SLOT_RUNNING, __ATOMIC_RELEASE);
	__atomic_store_n(&space.pids[pid], t->id + 1, __ATOMIC_RELEASE);
	gate_faults_restore(t);
	return DONE;
}
