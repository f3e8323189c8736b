/* shared.c - segments whose memory is shared memory.
 *
 * One file is the memory of all segments of such a space. Its offset is the address less
 * the space's base. A task maps a part of it by duplicating that part of the alias, the
 * owner's mapping of the whole file, with mremap and an old size of 0. So it needs no
 * descriptor, which the program might close.
 *
 * For the program this memory is private memory. Unmapped or discarded parts are returned
 * to the kernel through the alias, and read as zeros when they are mapped again. The offset
 * identifies these pages, whatever lies at the address, so a page that is not in use there
 * never belongs to another task. A second bitmap has the pages of the segment that are such
 * memory; it only decides the behaviour of mremap and MADV_REMOVE. A third has those that
 * may be read and written. Tasks of other domains, whose views have no protection, read it
 * to decide what they may copy (far.c). */
#include "gate.h"

#define MADV_DONTFORK 10
#define MADV_DOFORK 11
#define MADV_DODUMP 17
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#define MADV_REMOVE 9
#define MAP_LOCKED 0x2000
#define MAP_POPULATE 0x8000
#define S_IFMT 0170000
#define S_IFREG 0100000
#define SEEK_DATA 3
#define SEEK_HOLE 4
#define MAYMOVE 1
#define FIXED 2
/* Larger files stay private mappings of the kernel's: they would be read in whole. */
#define FILE_MAX (64ul << 20)

static u64 alias_of(u64 address)
{
	return space.alias + (address - space.base);
}

static u64 page_of(struct task *t, u64 address)
{
	return (address - t->segment) / PAGE;
}

int is_memory(struct task *t, u64 address, u64 size)
{
	return has_shared(t) &&
	       any_pages(t->memory, page_of(t, address), page_of(t, address + size + PAGE - 1));
}

#define MAY_ALL (PROT_READ | PROT_WRITE)

/* The memory of this range has this protection. */
static void mark_plain(struct task *t, u64 address, u64 size, int prot)
{
	u64 from = page_of(t, address), to = page_of(t, address + size);
	if ((prot & MAY_ALL) == MAY_ALL)
		set_pages(t->plain, from, to);
	else
		clear_pages(t->plain, from, to);
}

static void mark_memory(struct task *t, u64 address, u64 size, int prot)
{
	set_pages(t->memory, page_of(t, address), page_of(t, address + size));
	mark_plain(t, address, size, prot);
}

/* The kernel has made memory that ends at this address longer. */
void grow_memory(struct task *t, u64 end, u64 more)
{
	int plain = any_pages(t->plain, page_of(t, end) - 1, page_of(t, end));
	mark_memory(t, end, more, plain ? MAY_ALL : 0);
	ask_agent(t, ASK_MAPPED, end, more);
}

/* A protection key of the caller does not apply to other tasks, nor to the kernel's copies. */
enum verdict gate_mprotect(struct task *t, struct regs *r)
{
	u64 address = r->a1, size = align_up(r->a2, PAGE);
	if (is_foreign(t, address, size))
		return may_open(t, address, size, r->a3) ? PASS : answer(r, -EACCES);
	if (!has_shared(t) || address % PAGE || !size || address < t->own_start ||
	    size > t->segment_end - t->own_start || address > t->segment_end - size)
		return PASS;
	int may_all = (r->a3 & MAY_ALL) == MAY_ALL;
	if (!may_all)
		clear_pages(t->plain, page_of(t, address), page_of(t, address + size));
	long result = raw6(r->nr, address, r->a2, r->a3, r->a4, 0, 0);
	for (u64 page = page_of(t, address), end = page_of(t, address + size);
	     !result && may_all && page < end; page++)
		if (any_pages(t->memory, page, page + 1))
			set_pages(t->plain, page, page + 1);
	if (!result && r->a3)
		ask_agent(t, ASK_MAPPED, address, size);
	r->nr = result;
	return DONE;
}

/* Maps the memory of this range over the present mappings. `t` may be null while its block
 * is not mapped. Returns 0 or a negative errno. */
long map_memory(struct task *t, u64 address, u64 size, int prot)
{
	long at = raw6(SYS_mremap, alias_of(address), 0, size, MAYMOVE | FIXED, address, 0);
	if (is_error(at))
		return at;
	/* The alias is kept out of forks, as this must be, and out of core files. */
	if (!t || !t->no_madvise)
		raw3(SYS_madvise, address, size, MADV_DODUMP);
	long error = prot ? raw3(SYS_mprotect, address, size, prot) : 0;
	if (error || !t)
		return error;
	if (__atomic_load_n(&t->forking, __ATOMIC_ACQUIRE)) {
		raw3(SYS_madvise, address, size, MADV_DOFORK);
		keep_from_forks(t, address, size);
	}
	mark_memory(t, address, size, prot);
	ask_agent(t, ASK_MAPPED, address, size);
	return 0;
}

