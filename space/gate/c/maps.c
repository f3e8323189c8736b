/* maps.c - what the kernel says is mapped: /proc/self/maps, by bare system calls. */
#include "gate.h"

/* Returns 0 or a negative errno. */
long open_maps(struct maps *m)
{
	m->next = m->end = 0;
	m->fd = raw6(SYS_openat, -100 /* AT_FDCWD */, (long)"/proc/self/maps",
	             O_CLOEXEC, 0, 0, 0);
	return m->fd < 0 ? m->fd : 0;
}

void close_maps(struct maps *m)
{
	raw1(SYS_close, m->fd);
}

/* The next character; 0 at the end. */
static char get(struct maps *m)
{
	if (m->next == m->end) {
		long n = raw3(SYS_read, m->fd, m->text, sizeof m->text);
		m->next = 0;
		m->end = n > 0 ? n : 0;
		if (n <= 0)
			return 0;
	}
	return m->text[m->next++];
}

static int is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* A number, and the character behind it. */
static u64 get_hex(struct maps *m)
{
	u64 number = 0;
	for (char c; is_hex(c = get(m));)
		number = number << 4 | (u64)(c <= '9' ? c - '0' : c - 'a' + 10);
	return number;
}

/* The next mapping; 0 at the end. Mappings that were seen already may change meanwhile. */
int next_mapping(struct maps *m, struct mapping *found)
{
	/* start-end rwxp offset ... */
	found->start = get_hex(m);
	found->end = get_hex(m);
	found->prot = get(m) == 'r' ? PROT_READ : 0;
	found->prot |= get(m) == 'w' ? PROT_WRITE : 0;
	found->prot |= get(m) == 'x' ? PROT_EXEC : 0;
	found->shared = get(m) == 's';
	get(m);
	found->offset = get_hex(m);
	for (char c = 1; c && c != '\n';)
		c = get(m);
	return found->end != 0;
}

/* Of the mapping at `address`; if nobody can tell, that of most memory. */
int protection_of(u64 address)
{
	struct { /* struct procmap_query, since Linux 6.11 */
		u64 size, flags, address, start, end, prot, rest[7];
	} query = {sizeof query, 0, address, 0, 0, 0, {0}};
	const u64 PROCMAP_QUERY = 3ul << 30 | sizeof query << 16 | 'f' << 8 | 17;
	struct maps maps;
	struct mapping m;
	int prot = PROT_READ | PROT_WRITE;
	if (open_maps(&maps))
		return prot;
	if (!raw3(SYS_ioctl, maps.fd, PROCMAP_QUERY, &query)) {
		prot = query.prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
	} else {
		while (next_mapping(&maps, &m) && m.start <= address)
			if (address < m.end)
				prot = m.prot;
	}
	close_maps(&maps);
	return prot;
}
