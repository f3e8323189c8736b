/* patch.c - finds the system-call sites in executable mappings, and redirects the relevant
 * ones to the gate.
 *
 * A site is `syscall` (0f 05) after the instruction that loads its number. Three shapes are
 * rewritten:
 *
 *   mov $NR,%eax ; up to 43 bytes of moves, pushes and the like ; syscall
 *   mov 8(%rsp),%r9 ; syscall           (libc's syscall(): any number)
 *   mov 24(%rbx),%rdx ; mov (%rbx),%eax ; syscall      (libc's setuid in each thread: any)
 *
 * The first instruction is at least five bytes long, so it alone becomes `jmp stub`. In the third
 * shape the jump takes the place of both loads: no compiler jumps to the second one. The moves
 * behind it stay in place and are repeated in the stub. So code that jumps into the middle still
 * works, and makes a plain system call. The stub steps below the red zone, calls the gate, and
 * executes the system call itself if the gate passes it. So clone with a new stack returns to the
 * right place.
 *
 * Sites whose number is loaded otherwise are counted (`sites_unreached`) and left alone;
 * docs/space.md explains why that is safe. Text is patched before anything can run in it,
 * and is never writable and executable at once. Each image gets its own stub pages. The
 * space stores the result of a scan by device, inode and time, so a file is read once for
 * each space instead of once for each task. */
#include "gate.h"

#define MOVED_MAX 43
#define STUB_SIZE 96

static int is_handled(u32 nr)
{
	return nr < 512 && handled[nr / 64] >> (nr % 64) & 1;
}

static u32 load32(const u8 *p)
{
	return p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24;
}

/* One instruction: its length, and where in it a RIP-relative displacement stands. */
struct instruction {
	int length, displacement; /* 0: it must not be moved; 0: it has none */
};

