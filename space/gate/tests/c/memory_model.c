/* memory_model.c - memory.c against a simple model: one byte a page says who has it. With
 * shared memory (returns.c) another byte says what is there, if it is not zero.
 *
 *   memory_model alone SEED OPERATIONS     one thread; every page is checked after each call
 *   memory_model foreign SEED OPERATIONS   beside mappings that did not come through the gate
 *   memory_model threads SEED OPERATIONS   four threads: no page is ever given to two
 *   memory_model shared SEED OPERATIONS    one thread, shared memory
 *   memory_model shared-threads SEED OPERATIONS
 *   memory_model borders                   searches that begin, end and turn at word borders */
#include "kernel.h"

#include "../../c/lock.c"
#include "../../c/memory.c"
#include "../../c/outside.c"
#include "../../c/returns.c"

/* A segment of a size at which everything happens often. */
#define SEGMENT (5ul << 40)
#define OWN_PAGES 64ul   /* in front of the program: export area and so on */
#define HEAP_PAGES 100ul
#define PAGES_MAX 8192ul /* of the mmap area */
#define FOREIGN 255

static struct task task;
static u64 pages; /* of the mmap area */
static u8 owners[PAGES_MAX + OWN_PAGES + HEAP_PAGES]; /* 0: not mapped */
static u8 contents[PAGES_MAX + OWN_PAGES + HEAP_PAGES];
static u64 seed, operation;

/* The settings of this run. */
static int foreign_too, fail_sometimes, threaded, shared;
static __thread u64 random_state;
static __thread u8 me = 1;
static __thread u64 injected; /* failures of the made-up kernel in this call */

/* SplitMix64, the same everywhere for the same seed. */
static u64 next_random(u64 *state)
{
	u64 z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static u64 below(u64 limit)
{
	return next_random(&random_state) % limit;
}

static u64 index_of(u64 address)
{
	return (address - SEGMENT) / PAGE;
}

static u64 page_address(u64 page)
{
	return task.mmap_start + page * PAGE;
}

static u64 pages_of(u64 bytes)
{
	return (bytes + PAGE - 1) / PAGE;
}

static void check_range(u64 address, u64 size, const char *what)
{
	if (address % PAGE || address < task.own_start || address + size > task.segment_end)
		fail("seed %lu, operation %lu: %s at %lx, %lx bytes", seed, operation, what, address, size);
}

static int is_free(u64 address, u64 count)
{
	for (u64 i = 0; i < count; i++)
		if (__atomic_load_n(&owners[index_of(address) + i], __ATOMIC_ACQUIRE))
			return 0;
	return 1;
}

/* Pages that the program itself asked to replace. */
static __thread u64 replaced_start, replaced_end;

static void set_owner(u64 address, u64 count, u8 owner, int may_replace)
{
	for (u64 i = 0; i < count; i++) {
		u64 at = address + i * PAGE;
		u8 old = __atomic_exchange_n(&owners[index_of(at)], owner, __ATOMIC_ACQ_REL);
		if (old == FOREIGN && !(at >= replaced_start && at < replaced_end))
			fail("seed %lu, operation %lu: a foreign mapping at %lx was replaced", seed, operation, at);
		if (old && !may_replace)
			fail("seed %lu, operation %lu: the page at %lx was given to %d and %d", seed, operation, at,
			     old, owner);
	}
}

/* It may have asked for pages that others have. */
static __thread int asks;

static u64 shm_pages;
static u64 shm_at[64], shm_count[64];

static long made_up_mmap(u64 address, u64 length, u64 flags)
{
	u64 count = pages_of(length);
	if (flags & MAP_HUGETLB)
		count = align_up(count, 512);
	check_range(address, count * PAGE, "mmap");
	if (!(flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)))
		fail("seed %lu: mmap without an address", seed);
	if (fail_sometimes && below(16) == 0) {
		injected++;
		return -ENOMEM;
	}
	if (flags & MAP_FIXED_NOREPLACE) {
		static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
		pthread_mutex_lock(&one);
		int free = is_free(address, count);
		if (free)
			set_owner(address, count, me, 0);
		pthread_mutex_unlock(&one);
		if (!free && !foreign_too && !(shared && threaded) && !asks)
			fail("seed %lu, operation %lu: mmap of taken pages at %lx", seed, operation, address);
		if (!free)
			return -EEXIST;
	} else {
		set_owner(address, count, me, 1);
	}
	return address;
}

