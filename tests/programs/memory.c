/* A task's memory: every address that it is given lies in its own segment, and what is
 * written stays. As an ordinary process (no pvas_getid), the same without the segment.
 *
 * usage: memory CASE [SEED] */
#include "check.h"

#include <dlfcn.h>
#include <pvas.h>
#include <sys/shm.h>
#include <sys/uio.h>

static uint64_t seed = 1;
static uintptr_t segment, segment_end;

static void find_segment(void)
{
	int id = pvas_getid();
	if (id < 0) {
		segment_end = UINTPTR_MAX;
		return;
	}
	struct pvas_space_info info = {0};
	CHECK(pvas_getspace(PVAS_SELF, &info) == 0);
	segment = info.base + (uintptr_t)id * info.segment_size;
	segment_end = segment + info.segment_size;
	CHECK((uintptr_t)pvas_segment(PVAS_SELF, id) == segment);
}

/* [start, start + size) lies in our segment. */
#define check_mine(start, size)                                                      \
	CHECK((uintptr_t)(start) >= segment && (uintptr_t)(start) + (size) <= segment_end)

/* ---- where things are ------------------------------------------------------------- */

static int initialised = 3;
static char zeroed[1 << 20];
static __thread int thread_local_here;

static void *thread_addresses(void *unused)
{
	char on_stack[100];
	check_mine(on_stack, sizeof on_stack);
	check_mine(&thread_local_here, sizeof thread_local_here);
	void *arena = malloc(5000); /* a second arena */
	check_mine(arena, 5000);
	free(arena);
	return unused;
}

