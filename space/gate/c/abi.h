/* abi.h - what the gate shares with the rest of Nagaya: the space's parameters and task
 * table in the control area, and each task's control block in its segment.
 *
 * src/abi.rs mirrors these structures; a test compares every size and offset.
 * The gate is mapped once a space, followed by the page of `struct space`, so that its
 * code finds the space relative to itself. */
#ifndef NAGAYA_GATE_ABI_H
#define NAGAYA_GATE_ABI_H

#define GATE_MAGIC 0x65746167 /* "gate" */
#define GATE_ABI 8
#define GATE_TEXT_SIZE 65536 /* the code; struct space follows */
#define PAGE 4096ul
#define HUGE_PAGE (2ul << 20)
#define PIDS_MAX (4u << 20)
#define EXE_MAX 4096

/* For loops.S: bits of copy_plan.features, and its offset in struct space. */
#define COPY_AVX512 1   /* vector registers have 64 bytes */
#define COPY_FSGSBASE 2 /* programs may execute rdfsbase */
#define COPY_FEATURES_AT 168

#ifndef __ASSEMBLER__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

/* One a task ID, in the control area. Written by the owner, but `state`. */
struct slot {
	u32 pid;   /* 0: free */
	u32 state; /* enum slot_state */
	u32 starting; /* futex: 1, then 2 when the program starts; the kernel clears it if the
	                 task ends before its libc has a word of its own */
	u32 export_mapped; /* the export area has been mapped, and stays so */
	u64 generation;    /* counts the tasks that had this ID */
	u64 task;          /* address of its control block */
	u64 regions;       /* bit n: the task uses region n */
	u32 domain;        /* whose mm the segment is part of; see far.c */
	u32 unused;
	u64 reserved[2];
};
/* SLOT_REGION: no task may live here, a region lies in the segment. */
enum slot_state { SLOT_FREE, SLOT_STARTING, SLOT_RUNNING, SLOT_LEAVING, SLOT_REGION };

/* A file that tasks map at one address, outside their segments; see region.c. */
struct region {
	u32 state; /* enum region_state */
	u32 maker; /* ID of the task that maps it */
	u32 slot;  /* ID + 1 of the segment that it lies in, or 0 */
	u32 prot;
	u64 address, size; /* 0 before they are known */
	u64 dev, ino, offset;
	u32 domain; /* in whose mm it is mapped */
	u32 unused;
};
enum region_state { REGION_FREE, REGION_MAKING, REGION_LIVE, REGION_REMOVING };
#define REGIONS_MAX 64 /* bits of slot.regions */

/* A task's request to the agent of a space over several machines, one for each ID. See
 * machines.c. */
struct ask {
	u32 state; /* futex: enum ask_state */
	u32 lock;  /* futex: 1: a thread asks */
	u32 what;  /* enum ask_what */
	u32 mappings; /* futex: a thread maps or unmaps memory of the task, or the agent moves it */
	u64 address, size;
};
enum ask_state { ASK_NONE, ASK_ASKED };
enum ask_what {
	ASK_MAPPED,  /* the memory was mapped here */
	ASK_DISCARD, /* it is to read as zeros on all machines */
	ASK_BRING,   /* the memory's file is to hold what it holds */
	ASK_WAKE,    /* of another machine's: who sleeps at this futex is to be woken */
};
/* An address range. */
struct shm {
	u64 address, size;
};

/* The mappings and contexts of a task outside its segment, one record for each ID. The task writes
 * it, and the process that removes them at the task's end reads it. See outside.c. */
#define OUTSIDE_MAX 31
struct outside {
	u32 uses_aio; /* 1: rings of asynchronous I/O may lie in the segment */
	u32 unused;
	u64 reserved;
	struct shm mappings[OUTSIDE_MAX]; /* address 0: free */
};

/* As /proc/PID/maps names a file. */
struct file_identity {
	u64 device; /* major << 32 | minor */
	u64 inode;
};
#define PUBLISHED_BLOCK (2ul << 20) /* a bit of space.published */

/* A system-call site in an executable image, relative to the image's mapping. */
struct site {
	u32 offset;  /* where the jump goes */
	u16 nr;      /* number, or SITE_ANY if it is in a register */
	u8 moved;    /* bytes between the first instruction and `syscall`, copied to the stub */
	u8 first;    /* bytes of the first instruction, where the jump goes */
};
#define SITE_ANY 0xffff

/* Result of one scan; a file that other tasks map again need not be scanned again. */
struct image {
	u32 state; /* 0 empty, 1 being written, 2 complete */
	u32 sites;
	u64 dev, ino, size, mtime_s, mtime_ns;
	u64 offset, length;
	u32 first_site;
	u32 unreached;
};
#define IMAGES_MAX 512
#define SITES_MAX 32768

/* The sizes for which each loop of loops.S is used. The owner chooses them for its
 * processor. */
struct copy_plan {
	u8 loops[64]; /* enum copy_loop, by the size's highest bit */
	u32 features;
	u32 unused;
};
enum copy_loop { COPY_STRING, COPY_VECTOR, COPY_STREAM };

