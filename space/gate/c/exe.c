/* exe.c - /proc/self/exe, which names one program for each mm: in a space, the owner's.
 *
 * The kernel's call comes first, so that bad pointers and a missing /proc give its errors.
 * Only its success is replaced by the task's own program. */
#include "gate.h"

static const char *skip(const char *text, const char *prefix)
{
	while (*prefix)
		if (*text++ != *prefix++)
			return 0;
	return text;
}

/* Returns true for "/proc/self/exe", "/proc/thread-self/exe", or "/proc/PID/exe" of the
 * caller. */
int is_own_exe(const char *path)
{
	const char *rest = skip(path, "/proc/"), *end;
	if (!rest)
		return 0;
	if (!(end = skip(rest, "self")) && !(end = skip(rest, "thread-self"))) {
		u64 pid = 0;
		for (end = rest; *end >= '0' && *end <= '9' && pid < PIDS_MAX; end++)
			pid = pid * 10 + (*end - '0');
		if (end == rest || pid != (u64)raw1(SYS_getpid, 0))
			return 0;
	}
	const char *tail = skip(end, "/exe");
	return tail && !*tail;
}

enum verdict gate_readlink(struct task *t, struct regs *r)
{
	int at = r->nr == SYS_readlinkat;
	const char *path = (char *)(at ? r->a2 : r->a1);
	char *to = (char *)(at ? r->a3 : r->a2);
	u64 size = at ? r->a4 : r->a3;
	long result = raw6(r->nr, r->a1, r->a2, r->a3, r->a4, 0, 0);
	if (result > 0 && is_own_exe(path)) {
		u64 length = t->exe_length < size ? t->exe_length : size;
		result = safe_copy(to, t->exe, length) ? -EFAULT : (long)length;
	}
	r->nr = result;
	return DONE;
}

/* stat, newfstatat and statx that follow the link. */
enum verdict gate_stat(struct task *t, struct regs *r)
{
	enum { AT_SYMLINK_NOFOLLOW = 0x100 };
	u64 *path = r->nr == SYS_stat ? &r->a1 : &r->a2;
	u64 flags = r->nr == SYS_stat ? 0 : r->nr == SYS_statx ? r->a3 : r->a4;
	long nr = r->nr, result = raw6(nr, r->a1, r->a2, r->a3, r->a4, r->a5, 0);
	/* With AT_EMPTY_PATH the path may be missing. */
	if (!result && *path && !(flags & AT_SYMLINK_NOFOLLOW) && is_own_exe((char *)*path)) {
		*path = (u64)t->exe;
		result = raw6(nr, r->a1, r->a2, r->a3, r->a4, r->a5, 0);
	}
	r->nr = result;
	return DONE;
}

enum verdict gate_open(struct task *t, struct regs *r)
{
	int at = r->nr == SYS_openat;
	const char *path = (char *)(at ? r->a2 : r->a1);
	long fd = raw6(r->nr, r->a1, r->a2, r->a3, r->a4, 0, 0);
	if (fd >= 0 && is_own_exe(path)) {
		raw1(SYS_close, fd);
		fd = at ? raw6(SYS_openat, r->a1, (long)t->exe, r->a3, r->a4, 0, 0)
		        : raw3(SYS_open, t->exe, r->a2, r->a3);
	} else if (fd >= 0 && !t->detached && is_ptrace_scope(path)) {
		fd = open_ptrace_scope(fd, at ? r->a3 : r->a2);
	}
	r->nr = fd;
	return DONE;
}