static long made_up_mremap(u64 old, u64 old_length, u64 new_length, u64 flags, u64 to)
{
	u64 old_count = pages_of(old_length), count = pages_of(new_length);
	for (u64 i = 0; i < old_count; i++)
		if (!owners[index_of(old) + i])
			return -EFAULT;
	if (fail_sometimes && below(16) == 0) {
		injected++;
		return -ENOMEM;
	}
	if (!count)
		return -EINVAL;
	if (flags & 2) {
		if (to < old + old_count * PAGE && old < to + count * PAGE)
			return -EINVAL;
		check_range(to, count * PAGE, "mremap");
		set_owner(to, count, me, 1);
		if (!(flags & 4))
			set_owner(old, old_count, 0, 1);
		return to;
	}
	if (count <= old_count) {
		set_owner(old + count * PAGE, old_count - count, 0, 1);
		return old;
	}
	if (flags & 1)
		fail("seed %lu: mremap may move where the kernel likes", seed);
	u64 tail = old + old_count * PAGE;
	if (tail + (count - old_count) * PAGE > task.segment_end || !is_free(tail, count - old_count))
		return -ENOMEM;
	set_owner(tail, count - old_count, me, 0);
	return old;
}

static long made_up_kernel(long nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	(void)f;
	switch (nr) {
	case SYS_mmap: return made_up_mmap(a, b, d);
	case SYS_munmap:
		if (a % PAGE || !b || a < SEGMENT || a + b > task.segment_end)
			return -EINVAL;
		set_owner(a, pages_of(b), 0, 1);
		return 0;
	case SYS_rt_sigprocmask: case SYS_tkill: return 0;
	case SYS_gettid: return me;
	case SYS_futex: return sched_yield();
	case SYS_mremap: return made_up_mremap(a, b, c, d, e);
	case SYS_shmctl:
		((u64 *)c)[6] = shm_pages * PAGE - below(PAGE);
		return 0;
	case SYS_shmat:
		if (!is_free(b, shm_pages))
			return -EINVAL;
		for (int i = 0; i < 64; i++) {
			if (!shm_at[i]) {
				shm_at[i] = b, shm_count[i] = shm_pages;
				set_owner(b, shm_pages, me, 0);
				return b;
			}
		}
		return -ENOMEM;
	case SYS_shmdt:
		for (int i = 0; i < 64; i++) {
			if (shm_at[i] == a) {
				set_owner(a, shm_count[i], 0, 1);
				shm_at[i] = 0;
				return 0;
			}
		}
		return -EINVAL;
	}
	fail("seed %lu: system call %ld", seed, nr);
}

/* What memory.c uses of the other files. */
/* Only what is mapped is shared memory, or nothing: nothing of it moves or grows. */
int is_memory(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
	return 0;
}

int wants_memory(struct task *t, const struct regs *r)
{
	return has_shared(t) && r->a4 & MAP_ANONYMOUS;
}

void forget_memory(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
}

/* Records that no task may have the page any more, except one that requests memory in its
 * place. Another thread may just have done so. */
void give_back(struct task *t, u64 address, u64 size)
{
	for (u64 at = address; has_shared(t) && at < address + size; at += PAGE) {
		u8 owner = __atomic_load_n(&owners[index_of(at)], __ATOMIC_ACQUIRE);
		if (owner && !threaded && (owner != me || at < replaced_start || at >= replaced_end))
			fail("seed %lu, operation %lu: what %d has at %lx is given back", seed, operation, owner, at);
		__atomic_store_n(&contents[index_of(at)], 0, __ATOMIC_RELEASE);
	}
}

