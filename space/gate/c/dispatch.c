/* dispatch.c - the system calls that a shared address space makes wrong, and their
 * functions. All other calls never leave entry.S. */
#include "gate.h"

#define BIT(nr) (1ul << ((nr)&63))
const u64 handled[8] = {
	/* 0..63 */
	BIT(SYS_open) | BIT(SYS_stat) | BIT(SYS_mmap) | BIT(SYS_mprotect) | BIT(SYS_munmap) | BIT(SYS_brk) | BIT(SYS_rt_sigaction) | BIT(SYS_rt_sigprocmask) |
		BIT(SYS_mremap) | BIT(SYS_madvise) | BIT(SYS_shmat) | BIT(SYS_clone) | BIT(SYS_fork) | BIT(SYS_execve),
	/* 64..127 */
	BIT(SYS_shmdt) | BIT(SYS_readlink) | BIT(SYS_setuid) | BIT(SYS_setgid) | BIT(SYS_setreuid) |
		BIT(SYS_setregid) | BIT(SYS_setresuid) | BIT(SYS_setresgid) | BIT(SYS_setfsuid) | BIT(SYS_setfsgid) |
		BIT(SYS_setgroups) | BIT(SYS_capset),
	/* 128..191 */
	BIT(SYS_mlockall) | BIT(SYS_prctl) | BIT(SYS_setrlimit),
	/* 192..255 */
	BIT(SYS_tgkill) | BIT(SYS_io_setup) | BIT(SYS_io_destroy),
	/* 256..319 */
	BIT(SYS_openat) | BIT(SYS_newfstatat) | BIT(SYS_readlinkat) | BIT(SYS_process_vm_readv) | BIT(SYS_process_vm_writev) | BIT(SYS_kcmp) |
		BIT(SYS_prlimit64) | BIT(SYS_seccomp) | BIT(SYS_unshare) | BIT(SYS_setns),
	/* 320..383 */
	BIT(SYS_execveat) | BIT(SYS_pkey_mprotect) | BIT(SYS_statx) | BIT(SYS_rseq),
	/* 384..447 */
	BIT(SYS_clone3) | BIT(SYS_landlock_restrict_self),
	0,
};

/* Calls that change the task's mappings. */
static enum verdict change_mappings(struct task *t, struct regs *r)
{
	switch (r->nr) {
	case SYS_brk: return gate_brk(t, r);
	case SYS_mmap: return gate_mmap(t, r);
	case SYS_munmap: return gate_munmap(t, r);
	case SYS_mremap: return gate_mremap(t, r);
	case SYS_madvise: return gate_madvise(t, r);
	case SYS_shmat: return gate_shmat(t, r);
	case SYS_shmdt: return gate_shmdt(t, r);
	case SYS_io_setup: return gate_io_setup(t, r);
	case SYS_io_destroy: return gate_io_destroy(t, r);
	}
	return gate_mprotect(t, r);
}

static enum verdict change_process(struct task *t, struct regs *r)
{
	switch (r->a1) {
	case PR_SET_SECCOMP: return gate_seccomp(t, r);
	case PR_SET_PDEATHSIG:
	case PR_GET_PDEATHSIG: return gate_death_signal(t, r);
	}
	return PASS;
}

enum verdict gate_dispatch(struct task *t, struct regs *r)
{
	switch (r->nr) {
	case SYS_brk:
	case SYS_mmap:
	case SYS_mprotect:
	case SYS_pkey_mprotect:
	case SYS_munmap:
	case SYS_mremap:
	case SYS_madvise:
	case SYS_shmat:
	case SYS_shmdt:
	case SYS_io_setup:
	case SYS_io_destroy: {
		u64 mask = hold_mappings(t);
		enum verdict verdict = change_mappings(t, r);
		let_go_mappings(t, mask);
		return verdict;
	}
	case SYS_setuid:
	case SYS_setgid:
	case SYS_setreuid:
	case SYS_setregid:
	case SYS_setresuid:
	case SYS_setresgid:
	case SYS_setfsuid:
	case SYS_setfsgid:
	case SYS_setgroups:
	case SYS_capset:
	case SYS_unshare:
	case SYS_setns:
	case SYS_landlock_restrict_self: return gate_rights(t, r);
	case SYS_prctl: return change_process(t, r);
	case SYS_seccomp: return gate_seccomp(t, r);
	case SYS_setrlimit:
	case SYS_prlimit64: return gate_setrlimit(t, r);
	case SYS_rseq: return gate_rseq(t, r);
	case SYS_process_vm_readv:
	case SYS_process_vm_writev: return gate_process_vm(t, r);
	case SYS_kcmp: return gate_kcmp(t, r);
	case SYS_tgkill: return gate_tgkill(t, r);
	case SYS_rt_sigprocmask: return gate_sigprocmask(t, r);
	case SYS_rt_sigaction: return gate_sigaction(t, r);
	case SYS_clone:
	case SYS_fork:
	case SYS_clone3: return gate_clone(t, r);
	case SYS_execve:
	case SYS_execveat: return gate_execve(t, r);
	case SYS_readlink:
	case SYS_readlinkat: return gate_readlink(t, r);
	case SYS_stat:
	case SYS_newfstatat:
	case SYS_statx: return gate_stat(t, r);
	case SYS_open:
	case SYS_openat: return gate_open(t, r);
	case SYS_mlockall:
		/* It would lock the memory of every task, under the limit of one. */
		r->nr = -EPERM;
		return DONE;
	}
	return PASS;
}

/* Sizes and offsets, for the test that compares them with src/abi.rs. */
#define AT(type, member) __builtin_offsetof(struct type, member)
const u32 gate_offsets[] = {
	sizeof(struct slot), sizeof(struct site), sizeof(struct image), sizeof(struct space),
	sizeof(struct task), AT(slot, generation), AT(slot, regions), AT(image, offset),
	AT(image, unreached), AT(space, base), AT(space, tasks_max), AT(space, event),
	AT(space, slots), AT(space, sites), AT(space, regions), AT(space, copy), AT(space, copy.features), COPY_FEATURES_AT,
	AT(space, tasks_expected), AT(space, alias), AT(space, memory_fd), AT(space, memory_ino),
	AT(space, published), AT(space, machine), AT(space, pool), AT(space, outsides), AT(space, keep_access),
	AT(space, protection), EXPORTS_AT - EXPORT_USER_SIZE, EXPORTS_MAX, sizeof(struct export_entry), AT(export_entry, address), AT(export_entry, hold),
	sizeof(struct outside), AT(outside, mappings), sizeof(struct ask), AT(ask, address), sizeof(struct region),
	AT(region, address), AT(task, id), AT(task, returns), AT(task, brk_start), AT(task, mmap_start),
	AT(task, bitmap), AT(task, memory), AT(task, stub_next), AT(task, fault_actions), AT(task, copies),
	AT(task, start), AT(task, no_madvise), AT(task, shms), AT(task, more_shms), AT(task, death_signal), AT(task, parent), AT(task, exe_length), AT(task, exe),
};
