/* outside.c - what a task has in the mm that the end of its segment does not remove: mappings
 * whose address only the kernel can choose, in a space with protection also those outside all
 * segments (region.c), and contexts of asynchronous I/O.
 *
 * The rings of io_uring, and memory of some devices, cannot be mapped at an address of the
 * caller's choice: their file refuses it with EINVAL. So the kernel chooses one outside all
 * segments, and a table in the control area has these mappings. They last until the program
 * unmaps them or the task ends, when the owner (pvas/outside.rs) unmaps them.
 *
 * io_setup makes a context of the mm. A process's contexts end with its mm; a task's would
 * last until the job ends, and count against the machine's fs.aio-max-nr. Its ring, whose
 * address is the context's name, can be moved (mremap), so the gate moves it into the segment.
 * At the task's end the owner finds the rings in the segment and destroys their contexts. */
#include "gate.h"

/* An entry that a thread is working on. */
#define BUSY 1ul
#define MAYMOVE 1
#define FIXED 2
#define MADV_DONTFORK 10

/* The head of a ring, and the size of an event; the kernel's struct aio_ring. */
struct aio_ring {
	u32 id, events, head, tail, magic, compatible, incompatible, header_length;
};
#define EVENT_SIZE 32ul

static struct outside *outside_of(struct task *t)
{
	return &space.outsides[t->id];
}

/* mmap of a file at `address`, where nothing is; 0: at an address of the kernel's choice, and not
 * in children of fork. Returns the address or an error. */
long map_outside(struct task *t, const struct regs *r, u64 address)
{
	struct shm *free = 0;
	for (int i = 0; !t->detached && i < OUTSIDE_MAX && !free; i++) {
		u64 none = 0;
		struct shm *entry = &outside_of(t)->mappings[i];
		if (__atomic_compare_exchange_n(&entry->address, &none, BUSY, 0, __ATOMIC_ACQ_REL,
		                                __ATOMIC_RELAXED))
			free = entry;
	}
	if (!free && !t->detached)
		return -ENOMEM;
	long at = raw6(SYS_mmap, address, r->a2, r->a3, r->a4 | (address ? MAP_FIXED_NOREPLACE : 0),
	               r->a5, r->a6);
	if (!free)
		return at; /* the child of a fork has its own mm */
	if (!is_error(at)) {
		if (!address && !t->no_madvise)
			raw3(SYS_madvise, at, r->a2, MADV_DONTFORK);
		free->size = align_up(r->a2, PAGE);
	}
	__atomic_store_n(&free->address, is_error(at) ? 0 : (u64)at, __ATOMIC_RELEASE);
	return at;
}

/* Removes the range from the table. To be called before the kernel unmaps it, since the next
 * owner of these addresses may be another task. Returns 0 or a negative errno. */
long forget_outside(struct task *t, u64 address, u64 size)
{
	u64 end = address + size;
	for (int i = 0; !t->detached && i < OUTSIDE_MAX; i++) {
		struct shm *entry = &outside_of(t)->mappings[i];
		u64 start = __atomic_load_n(&entry->address, __ATOMIC_ACQUIRE), its_end = start + entry->size;
		if (start <= BUSY || address >= its_end || end <= start)
			continue;
		if (address > start && end < its_end)
			return -ENOMEM; /* the kernel's answer to too many mappings */
		__atomic_store_n(&entry->address, BUSY, __ATOMIC_RELEASE);
		u64 left = address > start ? start : end < its_end ? end : 0;
		entry->size = address > start ? address - start : end < its_end ? its_end - end : 0;
		__atomic_store_n(&entry->address, left, __ATOMIC_RELEASE);
	}
	return 0;
}

/* Bytes of a context's ring, or 0. The program can write them. */
static u64 ring_size(u64 context)
{
	struct aio_ring ring;
	if (safe_copy(&ring, (void *)context, sizeof ring))
		return 0;
	return align_up(sizeof ring + ring.events * EVENT_SIZE, PAGE);
}

/* Moves the ring into the segment. Returns the new name of the context, or an error. */
static long move_ring(struct task *t, u64 context)
{
	u64 size = ring_size(context), to;
	long kept;
	do {
		if (!(to = claim(t, size, PAGE)))
			return -ENOMEM;
		kept = raw6(SYS_mmap, to, size, 0 /* PROT_NONE */,
		            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	} while (kept == -EEXIST);
	long at = is_error(kept) ? kept : raw6(SYS_mremap, context, size, size, MAYMOVE | FIXED, to, 0);
	if (!is_error(at)) {
		keep_from_forks(t, to, size);
		return at;
	}
	if (!is_error(kept))
		raw3(SYS_munmap, to, size, 0);
	release(t, to, size);
	return at;
}

enum verdict gate_io_setup(struct task *t, struct regs *r)
{
	u64 context;
	/* The contexts of a fork's child end with its own mm. The other cases are errors. */
	if (t->detached || safe_copy(&context, (void *)r->a2, sizeof context) || context)
		return PASS;
	__atomic_store_n(&outside_of(t)->uses_aio, 1, __ATOMIC_RELEASE);
	long result = raw3(SYS_io_setup, r->a1, &context, 0);
	if (result)
		return answer(r, result);
	long at = move_ring(t, context);
	if (is_error(at)) {
		raw1(SYS_io_destroy, context);
		return answer(r, -ENOMEM);
	}
	if (safe_copy((void *)r->a2, &at, sizeof at)) {
		u64 size = ring_size(at);
		raw1(SYS_io_destroy, at);
		release(t, at, size);
		return answer(r, -EFAULT);
	}
	return answer(r, 0);
}

enum verdict gate_io_destroy(struct task *t, struct regs *r)
{
	if (t->detached)
		return PASS;
	u64 size = ring_size(r->a1);
	long result = raw1(SYS_io_destroy, r->a1); /* unmaps the ring, too */
	if (!result)
		release(t, r->a1, size);
	return answer(r, result);
}
