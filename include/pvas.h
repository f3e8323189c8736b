/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvas.h - Partitioned Virtual Address Space: many programs in one address space.
 *
 * A *space* is one partitioned virtual address space, owned by the process that
 * created it. A *segment* is a slice of fixed size; segment `id` begins at
 * base + id * segment_size, and its first PVAS_EXPORT_SIZE bytes are its *export
 * area*. A *task* is a child process whose whole memory lies in one segment, while
 * all tasks and the owner share one set of page tables: a pointer means the same
 * thing to everyone.
 *
 * The four calls of the paper (Shimada et al., "A Proposal of a New Process Model
 * for Many-Core Architectures", Table 1) are pvas_create, pvas_fork, pvas_execve and
 * pvas_destroy. The rest is Nagaya's. Unless said otherwise a call returns 0 on
 * success, or -1 with errno set; pvas_error() then has the reason in words. All calls
 * may be made by several threads at once, but nobody may use a space while pvas_destroy
 * removes it.
 *
 * Linux 5.15 or newer, x86-64. Link with -lpvas (pkg-config pvas). See pvas(7).
 */
#ifndef PVAS_H
#define PVAS_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Size of the export area at the head of every segment, in bytes. The first half
 * (PVAS_EXPORT_USER bytes) is the program's own; the second half holds the directory
 * that pvas_export writes. Zero at the first start of a task with this ID, and zeroed
 * when a task ends. */
#define PVAS_EXPORT_SIZE 65536
#define PVAS_EXPORT_USER 32768

/* Most names that one task can export, and the longest name in bytes, without its
 * terminating zero. */
#define PVAS_EXPORT_NAMES 255
#define PVAS_NAME_MAX 95

/* As a space descriptor: the space that the calling task lives in. Not for pvas_fork,
 * pvas_spawn and pvas_destroy: a task does not own its space (EPERM; EBADF where the
 * caller is no task). */
#define PVAS_SELF (-1)

/* As an ID for pvas_spawn: the lowest free one. */
#define PVAS_ANY_ID (-1)

/* ---- spaces ------------------------------------------------------------------- */

/* Attributes of a space. `fields` says which members are meant; the others take their
 * defaults. Later versions add members behind these. */
struct pvas_space_attr {
	uint64_t fields;       /* PVAS_SPACE_* flags */
	size_t   segment_size; /* bytes; a power of two, 64 MiB to 16 TiB; default 32 GiB */
	int      max_tasks;    /* 1 to 65536, IDs are 0 .. max_tasks-1; default: as many as
	                          half of the largest free stretch of the 84 TiB for spaces
	                          holds */
	int      shared;       /* not 0: the tasks' memory is shared memory, and the space can
	                          have domains (pvas_add_domain); default: what PVAS_SHARED of
	                          the environment says, or 0. Segments take 32 TiB at most */
};
#define PVAS_SPACE_SEGMENT_SIZE (1u << 0)
#define PVAS_SPACE_MAX_TASKS    (1u << 1)
#define PVAS_SPACE_SHARED       (1u << 2)

/* Makes a space in the calling process; returns its descriptor (>= 0), the lowest free
 * one. Its base, and the places of tasks' parts in their segments, are random, unless
 * NAGAYA_FIXED_ADDRESSES is 1 in the environment or the process was started without
 * randomization (setarch -R, gdb). The default segment size can be set by the environment variable
 * PVAS_SEGMENT_SIZE (bytes, or with a suffix K, M, G or T). The first call starts a
 * thread, which takes the memory of tasks back when they end.
 * Errors: ENOMEM (no address space or memory left), EINVAL (PVAS_SEGMENT_SIZE is not a
 * power of two from 64M to 16T, NAGAYA_FIXED_ADDRESSES neither 0 nor 1), EPERM (the caller
 * is itself a task, or was forked from a process that had made a space), EAGAIN (no more
 * threads). */
int pvas_create(void);

/* The same with attributes. Errors also: EINVAL (a value is out of its range, or an
 * unknown field), EFAULT (attr is NULL). */
int pvas_create_attr(const struct pvas_space_attr *attr);

/* Removes a space. Tasks that still run are killed (SIGKILL) and their memory is
 * returned, which the call waits for; they remain children of the caller, which may still
 * wait for them. A process that ends without this call leaves its tasks running, as
 * other children (see PVAS_SPAWN_PDEATHSIG).
 * Errors: EBADF (no such space), EPERM (the caller did not create it). */
int pvas_destroy(int pvd);

/* ---- domains ------------------------------------------------------------------ */

/* Makes a *domain* of the IDs first .. first+count-1, which no task has had yet: their
 * tasks have their own page tables, separate from those of the owner's domain (0) and of
 * others, and run on these processors (`cpus` as for sched_setaffinity(2); NULL: on the
 * owner's). All segments have the same addresses in all domains, and a page of another
 * domain is mapped at its first access (Shimada et al., Multiple PVAS). Returns the
 * domain's number, 1 or greater. pvas_spawn starts tasks in it, by their IDs; pvas_fork
 * cannot. The caller gets one child more, which keeps the domain: it ends in pvas_destroy,
 * which also waits for it.
 * Errors: EBADF, EPERM (the caller did not create the space; or userfaultfd(2) is not
 * allowed), EINVAL (no such IDs, or the space was made without PVAS_SPACE_SHARED), EBUSY (a
 * task has, or had, one of the IDs, or they are another domain's), EAGAIN, ENOMEM, EMFILE. */
int pvas_add_domain(int pvd, int first, int count, const cpu_set_t *cpus, size_t cpus_size);

/* The domain of task `pvid`, whether it lives or not: 0 is the owner's.
 * Errors: as pvas_ntasks, EINVAL. */
int pvas_domain_of(int pvd, int pvid);

/* ---- tasks -------------------------------------------------------------------- */

/* Makes a task with the ID `pvid` in space `pvd`. Returns the child's PID to the
 * parent and 0 to the child. Until it calls pvas_execve (or execve, or _exit) the
 * child borrows the parent's memory and stack, and the calling thread of the parent
 * waits, as with vfork(2): it may set up descriptors, directory, umask and the like,
 * and must not return from the function that called pvas_fork. If the child calls
 * execve instead, it becomes an ordinary process and the ID is free again. An ID is also
 * free as soon as waitpid has reported its task's end, unless another task still works for
 * that one (see pvas_delegate.h).
 * Errors: EBADF, EINVAL (ID out of range; PVAS_ANY_ID is for pvas_spawn), EBUSY (ID
 * taken), EAGAIN (no more processes), EMFILE (RLIMIT_NOFILE of the caller is not above
 * the number of its tasks), ENOMEM, EPERM (the caller did not create the space). */
pid_t pvas_fork(int pvd, int pvid) __attribute__((returns_twice));

/* Called by the child of pvas_fork: runs the program `path` in its segment. Does not
 * return on success. NULL for argv or envp means an empty list. Programs must be
 * position-independent executables (PIE, static PIE) or scripts whose interpreter is.
 * As with execve, the task keeps the child's signal mask, umask, ignored signals and
 * descriptors that are not close-on-exec.
 * Errors: EFAULT (path is NULL), EPERM (not the child of pvas_fork; or set-user-ID,
 * set-group-ID or file capabilities), ENOENT (no such file, interpreter or dynamic
 * linker), EACCES, ENOEXEC (not ELF, wrong machine, not PIE, truncated or malformed),
 * E2BIG, ELOOP, ENOMEM (the segment is too small, or vm.max_map_count is reached), and
 * those of open(2). */
int pvas_execve(const char *path, char *const argv[], char *const envp[]);

/* Attributes of a task for pvas_spawn; `fields` as above. */
struct pvas_spawn_attr {
	uint64_t         fields;      /* PVAS_SPAWN_* flags */
	const int      (*fd_map)[2];  /* pairs {descriptor here, descriptor there}, all moved
	                                 at once: the task gets these and no others. Default:
	                                 all that are not close-on-exec, at their numbers */
	size_t           n_fds;       /* number of pairs */
	const char      *cwd;         /* working directory; `path` is not relative to it */
	const cpu_set_t *cpus;        /* affinity */
	size_t           cpus_size;   /* bytes at `cpus` */
	int              pdeathsig;   /* signal when the calling *thread* ends (PR_SET_PDEATHSIG) */
	pid_t            pgid;        /* process group to join; 0: one of its own */
	size_t           segment_size; /* the part of its segment that the task may use: a power
	                                 of two from 64 MiB up to the space's segment size; what
	                                 does not fit is ENOMEM to the task */
	int             *id;          /* out: the task's ID, also where it has already ended;
	                                 untouched on error */
};
#define PVAS_SPAWN_FDS       (1u << 0) /* fd_map and n_fds */
#define PVAS_SPAWN_CWD       (1u << 1)
#define PVAS_SPAWN_CPUS      (1u << 2) /* cpus and cpus_size */
#define PVAS_SPAWN_PDEATHSIG (1u << 3)
#define PVAS_SPAWN_PGID      (1u << 4)
#define PVAS_SPAWN_SEGMENT_SIZE (1u << 5)
#define PVAS_SPAWN_ID        (1u << 6)

/* pvas_fork and pvas_execve in one call. `pvid` may be PVAS_ANY_ID. `attr` may be
 * NULL. A relative `path` starts at the caller's working directory. The task inherits
 * all that no attribute sets: also the signal mask of the calling thread and the umask.
 * Returns the PID once the program has been loaded.
 * Errors: those of pvas_fork, pvas_execve, and of the attributes' calls; EAGAIN
 * also if PVAS_ANY_ID finds no free ID; EFAULT (path, or a pointer that `fields`
 * names, is NULL); EINVAL also for an unknown field and a bad segment_size; ESRCH (the
 * new process was killed before its program started). */
pid_t pvas_spawn(int pvd, int pvid, const char *path, char *const argv[],
                 char *const envp[], const struct pvas_spawn_attr *attr);

/* ---- identity and addresses --------------------------------------------------- */

/* The properties of a space. Addresses are the same for all tasks in it. */
struct pvas_space_info {
	uint64_t  fields;       /* out: which members this library filled */
	uintptr_t base;         /* segment 0 begins here */
	size_t    segment_size; /* bytes */
	int       max_tasks;    /* IDs are 0 .. max_tasks-1 */
	int       tasks;        /* tasks that live now */
	pid_t     owner;        /* PID of the process that created it */
};

/* The calling task's ID. Error: ESRCH (the caller is no task; its own children by
 * fork(2) and vfork(2) are none). */
int pvas_getid(void);

/* Number of tasks that live in the space now; to its owner, without those that it has
 * waited for. Errors: EBADF (no such space, or a child by fork(2) of its owner asks),
 * ESRCH (PVAS_SELF in a process that is no task). */
int pvas_ntasks(int pvd);

/* Describes the space. Errors: as pvas_ntasks, EFAULT (info is NULL). */
int pvas_getspace(int pvd, struct pvas_space_info *info);

/* PID of the living task `pvid`. Errors: as pvas_ntasks, EINVAL, ESRCH (none lives), EREMOTE (it
 * lives on another machine). */
pid_t pvas_getpid(int pvd, int pvid);

/* ID of the living task with this PID. Only PVAS_SPAWN_ID returns the ID
 * of PVAS_ANY_ID for certain: a short task may have ended.
 * Errors: as pvas_ntasks, EINVAL (no possible PID), ESRCH (no task of the space has it). */
int pvas_id_of_pid(int pvd, pid_t pid);

/* Where the segment of `pvid` begins; NULL with errno on error (as pvas_ntasks, EINVAL).
 * The address follows from the ID alone: no task need live there. */
void *pvas_segment(int pvd, int pvid);

/* The export area of `pvid` (the same address as its segment): its first
 * PVAS_EXPORT_USER bytes are for the program. From the first start of a task with this
 * ID until pvas_destroy it stays readable and writable; the end of a task zeroes it.
 * Later writes of others are visible to the next task with this ID. In a protected job (nagaya
 * run --protect) this call makes the area accessible to the caller.
 * Errors: as pvas_segment, ESRCH (no task has ever had this ID). */
void *pvas_export_area(int pvd, int pvid);

/* ID of the segment that `addr` lies in. Errors: as pvas_ntasks, EINVAL (in none). */
int pvas_id_of(int pvd, const void *addr);

/* ---- finding each other's memory ------------------------------------------------ */

/* Publishes `size` bytes at `addr` under `name` in the calling task's export area, and
 * wakes the tasks that wait for it. An existing name is replaced. A release operation: a
 * task that imports the name sees all earlier writes.
 * Errors: ESRCH (the caller is no task), EFAULT (name is NULL), EINVAL (name empty),
 * ENAMETOOLONG, ENOSPC. */
int pvas_export(const char *name, const void *addr, size_t size);

/* Takes the name back. Errors: as pvas_export but ENOSPC; ENOENT. */
int pvas_unexport(const char *name);

/* Looks up what task `pvid` exported under `name`; waits up to `timeout_ms` ms for it
 * (0: does not wait; negative: without limit), also where no task with this ID has
 * started yet. `*addr` and `*size` (each may be NULL) receive the answer. An acquire
 * operation, see pvas_export. In a protected job (nagaya run --protect) it makes the memory
 * accessible to the caller, in whole pages.
 * Errors: as pvas_ntasks, EFAULT (name is NULL), EINVAL, ENAMETOOLONG, ENOENT (not there,
 * and timeout_ms is 0), ETIMEDOUT, ESRCH also when the last task with this ID has ended
 * and no other has started since, EINTR. */
int pvas_import(int pvd, int pvid, const char *name, void **addr, size_t *size,
                int timeout_ms);

/* ---- errors --------------------------------------------------------------------- */

/* The reason for the calling thread's last error, in one line: the failure, its place, and the
 * remedy. Never NULL; valid until the thread's next call into this library. The child of
 * pvas_fork runs as the parent's thread: its last error becomes the parent's. */
const char *pvas_error(void);

#ifdef __cplusplus
}
#endif
#endif
