/* patch_sites.c - what patch.c makes of the code of a real library, as text that a test
 * compares with objdump's.
 *
 *   patch_sites handled
 *       Prints the numbers that the gate answers.
 *   patch_sites decode FILE OFFSET LENGTH ADDRESS < STARTS
 *       STARTS are addresses of instructions, in hexadecimal. Prints for each that may be
 *       moved: address, length, place of its displacement.
 *   patch_sites sites FILE OFFSET LENGTH ADDRESS STUBS
 *       Prints for each `syscall`: its address, `harmless` or `unreached`, or `reached`,
 *       the number (or `any`), and where the instructions begin that are replaced and
 *       moved; then, behind `stub`, where the stub begins and ends. The file STUBS gets
 *       the stubs' bytes. Addresses are as if the file were mapped at ADDRESS and the stubs
 *       behind it. */
#include "kernel.h"

#include "../../c/dispatch.c"
#include "../../c/sites.c"
#include "../../c/patch.c"

static long made_up_kernel(long nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	(void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
	fail("system call %ld", nr);
}

/* The functions of other files that dispatch.c and patch.c refer to. None is called. */
#define UNUSED(name) \
	enum verdict name(struct task *t, struct regs *r) \
	{ \
		(void)t, (void)r; \
		abort(); \
	}
u64 hold_mappings(struct task *t)
{
	(void)t;
	abort();
}

void let_go_mappings(struct task *t, u64 mask)
{
	(void)t, (void)mask;
	abort();
}

UNUSED(gate_brk)
UNUSED(gate_io_destroy)
UNUSED(gate_io_setup)
UNUSED(gate_seccomp)
UNUSED(gate_death_signal)
UNUSED(gate_rights)
UNUSED(gate_setrlimit)
UNUSED(gate_mmap)
UNUSED(gate_munmap)
UNUSED(gate_mremap)
UNUSED(gate_mprotect)
UNUSED(gate_madvise)
UNUSED(gate_rseq)
UNUSED(gate_shmat)
UNUSED(gate_shmdt)
UNUSED(gate_process_vm)
UNUSED(gate_kcmp)
UNUSED(gate_sigaction)
UNUSED(gate_tgkill)
UNUSED(gate_sigprocmask)
UNUSED(gate_clone)
UNUSED(gate_execve)
UNUSED(gate_readlink)
UNUSED(gate_stat)
UNUSED(gate_open)
const u8 gate_entry[1], gate_fault_entry[1];
u64 claim_near(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
	abort();
}
void release(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
	abort();
}
void keep_from_forks(struct task *t, u64 address, u64 size)
{
	(void)t, (void)address, (void)size;
	abort();
}

static const char *path;
static u64 length, address;
static u8 *text; /* `length` bytes, and room for stubs */

#define STUBS_MAX 4096ul

static void read_text(u64 offset)
{
	FILE *file = fopen(path, "rb");
	u64 size = align_up(length, PAGE) + STUBS_MAX * STUB_SIZE;
	text = calloc(1, size);
	if (!file || !text || fseek(file, offset, SEEK_SET) || fread(text, 1, length, file) != length)
		fail("%s: cannot read %lu bytes at %lu", path, length, offset);
	fclose(file);
}

static void decode_all(void)
{
	u64 start;
	while (scanf("%lx", &start) == 1) {
		/* The last bytes may be cut; the gate looks at what leads to a `syscall` only. */
		if (start < address || start + 16 > address + length)
			continue;
		struct instruction i = decode(text + (start - address));
		if (i.length)
			printf("%lx %d %d\n", start, i.length, i.displacement);
	}
}

static void print_sites(const char *stubs_path)
{
	struct task *task = (void *)0x123456789abc;
	u8 *stubs = text + align_up(length, PAGE), *to = stubs;
	for (u64 at = 0; at + 1 < length; at++) {
		struct site site;
		if (text[at] != 0x0f || text[at + 1] != 0x05)
			continue;
		enum reach reach = classify(text, at, handled, &site);
		printf("%lx %s", address + at,
		       reach == REACHED ? "reached" : reach == HARMLESS ? "harmless" : "unreached");
		if (reach == REACHED) {
			if (site.nr == SITE_ANY)
				printf(" any");
			else
				printf(" %u", site.nr);
			const u8 *p = text + site.offset;
			printf(" %lx", address + (p - text));
			if (length_of_loads(text + at, at)) /* the first part is two loads */
				printf(" %lx", address + (p + parse_load(p).length - text));
			for (p += site.first; p < text + at; p += decode(p).length)
				printf(" %lx", address + (p - text));
			if (to + STUB_SIZE > stubs + STUBS_MAX * STUB_SIZE)
				fail("more than %lu sites", STUBS_MAX);
			u8 *end = write_stub(task, to, &site, text + site.offset);
			if (end > to + STUB_SIZE)
				fail("the stub for %lx has %ld bytes", address + at, end - to);
			printf(" stub %lx %lx", address + (to - text), address + (end - text));
			to = end;
		}
		putchar('\n');
	}
	u32 unreached, count = gate_find_sites(text, length, handled, 0, 0, &unreached);
	printf("total %u reached %u unreached\n", count, unreached);
	FILE *file = fopen(stubs_path, "wb");
	if (!file || fwrite(stubs, 1, to - stubs, file) != (u64)(to - stubs) || fclose(file))
		fail("%s: cannot write", stubs_path);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "handled")) {
		for (u32 nr = 0; nr < 512; nr++)
			if (is_in(handled, nr))
				printf("%u\n", nr);
		return 0;
	}
	if (argc < 6)
		return 2;
	path = argv[2];
	length = strtoul(argv[4], 0, 0);
	address = strtoul(argv[5], 0, 0);
	read_text(strtoul(argv[3], 0, 0));
	if (!strcmp(argv[1], "decode") && argc == 6)
		decode_all();
	else if (!strcmp(argv[1], "sites") && argc == 7)
		print_sites(argv[6]);
	else
		return 2;
	return 0;
}
