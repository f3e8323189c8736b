/* region.c - files that several tasks map at one address outside their segments.
 *
 * PMIx (gds/shmem2), hwloc (shared topologies) and others put absolute pointers into a
 * file, and every process maps it at the address of the first one. In one mm the first
 * request makes the mapping and the others share it: a region. Each process sees the
 * mapping that it requested: this file at this address.
 *
 * A region lives as long as a task uses it. Bit n in a task's slot means that it uses
 * region n. Only the owner's watcher removes unused regions. A task that joins first sets
 * its bit and then checks that the region exists. The watcher first marks the region and
 * then checks the bits. So one of them sees the other. In the mm of another domain the
 * watcher cannot unmap anything, so regions stay there. In a space with protection each task has
 * its own mm, and such mappings concern nobody else. */
#include "gate.h"

#define MAP_SHARED_VALIDATE 3
#define USER_START 65536ul /* vm.mmap_min_addr */
#define USER_END 0x7ffffffff000ul
#define F_GETFL 3
#define O_ACCMODE 3
#define O_RDWR 2
/* How often to yield to somebody in the middle of making or removing a region; both
 * take microseconds unless they are stopped. */
#define YIELDS_MAX 10000

static u64 *bits_of(struct task *t)
{
	return &space.slots[t->id].regions;
}

static u32 state_of(struct region *g)
{
	return __atomic_load_n(&g->state, __ATOMIC_SEQ_CST);
}

/* Returns true if it is mapped in the task's mm, somewhere in this range. */
static int overlaps(struct task *t, struct region *g, u64 address, u64 size)
{
	return g->address < address + size && address < g->address + g->size &&
	       g->domain == space.slots[t->id].domain;
}

/* Keeps tasks out of the segment that the region lies in, if it lies in one. Returns 0
 * if a task has it. */