/* The pages of this range hold nothing any more. */
static void discard(struct task *t, u64 address, u64 size)
{
	u64 at = alias_of(address);
	if (ask_agent(t, ASK_DISCARD, address, size))
		return;
	if (raw3(SYS_madvise, at, size, MADV_REMOVE) != -EACCES)
		return;
	/* Before Linux 6.7 the mapping must be writable. Nobody maps this part meanwhile. */
	raw3(SYS_mprotect, at, size, PROT_READ | PROT_WRITE);
	raw3(SYS_madvise, at, size, MADV_REMOVE);
	raw3(SYS_mprotect, at, size, 0);
}

/* The program's memory is no longer mapped at this range of its segment. */
void forget_memory(struct task *t, u64 address, u64 size)
{
	clear_pages(t->plain, page_of(t, address), page_of(t, address + size));
	clear_pages(t->memory, page_of(t, address), page_of(t, address + size));
}

/* To be called when the range is unmapped, or something else is mapped there, and before
 * it can be claimed again. */
void give_back(struct task *t, u64 address, u64 size)
{
	u64 end = address + size;
	if (address < t->own_start)
		address = t->own_start;
	if (end > t->segment_end)
		end = t->segment_end;
	if (!has_shared(t) || address >= end)
		return;
	forget_memory(t, address, end - address);
	discard(t, address, end - address);
}

/* Returns true if this mmap is to be shared memory: private memory that the program can
 * write. */
int wants_memory(struct task *t, const struct regs *r)
{
	struct file f;
	if (!has_shared(t) || (r->a4 & MAP_TYPE) != MAP_PRIVATE || r->a4 & MAP_HUGETLB)
		return 0;
	return r->a4 & MAP_ANONYMOUS ||
	       (r->a3 & PROT_WRITE && r->a2 <= FILE_MAX && !raw3(SYS_fstat, r->a5, &f, 0) &&
	        (f.mode & S_IFMT) == S_IFREG);
}

/* For the kernel's mapping that only holds the place. */
u64 without_pages(u64 flags)
{
	return flags & ~(u64)(MAP_LOCKED | MAP_POPULATE);
}

static long read_at(int fd, u64 to, u64 size, u64 offset)
{
	while (size) {
		long n = raw6(SYS_pread64, fd, to, size, offset, 0, 0);
		if (n <= 0)
			return n;
		to += n, size -= n, offset += n;
	}
	return 0;
}

/* Puts shared memory where the kernel has just made the private mapping that `r` asks
 * for. Returns 0 or a negative errno. */
