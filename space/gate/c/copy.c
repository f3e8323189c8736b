/* copy.c - process_vm_readv and process_vm_writev between tasks of one space.
 *
 * Both sides' memory is mapped here, so the transfer is one copy in user space. The order
 * of checks, partial results and error numbers follow mm/process_vm_access.c. A call for a
 * PID that is not a task of this space goes to the kernel. */
#include "gate.h"

struct iovec {
	u64 base, size;
};
#define IOVECS_MAX 1024
#define TRANSFER_MAX 0x7ffff000ul
#define USER_END 0x7ffffffff000ul

int is_task(struct task *t, u64 pid)
{
	return !t->detached && pid < PIDS_MAX && __atomic_load_n(&space.pids[pid], __ATOMIC_ACQUIRE);
}

static int load(struct iovec *to, const struct iovec *from)
{
	return copy_pair(to, from) ? -EFAULT : 0;
}

/* As iovec_from_user: lengths come before addresses. Returns 1 if there is anything to
 * transfer. */
static long check_lengths(const struct iovec *vec, u64 count)
{
	long any = 0;
	if (count > IOVECS_MAX)
		return -EINVAL;
	for (u64 i = 0; i < count; i++) {
		struct iovec v;
		if (load(&v, &vec[i]))
			return -EFAULT;
		if ((long)v.size < 0)
			return -EINVAL;
		any |= v.size != 0;
	}
	return any;
}

/* As import_iovec: the bytes that the local side holds, or an error. */
static long check_local(const struct iovec *vec, u64 count)
{
	u64 total = 0;
	long any = check_lengths(vec, count);
	if (any < 0)
		return any;
	for (u64 i = 0; i < count; i++) {
		struct iovec v;
		if (load(&v, &vec[i]))
			return -EFAULT;
		if (v.base > USER_END || v.size > USER_END - v.base)
			return -EFAULT;
		if (v.size > TRANSFER_MAX - total)
			v.size = TRANSFER_MAX - total;
		total += v.size;
	}
	return total;
}

/* One piece, by the loop that the space's plan has for its size. */
static u64 copy(void *to, const void *from, u64 size)
{
	switch (size ? space.copy.loops[63 - __builtin_clzl(size)] : COPY_STRING) {
	case COPY_VECTOR: return copy_vector(to, from, size);
	case COPY_STREAM: return copy_stream(to, from, size);
	default: return copy_string(to, from, size);
	}
}

/* The same with memory of another task on one side. `torn` becomes 1 where that is another
 * domain's, and not what we may copy by ourselves. In a space with protection the kernel makes
 * all copies to others. */
static u64 copy_remote(u64 here, u64 there, u64 size, const struct far *far, int write, int *torn)
{
	if (far) {
		there = far_address(far, there);
		if ((write && space.protection) || !is_plain(far, there, size)) {
			*torn = 1;
			return size;
		}
	}
	u64 left = write ? copy((void *)there, (void *)here, size)
	                 : copy((void *)here, (void *)there, size);
	*torn |= far && left;
	return left;
}

/* The most frequent case: one piece on each side. Has the result of the general path below. */
static long transfer_one(const struct iovec *local, const struct iovec *remote,
                         const struct far *far, int write, int *torn)
{
	struct iovec l, m;
	if (load(&l, local))
		return -EFAULT;
	if ((long)l.size < 0)
		return -EINVAL;
	if (l.base > USER_END || l.size > USER_END - l.base)
		return -EFAULT;
	if (!l.size)
		return 0;
	if (load(&m, remote))
		return -EFAULT;
	if ((long)m.size < 0)
		return -EINVAL;
	u64 size = l.size < m.size ? l.size : m.size;
	if (size > TRANSFER_MAX)
		size = TRANSFER_MAX;
	u64 left = copy_remote(l.base, m.base, size, far, write, torn);
	return left && left == size ? -EFAULT : (long)(size - left);
}

static long transfer(const struct iovec *local, const struct iovec *remote, u64 remotes,
                     const struct far *far, u64 total, int write, int *torn)
{
	struct iovec l = {0, 0}, m = {0, 0};
	u64 done = 0, next_remote = 0;
	while (done < total) {
		if (!m.size) {
			if (next_remote == remotes)
				break;
			if (load(&m, &remote[next_remote++]))
				break;
			continue;
		}
		if (!l.size) {
			if (load(&l, local++))
				break;
			continue;
		}
		u64 size = l.size < m.size ? l.size : m.size;
		if (size > total - done)
			size = total - done;
		u64 left = copy_remote(l.base, m.base, size, far, write, torn);
		done += size - left;
		if (left)
			return done ? (long)done : -EFAULT;
		l.base += size, l.size -= size;
		m.base += size, m.size -= size;
	}
	return done;
}

enum verdict gate_process_vm(struct task *t, struct regs *r)
{
	const struct iovec *local = (void *)r->a2, *remote = (void *)r->a4;
	if (!is_task(t, r->a1) || r->a6)
		return PASS;
	u64 blocked = begin_copies(t);
	struct far other, *far;
	int write = r->nr == SYS_process_vm_writev, torn = 0;
	long result = space.alias ? find_far(t, r->a1, &other) : 0;
	if (result < 0) {
		end_copies(blocked);
		return PASS;
	}
	far = result ? &other : 0;
	if (r->a3 == 1 && r->a5 == 1) {
		result = transfer_one(local, remote, far, write, &torn);
	} else if ((result = check_local(local, r->a3)) > 0) {
		u64 total = result;
		result = check_lengths(remote, r->a5);
		if (result > 0)
			result = transfer(local, remote, r->a5, far, total, write, &torn);
	}
	end_copies(blocked);
	if (torn)
		return PASS; /* the kernel sees through the owner's page tables; it begins anew */
	if (result > 0) {
		t->copies++;
		t->copied_bytes += result;
	}
	r->nr = result;
	return DONE;
}
