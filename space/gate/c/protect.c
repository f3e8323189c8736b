/* protect.c - the memory of others in a space with protection (nagaya run --protect).
 *
 * Each task is then a domain of its own. Its views of the other segments cannot be written, or
 * not even be read, and the gate refuses mprotect of them. The exceptions are the parts that
 * tasks share on purpose: the export area, and memory that its task has exported by name. A task
 * opens such a part in its view by mprotect.
 *
 * This is a protection from accidents. A hostile task makes the call without the gate. */
#include "gate.h"

/* Returns true if the task in the segment at `start` has exported these pages by one name. */
static int is_exported(u64 start, u64 address, u64 end)
{
	const struct export_entry *entries = (const void *)(start + EXPORTS_AT);
	for (int i = 0; i < EXPORTS_MAX; i++) {
		struct { u32 sequence, used; u64 address, size; } entry;
		if (safe_copy(&entry, &entries[i], sizeof entry))
			return 0;
		u64 size = entry.size ? entry.size : 1, last = entry.address + size - 1;
		if (entry.used && last >= entry.address && address >= align_down(entry.address, PAGE) &&
		    end - 1 <= (last | (PAGE - 1)))
			return 1;
	}
	return 0;
}

/* Returns true if the task may give itself these rights in this range, which is not its own. */
int may_open(struct task *t, u64 address, u64 size, u64 prot)
{
	if (!space.protection || t->detached || address < space.base || address % PAGE || !size ||
	    prot & ~(u64)(PROT_READ | PROT_WRITE))
		return 0;
	u64 id = (address - space.base) / space.segment_size;
	u64 start = space.base + id * space.segment_size;
	if (id >= space.tasks_max || id == t->id || size > start + space.segment_size - address)
		return 0;
	if (address + size <= start + EXPORT_USER_SIZE)
		return 1;
	if (address + size <= start + EXPORT_SIZE)
		return address >= start + EXPORT_USER_SIZE && !(prot & PROT_WRITE);
	return is_exported(start, address, address + size);
}