long share(struct task *t, u64 address, u64 size, const struct regs *r)
{
	int prot = r->a3 & (PROT_READ | PROT_WRITE | PROT_EXEC), file = !(r->a4 & MAP_ANONYMOUS);
	int filling = PROT_READ | PROT_WRITE;
	long error = map_memory(t, address, size, file ? filling : prot);
	if (!error && file)
		error = read_at(r->a5, address, r->a2, r->a6);
	if (!error && file && prot != filling) {
		mark_plain(t, address, size, prot);
		error = raw3(SYS_mprotect, address, size, prot);
	}
	if (!error && r->a4 & MAP_LOCKED)
		raw3(SYS_mlock, address, size, 0);
	if (!error && r->a4 & MAP_POPULATE)
		raw3(SYS_madvise, address, size,
		     prot & PROT_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	return error;
}

/* A descriptor of the memory's file, or an error: the owner may not be ours to look at. */
long open_memory(void)
{
	char path[64], *end = put_text(path, "/proc/");
	end = put_text(put_decimal(end, space.owner_pid), "/fd/");
	*put_decimal(end, space.memory_fd) = 0;
	struct file f;
	long fd = raw6(SYS_openat, -100 /* AT_FDCWD */, (long)path, O_CLOEXEC, 0, 0, 0);
	if (fd >= 0 && (raw3(SYS_fstat, fd, &f, 0) || f.ino != space.memory_ino)) {
		raw1(SYS_close, fd);
		return -ENOENT;
	}
	return fd;
}

/* Copies the used pages of `view`, a readable mapping. mincore does not report swapped-out
 * pages, so all pages are copied if there is swap. */
static long copy_resident(u64 to, u64 view, u64 size)
{
	enum { BLOCK = 512 };
	u64 information[14]; /* struct sysinfo; words 8 is totalswap */
	u8 resident[BLOCK];
	int swaps = raw1(SYS_sysinfo, information) || information[8];
	for (u64 done = 0; done < size; done += BLOCK * PAGE) {
		u64 part = size - done < BLOCK * PAGE ? size - done : BLOCK * PAGE;
		long error = raw3(SYS_mincore, view + done, part, resident);
		if (error)
			return error;
		for (u64 page = 0; page < part / PAGE; page++)
			if (swaps || resident[page] & 1) {
				u64 at = done + page * PAGE;
				copy_string((void *)(to + at), (void *)(view + at), PAGE);
			}
	}
	return 0;
}

/* Copies the contents of the memory of [from, from + size) to `to`, which is zero. `memory`
 * is the result of open_memory. If that is an error, `view` is a readable mapping of the
 * same memory. */
long copy_memory(u64 to, u64 from, u64 size, long memory, u64 view)
{
	if (memory < 0)
		return copy_resident(to, view, size);
	u64 start = from - space.base, end = start + size;
	for (u64 at = start; at < end;) {
		long data = raw3(SYS_lseek, memory, at, SEEK_DATA);
		if (data == -ENXIO || (data > 0 && (u64)data >= end))
			break;
		u64 hole = raw3(SYS_lseek, memory, data, SEEK_HOLE);
		if (data < 0 || is_error(hole))
			return -EINVAL;
		if (hole > end)
			hole = end;
		long error = read_at(memory, to + (data - start), hole - data, data);
		if (error)
			return error;
		at = hole;
	}
	return 0;
}

/* A second, readable mapping of memory that is mapped at `from`, outside all segments. */
u64 view_memory(u64 from, u64 size)
{
	long view = raw6(SYS_mremap, from, 0, size, MAYMOVE, 0, 0);
	return is_error(view) || raw3(SYS_mprotect, view, size, PROT_READ) ? 0 : view;
}

/* Copies memory to zeros: its pages that are not zeros themselves. */
void copy_but_zeros(u64 to, u64 from, u64 size)
{
	for (u64 page = 0; page < size; page += PAGE) {
		const u64 *word = (const u64 *)(from + page), *end = word + PAGE / sizeof *word;
		while (word < end && !*word)
			word++;
		if (word < end)
			copy_string((void *)(to + page), (void *)(from + page), PAGE);
	}
}

/* Copies the contents of a range of the caller's memory to `to`, which is zero. */
static long copy_own(struct task *t, u64 to, u64 from, u64 size)
{
	ask_agent(t, ASK_BRING, from, size);
	long memory = open_memory(), error = 0;
	for (u64 done = 0, part; !error && done < size; done += part) {
		u64 at = from + done, view = 0;
		part = size - done;
		if (space.pool.inode) {
			u64 left = PUBLISHED_BLOCK - (at - space.base) % PUBLISHED_BLOCK;
			part = part < left ? part : left;
		}
		int pooled = space.pool.inode && is_published(at, part);
		if ((pooled || memory < 0) && !(view = view_memory(at, part)))
			error = -ENOMEM;
		else if (pooled)
			copy_but_zeros(to + done, view, part);
		else
			error = copy_memory(to + done, at, part, memory, view);
		if (view)
			raw3(SYS_munmap, view, part, 0);
	}
	if (memory >= 0)
		raw1(SYS_close, memory);
	return error;
}

/* Maps memory behind memory, where nothing is. Returns 0 or a negative errno. */
long extend_memory(struct task *t, u64 address, u64 size, u64 more)
{
	u64 end = address + size;
	if (!all_pages(t->memory, page_of(t, address), page_of(t, end)))
		return -EFAULT;
	long at = raw6(SYS_mmap, end, more, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (is_error(at))
		return at;
	long error = map_memory(t, end, more, protection_of(end - PAGE));
	if (error)
		raw3(SYS_munmap, end, more, 0);
	return error;
}

/* mremap of memory to another place, which is free or to be replaced: the offset must stay
 * the address, so the contents move. Returns 0 or a negative errno. */
long move_memory(struct task *t, u64 old, u64 old_size, u64 to, u64 size, int keep)
{
	u64 moved = old_size < size ? old_size : size;
	int prot = protection_of(old), filling = PROT_READ | PROT_WRITE;
	give_back(t, to, size);
	long error = map_memory(t, to, size, filling);
	if (!error)
		error = copy_own(t, to, old, moved);
	if (!error && prot != filling) {
		mark_plain(t, to, size, prot);
		error = raw3(SYS_mprotect, to, size, prot);
	}
	if (error)
		return error;
	if (keep) {
		discard(t, old, old_size);
	} else {
		raw3(SYS_munmap, old, old_size, 0);
		give_back(t, old, old_size);
	}
	return 0;
}

enum verdict gate_madvise(struct task *t, struct regs *r)
{
	enum { DONTNEED = 4, FREE = 8, DONTNEED_LOCKED = 24, GUARD_INSTALL = 102 };
	u64 address = r->a1, size = align_up(r->a2, PAGE);
	/* Delegation touches its callers' buffers. */
	if (r->a3 != MADV_POPULATE_READ && r->a3 != MADV_POPULATE_WRITE && is_foreign(t, address, size))
		return answer(r, -EPERM);
	if (!has_shared(t) || address < t->own_start || size > t->segment_end - t->own_start ||
	    address > t->segment_end - size || address % PAGE || !size)
		return PASS;
	switch (r->a3) {
	case MADV_REMOVE:
		if (!is_memory(t, address, size))
			return PASS;
		r->nr = -EINVAL; /* as private memory */
		return DONE;
	case FREE: case DONTNEED: case DONTNEED_LOCKED: case GUARD_INSTALL:
		break;
	default:
		return PASS;
	}
	long result = raw3(SYS_madvise, address, r->a2, r->a3);
	if (r->a3 == FREE && result == -EINVAL && is_memory(t, address, size))
		result = 0; /* the kernel's answer for shared memory */
	if (!result || result == -ENOMEM) /* there were gaps, and the rest is done */
		discard(t, address, size);
	r->nr = result;
	return DONE;
}
