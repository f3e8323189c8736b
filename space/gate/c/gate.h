/* gate.h - what the gate's files know of each other, and the few kernel constants that
 * freestanding code must spell out. */
#ifndef NAGAYA_GATE_H
#define NAGAYA_GATE_H
#include "abi.h"

/* Applies to declarations, too: addresses are then relative to the code, and need no offset
 * table, which would have to be relocated. */
#pragma GCC visibility push(hidden)

/* Registers at a system-call site, as entry.S lays them on the stack. */
struct regs {
	u64 nr, a1, a2, a3, a4, a5, a6;
};

/* The next step of the stub: return `nr` of struct regs as the result, or execute the
 * system call with the current registers. */
enum verdict { DONE, PASS };

static inline enum verdict answer(struct regs *r, long result)
{
	r->nr = result;
	return DONE;
}

static inline long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
	                 : "=a"(result)
	                 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	return result;
}
#define raw3(nr, a, b, c) raw6(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define raw1(nr, a) raw3(nr, a, 0, 0)

#define SYS_read 0
#define SYS_write 1
#define SYS_open 2
#define SYS_close 3
#define SYS_stat 4
#define SYS_fstat 5
#define SYS_lseek 8
#define SYS_mmap 9
#define SYS_mprotect 10
#define SYS_munmap 11
#define SYS_brk 12
#define SYS_rt_sigaction 13
#define SYS_rt_sigprocmask 14
#define SYS_ioctl 16
#define SYS_pread64 17
#define SYS_sched_yield 24
#define SYS_mremap 25
#define SYS_mincore 27
#define SYS_madvise 28
#define SYS_shmat 30
#define SYS_shmctl 31
#define SYS_getpid 39
#define SYS_clone 56
#define SYS_fork 57
#define SYS_execve 59
#define SYS_wait4 61
#define SYS_kill 62
#define SYS_shmdt 67
#define SYS_fcntl 72
#define SYS_readlink 89
#define SYS_sysinfo 99
#define SYS_setuid 105
#define SYS_setgid 106
#define SYS_getppid 110
#define SYS_setreuid 113
#define SYS_setregid 114
#define SYS_getgroups 115
#define SYS_setgroups 116
#define SYS_setresuid 117
#define SYS_getresuid 118
#define SYS_setresgid 119
#define SYS_getresgid 120
#define SYS_setfsuid 122
#define SYS_setfsgid 123
#define SYS_capget 125
#define SYS_capset 126
#define SYS_mlock 149
#define SYS_mlockall 151
#define SYS_prctl 157
#define SYS_arch_prctl 158
#define SYS_setrlimit 160
#define SYS_gettid 186
#define SYS_tkill 200
#define SYS_futex 202
#define SYS_io_setup 206
#define SYS_io_destroy 207
#define SYS_exit_group 231
#define SYS_tgkill 234
#define SYS_waitid 247
#define SYS_openat 257
#define SYS_newfstatat 262
#define SYS_readlinkat 267
#define SYS_unshare 272
#define SYS_rt_tgsigqueueinfo 297
#define SYS_prlimit64 302
#define SYS_setns 308
#define SYS_process_vm_readv 310
#define SYS_process_vm_writev 311
#define SYS_kcmp 312
#define SYS_seccomp 317
#define SYS_memfd_create 319
#define SYS_execveat 322
#define SYS_pkey_mprotect 329
#define SYS_statx 332
#define SYS_rseq 334
#define SYS_clone3 435
#define SYS_landlock_restrict_self 446

#define EPERM 1
#define ENOENT 2
#define ESRCH 3
#define ENXIO 6
#define E2BIG 7
#define ENOMEM 12
#define EACCES 13
#define EFAULT 14
#define EEXIST 17
#define EINVAL 22
#define ETIMEDOUT 110

#define O_CLOEXEC 02000000

#define PR_SET_PDEATHSIG 1
#define PR_GET_PDEATHSIG 2
#define PR_SET_SECCOMP 22