static void everything_is_in_the_segment(void)
{
	extern char **environ;
	char on_stack[100];
	pthread_t threads[8];
	check_mine((void *)everything_is_in_the_segment, 1);
	check_mine((void *)printf, 1);
	check_mine(&initialised, sizeof initialised);
	check_mine(zeroed, sizeof zeroed);
	check_mine(on_stack, sizeof on_stack);
	check_mine(&thread_local_here, sizeof thread_local_here);
	check_mine(&errno, sizeof errno);
	check_mine(environ, sizeof *environ);
	check_mine(getenv("PATH"), 1);
	check_mine(malloc(10), 10);
	check_mine(malloc(100 << 20), 100 << 20);
	check_mine(sbrk(0), 0);
	check_mine(dlopen("libm.so.6", RTLD_NOW), 1);
	check_mine(dlsym(dlopen("libm.so.6", RTLD_NOW), "cos"), 1);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, thread_addresses, NULL), 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	int id = shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600);
	void *attached = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL);
	CHECK(attached != (void *)-1);
	check_mine(attached, 1 << 20);
	/* As a bare system call, number in a register, too. */
	void *raw = (void *)syscall(SYS_mmap, NULL, 1 << 20, PROT_READ | PROT_WRITE,
	                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check_mine(raw, 1 << 20);
	/* A hint in another task's segment is only a hint. */
	void *elsewhere = (void *)(segment_end + (1ul << 30));
	if (segment)
		check_mine(mmap(elsewhere, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		           1 << 20);
}

/* ---- system calls that no patcher of direct forms reaches ------------------------------ */

static long by_register(volatile long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result = number;
	__asm__ volatile("nop\n\tsyscall"
	                 : "+a"(result)
	                 : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	return result;
}

/* They do no harm, either: their mappings lie in no other task's segment, and their program
 * break is this task's. */
static void unreached_calls_are_safe(void)
{
	char *map = (char *)by_register(SYS_mmap, 0, 1 << 20, PROT_READ | PROT_WRITE,
	                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK((long)map > 0);
	if (segment) {
		int id = pvas_id_of(PVAS_SELF, map);
		CHECK(id == -1 || id == pvas_getid());
	}
	memset(map, 1, 1 << 20);
	CHECK_EQ(by_register(SYS_munmap, (long)map, 1 << 20, 0, 0, 0, 0), 0);

	unsigned char *start = (unsigned char *)by_register(SYS_brk, 0, 0, 0, 0, 0, 0), *end = start;
	CHECK((long)start > 0);
	unsigned char mine = (unsigned char)getpid();
	for (int i = 0; i < 200; i++) {
		unsigned char *next = (unsigned char *)by_register(SYS_brk, (long)end + 65536, 0, 0, 0, 0, 0);
		CHECK(next == end || next == end + 65536); /* refused, or done */
		if (next == end + 65536) {
			for (unsigned char *at = end; at < next; at += 512)
				CHECK_EQ(*at, 0);
			memset(end, mine, 65536);
		}
		end = next;
		sched_yield();
		for (unsigned char *at = start; at < end; at += 512)
			CHECK_EQ(*at, mine);
		free(malloc(100000));
	}
	/* libc is not disturbed. */
	for (int i = 0; i < 1000; i++)
		memset(malloc(5000), 3, 5000);
}

/* ---- brk ----------------------------------------------------------------------------- */

static void program_break(void)
{
	char *start = sbrk(0);
	CHECK(start != (void *)-1);
	CHECK(sbrk(10000) == start);
	for (int i = 0; i < 10000; i++)
		CHECK_EQ(start[i], 0);
	memset(start, 7, 10000);
	CHECK(sbrk(64 << 20) == start + 10000);
	memset(start + 10000, 8, 64 << 20);
	CHECK_EQ(start[9999], 7);
	check_mine(start, (64 << 20) + 10000);
	CHECK(brk(start + 5000) == 0);
	CHECK(sbrk(0) == start + 5000);
	CHECK_EQ(start[4999], 7);
	/* Freed memory returns as zeros, from the next page on. */
	char *page = (char *)(((uintptr_t)start + 5000 + 4095) & ~4095ul);
	CHECK(brk(start + 100000) == 0);
	for (char *at = page; at < start + 100000; at++)
		CHECK_EQ(*at, 0);
	CHECK(brk(start) == 0);
	CHECK((char *)syscall(SYS_brk, 0) == start);
	CHECK((char *)syscall(SYS_brk, 1) == start); /* nonsense changes nothing */
	CHECK_FAILS(brk((void *)(uintptr_t)-4096), ENOMEM);
	CHECK(sbrk(0) == start);
	/* It stays unchanged while others move theirs. */
	for (int i = 1; i <= 300; i++) {
		char *more = sbrk(4096);
		check_mine(more, 4096);
		memset(more, i, 4096);
		sched_yield();
		for (int k = 0; k < i; k++)
			CHECK_EQ((unsigned char)start[k * 4096], (unsigned char)(k + 1));
	}
}

/* ---- fixed addresses --------------------------------------------------------------------- */

static void fixed_addresses(void)
{
	size_t size = 64 << 20;
	int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	char *arena = mmap(NULL, size, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0);
	CHECK(arena != MAP_FAILED);
	check_mine(arena, size);
	/* Commit pieces of a reservation, as allocators do. */
	for (size_t at = 0; at < size; at += 4 << 20) {
		char *piece = mmap(arena + at, 1 << 20, PROT_READ | PROT_WRITE,
		                   anonymous | MAP_FIXED, -1, 0);
		CHECK(piece == arena + at);
		memset(piece, (int)(at >> 22), 1 << 20);
	}
	CHECK_EQ(arena[(8 << 20) + 5], 2);
	CHECK(mmap(arena + (8 << 20), 4096, PROT_READ, anonymous | MAP_FIXED, -1, 0) ==
	      arena + (8 << 20));
	CHECK_EQ(arena[(8 << 20) + 5], 0);
	CHECK_EQ(arena[(8 << 20) + 4096], 2);
	CHECK_FAILS((long)mmap(arena, 4096, PROT_READ, anonymous | MAP_FIXED_NOREPLACE, -1, 0),
	            EEXIST);
	CHECK(munmap(arena + (16 << 20), 16 << 20) == 0);
	CHECK(mmap(arena + (20 << 20), 8192, PROT_READ | PROT_WRITE,
	           anonymous | MAP_FIXED_NOREPLACE, -1, 0) == arena + (20 << 20));
	/* A free hint is honoured. */
	CHECK(munmap(arena + (40 << 20), 8 << 20) == 0);
	CHECK(mmap(arena + (42 << 20), 8192, PROT_READ, anonymous, -1, 0) == arena + (42 << 20));
	/* mremap to a fixed place. */
	char *moved = mremap(arena + (4 << 20), 1 << 20, 1 << 20, MREMAP_MAYMOVE | MREMAP_FIXED,
	                     arena + (44 << 20));
	CHECK(moved == arena + (44 << 20));
	CHECK_EQ(moved[5000], 1);
	/* The usual errors. */
	CHECK_FAILS((long)mmap(arena + 1, 4096, PROT_READ, anonymous | MAP_FIXED, -1, 0), EINVAL);
	CHECK_FAILS((long)mmap(NULL, 0, PROT_READ, anonymous, -1, 0), EINVAL);
	CHECK_FAILS((long)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0), EBADF);
	CHECK_FAILS((long)mmap(NULL, 1ul << 62, PROT_READ, anonymous, -1, 0), ENOMEM);
	CHECK_FAILS(munmap(arena + 1, 4096), EINVAL);
	CHECK_FAILS((long)mremap(arena + 1, 4096, 8192, MREMAP_MAYMOVE), EINVAL);
}

/* A full segment is ENOMEM to the caller, and usable again once something is unmapped. */
static void more_than_the_segment(void)
{
	if (!segment)
		return;
	size_t size = segment_end - segment;
	CHECK_FAILS((long)mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
	                       -1, 0),
	            ENOMEM);
	errno = 0;
	void *volatile block_of_all = malloc(size);
	int error = errno;
	CHECK(block_of_all == NULL);
	CHECK_EQ(error, ENOMEM);
	static char *blocks[1 << 16];
	size_t count = 0, piece = size / 64;
	while (count < sizeof blocks / sizeof *blocks) {
		void *block = mmap(NULL, piece, PROT_NONE,
		                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (block == MAP_FAILED) {
			if (piece <= 4096 * 16)
				break;
			piece /= 2;
			continue;
		}
		check_mine(block, piece);
		blocks[count++] = block;
		if (piece < size / 64 && piece > 4096 * 16)
			piece /= 2;
	}
	CHECK(count > 30);
	CHECK_FAILS((long)mmap(NULL, size / 64, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	            ENOMEM);
	CHECK(munmap(blocks[0], size / 64) == 0);
	void *again = mmap(NULL, size / 64, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(again != MAP_FAILED);
	*(int *)again = 1;
}

/* ---- random mapping ------------------------------------------------------------------------ */

#define PAGE 4096ul
#define REGIONS 64

struct region {
	char *start;
	size_t pages;
	uint64_t tags[256]; /* what each page's first and last words hold; 0: zero */
};

static struct region regions[REGIONS];

static void verify(struct region *region)
{
	for (size_t i = 0; i < region->pages; i++) {
		uint64_t *page = (uint64_t *)(region->start + i * PAGE);
		if (page[0] != region->tags[i] || page[511] != region->tags[i]) {
			fprintf(stderr, "page %zu of %p holds %llx..%llx, not %llx\n", i,
			        (void *)region->start, (unsigned long long)page[0],
			        (unsigned long long)page[511], (unsigned long long)region->tags[i]);
			_exit(1);
		}
	}
}

static void write_page(struct region *region, size_t i, uint64_t tag)
{
	uint64_t *page = (uint64_t *)(region->start + i * PAGE);
	page[0] = page[511] = region->tags[i] = tag;
}

/* No two of our regions overlap: the allocator gave nothing twice. */
static void check_disjoint(struct region *mine)
{
	for (struct region *other = regions; other < regions + REGIONS; other++)
		if (other != mine && other->pages && mine->pages)
			CHECK(mine->start + mine->pages * PAGE <= other->start ||
			      other->start + other->pages * PAGE <= mine->start);
}

static void random_mappings(void)
{
	uint64_t state = seed;
	FILE *file = tmpfile();
	/* So long that no mapping of it, cut and grown again and again, reaches its end. */
	CHECK(ftruncate(fileno(file), 1l << 36) == 0);
	for (int step = 0; step < 30000; step++) {
		struct region *region = &regions[check_random(&state) % REGIONS];
		uint64_t choice = check_random(&state) % 100;
		if (region->pages == 0) {
			region->pages = 1 + check_random(&state) % (choice < 10 ? 256 : 24);
			int flags = MAP_PRIVATE | (choice % 3 ? MAP_ANONYMOUS : 0);
			void *hint = choice % 5 ? NULL
			                        : regions[check_random(&state) % REGIONS].start +
			                                  check_random(&state) % 512 * PAGE;
			region->start = mmap(hint, region->pages * PAGE - choice % 7,
			                     PROT_READ | PROT_WRITE, flags,
			                     flags & MAP_ANONYMOUS ? -1 : fileno(file), 0);
			CHECK(region->start != MAP_FAILED);
			check_mine(region->start, region->pages * PAGE);
			memset(region->tags, 0, sizeof region->tags);
			check_disjoint(region);
			verify(region);
			continue;
		}
		size_t page = check_random(&state) % region->pages;
		if (choice < 50) {
			write_page(region, page, check_random(&state) | 1);
		} else if (choice < 60) { /* all of it */
			CHECK(munmap(region->start, region->pages * PAGE) == 0);
			region->pages = 0;
		} else if (choice < 68) { /* the end of it */
			CHECK(munmap(region->start + page * PAGE, (region->pages - page) * PAGE) == 0);
			region->pages = page;
		} else if (choice < 74) { /* the head of it */
			CHECK(munmap(region->start, page * PAGE) == 0 || page == 0);
			region->start += page * PAGE;
			region->pages -= page;
			memmove(region->tags, region->tags + page, region->pages * sizeof *region->tags);
		} else if (choice < 84) { /* shrink or grow, moving */
			size_t pages = 1 + check_random(&state) % 100;
			for (size_t i = region->pages; i < pages; i++)
				region->tags[i] = 0;
			char *moved = mremap(region->start, region->pages * PAGE, pages * PAGE,
			                     MREMAP_MAYMOVE);
			if (moved == MAP_FAILED) {
				/* A page replaced in the middle: not one mapping any more. */
				int error = errno;
				CHECK_EQ(error, EFAULT);
				verify(region);
				continue;
			}
			region->start = moved;
			region->pages = pages;
			check_mine(moved, pages * PAGE);
			check_disjoint(region);
			verify(region);
		} else if (choice < 88) { /* grow in place, or not at all */
			size_t pages = region->pages + 1;
			if (pages <= 256 && mremap(region->start, region->pages * PAGE, pages * PAGE,
			                           0) != MAP_FAILED) {
				region->pages = pages;
				region->tags[pages - 1] = 0;
				check_mine(region->start, pages * PAGE);
				check_disjoint(region);
			}
			verify(region);
		} else if (choice < 92) { /* replace one page */
			void *fixed = mmap(region->start + page * PAGE, PAGE, PROT_READ | PROT_WRITE,
			                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			CHECK(fixed == region->start + page * PAGE);
			region->tags[page] = 0;
		} else if (choice < 95) {
			CHECK(madvise(region->start + page * PAGE, PAGE, MADV_DONTNEED) == 0);
			region->tags[page] = 0;
		} else {
			CHECK(mprotect(region->start, region->pages * PAGE, PROT_READ) == 0);
			verify(region);
			CHECK(mprotect(region->start, region->pages * PAGE,
			               PROT_READ | PROT_WRITE) == 0);
		}
	}
	for (int i = 0; i < REGIONS; i++)
		if (regions[i].pages)
			verify(&regions[i]);
}

/* ---- malloc ----------------------------------------------------------------------------------- */

static void *malloc_thread(void *arg)
{
	uint64_t state = seed + (uintptr_t)arg * 7919;
	struct {
		unsigned char *start;
		size_t size;
		unsigned char fill;
	} blocks[300] = {{0}};
	for (int step = 0; step < 40000; step++) {
		size_t slot = check_random(&state) % 300;
		uint64_t choice = check_random(&state);
		size_t size = choice % 100 < 90   ? check_random(&state) % 2000
		              : choice % 100 < 99 ? check_random(&state) % 60000
		                                  : check_random(&state) % 3000000;
		unsigned char *block = blocks[slot].start;
		size_t old = blocks[slot].size;
		for (size_t i = 0; i < old; i += 1 + old / 50)
			CHECK_EQ(block[i], blocks[slot].fill);
		if (choice & 1 << 20) {
			free(block);
			block = choice & 1 << 21 ? malloc(size) : calloc(1, size);
			if (!(choice & 1 << 21) && size)
				CHECK(block[0] == 0 && block[size - 1] == 0);
		} else {
			block = realloc(block, size);
			for (size_t i = 0; i < old && i < size; i += 1 + old / 50)
				CHECK_EQ(block[i], blocks[slot].fill);
			if (!block) /* realloc(p, 0) frees */
				size = 0;
		}
		if (block)
			check_mine(block, size);
		memset(block, blocks[slot].fill = (unsigned char)choice, size);
		blocks[slot].start = block;
		blocks[slot].size = size;
	}
	for (int slot = 0; slot < 300; slot++)
		free(blocks[slot].start);
	return NULL;
}

static void mallocs(void)
{
	pthread_t threads[3];
	for (long i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, malloc_thread, (void *)i), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static void *mapping_thread(void *arg)
{
	uint64_t state = seed + (uintptr_t)arg * 104729;
	for (int i = 0; i < 3000; i++) {
		size_t size = (1 + check_random(&state) % 50) * PAGE;
		uint64_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
		                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(map != MAP_FAILED);
		check_mine(map, size);
		CHECK_EQ(map[0], 0);
		map[0] = state;
		map[size / 8 - 1] = state;
		sched_yield();
		CHECK(map[0] == state && map[size / 8 - 1] == state);
		CHECK(munmap(map, size) == 0);
	}
	return NULL;
}

/* Threads of one task map and unmap at once: no region is given twice. */
static void threads_map_at_once(void)
{
	pthread_t threads[6];
	for (long i = 0; i < 6; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, mapping_thread, (void *)i), 0);
	for (int i = 0; i < 6; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* Mapping and unmapping for ever uses no more address space: more than the whole segment
 * passes through, a gigabyte at a time. */
static void address_space_is_reused(void)
{
	for (int i = 0; i < 200; i++) {
		char *map = mmap(NULL, 1 << 30, PROT_READ | PROT_WRITE,
		                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		CHECK(map != MAP_FAILED);
		check_mine(map, 1 << 30);
		map[i << 12] = 1;
		CHECK(munmap(map, 1 << 30) == 0);
	}
}

/* Mappings until the kernel refuses: ENOMEM, nothing worse, and all is well afterwards. */
static void mappings_without_end(void)
{
	size_t most = 200000, made = 0;
	char *arena = mmap(NULL, most * 2 * PAGE, PROT_NONE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(arena != MAP_FAILED);
	while (made < most && mprotect(arena + made * 2 * PAGE, PAGE, PROT_READ) == 0)
		made++;
	int error = errno;
	printf("%s\n", made < most ? "refused" : "not refused");
	if (made < most)
		CHECK_EQ(error, ENOMEM);
	void *big = malloc(50 << 20);
	if (big)
		memset(big, 1, 50 << 20);
	fflush(stdout);
	CHECK(munmap(arena, most * 2 * PAGE) == 0);
	big = malloc(60 << 20);
	CHECK(big);
	memset(big, 1, 60 << 20);
}

/* ---- huge pages -------------------------------------------------------------------- */

/* KB of huge pages in [start, start + size). */
static long huge_kb(char *start, size_t size)
{
	char line[512];
	unsigned long from = 0, to = 0;
	long sum = 0, kb;
	FILE *maps = fopen("/proc/self/smaps", "r");
	CHECK(maps);
	while (fgets(line, sizeof line, maps)) {
		unsigned long a, b;
		if (sscanf(line, "%lx-%lx ", &a, &b) == 2)
			from = a, to = b;
		else if (sscanf(line, "AnonHugePages: %ld", &kb) == 1 && from < (uintptr_t)start + size &&
		         to > (uintptr_t)start)
			sum += kb;
	}
	fclose(maps);
	return sum;
}

static void huge_pages(void)
{
	size_t size = 16 << 20;
	char *from = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(from != MAP_FAILED && to != MAP_FAILED);
	if (segment)
		CHECK((uintptr_t)from % (2 << 20) == 0 && (uintptr_t)to % (2 << 20) == 0);
	CHECK(madvise(from, size, MADV_HUGEPAGE) == 0 && madvise(to, size, MADV_HUGEPAGE) == 0);
	/* The kernel splits a huge page now and then for its own reasons: when a subsystem such
	 * as DAMON holds a reference to it at the instant of a copy-on-write fault. A copy of
	 * Nagaya that split them would do so every time. */
	long before = 0, after = -1;
	for (int attempt = 0; attempt < 20 && after != before; attempt++) {
		CHECK(madvise(from, size, MADV_DONTNEED) == 0 && madvise(to, size, MADV_DONTNEED) == 0);
		memset(from, 1, size);
		memset(to, 2, size);
		before = huge_kb(from, size) + huge_kb(to, size);
		struct iovec local = {to, size}, remote = {from, size};
		CHECK_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), size);
		pid_t child = fork();
		CHECK(child >= 0);
		if (!child)
			_exit(memcmp(from, to, size) != 0);
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK_EQ(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), size);
		after = huge_kb(from, size) + huge_kb(to, size);
	}
	CHECK_EQ(after, before);
	puts(before == 2 * (long)size >> 10 ? "all huge" : before ? "some huge" : "none huge");
}

static const struct check_case cases[] = {
	{"huge_pages", huge_pages},
	{"everything_is_in_the_segment", everything_is_in_the_segment},
	{"unreached_calls_are_safe", unreached_calls_are_safe},
	{"program_break", program_break},
	{"fixed_addresses", fixed_addresses},
	{"more_than_the_segment", more_than_the_segment},
	{"random_mappings", random_mappings},
	{"mallocs", mallocs},
	{"threads_map_at_once", threads_map_at_once},
	{"address_space_is_reused", address_space_is_reused},
	{"mappings_without_end", mappings_without_end},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	find_segment();
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	return check_main(cases, argc, argv);
}