struct space {
	u32 magic, abi;
	u64 base, segment_size, window;
	u32 tasks_max;
	u32 tasks_high;  /* IDs ever used are below this */
	u32 regions_left; /* 1: a task has given a region up; the owner's watcher sees to it */
	u32 owner_pid;
	u32 watcher_tid; /* the owner's thread that hears of tasks that leave */
	u32 event;       /* futex: counts exports, starts and ends */
	u32 images_used, sites_used;
	struct slot *slots;
	u32 *pids;       /* ID + 1 of the task with this PID */
	struct image *images;
	struct site *sites;
	struct region *regions;
	struct copy_plan copy;
	u32 tasks_expected; /* processes that the job has on this node; 0: nobody knows */
	u32 dump_marks;     /* 1: a dying task has kept others out of its core file */
	u64 alias;          /* the memory of all segments, PROT_NONE; 0: segments are private */
	u32 memory_fd;      /* the owner's descriptor of that memory */
	u32 agent_tid;      /* the owner's thread that is asked; 0: all is on this machine */
	u64 memory_ino;     /* its inode, since an owner may close what it does not know */
	struct ask *asks;
	u64 *published;     /* bit n: other machines may have pages of block n of the segments */
	u32 machine;        /* the number that others know this machine's domain by */
	u32 fixed_addresses; /* 1: the loader places the parts of a task at fixed addresses */
	struct file_identity pool; /* what published blocks lie in; inode 0: the memory */
	struct outside *outsides;
	u32 keep_access; /* 1: tasks may give up rights, and keep access to the others; rights.c */
	u32 uid, gid;    /* the owner's effective IDs at first */
	u32 protection;  /* enum protection */
};

/* The plain accesses to the memory of others that a space forbids to its tasks; protect.c. */
enum protection { PROTECT_NONE, PROTECT_WRITES, PROTECT_ALL };

/* The head of a segment: the program's half of the export area, then the directory of exported
 * names, whose entries follow its first line. See control/src/export.rs. */
#define EXPORT_USER_SIZE (32ul << 10)
#define EXPORT_SIZE (64ul << 10)
#define EXPORTS_AT (EXPORT_USER_SIZE + 128)
#define EXPORTS_MAX 255
struct export_entry {
	u32 sequence, used;
	u64 address, size, name[12];
	u64 hold;
};

/* The kernel's struct sigaction. */
struct ksigaction {
	u64 handler, flags, restorer, mask;
};

/* Attached System V segments: a table in the task's block, then pages of the mmap area. */
#define SHMS_MAX 64
#define SHM_PAGE_MAX 255
struct shm_page {
	struct shm_page *next;
	u64 unused;
	struct shm shms[SHM_PAGE_MAX];
};
#define THREADS_REMEMBERED 64

/* The place of each thread's restartable sequences; length 0: there are none. */
struct rseq_place {
	u64 offset; /* to the thread pointer */
	u32 length, signature;
};

/* The parameters of gate_start. They lie in the task's block, since the starter's stack
 * does not live long enough. */
struct start {
	u64 sp, entry;
	u32 *wake; /* set to 2 and woken when nothing of the starter is used any more */
	u64 sigmask;
};

#define RETURNS_MAX 16

struct task {
	u64 segment, segment_end;
	struct space *space;
	u32 id, pid;
	u32 detached; /* a fork has taken this copy out of the space */
	u32 fork_lock; /* TID of the thread that forks */
	u32 forking;
	u32 fork_copied; /* futex: the fork's child has its own memory, or cannot; private.c */
	u32 returns_lock; /* TID of the thread that gives memory back; returns.c */
	u32 no_madvise; /* a seccomp filter of the program forbids it; filter.c */
	u64 returns[RETURNS_MAX]; /* what is to be given back; 0: nothing */
	u64 thunk; /* enters the fault handler with this task; see patch.c */
	u64 brk_start, brk, brk_limit;
	u64 own_start; /* below: export area, this block, bitmap, stubs; not the program's */
	u64 mmap_start, mmap_end;
	u64 stack_end; /* of the mapping of the main stack, at which it cannot grow */
	u64 *bitmap;   /* bit n: page n of the mmap area is taken */
	u64 *memory;   /* bit n: page n of the segment is shared memory; shared.c */
	u64 *plain;    /* and it may be read and written; far.c */
	u64 small_cursor, large_cursor; /* pages; where the next searches begin */
	u64 stub_next, stub_end;
	struct ksigaction fault_actions[2]; /* SIGSEGV, SIGBUS: as the program set them */
	/* An image at the addresses that it is linked to, if there is one: others find its data
	 * at fixed_to, in the segment. Its stubs follow it. */
	u64 fixed_start, fixed_end, fixed_to, fixed_stubs, fixed_stubs_end;
	u64 copies, copied_bytes; /* transfers done in user space */
	u64 sites_patched, sites_unreached;
	u64 takes_faults[THREADS_REMEMBERED]; /* thread pointers; see mask.c */
	struct rseq_place rseq;
	u64 masks_fault[2]; /* bit n-1: the handler of signal n wants SIGSEGV, SIGBUS masked */
	struct start start;
	struct shm shms[SHMS_MAX];
	struct shm_page *more_shms;
	u32 death_signal; /* PR_SET_PDEATHSIG, by which the owner's end ends the task; 0: none */
	u32 own_death_signal; /* as the program set it; rights.c */
	u32 loss_reported; /* 1: the user has been told that a loss of rights is refused */
	u32 parent; /* PID of the parent, whose end sends the signal */
	u32 exe_length;
	char exe[EXE_MAX];
};
#endif
#endif
