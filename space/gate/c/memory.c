/* memory.c - brk, mmap, munmap, mremap and System V memory, each inside the caller's
 * segment.
 *
 * The kernel has one break and one search for free addresses for each mm; a space needs
 * them for each task. A bitmap has the taken pages of the mmap area. Only atomic bit
 * operations change it. There is no lock, so a signal handler, a thread or a vfork child
 * may enter at any instant, and a killed thread leaves nothing locked. A page is claimed
 * before it is mapped and released after it is unmapped. Mappings that did not come through
 * here (a site that the patcher cannot reach) are found by the kernel's
 * MAP_FIXED_NOREPLACE, and then left alone. */
#include "gate.h"

#define WORD_PAGES 64ul
#define FULL (~0ul)

static u64 area_pages(struct task *t)
{
	return (t->mmap_end - t->mmap_start) / PAGE;
}

/* Bits [from, to) of one word. */
static u64 mask_of(u64 from, u64 to)
{
	u64 high = to == WORD_PAGES ? FULL : (1ul << to) - 1;
	return high & ~((1ul << from) - 1);
}

void clear_pages(u64 *bits, u64 page, u64 end)
{
	while (page < end) {
		u64 word = page / WORD_PAGES, from = page % WORD_PAGES;
		u64 to = end - word * WORD_PAGES < WORD_PAGES ? end - word * WORD_PAGES : WORD_PAGES;
		__atomic_fetch_and(&bits[word], ~mask_of(from, to), __ATOMIC_RELEASE);
		page = (word + 1) * WORD_PAGES;
	}
}

void set_pages(u64 *bits, u64 page, u64 end)
{
	while (page < end) {
		u64 word = page / WORD_PAGES, from = page % WORD_PAGES;
		u64 to = end - word * WORD_PAGES < WORD_PAGES ? end - word * WORD_PAGES : WORD_PAGES;
		__atomic_fetch_or(&bits[word], mask_of(from, to), __ATOMIC_RELEASE);
		page = (word + 1) * WORD_PAGES;
	}
}

int any_pages(const u64 *bits, u64 page, u64 end)
{
	while (page < end) {
		u64 word = page / WORD_PAGES, from = page % WORD_PAGES;
		u64 to = end - word * WORD_PAGES < WORD_PAGES ? end - word * WORD_PAGES : WORD_PAGES;
		if (__atomic_load_n(&bits[word], __ATOMIC_ACQUIRE) & mask_of(from, to))
			return 1;
		page = (word + 1) * WORD_PAGES;
	}
	return 0;
}

int all_pages(const u64 *bits, u64 page, u64 end)
{
	while (page < end) {
		u64 word = page / WORD_PAGES, from = page % WORD_PAGES, found;
		u64 to = end - word * WORD_PAGES < WORD_PAGES ? end - word * WORD_PAGES : WORD_PAGES;
		/* Another task's bits may go under our hands. */
		if (safe_copy(&found, &bits[word], sizeof found) || ~found & mask_of(from, to))
			return 0;
		page = (word + 1) * WORD_PAGES;
	}
	return 1;
}

/* Takes the pages if all are free. Otherwise takes none, and returns the end of the
 * obstacle. Returns 0 on success. */
