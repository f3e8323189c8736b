/* private.c - fork where segments are shared memory: the child gets private memory.
 *
 * After the kernel's fork, parent and child have the same pages, stacks included. So the
 * forking thread runs on a private stack, and waits there until the child has replaced all
 * shared memory of its segment by private memory with the same contents. Only then do both
 * return to the program's stack. Until then the kernel must not write to the child's memory
 * for the child, either. So the gate writes the child's TID itself, and disables
 * restartable sequences, whose area the kernel updates by itself.
 *
 * The contents are read from the file. Reading the mapping would allocate untouched pages. */
#include "gate.h"

#define CLONE_CHILD_SETTID 0x01000000ul
#define ARCH_GET_FS 0x1003
#define RSEQ_UNREGISTER 1
#define MAP_NORESERVE 0x4000
#define STACK_SIZE (64ul << 10)
#define CLONE_ARGS_MAX 16

/* Values of task.fork_copied besides 0. */
enum { COPIED = 1, FAILED = 2, KILLED = 3 };

/* On the private stack, as all that the child uses before its memory is its own. */
struct call {
	struct task *task;
	u32 pid; /* the parent's, as it stands in the block while the parent has not ended */
	long nr;
	u64 a[5];
	u64 args[CLONE_ARGS_MAX]; /* clone3 */
	u32 *child_tid;
	u64 rseq;
	struct maps maps;
};

enum verdict gate_rseq(struct task *t, struct regs *r)
{
	u64 pointer;
	if (!(r->a3 & RSEQ_UNREGISTER) && !raw3(SYS_arch_prctl, ARCH_GET_FS, &pointer, 0))
		t->rseq = (struct rseq_place){r->a1 - pointer, r->a2, r->a4};
	return PASS;
}

static void register_rseq(struct call *c, struct rseq_place place)
{
	if (c->rseq)
		raw6(SYS_rseq, c->rseq, place.length, 0, place.signature, 0, 0);
}

static struct rseq_place unregister_rseq(struct call *c)
{
	struct rseq_place place = c->task->rseq;
	u64 pointer;
	if (place.length && !raw3(SYS_arch_prctl, ARCH_GET_FS, &pointer, 0) &&
	    !raw6(SYS_rseq, pointer + place.offset, place.length, RSEQ_UNREGISTER, place.signature,
	          0, 0))
		c->rseq = pointer + place.offset;
	return place;
}

/* Whether it is memory of the task's segment: there, or where its image is linked to. */
static int is_its_own(struct task *t, const struct mapping *m)
{
	u64 from = space.base + m->offset;
	if (is_pooled(m))
		return m->start >= t->segment && m->end <= t->segment_end;
	if (!m->shared || from < t->segment || from >= t->segment_end)
		return 0;
	return m->start == from ||
	       (m->start >= t->fixed_start && m->end <= t->fixed_end &&
	        m->start - t->fixed_start == from - t->fixed_to);
}