static int keep_segment(struct region *g)
{
	if (!g->slot)
		return 1;
	u32 free = SLOT_FREE;
	return __atomic_compare_exchange_n(&space.slots[g->slot - 1].state, &free, SLOT_REGION, 0,
	                                   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ||
	       free == SLOT_REGION;
}

static void forget(struct region *g)
{
	u32 kept = SLOT_REGION, slot = g->slot;
	g->size = 0;
	__atomic_store_n(&g->state, REGION_FREE, __ATOMIC_SEQ_CST);
	if (!slot)
		return;
	__atomic_compare_exchange_n(&space.slots[slot - 1].state, &kept, SLOT_FREE, 0,
	                            __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	for (int i = 0; i < REGIONS_MAX; i++) /* others in this segment keep it */
		if (state_of(&space.regions[i]) != REGION_FREE && space.regions[i].slot == slot)
			keep_segment(&space.regions[i]);
}

static int touches_window(u64 address, u64 size)
{
	u64 end = space.base + space.segment_size * space.tasks_max;
	return address < end && address + size > space.window;
}

/* The address, 0 if something else is in the way, or an error. */
static long make(struct task *t, const struct regs *r, const struct file *file, u64 size)
{
	u32 slot = 0;
	if (touches_window(r->a1, size)) {
		if (r->a1 < space.base)
			return 0;
		slot = (r->a1 - space.base) / space.segment_size + 1;
		if ((r->a1 + size - 1 - space.base) / space.segment_size + 1 != slot)
			return 0;
	}
	struct region *g = 0;
	int n;
	for (n = 0; n < REGIONS_MAX; n++) {
		u32 free = REGION_FREE;
		g = &space.regions[n];
		if (__atomic_compare_exchange_n(&g->state, &free, REGION_MAKING, 0, __ATOMIC_SEQ_CST,
		                                __ATOMIC_SEQ_CST))
			break;
	}
	if (n == REGIONS_MAX)
		return 0;
	g->maker = t->id;
	g->domain = space.slots[t->id].domain;
	g->slot = slot;
	g->prot = r->a3;
	g->dev = file->dev, g->ino = file->ino, g->offset = r->a6;
	g->address = r->a1;
	__atomic_store_n(&g->size, size, __ATOMIC_SEQ_CST);
	long at = 0;
	if (keep_segment(g)) {
		/* In another domain's segment, which no task will use, only this domain's view is
		 * in the way. */
		int is_view = slot && space.slots[slot - 1].domain != g->domain;
		u64 fixed = is_view ? MAP_FIXED : MAP_FIXED_NOREPLACE;
		at = raw6(SYS_mmap, r->a1, r->a2, r->a3, r->a4 | fixed, r->a5, r->a6);
	}
	if (at == 0 || is_error(at)) {
		forget(g);
		return at == -EEXIST ? 0 : at;
	}
	__atomic_fetch_or(bits_of(t), 1ul << n, __ATOMIC_SEQ_CST);
	__atomic_store_n(&g->state, REGION_LIVE, __ATOMIC_SEQ_CST);
	return at;
}

/* Gives the region the access that `r` requests, if the descriptor allows it. */
static long widen(struct region *g, const struct regs *r)
{
	if (r->a3 & PROT_WRITE && (raw3(SYS_fcntl, r->a5, F_GETFL, 0) & O_ACCMODE) != O_RDWR)
		return -EACCES;
	u32 prot = __atomic_load_n(&g->prot, __ATOMIC_ACQUIRE) | r->a3;
	if (prot == g->prot)
		return 0;
	long error = raw3(SYS_mprotect, g->address, g->size, prot);
	if (error) /* made with a lesser descriptor: the same pages through ours */
		error = raw6(SYS_mmap, g->address, g->size, prot, MAP_SHARED | MAP_FIXED, r->a5, r->a6);
	if (error && is_error(error))
		return error;
	__atomic_fetch_or(&g->prot, prot, __ATOMIC_ACQ_REL);
	return 0;
}

/* As `make`; -EEXIST: search again. */
static long join(struct task *t, const struct regs *r, const struct file *file, u64 size, int n)
{
	struct region *g = &space.regions[n];
	u64 bit = 1ul << n;
	if (__atomic_fetch_or(bits_of(t), bit, __ATOMIC_SEQ_CST) & bit)
		return 0; /* ours already: as in any process, the address is taken */
	u32 state = state_of(g);
	long result = state == REGION_LIVE ? 0 : -EEXIST;
	if (state == REGION_LIVE && g->address == r->a1 && size <= g->size && g->dev == file->dev &&
	    g->ino == file->ino && g->offset == r->a6 && !(result = widen(g, r)))
		return r->a1;
	__atomic_fetch_and(bits_of(t), ~bit, __ATOMIC_SEQ_CST);
	return result;
}

/* Shared mmap of a file with an address outside the caller's segment. Returns the address,
 * an error, or 0 if the call does not need a region. */
long region_map(struct task *t, const struct regs *r)
{
	u64 size = align_up(r->a2, PAGE), type = r->a4 & MAP_TYPE;
	struct file file;
	if (t->detached || (type != MAP_SHARED && type != MAP_SHARED_VALIDATE) ||
	    (r->a4 & MAP_ANONYMOUS) || (r->a1 | r->a6) % PAGE || r->a1 < USER_START ||
	    size > USER_END || r->a1 > USER_END - size || raw3(SYS_fstat, r->a5, &file, 0))
		return 0;
	if (space.protection && !touches_window(r->a1, size)) {
		long at = map_outside(t, r, r->a1);
		return is_error(at) ? 0 : at;
	}
	for (int yields = 0, taken = 0; yields < YIELDS_MAX; yields++) {
		int n = 0;
		while (n < REGIONS_MAX && (state_of(&space.regions[n]) == REGION_FREE ||
		                           !overlaps(t, &space.regions[n], r->a1, size)))
			n++;
		long at;
		if (n < REGIONS_MAX)
			at = join(t, r, &file, size, n);
		else if (taken)
			return 0; /* by no region */
		else if (!(at = make(t, r, &file, size)))
			at = -EEXIST, taken = 1; /* perhaps by a region that was made meanwhile */
		if (at != -EEXIST)
			return at;
		if (n < REGIONS_MAX)
			raw1(SYS_sched_yield, 0);
	}
	return 0;
}

/* Returns true if the range touches a region that the task uses. */
int is_region(struct task *t, u64 address, u64 size)
{
	u64 mine = __atomic_load_n(bits_of(t), __ATOMIC_ACQUIRE);
	for (int n = 0; n < REGIONS_MAX; n++)
		if (mine >> n & 1 && overlaps(t, &space.regions[n], address, size))
			return 1;
	return 0;
}

/* Returns true if the range touches regions that the task uses. Leaves regions inside the
 * range; a partly covered region stays mapped. */
int region_unmap(struct task *t, u64 address, u64 size)
{
	u64 mine = __atomic_load_n(bits_of(t), __ATOMIC_ACQUIRE);
	int touched = 0, left = 0;
	if (t->detached)
		return 0;
	for (int n = 0; n < REGIONS_MAX; n++) {
		struct region *g = &space.regions[n];
		if (!(mine >> n & 1) || !overlaps(t, g, address, size))
			continue;
		touched = 1;
		if (address > g->address || address + size < g->address + g->size)
			continue;
		__atomic_fetch_and(bits_of(t), ~(1ul << n), __ATOMIC_SEQ_CST);
		left = 1;
	}
	if (left) {
		__atomic_store_n(&space.regions_left, 1, __ATOMIC_SEQ_CST);
		raw3(SYS_tgkill, space.owner_pid, space.watcher_tid, 23 /* SIGURG */);
	}
	return touched;
}
