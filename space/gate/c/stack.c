/* stack.c - the main stack of a segment of shared memory, when the program raises its limit.
 *
 * The kernel lets a private stack grow up to RLIMIT_STACK. Shared memory does not grow, so the
 * loader maps the whole stack. If the program raises the limit later, the gate maps the rest:
 * address space only, as no page is there until it is touched. */
#include "gate.h"

#define RLIMIT_STACK 3
/* The least that is worth mapping. */
#define GROWTH_MIN (64ul << 10)

/* The lowest address of the stack. */
static u64 stack_bottom(struct task *t)
{
	u64 page = (t->stack_end - t->segment) / PAGE;
	while (page && any_pages(t->memory, page - 1, page))
		page--;
	return t->segment + page * PAGE;
}

/* Maps the stack down to `low`. Returns 0 or a negative errno. */
static long extend_stack(struct task *t, u64 low, u64 bottom)
{
	u64 area_end = t->mmap_end < bottom ? t->mmap_end : bottom;
	u64 in_area = low < area_end ? area_end - low : 0;
	if (in_area && !take(t, low, in_area))
		return -ENOMEM;
	int prot = protection_of(bottom);
	long error = raw6(SYS_mmap, low, bottom - low, prot,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	int is_mapped = !is_error(error);
	error = is_mapped ? 0 : error;
	if (is_mapped && has_shared(t))
		error = map_memory(t, low, bottom - low, prot);
	if (error) {
		if (is_mapped)
			raw3(SYS_munmap, low, bottom - low, 0);
		if (in_area)
			release(t, low, in_area);
	}
	return error;
}

/* setrlimit, and prlimit64 of the task itself. */
enum verdict gate_setrlimit(struct task *t, struct regs *r)
{
	int is_prlimit = r->nr == SYS_prlimit64;
	u64 pid = is_prlimit ? r->a1 : 0, resource = is_prlimit ? r->a2 : r->a1;
	u64 wanted = is_prlimit ? r->a3 : r->a2, limit;
	if (!space.alias || (u32)resource != RLIMIT_STACK || !wanted)
		return PASS;
	u32 self = raw1(SYS_getpid, 0);
	/* The child of a vfork sets its own limit, on our stack. */
	if ((pid && (u32)pid != self) || self != t->pid)
		return PASS;
	long result = raw6(r->nr, r->a1, r->a2, r->a3, r->a4, 0, 0);
	r->nr = result;
	if (result || safe_copy(&limit, (void *)wanted, sizeof limit))
		return DONE;
	u64 mask = hold_mappings(t);
	u64 top = t->stack_end, most = (t->segment_end - t->segment) / STACK_SHARE;
	u64 bottom = stack_bottom(t);
	u64 low = top - align_down(limit < most ? limit : most, PAGE);
	/* Mappings in between leave less room, as in any process. */
	while (low < bottom && bottom - low >= GROWTH_MIN && extend_stack(t, low, bottom))
		low = bottom - align_down((bottom - low) / 2, PAGE);
	let_go_mappings(t, mask);
	return DONE;
}
