/* sites.c - finds system-call sites in code, and moves their instructions to a stub.
 *
 * A site is `syscall` (0f 05) after the instruction that loads its number. Three shapes can be
 * rewritten everywhere:
 *
 *   mov $NR,%eax ; up to 43 bytes of moves, pushes and the like ; syscall
 *   mov 8(%rsp),%r9 ; syscall           (libc's syscall(): any number)
 *   mov 24(%rbx),%rdx ; mov (%rbx),%eax ; syscall      (libc's setuid in each thread: any)
 *
 * The first instruction becomes `jmp stub`. In the third shape the jump takes the place of both
 * loads: no compiler jumps to the second one. The moves behind it stay in place and are repeated
 * in the stub. So code that jumps into the middle still works, and makes a plain system call.
 *
 * Where futex is wanted there is a fourth, of two or three bytes: `mov %reg,%eax`, and moves. It is
 * how libgomp makes that call, whose number it keeps in a register.
 *
 * `xor %eax,%eax` (read) has two bytes, too few for that jump. There a short jump leads to a long
 * one, in the padding between two functions nearby.
 *
 * This file makes no system call and knows no task. The gate uses it in tasks (patch.c), and
 * src/sites.rs in other processes. */
#include "sites.h"

#define MOVED_MAX 43
#define FUTEX 202
static int is_in(const u64 *numbers, u32 nr)
{
	return nr < 512 && numbers[nr / 64] >> (nr % 64) & 1;
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

/* Returns true if text[from] may be the operand offset(%r8) of an instruction that leads to
 * text[at]: `b8 a0 00 00 00` stands in a move from 160(%r8), too. */
static int may_be_operand(const u8 *text, u64 from, u64 at, u32 offset)
{
	for (u64 back = 1; back <= 4 && back <= from; back++) {
		const u8 *p = text + from - back, *op = text + from - 1;
		u64 length = decode(p).length;
		if (length <= back || !leads_to(p + length, text + at))
			continue;
		/* Values lie at multiples of their size. */
		if (back > 1 && op[-1] == 0x0f)
			return offset % (*op == 0xb6 || *op == 0xbe ? 1 : *op == 0xb7 || *op == 0xbf ? 2 : 4) == 0;
		if (*op == 0x8b || *op == 0x8d || *op == 0x63 || *op == 0x89)
			return offset % 4 == 0;
	}
	return 0;
}

/* Returns true if the bytes from text[from] on, with the `syscall` at text[at], may be a constant:
 * programs that write code have such constants. */
static int may_be_constant(const u8 *text, u64 from, u64 at)
{
	for (u64 back = 1; back <= 9 && back <= from; back++) {
		const u8 *p = text + from - back;
		int rex = (p[0] & 0xf0) == 0x40;
		/* mov imm32 or imm64, reg */
		int is_move = (p[rex] & 0xf8) == 0xb8;
		u64 length = is_move ? rex + 1 + (rex && (p[0] & 8) ? 8 : 4) : decode(p).length;
		if (from - back + length >= at + 2)
			return 1;
	}
	return 0;
}

/* The bytes of `mov %reg,%eax` at `p`, or 0. */
static u32 copy_length(const u8 *p)
{
	if (p[0] == 0x89 && (p[1] & 0xc7) == 0xc0 && p[1] != 0xc0)
		return 2;
	if (p[0] == 0x44 && p[1] == 0x89 && (p[2] & 0xc7) == 0xc0)
		return 3;
	return 0;
}

/* Returns true if `mov %reg,%eax` stands `back` bytes before the call at text[at] and leads to it:
 * libgomp keeps the number of futex in a register. */
static int is_number_of_register(const u8 *text, u64 at, u64 back)
{
	const u8 *p = text + at - back;
	u32 length = copy_length(p);
	int prefixed = back < at && ((p[-1] & 0xf0) == 0x40 || p[-1] == 0x66);
	return length && length <= back && !(length == 2 && prefixed) &&
	       back - length <= MOVED_MAX && leads_to(p + length, text + at);
}

/* Classifies the instructions in front of the `syscall` at text[at], for calls in `wanted`. */
static enum reach classify(const u8 *text, u64 at, const u64 *wanted, struct site *site)
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
		} else if (is_in(wanted, FUTEX) && is_number_of_register(text, at, back)) {
			if (may_be_constant(text, at - back, at))
				return UNREACHED;
			*site = (struct site){at - back, SITE_ANY, back - copy_length(p), copy_length(p)};
			return REACHED;
		} else {
			continue;
		}
		if (nr >= 512 || back - first > MOVED_MAX || !leads_to(p + first, call))
			continue;
		if (may_be_constant(text, at - back, at))
			return UNREACHED;
		/* An assembler encodes smaller offsets in one byte. */
		if (p[0] == 0xb8 && nr >= 128 && may_be_operand(text, at - back, at, nr))
			return UNREACHED;
		if (!is_in(wanted, nr))
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