u64 without_pages(u64 flags)
{
	return flags;
}

long map_memory(struct task *t, u64 address, u64 size, int prot)
{
	(void)t, (void)prot, (void)address, (void)size;
	return 0;
}

long share(struct task *t, u64 address, u64 size, const struct regs *r)
{
	(void)t, (void)r;
	for (u64 at = address; at < address + size; at += PAGE)
		if (__atomic_exchange_n(&contents[index_of(at)], me, __ATOMIC_ACQ_REL))
			fail("seed %lu, operation %lu: new memory at %lx is not zero", seed, operation, at);
	return 0;
}

static void check_contents(u64 start, u64 count)
{
	for (u64 at = start; shared && at < start + count * PAGE; at += PAGE)
		if (__atomic_load_n(&contents[index_of(at)], __ATOMIC_ACQUIRE) != me)
			fail("seed %lu, operation %lu: memory at %lx is lost", seed, operation, at);
}

long move_memory(struct task *t, u64 old, u64 old_size, u64 to, u64 size, int keep)
{
	(void)t, (void)old_size, (void)size, (void)keep;
	fail("shared memory moves from %#lx to %#lx", old, to);
}

/* All is on this machine. */
int is_published(u64 address, u64 size)
{
	(void)address, (void)size;
	return 0;
}

void grow_memory(struct task *t, u64 end, u64 more)
{
	(void)t;
	fail("shared memory at %#lx grows by %#lx", end, more);
}

u64 copy_string(void *to, const void *from, u64 size)
{
	memcpy(to, from, size);
	return 0;
}

void keep_from_forks(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
}
long region_map(struct task *t, const struct regs *r)
{
	(void)t, (void)r;
	return 0;
}
int is_region(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
	return 0;
}
int region_unmap(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
	return 0;
}
long gate_patch(struct task *t, u8 *text, u64 length, int fd, u64 offset, int prot)
{
	(void)t, (void)text, (void)length, (void)fd, (void)offset, (void)prot;
	return 0;
}

static void set_up(u64 area_pages)
{
	static u64 bitmap[PAGES_MAX / 64 + 1];
	memset(bitmap, 0, sizeof bitmap);
	memset(owners, 0, sizeof owners);
	memset(&task, 0, sizeof task);
	memset(shm_at, 0, sizeof shm_at);
	memset(contents, 0, sizeof contents);
	pages = area_pages;
	task.segment = SEGMENT;
	task.own_start = SEGMENT + OWN_PAGES * PAGE;
	task.brk_start = task.brk = task.own_start + 12345;
	task.brk_limit = task.own_start + (HEAP_PAGES - 1) * PAGE;
	task.mmap_start = task.own_start + HEAP_PAGES * PAGE;
	task.mmap_end = task.segment_end = task.mmap_start + pages * PAGE;
	task.stub_next = SEGMENT, task.stub_end = SEGMENT + 16 * PAGE;
	task.bitmap = bitmap;
	space.window = SEGMENT - (1ul << 30), space.base = SEGMENT;
	space.segment_size = task.segment_end - SEGMENT, space.tasks_max = 1;
	space.alias = shared;
}

/* Returns true if the page waits to be returned. No other thread runs. */
static int is_waiting(u64 page)
{
	u64 at = page_address(page);
	for (int i = 0; shared && i < RETURNS_MAX; i++)
		if (task.returns[i] && at >= start_of(&task, task.returns[i]) &&
		    at < end_of(&task, task.returns[i]))
			return 1;
	return 0;
}

/* Returns true if it is taken, and stays so. */
static int bit(u64 page)
{
	return task.bitmap[page / 64] >> (page % 64) & 1 && !is_waiting(page);
}