#define PROT_READ 1
#define PROT_WRITE 2
#define PROT_EXEC 4
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_TYPE 0xf
#define MAP_FIXED 0x10
#define MAP_ANONYMOUS 0x20
#define MAP_32BIT 0x40
#define MAP_HUGETLB 0x40000
#define MAP_FIXED_NOREPLACE 0x100000

#define is_error(x) ((u64)(x) > (u64)-4096)
#define align_up(x, a) (((x) + (a)-1) & ~((a)-1))
#define align_down(x, a) ((x) & ~((a)-1))

extern struct space space;

/* The properties of an open file that the gate uses; the kernel's struct stat. */
struct file {
	u64 dev, ino, nlink;
	u32 mode, uid, gid, pad;
	u64 rdev, size, block_size, blocks, atime[2], mtime_s, mtime_ns, ctime[2], reserved[3];
};

/* Returns true if the task's memory is shared memory (shared.c). A forked child's is
 * private. */
static inline int has_shared(struct task *t)
{
	return space.alias && !t->detached;
}

/* memory.c */
void set_pages(u64 *bits, u64 page, u64 end);
void clear_pages(u64 *bits, u64 page, u64 end);
int any_pages(const u64 *bits, u64 page, u64 end);
int all_pages(const u64 *bits, u64 page, u64 end);
int is_taken(struct task *t, u64 address, u64 size);
u64 claim(struct task *t, u64 size, u64 align);
int take(struct task *t, u64 address, u64 size);
int is_foreign(struct task *t, u64 address, u64 size);
u64 claim_near(struct task *t, u64 address, u64 size);
void release(struct task *t, u64 address, u64 size);
enum verdict gate_brk(struct task *t, struct regs *r);
enum verdict gate_mmap(struct task *t, struct regs *r);
enum verdict gate_munmap(struct task *t, struct regs *r);
enum verdict gate_mremap(struct task *t, struct regs *r);
enum verdict gate_shmat(struct task *t, struct regs *r);
enum verdict gate_shmdt(struct task *t, struct regs *r);

/* protect.c */
int may_open(struct task *t, u64 address, u64 size, u64 prot);

/* outside.c */
long map_outside(struct task *t, const struct regs *r, u64 address);
long forget_outside(struct task *t, u64 address, u64 size);
enum verdict gate_io_setup(struct task *t, struct regs *r);
enum verdict gate_io_destroy(struct task *t, struct regs *r);

/* rights.c */
enum verdict gate_rights(struct task *t, struct regs *r);
enum verdict gate_death_signal(struct task *t, struct regs *r);
char *put_program(char *to, const struct task *t);
enum verdict refuse_loss(struct task *t, struct regs *r);

/* filter.c */
enum verdict gate_seccomp(struct task *t, struct regs *r);

/* stack.c */
#define STACK_SHARE 8 /* a stack takes at most this part of its segment; layout/src/space.rs */
enum verdict gate_setrlimit(struct task *t, struct regs *r);

/* shared.c */
int is_memory(struct task *t, u64 address, u64 size);
void grow_memory(struct task *t, u64 end, u64 more);
enum verdict gate_mprotect(struct task *t, struct regs *r);
long map_memory(struct task *t, u64 address, u64 size, int prot);
void forget_memory(struct task *t, u64 address, u64 size);
void give_back(struct task *t, u64 address, u64 size);
int wants_memory(struct task *t, const struct regs *r);
u64 without_pages(u64 flags);
long share(struct task *t, u64 address, u64 size, const struct regs *r);
long open_memory(void);
void copy_but_zeros(u64 to, u64 from, u64 size);
u64 view_memory(u64 from, u64 size);
long copy_memory(u64 to, u64 from, u64 size, long memory, u64 view);
long extend_memory(struct task *t, u64 address, u64 size, u64 more);
long move_memory(struct task *t, u64 old, u64 old_size, u64 to, u64 size, int keep);
enum verdict gate_madvise(struct task *t, struct regs *r);

/* returns.c */
int end_returns(struct task *t);
void give_back_soon(struct task *t, u64 address, u64 size);

/* lock.c */
u64 lock(u32 *word);
void unlock(u32 *word, u64 mask);

