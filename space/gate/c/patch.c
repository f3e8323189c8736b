/* patch.c - redirects the system-call sites of executable mappings (sites.c) to the gate.
 *
 * The stub of a site repeats the site's instructions, steps below the red zone, calls the gate,
 * and executes the system call itself if the gate passes it. So clone with a new stack returns to
 * the right place.
 *
 * Sites whose number is loaded otherwise are counted (`sites_unreached`) and left alone;
 * docs/space.md explains why that is safe. Text is patched before anything can run in it,
 * and is never writable and executable at once. Each image gets its own stub pages. The
 * space stores the result of a scan by device, inode and time, so a file is read once for
 * each space instead of once for each task. */
#include "gate.h"
#include "sites.h"

#define STUB_SIZE 96

/* Writes the stub for `site` at `to`, where it will run as well. */
static u8 *write_stub(struct task *t, u8 *to, const struct site *site, const u8 *at)
{
	const u8 *call = at + site->first + site->moved;
	/* In reach: stubs lie within 2 GiB of the text. */
	to = gate_move_site(to, (u64)to, site, at, (u64)at);
	to = put(to, "\x48\x8d\x64\x24\x80", 5);            /* lea -128(%rsp),%rsp */
	to = put_number(put(to, "\x49\xbb", 2), (u64)t, 8); /* movabs task,%r11 */
	to = put_number(put(to, "\x48\xb9", 2), (u64)gate_entry, 8); /* movabs ...,%rcx */
	to = put(to, "\xff\xd1", 2);                        /* call *%rcx */
	to = put(to, "\x48\x8d\xa4\x24\x80\0\0\0", 8);      /* lea 128(%rsp),%rsp */
	to = put(to, "\xe3\x02", 2);                        /* jrcxz over the syscall */
	to = put(to, "\x0f\x05", 2);                        /* syscall */
	*to++ = 0xe9;                                       /* jmp back */
	return put_number(to, (u64)(call + 2 - (to + 4)), 4);
}

