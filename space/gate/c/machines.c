/* machines.c - changes of a task's memory that other machines must learn of
 * (memory/cluster).
 *
 * In a space over several machines an agent in the owner's process fetches pages. It sets a
 * bit for each block of memory that another machine knows. A task asks the agent to take
 * part when it maps, unmaps or discards memory in such a block. A task first maps and then
 * reads the bit, and the agent first sets the bit and then reads the mappings, so one of
 * them sees the other.
 *
 * Machines that share memory have a pool. The agent moves published blocks there, and they
 * keep their addresses. If a thread unmaps memory while the agent maps it, the mapping must
 * not return, so both take a lock. */
#include "gate.h"

#define FUTEX_WAIT_PRIVATE 128
#define SIGURG 23

/* Returns true if other machines may have pages of this memory. */
int is_published(u64 address, u64 size)
{
	if (!__atomic_load_n(&space.agent_tid, __ATOMIC_ACQUIRE) || !size)
		return 0;
	u64 offset = address - space.base;
	return any_pages(space.published, offset / PUBLISHED_BLOCK,
	                 (offset + size - 1) / PUBLISHED_BLOCK + 1);
}

/* Sends a request to the agent if this memory concerns it, and waits for the answer.
 * Returns true if it sent one. */
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

/* Locks the mappings of the task. The result is passed to the unlock. */
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

/* Returns true if it is a part of a published block that was moved to the pool. */
int is_pooled(const struct mapping *m)
{
	return m->shared && space.pool.inode && m->file.inode == space.pool.inode &&
	       m->file.device == space.pool.device;
}