/* maps.c */
char *put_text(char *to, const char *text);
char *put_decimal(char *to, u64 number);
struct maps {
	long fd;
	u32 next, end;
	char text[1024];
};
struct mapping {
	u64 start, end, offset;
	struct file_identity file; /* zeros: none */
	int prot, shared;
};
long open_maps(struct maps *m, u32 pid);
void close_maps(struct maps *m);
int next_mapping(struct maps *m, struct mapping *found);
int mapping_at(u32 pid, u64 address, struct mapping *found);
int protection_of(u64 address);

/* machines.c */
int is_published(u64 address, u64 size);
int ask_agent(struct task *t, u32 what, u64 address, u64 size);
u64 hold_mappings(struct task *t);
void let_go_mappings(struct task *t, u64 mask);
int is_pooled(const struct mapping *m);

/* private.c */
long fork_shared(struct task *t, const struct regs *r, u64 flags, u64 mask);
enum verdict gate_rseq(struct task *t, struct regs *r);

/* region.c */
long region_map(struct task *t, const struct regs *r);
int region_unmap(struct task *t, u64 address, u64 size);
int is_region(struct task *t, u64 address, u64 size);

/* loops.S: each returns the bytes that it could not copy. */
u64 copy_string(void *to, const void *from, u64 size);
u64 copy_vector(void *to, const void *from, u64 size);
u64 copy_stream(void *to, const void *from, u64 size);
u64 copy_pair(void *to, const void *from);
extern const u32 copy_faults[];
#define safe_copy copy_string /* for what is small */

/* copy.c */
int is_task(struct task *t, u64 pid);
enum verdict gate_process_vm(struct task *t, struct regs *r);

/* far.c */
/* What must be known of a task of another domain. */
struct far {
	u64 segment, end;
	u64 fixed_start, fixed_end, fixed_to;
	const u64 *plain;
};
int find_far(struct task *t, u64 pid, struct far *found);
u64 far_address(const struct far *its, u64 address);
int is_plain(const struct far *its, u64 address, u64 size);
int far_fault(struct task *t, u64 address);

/* mask.c */
u64 begin_copies(struct task *t);
void end_copies(u64 blocked);
void forget_thread(struct task *t, u64 pointer);
void forget_this_thread(struct task *t);
enum verdict gate_sigprocmask(struct task *t, struct regs *r);
enum verdict gate_other_sigaction(struct task *t, struct regs *r);

/* probe.c */
int is_ptrace_scope(const char *path);
long open_ptrace_scope(long fd, u64 flags);
enum verdict gate_kcmp(struct task *t, struct regs *r);

/* entry.S */
long call_on(u64 stack, long (*function)(void *), void *argument);
void gate_return_on(u64 *frame) __attribute__((noreturn));
extern const u8 gate_head[], gate_entry[], gate_fault_entry[], gate_restore[];
/* dispatch.c: bit NR is set if the gate answers NR */
extern const u64 handled[8];
enum verdict gate_dispatch(struct task *t, struct regs *r);
extern const u32 gate_offsets[];

/* fault.c */
void gate_faults_init(struct task *t);
void gate_faults_before_exec(struct task *t);
void gate_faults_restore(struct task *t);
u64 gate_fault(int signal, int *info, u64 *context, struct task *t);
enum verdict gate_sigaction(struct task *t, struct regs *r);
enum verdict gate_tgkill(struct task *t, struct regs *r);

/* family.c */
void detach(struct task *t);
void keep_from_forks(struct task *t, u64 address, u64 size);
void allow_forks(struct task *t);
enum verdict gate_clone(struct task *t, struct regs *r);
enum verdict gate_execve(struct task *t, struct regs *r);

/* exe.c */
int is_own_exe(const char *path);
enum verdict gate_readlink(struct task *t, struct regs *r);
enum verdict gate_stat(struct task *t, struct regs *r);
enum verdict gate_open(struct task *t, struct regs *r);

/* patch.c */
long gate_patch(struct task *t, u8 *text, u64 length, int fd, u64 offset, int prot);
long gate_thunk_init(struct task *t);
#pragma GCC visibility pop
#endif
