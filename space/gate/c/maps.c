/* maps.c - the mappings of a process: reads /proc/PID/maps by bare system calls. */
#include "gate.h"

/* For paths: both return the end. */
char *put_text(char *to, const char *text)
{
	while (*text)
		*to++ = *text++;
	return to;
}

char *put_decimal(char *to, u64 number)
{
	char digits[20];
	int count = 0;
	do
		digits[count++] = '0' + number % 10;
	while (number /= 10);
	while (count)
		*to++ = digits[--count];
	return to;
}

/* Those of a process; 0: of this one. Returns 0 or a negative errno. */
long open_maps(struct maps *m, u32 pid)
{
	char path[64], *end = put_text(path, "/proc/");
	end = pid ? put_decimal(end, pid) : put_text(end, "self");
	*put_text(end, "/maps") = 0;
	m->next = m->end = 0;
	m->fd = raw6(SYS_openat, -100 /* AT_FDCWD */, (long)path, O_CLOEXEC, 0, 0, 0);
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

static u64 get_decimal(struct maps *m, char *end)
{
	u64 number = 0;
	while ((*end = get(m)) >= '0' && *end <= '9')
		number = number * 10 + (u64)(*end - '0');
	return number;
}

/* The next mapping; 0 at the end. Mappings that were seen already may change meanwhile. */
int next_mapping(struct maps *m, struct mapping *found)
{
	/* start-end rwxp offset major:minor inode ... */
	found->start = get_hex(m);
	found->end = get_hex(m);
	found->prot = get(m) == 'r' ? PROT_READ : 0;
	found->prot |= get(m) == 'w' ? PROT_WRITE : 0;
	found->prot |= get(m) == 'x' ? PROT_EXEC : 0;
	found->shared = get(m) == 's';
	get(m);
	found->offset = get_hex(m);
	found->file.device = get_hex(m) << 32;
	found->file.device |= get_hex(m);
	char c;
	found->file.inode = get_decimal(m, &c);
	while (c && c != '\n')
		c = get(m);
	return found->end != 0;
}

/* Finds the mapping at `address` in a process (0: this one): its protection, and whether it
 * is shared. Returns 0, or -1 if there is none or /proc cannot be read. */
int mapping_at(u32 pid, u64 address, struct mapping *found)
{
	struct { /* struct procmap_query, since Linux 6.11 */
		u64 size, flags, address, start, end, prot, rest[7];
	} query = {sizeof query, 0, address, 0, 0, 0, {0}};
	const u64 PROCMAP_QUERY = 3ul << 30 | sizeof query << 16 | 'f' << 8 | 17;
	struct maps maps;
	int result = -1;
	if (open_maps(&maps, pid))
		return -1;
	if (!raw3(SYS_ioctl, maps.fd, PROCMAP_QUERY, &query)) {
		found->prot = query.prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
		found->shared = (query.prot & 8 /* PROCMAP_QUERY_VMA_SHARED */) != 0;
		result = 0;
	} else {
		while (result && next_mapping(&maps, found) && found->start <= address)
			result = address < found->end ? 0 : -1;
	}
	close_maps(&maps);
	return result;
}

/* Returns the protection at `address`, or read and write if it cannot be found. */
int protection_of(u64 address)
{
	struct mapping m;
	return mapping_at(0, address, &m) ? PROT_READ | PROT_WRITE : m.prot;
}
