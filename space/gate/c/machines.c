/* machines.c - what other machines must know of a task's memory (memory/cluster).
 *
 * In a space over several machines an agent in the owner's process brings pages. Of each
 * block of memory of which it has told another machine it sets a bit; what is mapped,
 * unmapped or discarded there it is asked to see to. Who maps first and then looks at the
 * bit, while the agent sets the bit and then looks what is mapped, is not missed.
 *
 * Machines that share memory have a pool: the agent moves published blocks there, which
 * keep their addresses. What it maps must not come back to life when a thread unmaps it at
 * the same instant, so both take a lock. */
#include "gate.h"

#define FUTEX_WAIT_PRIVATE 128
#define SIGURG 23

/* Whether other machines may have pages of this memory. */
int is_published(u64 address, u64 size)
{
	if (!__atomic_load_n(&space.agent_tid, __ATOMIC_ACQUIRE) || !size)
		return 0;
	u64 offset = address - space.base;
	return any_pages(space.published, offset / PUBLISHED_BLOCK,
	                 (offset + size - 1) / PUBLISHED_BLOCK + 1);
}

/* Asks the agent, if it has to do with this memory, and waits until it has done it. Returns
 * whether it had. */
int ask_agent(struct task *t, u32 what, u64 address, u64 size)
{
	if (!has_shared(t) || !is_published(address, size))
		return 0;
	struct ask *a = &space.asks[t->id];
	u64 mask = lock(&a->lock);
	a->what = what;
	a->address = address;
	a->size = size;
	__atomic_store_n(&a->state, ASK_ASKED, __ATOMIC_SEQ_CST);
	raw3(SYS_tgkill, space.owner_pid, space.agent_tid, SIGURG);
	while (__atomic_load_n(&a->state, __ATOMIC_ACQUIRE) == ASK_ASKED)
		raw6(SYS_futex, (long)&a->state, FUTEX_WAIT_PRIVATE, ASK_ASKED, 0, 0, 0);
	unlock(&a->lock, mask);
	return 1;
}

/* To be held by who maps or unmaps memory of its task; what this returns is for its end. */
u64 hold_mappings(struct task *t)
{
	return space.pool.inode && has_shared(t) ? lock(&space.asks[t->id].mappings) : 0;
}

/* Not in the child of a fork: the lock is its parent's. */
void let_go_mappings(struct task *t, u64 mask)
{
	if (space.pool.inode && has_shared(t))
		unlock(&space.asks[t->id].mappings, mask);
}

/* Whether it is a part of a published block that has been moved. */
int is_pooled(const struct mapping *m)
{
	return m->shared && space.pool.inode && m->file.inode == space.pool.inode &&
	       m->file.device == space.pool.device;
}
