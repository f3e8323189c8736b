/* An inline system call changes rax, rcx and r11, and nothing else: not the other registers,
 * not the vector registers, not the red zone below the stack pointer. Each probe makes its
 * call in the direct form (mov $NR, %eax; syscall) with known values everywhere.
 *
 * Prints one line for each call; a process and a task print the same. */
#include "check.h"

#include <stddef.h>
#include <sys/uio.h>

#define SIZE 5001 /* of copies */

struct probe {
	uint64_t arguments[6];    /* rdi, rsi, rdx, r10, r8, r9 */
	uint64_t result;          /* rax */
	uint64_t after[12];       /* rdi, rsi, rdx, r10, r8, r9, rbx, rbp, r12, r13, r14, r15 */
	uint64_t red_zone[16];    /* what stands below the stack pointer */
	uint8_t vectors[16][64];  /* in and out: zmm0-15; ymm or xmm in the lower parts */
	uint64_t stack_pointers[2];
};

/* The assembly below counts on this. */
_Static_assert(offsetof(struct probe, result) == 48, "layout");
_Static_assert(offsetof(struct probe, after) == 56, "layout");
_Static_assert(offsetof(struct probe, red_zone) == 152, "layout");
_Static_assert(offsetof(struct probe, vectors) == 280, "layout");
_Static_assert(offsetof(struct probe, stack_pointers) == 1304, "layout");

#define LOAD(n) "vmovdqu " #n "*64+280(%rdi), %ymm" #n "\n"
#define STORE(n) "vmovdqu %ymm" #n ", " #n "*64+280(%rcx)\n"
#define LOAD_X(n) "movdqu " #n "*64+280(%rdi), %xmm" #n "\n"
#define STORE_X(n) "movdqu %xmm" #n ", " #n "*64+280(%rcx)\n"
#define LOAD_Z(n) "vmovdqu64 " #n "*64+280(%rdi), %zmm" #n "\n"
#define STORE_Z(n) "vmovdqu64 %zmm" #n ", " #n "*64+280(%rcx)\n"
#define ALL(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) \
	do(12) do(13) do(14) do(15)
#define RED(n) "movabs $0x5ed0000000000" #n ", %rax\n mov %rax, -8*(" #n "-10+1)(%rsp)\n"
#define SAVE_RED(n) "mov -8*(" #n "-10+1)(%rsp), %rdx\n mov %rdx, 152+8*(" #n "-10)(%rcx)\n"
#define ALL_RED(do) do(10) do(11) do(12) do(13) do(14) do(15) do(16) do(17) do(18) do(19) \
	do(20) do(21) do(22) do(23) do(24) do(25)

#define PROBE(name, number, load, store)                                             \
	void name(struct probe *);                                                   \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n"  \
	        "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n" \
	        "push %rdi\n"                                                        \
	        "mov %rsp, 1304(%rdi)\n" ALL(load) ALL_RED(RED)                       \
	        "movabs $0x1111000000000011, %rbx\nmovabs $0x2222000000000022, %rbp\n" \
	        "movabs $0x3333000000000033, %r12\nmovabs $0x4444000000000044, %r13\n" \
	        "movabs $0x5555000000000055, %r14\nmovabs $0x6666000000000066, %r15\n" \
	        "mov 8(%rdi), %rsi\nmov 16(%rdi), %rdx\nmov 24(%rdi), %r10\n"        \
	        "mov 32(%rdi), %r8\nmov 40(%rdi), %r9\nmov 0(%rdi), %rdi\n"          \
	        "mov $" #number ", %eax\nsyscall\n"                                  \
	        "mov (%rsp), %rcx\n"                                                 \
	        "mov %rsp, 1312(%rcx)\n"                                              \
	        "mov %rax, 48(%rcx)\n"                                               \
	        "mov %rdi, 56(%rcx)\nmov %rsi, 64(%rcx)\nmov %rdx, 72(%rcx)\n"       \
	        "mov %r10, 80(%rcx)\nmov %r8, 88(%rcx)\nmov %r9, 96(%rcx)\n"         \
	        "mov %rbx, 104(%rcx)\nmov %rbp, 112(%rcx)\nmov %r12, 120(%rcx)\n"    \
	        "mov %r13, 128(%rcx)\nmov %r14, 136(%rcx)\nmov %r15, 144(%rcx)\n"    \
	        ALL(store) ALL_RED(SAVE_RED)                                         \
	        "pop %rdi\npop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\n" \
	        "ret\n.size " #name ", .-" #name "\n")

