/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * nagaya_dsm.h - software distributed shared memory, as a library that returns errors.
 *
 * The memory and its rules are those of jia.h, and the calls of both may be mixed in one
 * program. Calls return 0 or what they say on success, and one of enum nagaya_dsm_error, all
 * negative, on failure; nagaya_dsm_reason() then has one line that says what, where, and
 * what to do. A lost node ends the job: that is no error code, since nobody could go on.
 *
 * Linux 5.19 or newer. Link with -ljia (pkg-config jia). See jia(7).
 */
#ifndef NAGAYA_DSM_H
#define NAGAYA_DSM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum nagaya_dsm_error {
	NAGAYA_DSM_EINVAL = -1,  /* an argument that makes no sense, or a lock misused */
	NAGAYA_DSM_ESTATE = -2,  /* before init, after exit, or twice */
	NAGAYA_DSM_ESYSTEM = -3, /* the system cannot: userfaultfd, memory, network, launcher */
};

/* Why the calling thread's last call failed: one line. Valid until its next call. */
const char *nagaya_dsm_reason(void);

/* Joins the job that the launcher started; without one, a job of one task. */
int nagaya_dsm_init(void);
/* Waits until all tasks have called it, and leaves the job. */
int nagaya_dsm_exit(void);

/* This task and how many there are; this node and how many there are. Nodes are address
 * spaces: the tasks of one share its copies of pages. Negative before init. */
int nagaya_dsm_task(void);
int nagaya_dsm_tasks(void);
int nagaya_dsm_node(void);
int nagaya_dsm_nodes(void);

/* Returns the bytes of a page, the unit of fetches and of writes by one node or several.
 * Set by NAGAYA_DSM_PAGE before init; 0 before init. */
size_t nagaya_dsm_page_size(void);

/* The homes of memory: blocks of this many bytes (rounded up to pages), task by task in
 * turns from `first` on. Block 0: all of it at `first`. */
struct nagaya_dsm_homes {
	size_t   block;
	uint32_t first;
};

/* Shared memory, zeroed. All tasks make the same calls in the same order, and get the same
 * address. `homes` may be NULL: equal shares for all tasks, in order. NULL on failure. */
void *nagaya_dsm_alloc(size_t size, const struct nagaya_dsm_homes *homes);

int nagaya_dsm_acquire(uint32_t lock);
int nagaya_dsm_release(uint32_t lock);
int nagaya_dsm_barrier(void);

/* Pages that other messages carried. Predicted and sent pages count at their home, all
 * others at their destination. */
struct nagaya_dsm_ride_statistics {
	uint64_t predicted; /* another node would need them next */
	uint64_t sent;      /* of these, those that went along with a message */
	uint64_t used;      /* a task used them here: each saves a message */
	uint64_t wasted;    /* they came, and were of no use */
	uint64_t late;      /* they came when they had been asked for */
};

/* The message that carries them. */
enum nagaya_dsm_carrier {
	NAGAYA_DSM_PAGE_RIDES,    /* the grant of another page */
	NAGAYA_DSM_BARRIER_RIDES, /* that of a barrier */
	NAGAYA_DSM_LOCK_RIDES,    /* that of a lock */
	NAGAYA_DSM_ARRIVAL_RIDES, /* word that a node has reached a barrier */
	NAGAYA_DSM_PUSHES,        /* nothing: they go in a message of their own */
};

/* The counters of this node since init, or since the last reset. Times are in nanoseconds,
 * of the agent's clock. */
struct nagaya_dsm_statistics {
	uint64_t read_faults;      /* pages that a task could not read */
	uint64_t write_faults;     /* pages that a task could not write */
	uint64_t page_messages;    /* pages fetched from other nodes */
	uint64_t messages;         /* sent to other nodes, of all kinds */
	uint64_t bytes;            /* of these, headers included */
	uint64_t diffs;            /* pages whose changes were sent */
	uint64_t diff_bytes;       /* of these changes */
	uint64_t dropped;          /* copies dropped since another wrote the page */
	uint64_t fetch_ns;         /* how long pages were on their way, in all */
	uint64_t lock_waits;       /* how often a lock was asked for at its manager */
	uint64_t lock_ns;          /* how long that took, in all */
	uint64_t barriers;         /* barriers passed */
	uint64_t barrier_ns;       /* from the node's last arrival to the grant, in all */
	struct nagaya_dsm_ride_statistics rides; /* on all carriers */
};

/* Of a page or of a lock. */
struct nagaya_dsm_page_statistics {
	uint32_t home;    /* the node where it lives now */
	uint32_t fetched; /* how often it was fetched */
	uint32_t written; /* how often a task could not write it */
	uint32_t dropped; /* how often its copy was dropped */
	uint32_t rides_sent;   /* how often it rode along to another node */
	uint32_t rides_used;   /* came so, and was used here */
	uint32_t rides_wasted; /* came so, and was of no use */
	uint32_t rides_late;   /* came so when it had been asked for */
};
struct nagaya_dsm_lock_statistics {
	uint64_t asked;      /* how often it was asked for at its manager */
	uint64_t asked_ns;   /* how long that took, in all */
	uint64_t longest_ns; /* and at most */
	uint64_t handed;     /* how often it went from task to task of this node */
};

/* `size` is the structure's, so that later versions can add members behind. */
int nagaya_dsm_statistics(struct nagaya_dsm_statistics *statistics, size_t size);
int nagaya_dsm_page_statistics(const void *address,
	struct nagaya_dsm_page_statistics *statistics, size_t size);
int nagaya_dsm_lock_statistics(uint32_t lock,
	struct nagaya_dsm_lock_statistics *statistics, size_t size);
int nagaya_dsm_ride_statistics(enum nagaya_dsm_carrier carrier,
	struct nagaya_dsm_ride_statistics *statistics, size_t size);
int nagaya_dsm_reset_statistics(void);

#ifdef __cplusplus
}
#endif

#endif