static u64 count_bits(void)
{
	u64 count = 0;
	for (u64 page = 0; page < pages; page++)
		count += bit(page);
	return count;
}

/* Returns true if `count` pages whose bits are clear begin at a multiple of `align` bytes. */
static int has_room(u64 count, u64 align)
{
	for (u64 page = 0; page + count <= pages; page++) {
		if (page_address(page) % align)
			continue;
		u64 i = 0;
		while (i < count && !bit(page + i))
			i++;
		if (i == count)
			return 1;
	}
	return 0;
}

/* The bitmap equals the mappings. */
static void check_bitmap(void)
{
	for (u64 page = 0; page < pages; page++) {
		u8 owner = owners[index_of(page_address(page))];
		if (owner && owner != FOREIGN && !bit(page))
			fail("seed %lu, operation %lu: page %lu is mapped and not in the bitmap", seed, operation, page);
		if (!owner && bit(page) && !foreign_too)
			fail("seed %lu, operation %lu: page %lu is in the bitmap and not mapped", seed, operation, page);
	}
	if (task.bitmap[pages / 64] >> (pages % 64))
		fail("seed %lu, operation %lu: bits behind the end", seed, operation);
}

/* A mapping from the program's point of view. */
struct piece {
	u64 start, count;
};
#define MAPPINGS_MAX 200

struct program {
	struct piece mappings[MAPPINGS_MAX];
	int used;
};

static long call(enum verdict (*gate)(struct task *, struct regs *), u64 a1, u64 a2, u64 a3, u64 a4,
                 u64 a5)
{
	struct regs r = {0, a1, a2, a3, a4, a5, 0};
	injected = 0;
	if (gate(&task, &r) != DONE)
		fail("seed %lu, operation %lu: passed on", seed, operation);
	return r.nr;
}

static void add(struct program *p, u64 start, u64 count)
{
	if (count)
		p->mappings[p->used++] = (struct piece){start, count};
}

static u64 random_count(void)
{
	switch (below(threaded ? 4 : 8)) {
	case 0: return 1 + below(3);
	case 1: return 60 + below(10);
	case 2: return 1 + below(200);
	case 3: return 64 * (1 + below(2));
	case 4: return 512 + below(3);
	case 5: return 1 + below(1200);
	default: return 1 + below(20);
	}
}

static void map(struct program *p)
{
	u64 count = random_count(), hint = 0, flags = MAP_ANONYMOUS | 2;
	if (below(4) == 0)
		hint = page_address(below(pages));
	long at = call(gate_mmap, hint, count * PAGE - below(PAGE), 3, flags, -1);
	if (is_error(at)) {
		u64 align = count >= 512 ? HUGE_PAGE : PAGE;
		if (at != -ENOMEM)
			fail("seed %lu, operation %lu: mmap: %ld", seed, operation, at);
		if (!injected && !threaded && has_room(count, align))
			fail("seed %lu, operation %lu: no room found for %lu pages", seed, operation, count);
		return;
	}
	if (hint && at != (long)hint && !threaded && !foreign_too && count < 512) {
		/* Only if there was no room: the new mapping itself may cover it now. */
		for (u64 i = 0; i < count; i++) {
			u64 address = hint + i * PAGE;
			if (address >= task.mmap_end || bit((address - task.mmap_start) / PAGE))
				goto taken;
		}
		fail("seed %lu, operation %lu: the hint %lx was free", seed, operation, hint);
	}
taken:
	add(p, at, count);
}

static void map_fixed(struct program *p, int m)
{
	struct piece *old = &p->mappings[m];
	u64 skip = below(old->count), count = 1 + below(old->count - skip);
	check_contents(old->start, old->count);
	replaced_start = old->start + skip * PAGE, replaced_end = replaced_start + count * PAGE;
	long at = call(gate_mmap, replaced_start, count * PAGE, 3, MAP_ANONYMOUS | 2 | MAP_FIXED, -1);
	if (is_error(at) ? !injected : at != (long)replaced_start)
		fail("seed %lu, operation %lu: MAP_FIXED: %ld", seed, operation, at);
	replaced_start = replaced_end = 0;
}

