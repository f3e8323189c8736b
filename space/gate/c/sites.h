/* sites.h - system-call sites in code: finding them, and moving their instructions. */
#ifndef NAGAYA_GATE_SITES_H
#define NAGAYA_GATE_SITES_H
#include "abi.h"

#pragma GCC visibility push(hidden)

static inline u8 *put(u8 *to, const void *bytes, u32 count)
{
	for (const u8 *from = bytes; count; count--)
		*to++ = *from++;
	return to;
}

static inline u8 *put_number(u8 *to, u64 number, u32 count)
{
	return put(to, &number, count);
}

static inline u32 load32(const u8 *p)
{
	return p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24;
}

/* Finds the sites whose call is in `wanted`, bit NR for call NR (512 bits), or may be any; stores
 * at most `room`. Returns how many there are. `unreached` counts those of another shape. */
u32 gate_find_sites(const u8 *text, u64 length, const u64 *wanted, struct site *sites, u32 room,
                    u32 *unreached);

/* Copies the instructions before the `syscall` of the site at `at` to `to`. They will run at
 * `to_address`, and the site is at `at_address` then; the two are less than 2 GiB apart. Returns
 * the end of the copy, at most 52 bytes behind `to`. */
u8 *gate_move_site(u8 *to, u64 to_address, const struct site *site, const u8 *at, u64 at_address);

/* Bytes around a site that a redirection may change, at most. */
#define SITE_REACH 160

/* Replaces the first instruction of a site by a jump to its stub. Returns 0, and changes nothing,
 * if there is no room for that. Addresses are those at which the text and the stub will run. */
int gate_redirect_site(u8 *text, u64 length, const struct site *site, u64 text_address,
                       u64 stub_address);

#pragma GCC visibility pop
#endif