/* Returns a place from `i` on, whose offset is a multiple of eight, before which no 0f 05 begins. */
static u64 skip(const u8 *text, u64 length, u64 i)
{
#ifdef __SSE2__
	/* Not in the gate, which touches no vector register. */
	typedef u8 vector __attribute__((vector_size(16), aligned(1), may_alias));
	const u8 *p = text + i, *end = text + length;
	for (; end - p >= 65; p += 64) {
		const vector *a = (const vector *)p, *b = (const vector *)(p + 1);
		vector found = {};
		for (int n = 0; n < 4; n++)
			found |= (vector)((a[n] == 0x0f) & (b[n] == 0x05));
		u64 halves[2];
		__builtin_memcpy(halves, &found, sizeof halves);
		if (halves[0] | halves[1])
			break;
	}
	i = p - text;
#endif
	const u64 ones = 0x0101010101010101ul, highs = ones << 7;
	for (; i + 9 <= length; i += 8) {
		u64 word = (load64(text + i) ^ 0x0f * ones) | (load64(text + i + 1) ^ 0x05 * ones);
		if ((word - ones) & ~word & highs)
			break;
	}
	return i;
}

u32 gate_find_sites(const u8 *text, u64 length, const u64 *wanted, struct site *sites, u32 room,
                    u32 *unreached)
{
	u32 count = 0;
	*unreached = 0;
	for (u64 i = 0; i + 1 < length;) {
		if (i % 8 == 0) {
			i = skip(text, length, i);
			if (i + 1 >= length)
				break;
		}
		if (text[i] == 0x0f && text[i + 1] == 0x05) {
			struct site site;
			enum reach reach = classify(text, i, wanted, &site);
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

u8 *gate_move_site(u8 *to, u64 to_address, const struct site *site, const u8 *at, u64 at_address)
{
	const u8 *call = at + site->first + site->moved, *from = at + site->first;
	/* Their distance as they will run, and as they lie here. */
	u32 shift = (u32)(at_address - to_address) - (u32)(at - to);
	to = put(to, at, site->first); /* the number, or r9 */
	while (from < call) {
		struct instruction i = decode(from);
		put(to, from, i.length);
		if (i.displacement) {
			u32 moved = load32(from + i.displacement) + (u32)(from - to) + shift;
			put_number(to + i.displacement, moved, 4);
		}
		to += i.length;
		from += i.length;
	}
	return to;
}

static void put_jump(u8 *at, u64 at_address, u64 to_address)
{
	*at = 0xe9;
	put_number(at + 1, to_address - (at_address + 5), 4);
}

/* Bytes of the nop at `p`, one that compilers use as padding, if it has at least seven. Or 0. */
static u32 padding_length(const u8 *p)
{
	static const u8 nops[4][10] = {{0x66, 0x2e, 0x0f, 0x1f, 0x84},
	                               {0x66, 0x0f, 0x1f, 0x84},
	                               {0x0f, 0x1f, 0x84},
	                               {0x0f, 0x1f, 0x80}};
	for (u32 kind = 0; kind < 4; kind++) {
		u32 i = 0, length = 10 - kind;
		while (i < length && p[i] == nops[kind][i])
			i++;
		if (i == length)
			return length;
	}
	return 0;
}

/* Finds padding that the two-byte jump at text[from] can reach. Returns its offset, or 0. */
static u64 find_padding(const u8 *text, u64 length, u64 from)
{
	u64 low = from > 120 ? from - 120 : 1, high = from + 120;
	if (high + 10 > length)
		high = length > 10 ? length - 10 : 0;
	for (u64 at = low; at < high; at++) {
		/* With another prefix the instruction would begin before. */
		if (text[at - 1] != 0x66 && text[at - 1] != 0x2e && padding_length(text + at))
			return at;
	}
	return 0;
}

int gate_redirect_site(u8 *text, u64 length, const struct site *site, u64 text_address,
                       u64 stub_address)
{
	u8 *at = text + site->offset;
	u32 jump = 5;
	if (site->first < jump) {
		/* Two bytes lead to a jump in padding, which other code skips. */
		u64 padding = find_padding(text, length, site->offset);
		if (!padding)
			return 0;
		u64 rest = padding + padding_length(text + padding);
		put(text + padding, "\xeb\x05", 2);
		put_jump(text + padding + 2, text_address + padding + 2, stub_address);
		for (u64 i = padding + 7; i < rest; i++)
			text[i] = 0x90;
		at[0] = 0xeb;
		at[1] = padding + 2 - (site->offset + 2);
		jump = 2;
	} else {
		put_jump(at, text_address + site->offset, stub_address);
	}
	for (u32 pad = jump; pad < site->first; pad++)
		at[pad] = 0x90;
	return 1;
}