/* Returns 0 or a negative errno; a mapping whose sites cannot be led must not run. */
static long patch_sites(struct task *t, u8 *text, u64 length, int prot, const struct site *sites,
                        u32 count)
{
	if (!count)
		return 0;
	u64 size = align_up(count * STUB_SIZE, PAGE), stubs;
	long at;
	do {
		stubs = claim_near(t, (u64)text + length / 2, size);
		if (!stubs)
			return -ENOMEM;
		at = raw6(SYS_mmap, stubs, size, PROT_READ | PROT_WRITE,
		          2 | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	} while (at == -EEXIST);
	if (is_error(at)) {
		release(t, stubs, size);
		return at;
	}

	/* All of it: a part would split the mapping in three for good, and the kernel walks
	 * all mappings of the space whenever a task ends. */
	u64 low = (u64)text, high = align_up((u64)text + length, PAGE);
	long error = raw3(SYS_mprotect, low, high - low, PROT_READ | PROT_WRITE);
	if (error) {
		raw3(SYS_munmap, stubs, size, 0);
		release(t, stubs, size);
		return error;
	}
	u8 *to = (u8 *)stubs;
	for (u32 i = 0; i < count; i++) {
		const struct site *s = &sites[i];
		u8 *at = text + s->offset, *call = at + s->first + s->moved;
		/* The scan may be another task's, of a file that was written to since. */
		if (s->offset + s->first + s->moved + 2u > length || call[0] != 0x0f || call[1] != 0x05 ||
		    (s->nr != SITE_ANY && load32(at + s->first - 4) != s->nr)) {
			t->sites_unreached++;
			continue;
		}
		u8 *end = write_stub(t, to, s, at);
		if (!gate_redirect_site(text, length, s, (u64)text, (u64)to)) {
			t->sites_unreached++;
			continue;
		}
		to = (u8 *)align_up((u64)end, 16);
		t->sites_patched++;
	}
	if (stubs >= t->segment && stubs < t->segment_end)
		keep_from_forks(t, stubs, size);
	error = raw3(SYS_mprotect, low, high - low, prot);
	return error ? error : raw3(SYS_mprotect, stubs, size, PROT_READ | PROT_EXEC);
}

static struct image *find_image(const struct file *f, u64 offset, u64 length)
{
	u32 used = __atomic_load_n(&space.images_used, __ATOMIC_ACQUIRE);
	for (u32 i = 0; i < used && i < IMAGES_MAX; i++) {
		struct image *m = &space.images[i];
		if (__atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == 2 && m->ino == f->ino &&
		    m->dev == f->dev && m->offset == offset && m->length == length && m->size == f->size &&
		    m->mtime_s == f->mtime_s && m->mtime_ns == f->mtime_ns)
			return m;
	}
	return 0;
}

/* Room for `count` sites in the space, or 0. */
static struct site *reserve_sites(u32 count)
{
	u32 first = __atomic_load_n(&space.sites_used, __ATOMIC_RELAXED);
	do {
		if (count > SITES_MAX - first)
			return 0;
	} while (!__atomic_compare_exchange_n(&space.sites_used, &first, first + count, 0,
	                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return &space.sites[first];
}

static void publish(const struct file *f, u64 offset, u64 length, struct site *sites, u32 count,
                    u32 unreached)
{
	u32 n = __atomic_load_n(&space.images_used, __ATOMIC_RELAXED);
	do {
		if (n >= IMAGES_MAX)
			return;
	} while (!__atomic_compare_exchange_n(&space.images_used, &n, n + 1, 0, __ATOMIC_ACQ_REL,
	                                      __ATOMIC_RELAXED));
	struct image *m = &space.images[n];
	m->dev = f->dev, m->ino = f->ino, m->size = f->size;
	m->mtime_s = f->mtime_s, m->mtime_ns = f->mtime_ns;
	m->offset = offset, m->length = length;
	m->sites = count, m->first_site = sites - space.sites, m->unreached = unreached;
	__atomic_store_n(&m->state, 2, __ATOMIC_RELEASE);
}

/* Returns true if the file has not been written to since `f` was read. */
static int is_unchanged(int fd, const struct file *f)
{
	struct file now;
	return !raw3(SYS_fstat, fd, &now, 0) && now.size == f->size && now.mtime_s == f->mtime_s &&
	       now.mtime_ns == f->mtime_ns;
}

/* Patches a private mapping of `fd` that has just been made and has not run yet. Returns
 * 0 or a negative errno. */
long gate_patch(struct task *t, u8 *text, u64 length, int fd,
                                                      u64 offset, int prot)
{
	struct file f;
	if (raw3(SYS_fstat, fd, &f, 0) || offset >= f.size || !(prot & PROT_READ))
		return 0;
	if (length > f.size - offset)
		length = f.size - offset; /* beyond the end of the file is SIGBUS */
	struct image *known = find_image(&f, offset, length);
	if (known) {
		t->sites_unreached += known->unreached;
		return patch_sites(t, text, length, prot, &space.sites[known->first_site], known->sites);
	}
	u32 unreached, count = gate_find_sites(text, length, handled, 0, 0, &unreached);
	struct site *sites = reserve_sites(count);
	u64 size = align_up(count * sizeof *sites, PAGE), private = 0;
	if (!sites) { /* the space's table is full: scan again each time */
		private = raw6(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, 2 | MAP_ANONYMOUS, -1, 0);
		if (is_error(private))
			return private;
		sites = (struct site *)private;
	}
	gate_find_sites(text, length, handled, sites, count, &unreached);
	/* Pages that only the scan has read need not stay mapped. */
	if (!(prot & PROT_WRITE) && !t->no_madvise)
		raw3(SYS_madvise, align_down((u64)text, PAGE), align_up(length, PAGE), 4 /* MADV_DONTNEED */);
	if (!private && is_unchanged(fd, &f))
		publish(&f, offset, length, sites, count, unreached);
	t->sites_unreached += unreached;
	long error = patch_sites(t, text, length, prot, sites, count);
	if (private)
		raw3(SYS_munmap, private, size, 0);
	return error;
}

/* Makes the page through which the kernel enters gate_fault_entry with `t` in rcx.
 * Returns 0 or a negative errno. */
long gate_thunk_init(struct task *t)
{
	u64 page = t->stub_next;
	t->stub_next += PAGE;
	long at = raw6(SYS_mmap, page, PAGE, PROT_READ | PROT_WRITE,
	               2 | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (is_error(at))
		return at;
	u8 *to = put_number(put((u8 *)page, "\x48\xb9", 2), (u64)t, 8);      /* movabs task,%rcx */
	to = put_number(put(to, "\x48\xb8", 2), (u64)gate_fault_entry, 8); /* movabs ...,%rax */
	put(to, "\xff\xe0", 2);                                            /* jmp *%rax */
	t->thunk = page;
	return raw3(SYS_mprotect, page, PAGE, PROT_READ | PROT_EXEC);
}