/* Bytes of the ModRM byte, SIB and displacement at `p`. */
static int modrm_length(const u8 *p)
{
	int mod = p[0] >> 6, rm = p[0] & 7, length = 1;
	if (mod == 3)
		return 1;
	if (rm == 4) {
		length++;
		if (mod == 0 && (p[1] & 7) == 5)
			length += 4;
	} else if (mod == 0 && rm == 5) {
		return 5;
	}
	return length + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

/* Decodes an instruction that neither branches nor writes rax. These are what compilers
 * put between a system call's number and the call: moves, address computations, pushes
 * and simple arithmetic. All others have length 0. */
static struct instruction decode(const u8 *start)
{
	const struct instruction none = {0, 0};
	const u8 *p = start;
	int rex = 0, wide = *p != 0x66;
	if (*p == 0x66)
		p++;
	if ((*p & 0xf0) == 0x40)
		rex = *p++;
	u8 op = *p++;
	int immediate = 0, reads_only = 0, to_register = 0;
	switch (op) {
	case 0x50 ... 0x57: /* push */
		return (struct instruction){p - start, 0};
	case 0x59 ... 0x5f: case 0x58: /* pop */
		return op == 0x58 && !(rex & 1) ? none : (struct instruction){p - start, 0};
	case 0xb8 ... 0xbf: /* mov imm, reg */
		if ((op == 0xb8 && !(rex & 1)) || !wide)
			return none;
		return (struct instruction){p + (rex & 8 ? 8 : 4) - start, 0};
	case 0x90: /* nop; with a prefix it exchanges rax and r8 */
		return rex & 1 ? none : (struct instruction){p - start, 0};
	case 0x8b: case 0x8d: case 0x63: case 0x33: case 0x03: case 0x2b: case 0x23: case 0x0b:
		to_register = 1; /* reg <- op rm */
		break;
	case 0x89: case 0x31: case 0x01: case 0x29: case 0x21: case 0x09: /* rm <- op reg */
		break;
	case 0x85: case 0x39: case 0x3b: case 0x84: case 0x38: case 0x3a: /* test, cmp */
		reads_only = 1;
		break;
	case 0xc7: case 0x81: /* mov imm32; add, or, and, sub, cmp ... imm32 */
		immediate = 4;
		if (!wide || (op == 0xc7 && (p[0] & 0x38)))
			return none;
		break;
	case 0x83: case 0xc6: /* ... imm8 */
		immediate = 1;
		if (op == 0xc6 && ((p[0] & 0x38) || (p[0] == 0xc4 && !rex)))
			return none; /* xabort; mov imm8, ah */
		break;
	case 0x0f:
		op = *p++;
		switch (op) {
		case 0x10: case 0x28: case 0x6f: case 0xef: case 0x57: /* to vector registers */
		case 0x11: case 0x29: case 0x7f: case 0xd6: /* from them to memory */
		case 0x1f: /* nop */
			reads_only = 1;
			break;
		case 0xb6: case 0xb7: case 0xbe: case 0xbf: /* movzx, movsx */
			to_register = 1;
			break;
		default:
			return none;
		}
		break;
	default:
		return none;
	}
	int reg = (p[0] >> 3 & 7) | (rex & 4 ? 8 : 0);
	int rm = p[0] >> 6 == 3 ? (p[0] & 7) | (rex & 1 ? 8 : 0) : -1;
	if (!reads_only && (to_register ? reg : rm) == 0)
		return none; /* writes rax */
	struct instruction i = {p + modrm_length(p) + immediate - start, 0};
	if ((p[0] & 0xc7) == 5)
		i.displacement = p + 1 - start;
	return i;
}

/* Returns true if the instructions from `p` on can be moved and end exactly at `end`. */
static int leads_to(const u8 *p, const u8 *end)
{
	while (p < end) {
		int length = decode(p).length;
		if (!length)
			return 0;
		p += length;
	}
	return p == end;
}

enum reach { REACHED, HARMLESS, UNREACHED };

/* `mov offset(base),reg`, of 64 bits if `wide`. */
struct load {
	u32 length; /* 0: another instruction */
	int reg, base, offset, wide;
};

static struct load parse_load(const u8 *start)
{
	const u8 *p = start;
	int rex = (*p & 0xf0) == 0x40 ? *p++ : 0;
	if (*p++ != 0x8b || rex & 2)
		return (struct load){0};
	int mod = p[0] >> 6, rm = p[0] & 7, length = modrm_length(p);
	if (mod > 1 || (rm == 4 && p[1] != 0x24) || (rm == 5 && !mod))
		return (struct load){0}; /* a register, an index, RIP-relative */
	return (struct load){p + length - start, (p[0] >> 3 & 7) | (rex & 4 ? 8 : 0),
	                     rm | (rex & 1 ? 8 : 0), mod ? (signed char)p[length - 1] : 0, rex & 8};
}

/* Returns the bytes of the two loads that end at `call`: an argument and the number, from one
 * structure. 0: there are none. */
static u32 length_of_loads(const u8 *call, u64 room)
{
	for (u32 n = 4; n >= 2; n--) {
		for (u32 m = 5; m >= 4; m--) {
			if (n + m > room)
				continue;
			struct load number = parse_load(call - n), argument = parse_load(call - n - m);
			int is_argument = argument.reg == 2 || argument.reg == 6 || argument.reg == 7;
			int is_offset = argument.offset == 8 || argument.offset == 16 || argument.offset == 24;
			if (number.length == n && argument.length == m && !number.wide && argument.wide &&
			    !number.reg && !number.offset && is_argument && is_offset &&
			    argument.base == number.base && argument.reg != argument.base)
				return n + m;
		}
	}
	return 0;
}

/* Classifies the instructions in front of the `syscall` at text[at]. */
static enum reach classify(const u8 *text, u64 at, struct site *site)
{
	const u8 *call = text + at;
	u32 loads = length_of_loads(call, at);
	if (loads) {
		*site = (struct site){at - loads, SITE_ANY, 0, loads};
		return REACHED;
	}
	if (at >= 5 && call[-5] == 0x4c && call[-4] == 0x8b && call[-3] == 0x4c && call[-2] == 0x24 &&
	    call[-1] == 8) {
		*site = (struct site){at - 5, SITE_ANY, 0, 5};
		return REACHED;
	}
	for (u64 back = 2; back <= MOVED_MAX + 7 && back <= at; back++) {
		const u8 *p = call - back;
		u32 nr, first;
		/* A prefix may make it a write of another register, or of a part of eax. */
		int prefixed = back < at && ((p[-1] & 0xf0) == 0x40 || p[-1] == 0x66);
		if (p[0] == 0xb8 && back >= 5 && !prefixed) { /* mov $nr,%eax */
			nr = load32(p + 1), first = 5;
		} else if (p[0] == 0x48 && p[1] == 0xc7 && p[2] == 0xc0 && back >= 7) {
			nr = load32(p + 3), first = 7;
		} else if (p[0] == 0x31 && p[1] == 0xc0 && !prefixed) { /* xor %eax,%eax: read */
			nr = 0, first = 2;
		} else {
			continue;
		}
		if (nr >= 512 || back - first > MOVED_MAX || !leads_to(p + first, call))
			continue;
		if (!is_handled(nr))
			return HARMLESS;
		*site = (struct site){at - back, nr, back - first, first};
		return REACHED;
	}
	return UNREACHED;
}

static u64 load64(const u8 *p)
{
	u64 value;
	__builtin_memcpy(&value, p, sizeof value);
	return value;
}

/* Finds the sites; stores at most `room`. Returns how many there are. */
static u32 scan(const u8 *text, u64 length, struct site *sites, u32 room, u32 *unreached)
{
	const u64 ones = 0x0101010101010101ul, highs = ones << 7;
	u32 count = 0;
	*unreached = 0;
	for (u64 i = 0; i + 1 < length;) {
		if (i % 8 == 0) { /* eight bytes at a time, of which none begins 0f 05 */
			while (i + 9 <= length) {
				u64 word = (load64(text + i) ^ 0x0f * ones) | (load64(text + i + 1) ^ 0x05 * ones);
				if ((word - ones) & ~word & highs)
					break;
				i += 8;
			}
			if (i + 1 >= length)
				break;
		}
		if (text[i] == 0x0f && text[i + 1] == 0x05) {
			struct site site;
			enum reach reach = classify(text, i, &site);
			if (reach == REACHED) {
				if (count < room)
					sites[count] = site;
				count++;
			} else if (reach == UNREACHED) {
				++*unreached;
			}
		}
		i++;
	}
	return count;
}

static u8 *put(u8 *to, const void *bytes, u32 count)
{
	for (const u8 *from = bytes; count; count--)
		*to++ = *from++;
	return to;
}

static u8 *put_number(u8 *to, u64 number, u32 count)
{
	return put(to, &number, count);
}

/* Writes the stub for `site` at `to`, where it will run as well. */
static u8 *write_stub(struct task *t, u8 *to, const struct site *site, const u8 *at)
{
	const u8 *call = at + site->first + site->moved;
	to = put(to, at, site->first);                      /* the number, or r9 */
	for (const u8 *from = at + site->first; from < call;) {
		struct instruction i = decode(from);
		put(to, from, i.length);
		if (i.displacement) { /* in reach: stubs lie within 2 GiB of the text */
			u32 moved = load32(from + i.displacement) + (u32)(from - to);
			put_number(to + i.displacement, moved, 4);
		}
		to += i.length;
		from += i.length;
	}
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
		at[0] = 0xe9;
		put_number(at + 1, (u64)(to - (at + 5)), 4);
		for (u32 pad = 5; pad < s->first; pad++)
			at[pad] = 0x90;
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
	u32 unreached, count = scan(text, length, 0, 0, &unreached);
	struct site *sites = reserve_sites(count);
	u64 size = align_up(count * sizeof *sites, PAGE), private = 0;
	if (!sites) { /* the space's table is full: scan again each time */
		private = raw6(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, 2 | MAP_ANONYMOUS, -1, 0);
		if (is_error(private))
			return private;
		sites = (struct site *)private;
	}
	scan(text, length, sites, count, &unreached);
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