/* Unmaps a part, often all. */
static void unmap(struct program *p, int m)
{
	struct piece old = p->mappings[m];
	u64 skip = below(2) ? 0 : below(old.count), count = old.count - skip;
	if (below(3) == 0)
		count = 1 + below(count);
	check_contents(old.start, old.count);
	replaced_start = old.start + skip * PAGE, replaced_end = replaced_start + count * PAGE;
	if (call(gate_munmap, replaced_start, count * PAGE - below(PAGE), 0, 0, 0))
		fail("seed %lu, operation %lu: munmap", seed, operation);
	replaced_start = replaced_end = 0;
	p->mappings[m] = p->mappings[--p->used];
	add(p, old.start, skip);
	add(p, old.start + (skip + count) * PAGE, old.count - skip - count);
}

static void remap(struct program *p, int m)
{
	struct piece *old = &p->mappings[m];
	u64 count = shared ? 1 + below(old->count) : random_count(), flags = below(3) ? 1 : 0;
	if (count < old->count) { /* what is cut off is the program's wish */
		replaced_start = old->start + count * PAGE;
		replaced_end = old->start + old->count * PAGE;
	}
	long at = call(gate_mremap, old->start, old->count * PAGE, count * PAGE, flags, 0);
	replaced_start = replaced_end = 0;
	if (is_error(at)) {
		if (at != -ENOMEM)
			fail("seed %lu, operation %lu: mremap: %ld", seed, operation, at);
		u64 align = count >= 512 ? HUGE_PAGE : PAGE;
		if (flags && !injected && !threaded && !foreign_too && has_room(count, align))
			fail("seed %lu, operation %lu: no room to move %lu pages", seed, operation, count);
		return;
	}
	if (!flags && at != (long)old->start)
		fail("seed %lu, operation %lu: moved", seed, operation);
	*old = (struct piece){at, count};
}

/* Unmaps a part, then all, or requests memory in the same place. Among threads, only if no
 * other thread has it by then. */
static void come_back(struct program *p, int m)
{
	struct piece old = p->mappings[m];
	u64 skip = below(old.count), count = 1 + below(below(2) ? old.count - skip : 1);
	u64 start = old.start + skip * PAGE;
	check_contents(old.start, old.count);
	replaced_start = start, replaced_end = start + count * PAGE;
	int free = 1;
	for (int times = threaded ? 1 : 1 + below(3); times && free; times--) {
		if (call(gate_munmap, start, count * PAGE, 0, 0, 0))
			fail("seed %lu, operation %lu: munmap of a part", seed, operation);
		if (!threaded && below(2))
			map(p);
		free = threaded || is_free(start, count);
	}
	if (!threaded && free && below(2)) {
		replaced_start = old.start, replaced_end = old.start + old.count * PAGE;
		if (call(gate_munmap, old.start, old.count * PAGE, 0, 0, 0))
			fail("seed %lu, operation %lu: munmap of what is left", seed, operation);
		p->mappings[m] = p->mappings[--p->used];
	} else {
		u64 how = threaded || !free || below(2) ? MAP_FIXED_NOREPLACE : MAP_FIXED;
		asks = 1;
		long at = call(gate_mmap, start, count * PAGE, 3, MAP_ANONYMOUS | 2 | how, -1);
		asks = 0;
		if (is_error(at)) {
			p->mappings[m] = p->mappings[--p->used];
			add(p, old.start, skip);
			add(p, start + count * PAGE, old.count - skip - count);
		}
	}
	replaced_start = replaced_end = 0;
}

