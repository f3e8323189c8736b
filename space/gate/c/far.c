/* far.c - memory of tasks of other domains, which have their own page tables.
 *
 * Their segments are mapped here as views of the space's memory, in which an absent page is
 * a hole: an access raises SIGBUS. There are three cases. It may be memory that its owner
 * has never touched; then the kernel allocates the page through the owner's page tables. It
 * may be a mapping of the owner that is not of the space's memory, such as a program's
 * text; then its bytes are copied to the hole, if they are not writable. Or there is
 * nothing. The faulting thread does all this in its own process, without a server. */
#include "gate.h"

struct piece {
	u64 base, size;
};

/* The slot in whose segment the address lies, if that is another domain's; or 0. */
static struct slot *far_slot(struct task *t, u64 address)
{
	if (!space.alias || t->detached || address < space.base)
		return 0;
	u64 id = (address - space.base) / space.segment_size;
	if (id >= space.tasks_max || space.slots[id].domain == space.slots[t->id].domain)
		return 0;
	return &space.slots[id];
}

/* Returns 0 if the process is no task of another domain; -1 if it is, and cannot be looked
 * at: its memory may go under our hands, or is protected. */
int find_far(struct task *t, u64 pid, struct far *found)
{
	struct task *block;
	u32 id = __atomic_load_n(&space.pids[pid], __ATOMIC_ACQUIRE) - 1;
	if (!space.alias || id >= space.tasks_max ||
	    space.slots[id].domain == space.slots[t->id].domain)
		return 0;
	if (space.protection == PROTECT_ALL)
		return -1;
	block = (void *)__atomic_load_n(&space.slots[id].task, __ATOMIC_ACQUIRE);
	found->segment = space.base + id * space.segment_size;
	found->end = found->segment + space.segment_size;
	if (!block || safe_copy(&found->plain, &block->plain, sizeof found->plain) ||
	    safe_copy(&found->fixed_start, &block->fixed_start, 3 * sizeof(u64)))
		return -1;
	return 1;
}

/* One whose image is linked to its addresses has the same bytes in its segment: at those
 * addresses lies something else here. */
u64 far_address(const struct far *its, u64 address)
{
	int fixed = address >= its->fixed_start && address < its->fixed_end;
	return fixed ? address - its->fixed_start + its->fixed_to : address;
}

/* Returns true if this is memory that the task may read and write, and so may the caller.
 * Views have no protection, and contain only the space's memory. */
int is_plain(const struct far *its, u64 address, u64 size)
{
	if (address < its->segment || size > its->end - its->segment || address > its->end - size)
		return 0;
	return all_pages(its->plain, (address - its->segment) / PAGE,
	                 (address + size - its->segment + PAGE - 1) / PAGE);
}

/* Reads through the owner's page tables; returns the bytes read. */
static long look(u32 pid, u64 to, u64 from, u64 size)
{
	struct piece here = {to, size}, there = {from, size};
	return raw6(SYS_process_vm_readv, pid, (long)&here, 1, (long)&there, 1, 0);
}

/* A mapping of a page of the space's memory at `at`, where nothing is. */
static long map_hole(u64 at, u64 page)
{
	long mapped = raw6(SYS_mremap, space.alias + (page - space.base), 0, PAGE,
	                   1 | 2 /* MREMAP_MAYMOVE | MREMAP_FIXED */, at, 0);
	return is_error(mapped) ? mapped : raw3(SYS_mprotect, at, PAGE, PROT_READ | PROT_WRITE);
}

/* Copies a page of the owner to the hole, by a mapping of the hole that is not a view.
 * Skips pages that the owner or another process may write, since the copy would not follow. */
static int fill(struct task *t, u32 pid, u64 page)
{
	struct mapping its;
	u64 at;
	if (mapping_at(pid, page, &its) || its.shared || its.prot & PROT_WRITE ||
	    !(at = claim(t, PAGE, PAGE)))
		return 0;
	int filled = 0;
	if (!map_hole(at, page))
		filled = look(pid, at, page, PAGE) == PAGE;
	raw3(SYS_munmap, at, PAGE, 0);
	release(t, at, PAGE);
	return filled;
}

/* Returns true if the thread that faulted at this address may try again. */
int far_fault(struct task *t, u64 address)
{
	struct slot *slot = far_slot(t, address);
	u32 pid = slot ? __atomic_load_n(&slot->pid, __ATOMIC_ACQUIRE) : 0;
	u64 page = align_down(address, PAGE);
	u8 byte, resident = 0;
	if (!pid || look(pid, (u64)&byte, address, 1) != 1)
		return 0;
	if (!raw3(SYS_mincore, page, PAGE, &resident) && (resident & 1))
		return 1;
	return fill(t, pid, page);
}