/* Puts private memory in place of one mapping. */
static long replace(const struct mapping *m, long memory)
{
	u64 size = m->end - m->start, view = 0;
	int filling = PROT_READ | PROT_WRITE, pooled = is_pooled(m);
	if ((pooled || memory < 0) && !(view = view_memory(m->start, size)))
		return -ENOMEM;
	long at = raw6(SYS_mmap, m->start, size, filling,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	long error = is_error(at) ? at
	             : pooled     ? (copy_but_zeros(m->start, view, size), 0)
	                          : copy_memory(m->start, space.base + m->offset, size, memory, view);
	if (view)
		raw3(SYS_munmap, view, size, 0);
	if (!error && m->prot != filling)
		error = raw3(SYS_mprotect, m->start, size, m->prot);
	return error;
}

static long replace_all(struct call *c)
{
	struct mapping m;
	long memory = open_memory(), error = open_maps(&c->maps, 0);
	if (error)
		return error;
	while (!error && next_mapping(&c->maps, &m))
		if (is_its_own(c->task, &m))
			error = replace(&m, memory);
	close_maps(&c->maps);
	if (memory >= 0)
		raw1(SYS_close, memory);
	return error;
}

/* Runs in the child. Does not return if an error occurs, which the parent then reports. */
static void become_private(struct call *c)
{
	struct task *t = c->task;
	/* The parent learns the result through this block, also when the child's copy is
	 * private already. */
	u64 block = align_down((u64)t, PAGE), size = align_up((u64)t + sizeof *t, PAGE) - block;
	long view = raw6(SYS_mremap, block, 0, size, 1 /* MREMAP_MAYMOVE */, 0, 0);
	if (is_error(view))
		raw1(SYS_exit_group, 1);
	struct task *shared = (struct task *)(view + ((u64)t - block));
	long error = replace_all(c);
	/* If the parent has ended meanwhile, its memory may have gone under our hands. */
	if (shared->pid != c->pid)
		raw1(SYS_exit_group, 1);
	__atomic_store_n(&shared->fork_copied, error ? FAILED : COPIED, __ATOMIC_SEQ_CST);
	raw3(SYS_futex, &shared->fork_copied, 1 /* FUTEX_WAKE */, 1);
	if (error)
		raw1(SYS_exit_group, 1);
	raw3(SYS_munmap, view, size, 0);
}

/* A zombie has ended, but answers kill. */
static int lives(long child)
{
	u32 information[32];
	information[0] = 0; /* si_signo */
	long error = raw6(SYS_waitid, 1 /* P_PID */, child, (long)information,
	                  1 | 4 | 0x01000000 | 0x40000000 /* WNOHANG, WEXITED, WNOWAIT, __WALL */, 0, 0);
	/* Not our child: waited for already, or made with CLONE_PARENT. */
	return error ? raw3(SYS_kill, child, 0, 0) != -ESRCH : information[0] == 0;
}

static u32 wait_for_copy(struct task *t, long child)
{
	const u64 interval[2] = {0, 50 * 1000 * 1000};
	for (;;) {
		u32 state = __atomic_load_n(&t->fork_copied, __ATOMIC_ACQUIRE);
		if (state)
			return state;
		long waited = raw6(SYS_futex, (long)&t->fork_copied, 0 /* FUTEX_WAIT */, 0,
		                   (long)interval, 0, 0);
		if (waited == -ETIMEDOUT && !lives(child)) {
			state = __atomic_load_n(&t->fork_copied, __ATOMIC_ACQUIRE);
			return state ? state : KILLED;
		}
	}
}

static long fork_here(void *argument)
{
	struct call *c = argument;
	struct task *t = c->task;
	struct rseq_place place = unregister_rseq(c);
	__atomic_store_n(&t->fork_copied, 0, __ATOMIC_SEQ_CST);
	long child = raw6(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], 0);
	if (child == 0) {
		become_private(c);
		if (c->child_tid)
			*c->child_tid = raw1(SYS_gettid, 0);
	} else if (!is_error(child) && wait_for_copy(t, child) == FAILED) {
		raw6(SYS_wait4, child, 0, 0x40000000 /* __WALL */, 0, 0, 0);
		child = -ENOMEM;
	}
	register_rseq(c, place);
	return child;
}

/* Clones the caller's segment, which is DOFORK. All signals are blocked; `mask` is the
 * program's mask, and `flags` are the clone's. Returns the result of fork. A child with its
 * own stack continues there. */
long fork_shared(struct task *t, const struct regs *r, u64 flags, u64 mask)
{
	u64 bottom, stack = 0;
	long at;
	do {
		if (!(bottom = claim(t, STACK_SIZE, PAGE)))
			return -ENOMEM;
		at = raw6(SYS_mmap, bottom, STACK_SIZE, PROT_READ | PROT_WRITE,
		          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	} while (at == -EEXIST);
	if (is_error(at)) {
		release(t, bottom, STACK_SIZE);
		return at;
	}
	struct call *c = (struct call *)bottom;
	c->task = t;
	c->pid = t->pid;
	c->nr = r->nr;
	c->a[0] = r->a1, c->a[1] = r->a2, c->a[2] = r->a3, c->a[3] = r->a4, c->a[4] = r->a5;
	long child = 0;
	if (r->nr == SYS_clone) {
		stack = r->a2;
		c->a[0] &= ~CLONE_CHILD_SETTID;
		c->a[1] = 0;
		c->child_tid = (u32 *)r->a4;
	} else if (r->nr == SYS_clone3) { /* struct clone_args; our caller has read 64 bytes */
		if (r->a2 > sizeof c->args)
			child = -E2BIG;
		else if (safe_copy(c->args, (void *)r->a1, r->a2))
			child = -EFAULT;
		c->a[0] = (u64)c->args;
		c->args[0] &= ~CLONE_CHILD_SETTID;
		c->child_tid = (u32 *)c->args[2];
		stack = c->args[5] ? c->args[5] + c->args[6] : 0;
		c->args[5] = c->args[6] = 0;
	}
	if (!(flags & CLONE_CHILD_SETTID))
		c->child_tid = 0;
	if (!child)
		child = call_on(bottom + STACK_SIZE, fork_here, c);
	raw3(SYS_munmap, bottom, STACK_SIZE, 0);
	release(t, bottom, STACK_SIZE);
	if (child == 0 && stack) {
		/* The frame that gate_entry has pushed below the stub's red zone, with its return
		 * address. */
		const u64 *pushed = (const u64 *)r - 1;
		u64 *frame = (u64 *)(stack - 128) - 9;
		for (int i = 0; i < 9; i++)
			frame[i] = pushed[i];
		((struct regs *)(frame + 1))->nr = 0;
		detach(t);
		raw6(SYS_rt_sigprocmask, 2, (long)&mask, 0, 8, 0, 0);
		gate_return_on(frame);
	}
	return child;
}