static void attach(void)
{
	shm_pages = 1 + below(80);
	long at = call(gate_shmat, 1, 0, 0, 0, 0);
	if (at == -ENOMEM || (at == -EINVAL && foreign_too))
		return;
	if (is_error(at))
		fail("seed %lu, operation %lu: shmat: %ld", seed, operation, at);
}

static void leave_space(void)
{
	u64 at = shm_at[below(64)];
	if (at && call(gate_shmdt, at, 0, 0, 0, 0))
		fail("seed %lu, operation %lu: shmdt", seed, operation);
}

static void move_break(void)
{
	u64 wanted = task.brk_start - PAGE + below((HEAP_PAGES + 2) * PAGE), before = task.brk;
	u64 now = call(gate_brk, wanted, 0, 0, 0, 0);
	int valid = wanted >= task.brk_start && wanted <= task.brk_limit;
	if (now != (valid && !injected ? wanted : before) && !foreign_too)
		fail("seed %lu, operation %lu: brk(%lx) is %lx", seed, operation, wanted, now);
	/* The page that the heap begins in is the image's. */
	for (u64 at = align_up(task.brk_start, PAGE); at < task.mmap_start; at += PAGE)
		if (!foreign_too && !!owners[index_of(at)] != (at < now))
			fail("seed %lu, operation %lu: the heap at %lx", seed, operation, at);
}

/* A mapping by a system call that the patcher could not reach, where nothing is. */
static void map_past_the_gate(void)
{
	u64 at = page_address(below(pages)), count = 1 + below(8);
	if (at + count * PAGE <= task.mmap_end && is_free(at, count))
		memset(&owners[index_of(at)], FOREIGN, count);
}

static void operate(struct program *p)
{
	int m = p->used ? (int)below(p->used) : -1;
	switch (below(threaded ? 8 : 12)) {
	case 0 ... 2:
		if (p->used < MAPPINGS_MAX / 2)
			map(p);
		break;
	case 3 ... 5:
		if (m >= 0)
			unmap(p, m);
		break;
	case 6:
		if (m >= 0)
			remap(p, m);
		break;
	case 7:
		if (m >= 0 && shared && below(2))
			come_back(p, m);
		else if (m >= 0)
			map_fixed(p, m);
		break;
	case 8: attach(); break;
	case 9: leave_space(); break;
	case 10: move_break(); break;
	case 11:
		if (foreign_too)
			map_past_the_gate();
		break;
	}
}

static void unmap_all(struct program *p)
{
	fail_sometimes = 0;
	while (p->used) {
		struct piece m = p->mappings[--p->used];
		check_contents(m.start, m.count);
		replaced_start = m.start, replaced_end = m.start + m.count * PAGE;
		call(gate_munmap, m.start, m.count * PAGE, 0, 0, 0);
	}
}

static void run_alone(u64 operations)
{
	static const u64 sizes[] = {64, 65, 127, 700, 1024 + 512, 4096, PAGES_MAX};
	for (u64 n = 0; n < sizeof sizes / sizeof *sizes; n++) {
		struct program program = {.used = 0};
		set_up(sizes[n]);
		for (operation = 0; operation < operations; operation++) {
			/* Failures come in spells, so that what follows them is seen, too. Not beside
			 * foreign mappings: a move goes on where it cannot make sure of its pages. */
			fail_sometimes = !foreign_too && operation / 100 % 3 == 1;
			operate(&program);
			check_bitmap();
		}
		unmap_all(&program);
		for (int i = 0; i < 64; i++)
			if (shm_at[i])
				call(gate_shmdt, shm_at[i], 0, 0, 0, 0);
		end_returns(&task);
		if (!foreign_too && count_bits())
			fail("seed %lu: %lu pages stay taken", seed, count_bits());
	}
}

static u64 thread_operations;

static void *run_thread(void *number)
{
	struct program program = {.used = 0};
	me = (u8)(u64)number;
	random_state = seed + me;
	for (u64 i = 0; i < thread_operations; i++)
		operate(&program);
	unmap_all(&program);
	return 0;
}