static u64 take_pages(struct task *t, u64 start, u64 end)
{
	for (u64 page = start; page < end;) {
		u64 word = page / WORD_PAGES, from = page % WORD_PAGES;
		u64 to = end - word * WORD_PAGES < WORD_PAGES ? end - word * WORD_PAGES : WORD_PAGES;
		u64 mask = mask_of(from, to);
		u64 old = __atomic_load_n(&t->bitmap[word], __ATOMIC_ACQUIRE);
		do {
			if (old & mask) {
				clear_pages(t->bitmap, start, page);
				return word * WORD_PAGES + 64 - __builtin_clzl(old & mask);
			}
		} while (!__atomic_compare_exchange_n(&t->bitmap[word], &old, old | mask, 0,
		                                      __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
		page = (word + 1) * WORD_PAGES;
	}
	return 0;
}

/* Returns true if the whole range lies in the mmap area, and is taken. */
int is_taken(struct task *t, u64 address, u64 size)
{
	if (address < t->mmap_start || address > t->mmap_end || size > t->mmap_end - address)
		return 0;
	u64 page = (address - t->mmap_start) / PAGE;
	return all_pages(t->bitmap, page, page + size / PAGE);
}

/* First run of `count` free pages at a multiple of `align` pages (counted from address
 * 0) in [from, to), taken; or FULL. */
static u64 search(struct task *t, u64 from, u64 to, u64 count, u64 align)
{
	u64 bias = t->mmap_start / PAGE;
	for (u64 page = from; page < to;) {
		u64 word = page / WORD_PAGES;
		u64 bits = __atomic_load_n(&t->bitmap[word], __ATOMIC_RELAXED) >> (page % WORD_PAGES);
		if (bits & 1) { /* skip what is taken */
			u64 run = ~bits ? (u64)__builtin_ctzl(~bits) : WORD_PAGES;
			u64 left = WORD_PAGES - page % WORD_PAGES;
			page += run < left ? run : left;
			continue;
		}
		u64 start = align_up(page + bias, align) - bias;
		if (start + count > to || start + count < start)
			return FULL;
		u64 obstacle = take_pages(t, start, start + count);
		if (!obstacle)
			return start;
		page = obstacle;
	}
	return FULL;
}

/* Small and large requests have separate search cursors, so that 4 KB mappings do not
 * fragment the room for huge pages. All pages below the small cursor are taken. */
u64 claim(struct task *t, u64 size, u64 align)
{
	u64 count = size / PAGE, pages = area_pages(t);
	u64 *cursor = size < HUGE_PAGE ? &t->small_cursor : &t->large_cursor;
	u64 from = __atomic_load_n(cursor, __ATOMIC_RELAXED);
	if (from >= pages)
		from = 0;
	if (count == 0 || count > pages)
		return 0;
	u64 page = search(t, from, pages, count, align / PAGE);
	if (page == FULL && from)
		page = search(t, 0, from + count < pages ? from + count : pages, count, align / PAGE);
	if (page == FULL)
		return end_returns(t) ? claim(t, size, align) : 0;
	__atomic_store_n(cursor, page + count, __ATOMIC_RELAXED);
	return t->mmap_start + page * PAGE;
}

/* Within reach of a 32-bit jump from `address`; for stubs. */
u64 claim_near(struct task *t, u64 address, u64 size)
{
	u64 reach = 0x70000000ul;
	if (address >= t->fixed_start && address < t->fixed_end) {
		u64 at = __atomic_fetch_add(&t->fixed_stubs, size, __ATOMIC_RELAXED);
		return at + size <= t->fixed_stubs_end ? at : 0;
	}
	if (address - t->own_start < reach) { /* the stub area in front of the image */
		u64 at = __atomic_fetch_add(&t->stub_next, size, __ATOMIC_RELAXED);
		if (at + size <= t->stub_end)
			return at;
	}
	u64 low = address > t->mmap_start + reach ? (address - reach - t->mmap_start) / PAGE : 0;
	u64 high = address + reach < t->mmap_end ? (address + reach - t->mmap_start) / PAGE : area_pages(t);
	if (address + reach < t->mmap_start)
		return 0;
	u64 page = search(t, low, high, size / PAGE, 1);
	return page == FULL ? 0 : t->mmap_start + page * PAGE;
}

/* The part of [address, address + size) that lies in the mmap area, as pages. */
static int in_area(struct task *t, u64 address, u64 size, u64 *from, u64 *to)
{
	u64 end = address + size;
	if (address < t->mmap_start)
		address = t->mmap_start;
	if (end > t->mmap_end)
		end = t->mmap_end;
	if (address >= end)
		return 0;
	*from = (address - t->mmap_start) / PAGE;
	*to = (end - t->mmap_start + PAGE - 1) / PAGE;
	return 1;
}

void release(struct task *t, u64 address, u64 size)
{
	u64 from, to;
	if (!in_area(t, address, size, &from, &to))
		return;
	clear_pages(t->bitmap, from, to);
	if (from < __atomic_load_n(&t->small_cursor, __ATOMIC_RELAXED))
		__atomic_store_n(&t->small_cursor, from, __ATOMIC_RELAXED);
	if (from < __atomic_load_n(&t->large_cursor, __ATOMIC_RELAXED) && to - from >= HUGE_PAGE / PAGE)
		__atomic_store_n(&t->large_cursor, from, __ATOMIC_RELAXED);
}

/* Marks pages as taken by a fixed mapping, whatever their earlier state. */
static void mark(struct task *t, u64 address, u64 size)
{
	u64 page, to;
	if (in_area(t, address, size, &page, &to))
		set_pages(t->bitmap, page, to);
}

static int is_in_area(struct task *t, u64 address, u64 size)
{
	return address % PAGE == 0 && address >= t->mmap_start &&
	       size <= t->mmap_end - t->mmap_start && address <= t->mmap_end - size;
}

/* Takes exactly these pages. Returns true on success. */
int take(struct task *t, u64 address, u64 size)
{
	if (!is_in_area(t, address, size))
		return 0;
	u64 page = (address - t->mmap_start) / PAGE, end = page + size / PAGE;
	return !take_pages(t, page, end) || (end_returns(t) && !take_pages(t, page, end));
}

/* Returns true if the program may map here: in its segment, behind Nagaya's part. */
static int is_own(struct task *t, u64 address, u64 size)
{
	return address >= t->own_start && size <= t->segment_end - t->own_start &&
	       address <= t->segment_end - size;
}

/* Returns true if the program must not change the mappings of this range: the control area,
 * memory of other tasks, Nagaya's part of its own segment, and the alias. */
int is_foreign(struct task *t, u64 address, u64 size)
{
	u64 end = space.base + space.segment_size * space.tasks_max;
	if (t->detached || size > ~address || address + size <= space.window)
		return 0;
	if (address >= end) /* the alias, through which all segments can be reached */
		return space.alias && address < space.alias + (end - space.base) &&
		       address + size > space.alias;
	int is_export = address >= t->segment && address + size <= align_down((u64)t, PAGE);
	return !is_own(t, address, size) && !is_export && !is_region(t, address, size);
}

enum verdict gate_brk(struct task *t, struct regs *r)
{
	u64 wanted = r->a1, now = t->brk;
	if (wanted < t->brk_start || wanted > t->brk_limit)
		return answer(r, now);
	u64 old_end = align_up(now, PAGE), new_end = align_up(wanted, PAGE);
	if (new_end > old_end) {
		long at = raw6(SYS_mmap, old_end, new_end - old_end, PROT_READ | PROT_WRITE,
		               2 /* MAP_PRIVATE */ | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (is_error(at))
			return answer(r, now);
		if (!has_shared(t)) {
			keep_from_forks(t, old_end, new_end - old_end);
		} else if (map_memory(t, old_end, new_end - old_end, PROT_READ | PROT_WRITE)) {
			raw3(SYS_munmap, old_end, new_end - old_end, 0);
			return answer(r, now);
		}
	} else if (new_end < old_end) {
		raw3(SYS_munmap, new_end, old_end - new_end, 0);
		give_back(t, new_end, old_end - new_end);
	}
	t->brk = wanted;
	return answer(r, wanted);
}

enum verdict gate_mmap(struct task *t, struct regs *r)
{
	u64 size = align_up(r->a2, PAGE), flags = r->a4, hint = r->a1;
	if (r->a2 == 0 || size == 0)
		return PASS; /* the kernel words the error */
	int memory = wants_memory(t, r);
	if (memory)
		flags = without_pages(flags);
	long at;
	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
		if (!is_own(t, hint, size)) {
			at = flags & MAP_FIXED ? 0 : region_map(t, r);
			return answer(r, at ? at : flags & MAP_FIXED ? -ENOMEM : -EEXIST);
		}
		/* A taken page without a mapping waits to be returned, or was just claimed by
		 * another thread, which would lose it if it were unmapped here. */
		int taken = has_shared(t) && take(t, hint, size);
		if (has_shared(t) && !taken && !(flags & MAP_FIXED) && is_in_area(t, hint, size))
			return answer(r, -EEXIST);
		at = raw6(SYS_mmap, hint, r->a2, r->a3, flags, r->a5, r->a6);
		if (is_error(at)) {
			if (taken && at != -EEXIST)
				release(t, hint, size);
		} else {
			if (!taken)
				end_returns(t);
			mark(t, at, size);
			give_back(t, at, size);
		}
	} else {
		if (flags & MAP_32BIT)
			return answer(r, -ENOMEM);
		if (hint && !is_own(t, hint, size) && (at = region_map(t, r)))
			return answer(r, at);
		u64 align = size >= HUGE_PAGE ? HUGE_PAGE : PAGE;
		if (flags & MAP_HUGETLB) {
			u64 shift = (flags >> 26) & 63;
			align = shift ? 1ul << shift : HUGE_PAGE;
			size = align_up(size, align);
		}
		u64 want = 0;
		if (hint && !(hint % align) && take(t, hint, size))
			want = hint;
		for (int tries = 0;; tries++) {
			if (!want && !(want = claim(t, size, align)))
				return answer(r, -ENOMEM);
			at = raw6(SYS_mmap, want, r->a2, r->a3, flags | MAP_FIXED_NOREPLACE, r->a5, r->a6);
			if (at == -EEXIST && tries < 64) {
				want = 0; /* not ours to give: stays taken */
				continue;
			}
			if (is_error(at))
				release(t, want, size);
			break;
		}
		/* A file that lets only the kernel choose the address, or the program's error. */
		if (at == -EINVAL && !hint && !(flags & MAP_ANONYMOUS) && !(r->a3 & PROT_EXEC))
			return answer(r, map_outside(t, r, 0));
	}
	if (!is_error(at)) {
		long error = 0;
		if (memory)
			error = share(t, at, size, r);
		else
			keep_from_forks(t, at, size);
		if (!error && (r->a3 & PROT_EXEC) && !(flags & MAP_ANONYMOUS) && (flags & MAP_TYPE) != MAP_SHARED)
			error = gate_patch(t, (u8 *)at, r->a2, r->a5, r->a6, r->a3);
		if (error) {
			raw3(SYS_munmap, at, size, 0);
			give_back(t, at, size);
			release(t, at, size);
			return answer(r, error);
		}
	}
	return answer(r, at);
}

enum verdict gate_munmap(struct task *t, struct regs *r)
{
	u64 size = align_up(r->a2, PAGE);
	/* A fork's child holds no segment but its own, and its copies of regions. */
	u64 end = t->detached ? space.base : space.base + space.segment_size * space.tasks_max;
	if (!is_own(t, r->a1, size)) {
		if (region_unmap(t, r->a1, size))
			return answer(r, 0);
		if (r->a1 + size > space.window && r->a1 < end)
			return answer(r, -EINVAL); /* somebody else's, or ours */
		long error = r->a1 % PAGE || !size ? -EINVAL : forget_outside(t, r->a1, size);
		if (error)
			return answer(r, error);
	}
	long result = raw3(SYS_munmap, r->a1, r->a2, 0);
	if (!result)
		give_back_soon(t, r->a1, size);
	return answer(r, result);
}

enum verdict gate_mremap(struct task *t, struct regs *r)
{
	enum { MAYMOVE = 1, FIXED = 2, DONTUNMAP = 4 };
	u64 old = r->a1, old_size = align_up(r->a2, PAGE), new_size = align_up(r->a3, PAGE);
	u64 flags = r->a4;
	long at;
	if (!is_own(t, old, old_size))
		return answer(r, -EFAULT);
	/* The kernel's answer for memory that it need not, or must not, move. */
	int memory = is_memory(t, old, old_size ? old_size : PAGE);
	if (memory && (!old_size || !new_size || old % PAGE || flags & ~(u64)(MAYMOVE | FIXED | DONTUNMAP) ||
	               (flags & (FIXED | DONTUNMAP) && !(flags & MAYMOVE)) ||
	               (flags & DONTUNMAP && old_size != new_size)))
		return answer(r, -EINVAL);
	if (flags & FIXED) {
		if (!is_own(t, r->a5, new_size))
			return answer(r, -ENOMEM);
		end_returns(t);
		if (!memory)
			at = raw6(SYS_mremap, old, r->a2, r->a3, flags, r->a5, 0);
		else if (r->a5 % PAGE || (old < r->a5 + new_size && r->a5 < old + old_size))
			at = -EINVAL;
		else if (!(at = move_memory(t, old, old_size, r->a5, new_size, flags & DONTUNMAP)))
			at = r->a5;
		if (!is_error(at)) {
			if (!memory)
				give_back(t, at, new_size);
			if (!(flags & DONTUNMAP))
				release(t, old, old_size);
			mark(t, at, new_size);
		}
		return answer(r, at);
	}
	if (!new_size || (new_size <= old_size && !(flags & DONTUNMAP))) {
		at = raw6(SYS_mremap, old, r->a2, r->a3, flags, 0, 0);
		if (!is_error(at))
			give_back_soon(t, old + new_size, old_size - new_size);
		return answer(r, at);
	}
	at = -ENOMEM;
	if (old_size && !(flags & DONTUNMAP)) { /* grow in place, where the pages behind are free */
		u64 tail = old + old_size, more = new_size - old_size;
		int taken = take(t, tail, more);
		if (taken || tail < t->mmap_start) {
			/* A pool is not longer where a block of it ends. */
			int pooled = memory && space.pool.inode && is_published(old, old_size);
			at = !pooled ? raw6(SYS_mremap, old, r->a2, r->a3, 0, 0, 0) : taken ? -EFAULT : -ENOMEM;
			if (!is_error(at) && memory)
				grow_memory(t, tail, more);
			/* To the kernel memory of which a part is watched is several mappings. */
			if (at == -EFAULT && memory && taken && !extend_memory(t, old, old_size, more))
				at = old;
			if (!is_error(at))
				return answer(r, at);
			if (taken)
				release(t, tail, more);
			if (at != -ENOMEM)
				return answer(r, at);
		}
	}
	if (!(flags & MAYMOVE))
		return answer(r, at);
	/* MREMAP_FIXED would replace a mapping that the bitmap does not know: make sure that
	 * the pages are ours. Without memory for that, RLIMIT_AS may still allow the move. */
	u64 want;
	long kept;
	int tries = 0;
	do {
		want = claim(t, new_size, new_size >= HUGE_PAGE ? HUGE_PAGE : PAGE);
		if (!want)
			return answer(r, -ENOMEM);
		kept = raw6(SYS_mmap, want, new_size, 0 /* PROT_NONE */,
		            2 | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	} while (kept == -EEXIST && ++tries < 64);
	if (kept == -EEXIST)
		return answer(r, -ENOMEM);
	if (!memory)
		at = raw6(SYS_mremap, old, r->a2, r->a3, flags | FIXED, want, 0);
	else if (!(at = move_memory(t, old, old_size, want, new_size, flags & DONTUNMAP)))
		at = want;
	if (is_error(at)) {
		if (!is_error(kept))
			raw3(SYS_munmap, want, new_size, 0);
		give_back(t, want, new_size);
		release(t, want, new_size);
	} else {
		if (old_size && !(flags & DONTUNMAP))
			release(t, old, old_size);
	}
	return answer(r, at); /* a moved mapping keeps its marks */
}

static int put_shm(struct shm *shms, int count, u64 address, u64 size)
{
	for (int i = 0; i < count; i++) {
		u64 none = 0;
		if (__atomic_compare_exchange_n(&shms[i].address, &none, 1, 0, __ATOMIC_ACQ_REL,
		                                __ATOMIC_RELAXED)) {
			shms[i].size = size;
			__atomic_store_n(&shms[i].address, address, __ATOMIC_RELEASE);
			return 1;
		}
	}
	return 0;
}

/* Adds a page to the table of attachments. Returns 0 if there is no memory for it. */
static struct shm_page *add_shm_page(struct task *t)
{
	u64 at;
	long mapped;
	do {
		if (!(at = claim(t, PAGE, PAGE)))
			return 0;
		mapped = raw6(SYS_mmap, at, PAGE, PROT_READ | PROT_WRITE,
		              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	} while (mapped == -EEXIST);
	if (is_error(mapped)) {
		release(t, at, PAGE);
		return 0;
	}
	keep_from_forks(t, at, PAGE);
	struct shm_page *page = (struct shm_page *)at;
	struct shm_page *next = __atomic_load_n(&t->more_shms, __ATOMIC_ACQUIRE);
	do
		page->next = next;
	while (!__atomic_compare_exchange_n(&t->more_shms, &next, page, 0, __ATOMIC_ACQ_REL,
	                                    __ATOMIC_ACQUIRE));
	return page;
}

static void remember_shm(struct task *t, u64 address, u64 size)
{
	if (put_shm(t->shms, SHMS_MAX, address, size))
		return;
	struct shm_page *page = __atomic_load_n(&t->more_shms, __ATOMIC_ACQUIRE);
	for (; page; page = page->next)
		if (put_shm(page->shms, SHM_PAGE_MAX, address, size))
			return;
	/* Without memory for a page, shmdt costs the address space. */
	if ((page = add_shm_page(t)))
		put_shm(page->shms, SHM_PAGE_MAX, address, size);
}

/* Releases an attachment that the kernel has removed. Returns true if it was found. */
static int forget_shm(struct task *t, struct shm *shms, int count, u64 address)
{
	for (int i = 0; i < count; i++) {
		u64 known = address, size = shms[i].size;
		if (__atomic_load_n(&shms[i].address, __ATOMIC_ACQUIRE) == address &&
		    __atomic_compare_exchange_n(&shms[i].address, &known, 0, 0, __ATOMIC_ACQ_REL,
		                                __ATOMIC_RELAXED)) {
			release(t, address, size);
			return 1;
		}
	}
	return 0;
}

enum verdict gate_shmat(struct task *t, struct regs *r)
{
	u64 description[14]; /* struct shmid64_ds; the size follows 48 bytes of permissions */
	long error = raw3(SYS_shmctl, r->a1, 2 /* IPC_STAT */, description);
	if (error)
		return answer(r, error);
	u64 size = align_up(description[6], PAGE), want = r->a2;
	if (want) {
		if (!is_own(t, align_down(want, PAGE), size))
			return answer(r, -ENOMEM);
	} else if (!(want = claim(t, size, size >= HUGE_PAGE ? HUGE_PAGE : PAGE))) {
		return answer(r, -ENOMEM);
	}
	long at = raw3(SYS_shmat, r->a1, want, r->a3);
	if (is_error(at)) {
		if (!r->a2)
			release(t, want, size);
		return answer(r, at);
	}
	if (r->a2) {
		end_returns(t);
		give_back(t, at, size);
	}
	mark(t, at, size);
	keep_from_forks(t, at, size);
	remember_shm(t, at, size);
	return answer(r, at);
}

enum verdict gate_shmdt(struct task *t, struct regs *r)
{
	long result = raw1(SYS_shmdt, r->a1);
	struct shm_page *page = __atomic_load_n(&t->more_shms, __ATOMIC_ACQUIRE);
	int found = result || forget_shm(t, t->shms, SHMS_MAX, r->a1);
	for (; !found && page; page = page->next)
		found = forget_shm(t, page->shms, SHM_PAGE_MAX, r->a1);
	return answer(r, result);
}
