/* patch.c - the gate's instruction decoder and its search for system calls, for fuzz targets
 * (src/gate/text.rs). All system calls count as calls that the gate answers. */
#include "../../space/gate/c/gate.h"

/* No system call is made. */
static inline long no_call(long nr, u64 a, u64 b, u64 c)
{
	(void)nr, (void)a, (void)b, (void)c;
	return -1;
}
#undef raw3
#define raw3(nr, a, b, c) no_call(nr, (u64)(a), (u64)(b), (u64)(c))
#define raw6(nr, a, b, c, d, e, f) no_call(nr, (u64)(a), (u64)(b), (u64)(c))

#include "../../space/gate/c/sites.c"
#include "../../space/gate/c/patch.c"

struct space space;
const u64 handled[8] = {-1ul, -1ul, -1ul, -1ul, -1ul, -1ul, -1ul, -1ul};
const u8 gate_entry[1], gate_fault_entry[1];

/* Nothing here patches a mapping. */
u64 claim_near(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
	return 0;
}

void release(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
}

void keep_from_forks(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
}

/* Returns the length of the instruction at `start`, or 0 if it must not be moved. 16 bytes can
 * be read there. */
int fuzz_gate_decode(const u8 *start, int *displacement)
{
	struct instruction i = decode(start);
	*displacement = i.displacement;
	return i.length;
}

/* A site for src/gate.rs. */
struct fuzz_site {
	u64 offset;
	u32 nr, moved, first;
};

/* Finds the sites of a text, and stores at most `room`. Returns their number. */
u32 fuzz_gate_scan(const u8 *text, u64 length, struct fuzz_site *found, u32 room)
{
	static _Thread_local struct site sites[64];
	u32 unreached, most = room < 64 ? room : 64;
	u32 count = gate_find_sites(text, length, handled, sites, most, &unreached);
	for (u32 i = 0; i < count && i < most; i++)
		found[i] = (struct fuzz_site){sites[i].offset, sites[i].nr, sites[i].moved, sites[i].first};
	return count;
}

/* Writes the stub of a site at `to`, less than 2 GiB from the text. Returns its length. */
u64 fuzz_gate_stub(const struct fuzz_site *from, const u8 *text, u8 *to)
{
	struct site site = {from->offset, from->nr, from->moved, from->first};
	return write_stub((struct task *)0x123456789abc, to, &site, text + site.offset) - to;
}

/* Lets the site in a text at `address` lead to its stub. Returns false if it cannot. */
int fuzz_gate_redirect(const struct fuzz_site *from, u8 *text, u64 length, u64 address, u64 stub)
{
	struct site site = {from->offset, from->nr, from->moved, from->first};
	return gate_redirect_site(text, length, &site, address, stub);
}