static void run_threads(u64 operations)
{
	static const u64 sizes[] = {130, 1000, 4096};
	threaded = 1;
	thread_operations = operations;
	for (u64 n = 0; n < sizeof sizes / sizeof *sizes; n++) {
		pthread_t threads[4];
		set_up(sizes[n]);
		for (u64 i = 0; i < 4; i++)
			pthread_create(&threads[i], 0, run_thread, (void *)(i + 1));
		for (u64 i = 0; i < 4; i++)
			pthread_join(threads[i], 0);
		end_returns(&task);
		/* Memory that another thread has requested in the meantime stays taken. */
		if (count_bits() && !shared)
			fail("seed %lu: %lu pages stay taken", seed, count_bits());
	}
}

/* One free run of `count` pages at `page`, all else taken: it is found from every cursor,
 * and nothing longer is. */
static void one_gap(u64 page, u64 count)
{
	for (u64 cursor = 0; cursor <= pages; cursor += cursor < 130 ? 1 : 61) {
		memset(task.bitmap, 0, PAGES_MAX / 8);
		mark(&task, task.mmap_start, pages * PAGE);
		task.small_cursor = task.large_cursor = cursor;
		clear_pages(task.bitmap, page, page + count);
		if (claim(&task, (count + 1) * PAGE, PAGE))
			fail("a gap of %lu pages at %lu held one more", count, page);
		u64 at = claim(&task, count * PAGE, PAGE);
		if (at != page_address(page))
			fail("a gap of %lu pages at %lu, cursor %lu: claimed %lx", count, page, cursor, at);
		if (count_bits() != pages || claim(&task, PAGE, PAGE))
			fail("a gap of %lu pages at %lu was not taken whole", count, page);
		release(&task, at, count * PAGE);
		if (count_bits() != pages - count)
			fail("a gap of %lu pages at %lu was not released whole", count, page);
	}
}

static void run_borders(void)
{
	static const u64 counts[] = {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193};
	set_up(64 * 9);
	for (u64 c = 0; c < sizeof counts / sizeof *counts; c++)
		for (u64 page = 0; page <= 200; page++)
			one_gap(page, counts[c]);
	for (u64 c = 0; c < sizeof counts / sizeof *counts; c++)
		one_gap(pages - counts[c], counts[c]);
	/* Parts of pages, and ranges that only touch the area. */
	set_up(64);
	mark(&task, task.mmap_start - 3 * PAGE, 4 * PAGE);
	mark(&task, task.mmap_end - PAGE, 4 * PAGE);
	if (count_bits() != 2 || !bit(0) || !bit(63))
		fail("marks at the area's ends: %lx", task.bitmap[0]);
	release(&task, SEGMENT, 1ul << 40);
	if (count_bits())
		fail("release of more than the area");
	mark(&task, task.mmap_end, PAGE);
	mark(&task, task.mmap_start - PAGE, PAGE);
	if (count_bits())
		fail("marks outside of the area");
	if (claim(&task, 0, PAGE) || claim(&task, 65 * PAGE, PAGE) || claim(&task, ~0ul - PAGE + 1, PAGE))
		fail("claims of nothing, and of more than there is");
	if (take(&task, task.mmap_end - PAGE, 2 * PAGE) || take(&task, task.mmap_start, -PAGE))
		fail("taken beyond the end");
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "borders")) {
		run_borders();
		return 0;
	}
	if (argc != 4)
		return 2;
	random_state = seed = strtoul(argv[2], 0, 10);
	u64 operations = strtoul(argv[3], 0, 10);
	foreign_too = !strcmp(argv[1], "foreign");
	shared = !strncmp(argv[1], "shared", 6);
	if (strstr(argv[1], "threads"))
		run_threads(operations);
	else
		run_alone(operations);
	return 0;
}
