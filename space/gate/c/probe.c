/* probe.c - the tests that MPI libraries make before they use process_vm_readv: Yama's
 * setting and kcmp. Both test whether a process may access the memory of its peers. In a
 * space it may, whatever the settings of Yama, seccomp or capabilities are. */
#include "gate.h"

#define KCMP_VM 1
#define MFD_CLOEXEC 1
#define FUTEX_WAIT 0

int is_ptrace_scope(const char *path)
{
	const char *name = "/proc/sys/kernel/yama/ptrace_scope";
	while (*name && *name == *path)
		name++, path++;
	return *name == *path;
}

/* One that has ended is no peer out of reach. */
static u64 tasks_ever(void)
{
	u64 ever = 0;
	u32 high = __atomic_load_n(&space.tasks_high, __ATOMIC_ACQUIRE);
	for (u32 id = 0; id < high; id++)
		ever += __atomic_load_n(&space.slots[id].generation, __ATOMIC_ACQUIRE);
	return ever;
}

/* Whether all processes that the launcher starts on this node are tasks of this space.
 * Some may be about to start: waits, at most a second. */
static int all_are_tasks(void)
{
	for (int tries = 0; tries < 10; tries++) {
		u32 event = __atomic_load_n(&space.event, __ATOMIC_ACQUIRE);
		if (tasks_ever() >= __atomic_load_n(&space.tasks_expected, __ATOMIC_ACQUIRE))
			return 1;
		u64 timeout[2] = {0, 100 * 1000 * 1000};
		raw6(SYS_futex, (long)&space.event, FUTEX_WAIT, event, (long)timeout, 0, 0);
	}
	return 0;
}

/* A descriptor to read Yama's setting from, for the one that the kernel gave: 0, "no
 * restriction", if no peer of this job is out of reach. */
long open_ptrace_scope(long fd, u64 flags)
{
	char real = '0';
	if (raw3(SYS_read, fd, &real, 1) != 1 || real == '0' || !all_are_tasks()) {
		raw3(SYS_lseek, fd, 0, 0);
		return fd;
	}
	long answer = raw3(SYS_memfd_create, "ptrace_scope", flags & O_CLOEXEC ? MFD_CLOEXEC : 0, 0);
	if (is_error(answer)) {
		raw3(SYS_lseek, fd, 0, 0);
		return fd;
	}
	raw3(SYS_write, answer, "0\n", 2);
	raw3(SYS_lseek, answer, 0, 0);
	raw1(SYS_close, fd);
	return answer;
}

/* Open MPI 5 takes a refusal for "no process_vm_readv". */
enum verdict gate_kcmp(struct task *t, struct regs *r)
{
	if (r->a3 != KCMP_VM || !is_task(t, r->a1) || !is_task(t, r->a2))
		return PASS;
	r->nr = 0;
	return DONE;
}