#define PROBES(name, number)                      \
	PROBE(name, number, LOAD_X, STORE_X);     \
	PROBE(name##_avx, number, LOAD, STORE);   \
	PROBE(name##_avx512, number, LOAD_Z, STORE_Z)

PROBES(probe_getppid, 110);
PROBES(probe_brk, 12);
PROBES(probe_mmap, 9);
PROBES(probe_munmap, 11);
PROBES(probe_mremap, 25);
PROBES(probe_mprotect, 10);
PROBES(probe_open, 2);
PROBES(probe_readlink, 89);
PROBES(probe_readv, 310);
PROBES(probe_writev, 311);
PROBES(probe_nonsense, 9999);

static uint64_t try(const char *name, void (*function)(struct probe *), uint64_t a, uint64_t b,
                    uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
	static const uint64_t kept[6] = {0x1111000000000011, 0x2222000000000022,
	                                 0x3333000000000033, 0x4444000000000044,
	                                 0x5555000000000055, 0x6666000000000066};
	struct probe probe = {.arguments = {a, b, c, d, e, f}};
	uint8_t wanted[16][64];
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < 64; k++)
			wanted[i][k] = probe.vectors[i][k] = (uint8_t)(i * 37 + k * 11 + 5);
	function(&probe);
	for (int i = 0; i < 6; i++) {
		CHECK_EQ(probe.after[i], probe.arguments[i]);
		CHECK_EQ(probe.after[6 + i], kept[i]);
	}
	CHECK_EQ(probe.stack_pointers[0], probe.stack_pointers[1]);
	for (uint64_t i = 0; i < 16; i++) {
		uint64_t digits = (i + 10) / 10 * 16 + (i + 10) % 10;
		CHECK_EQ(probe.red_zone[i], 0x5ed000000000000 + digits);
	}
	CHECK(memcmp(probe.vectors, wanted, sizeof wanted) == 0);
	if ((int64_t)probe.result < 0 && (int64_t)probe.result > -4096)
		printf("%s %s\n", name, strerrorname_np(-(int)probe.result));
	else
		printf("%s done\n", name);
	return probe.result;
}

/* SSE code is slower while they are in use. */
static void upper_halves_stay_unused(struct iovec *local, struct iovec *remote)
{
	unsigned a, b, c, d, in_use;
	__asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "0"(1), "2"(0));
	if (!(c >> 27 & 1) || !__builtin_cpu_supports("avx"))
		return;
	__asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "0"(0xd), "2"(1));
	if (!(a >> 2 & 1))
		return;
	__asm__ volatile("vzeroupper");
	CHECK_EQ(process_vm_readv(getpid(), local, 1, remote, 1, 0), SIZE);
	__asm__ volatile("xgetbv" : "=a"(in_use), "=d"(d) : "c"(1));
	CHECK_EQ(in_use & 4, 0);
}

int main(void)
{
	int avx = __builtin_cpu_supports("avx"), avx512 = __builtin_cpu_supports("avx512f");
	char text[64];
	static char from[SIZE], to[SIZE];
	struct iovec local = {to, SIZE}, remote = {from, SIZE}, nowhere = {(void *)8, SIZE};
#define TRY(name, ...)                                                               \
	try(#name, probe_##name, __VA_ARGS__);                                       \
	if (avx)                                                                     \
		try(#name, probe_##name##_avx, __VA_ARGS__);                         \
	if (avx512)                                                                  \
		try(#name, probe_##name##_avx512, __VA_ARGS__)
	for (int round = 0; round < 2; round++) {
		TRY(getppid, 1, 2, 3, 4, 5, 6);
		TRY(brk, 0, 2, 3, 4, 5, 6);
		TRY(mmap, 0, 4096, 3, 0x22, (uint64_t)-1, 0);
		TRY(mmap, 0, 0, 3, 0x22, (uint64_t)-1, 0);
		uint64_t map = try("mmap", probe_mmap, 0, 1 << 20, 3, 0x22, (uint64_t)-1, 0);
		*(volatile char *)map = 1;
		map = try("mremap", probe_mremap, map, 1 << 20, 4 << 20, 1, 0, 6);
		CHECK_EQ(*(volatile char *)map, 1);
		TRY(mprotect, map, 4096, 1, 4, 5, 6);
		TRY(munmap, map, 4 << 20, 3, 4, 5, 6);
		TRY(munmap, 1, 4096, 3, 4, 5, 6);
		TRY(open, (uint64_t)"/nonexistent", 0, 0, 4, 5, 6);
		TRY(open, 8, 0, 0, 4, 5, 6);
		TRY(readlink, (uint64_t)"/proc/self/exe", (uint64_t)text, sizeof text, 4, 5, 6);
		TRY(readlink, (uint64_t)"/proc/self/nonexistent", (uint64_t)text, 64, 4, 5, 6);
		memset(from, 7 + round, sizeof from);
		uint64_t me = (uint64_t)getpid();
		TRY(readv, me, (uint64_t)&local, 1, (uint64_t)&remote, 1, 0);
		CHECK(memcmp(from, to, SIZE) == 0);
		TRY(writev, me, (uint64_t)&local, 1, (uint64_t)&remote, 1, 0);
		TRY(readv, me, (uint64_t)&local, 1, (uint64_t)&nowhere, 1, 0);
		TRY(writev, me, (uint64_t)&nowhere, 1, (uint64_t)&remote, 1, 0);
		TRY(readv, me, (uint64_t)&local, 1, (uint64_t)&remote, 1, 1);
		TRY(nonsense, 1, 2, 3, 4, 5, 6);
		upper_halves_stay_unused(&local, &remote);
	}
}
