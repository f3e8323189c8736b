/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvm3.h - the interface of PVM, the Parallel Virtual Machine.
 *
 * A *virtual machine* is a set of hosts, each with a daemon. Its *tasks* are processes that
 * send each other messages by *tid* (task identifier) and *tag*; a message is packed into a
 * buffer, typed item by typed item, and unpacked the same way.
 *
 * Source and binary compatible with PVM 3.4.6. Unless said otherwise a call returns 0 or
 * more (PvmOk, a number, a tid, a buffer) or one of the negative codes below. A first call
 * makes the process a task. A process is one task: its threads must not make calls at the
 * same time. Link with -lpvm3, for groups with -lgpvm3 -lpvm3.
 */
#ifndef _PVM3_H_
#define _PVM3_H_

#include <stdio.h>
#include <sys/time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PVM_VER "3.4.6"
#define PVM_MAJOR_VERSION 3
#define PVM_MINOR_VERSION 4
#define PVM_PATCH_VERSION 6

/* ---- Encodings, for pvm_initsend and pvm_mkbuf */
#define PvmDataDefault 0 /* XDR: every machine reads it */
#define PvmDataRaw 1     /* the sender's memory as it is */
#define PvmDataInPlace 2 /* as raw, read from the sender's memory only when it is sent */
#define PvmDataFoo PvmDataDefault
#define PvmDataTrace 4 /* a trace event of the user: XDR, each item with its type */

/* ---- pvm_spawn: flags, which add up */
#define PvmTaskDefault 0    /* PVM chooses the hosts */
#define PvmTaskHost 1       /* `where` is a host; "." is the caller's */
#define PvmTaskArch 2       /* `where` is an architecture */
#define PvmTaskDebug 4      /* under a debugger */
#define PvmTaskTrace 8      /* with tracing */
#define PvmMppFront 16      /* on the service node of a parallel machine */
#define PvmHostCompl 32     /* on hosts other than those that `where` says */
#define PvmNoSpawnParent 64 /* the children do not have the caller as their parent */

/* ---- pvm_notify: kinds of events */
#define PvmTaskExit 1        /* one of these tasks ends */
#define PvmHostDelete 2      /* one of these hosts fails or is deleted */
#define PvmHostAdd 3         /* hosts are added */
#define PvmRouteAdd 4        /* a direct route to a task opens */
#define PvmRouteDelete 5     /* a direct route to a task closes */
#define PvmNotifyCancel 256  /* added to a kind: the notices asked for come now */

/* ---- pvm_setopt, pvm_getopt: options and their values */
#define PvmRoute 1     /* how messages travel: */
#define PvmDontRoute 1 /*   through the daemons only */
#define PvmAllowDirect 2 /* direct if the other task asks for it (default) */
#define PvmRouteDirect 3 /* direct */
#define PvmDebugMask 2 /* what the library logs of itself, a bit each */
#define PvmAutoErr 3   /* errors: 0 quiet, 1 printed (default), 2 end the task, 3 abort it */
#define PvmOutputTid 4 /* children's standard output: the task that gets it, */
#define PvmOutputCode 5    /* its tag */
#define PvmTraceTid 6      /* children's trace events: the task that gets them, */
#define PvmTraceCode 7     /* their tag, */
#define PvmTraceBuffer 8   /* bytes gathered before they are sent, */
#define PvmTraceOptions 9  /* and how much they say: */
#define PvmTraceFull 1     /*   everything */
#define PvmTraceTime 2     /*   times only */
#define PvmTraceCount 3    /*   numbers of calls only */
#define PvmFragSize 10     /* bytes of a message fragment, headers included */
#define PvmResvTids 11     /* whether tids and tags that PVM keeps for itself may be used */
#define PvmSelfOutputTid 12 /* the same for the task itself */
#define PvmSelfOutputCode 13
#define PvmSelfTraceTid 14
#define PvmSelfTraceCode 15
#define PvmSelfTraceBuffer 16
#define PvmSelfTraceOptions 17
#define PvmShowTids 18     /* whether pvm_catchout says whose output it is */
#define PvmPollType 19     /* how a task waits: */
#define PvmPollConstant 1  /*   by looking */
#define PvmPollSleep 2     /*   by looking for PvmPollTime, then asleep */
#define PvmPollTime 20
#define PvmOutputContext 21 /* context of children's output, and of trace events */
#define PvmTraceContext 22
#define PvmSelfOutputContext 23
#define PvmSelfTraceContext 24
#define PvmNoReset 25      /* the task survives a reset of the virtual machine */

/* ---- pvm_gettmask, pvm_settmask (pvmtev.h): whose events */
#define PvmTaskSelf 0
#define PvmTaskChild 1

/* The context of those who never ask for another. */
#define PvmBaseContext 0

/* ---- Mailboxes: flags, which add up */
#define PvmMboxDefault 0        /* put: the only entry of the name; recv: the entry `index` */
#define PvmMboxPersistent 1     /* the entry outlives its owner */
#define PvmMboxMultiInstance 2  /* the name may have several entries */
#define PvmMboxOverWritable 4   /* others may overwrite or delete the entry */
#define PvmMboxFirstAvail 8     /* recv: the first entry at or after `index` */
#define PvmMboxReadAndDelete 16 /* recv: delete it, too, at once */
#define PvmMboxWaitForInfo 32   /* recv: wait until there is one */
#define PvmMboxMaxFlag 512

/* Among the flags of a put, which entry to write. */
#define PvmMboxDirectIndexShift 10
#define PvmMboxMaxDirectIndex ((unsigned)1 << (31 - PvmMboxDirectIndexShift))
#define PvmMboxDirectIndexOf(flags) \
	(((flags) >> PvmMboxDirectIndexShift) & (PvmMboxMaxDirectIndex - 1))
#define PvmMboxDirectIndex(index) \
	((index) < PvmMboxMaxDirectIndex ? (index) << PvmMboxDirectIndexShift \
	 : (fprintf(stderr, "PvmMboxDirectIndex: %d is not below %d\n", (int)(index), \
		    (int)PvmMboxMaxDirectIndex), 0))

/* Names of PVM's own mailboxes. */
#define PVMNORESETCLASS "###_PVM_NO_RESET_###"
#define PVMHOSTERCLASS "###_PVM_HOSTER_###"
#define PVMTASKERCLASS "###_PVM_TASKER_###"
#define PVMTRACERCLASS "###_PVM_TRACER_###"
#define PVMRMCLASS "###_PVM_RM_###"

/* ---- Return codes */
#define PvmOk 0
#define PvmBadParam -2      /* an argument has a value that it cannot have */
#define PvmMismatch -3      /* arguments do not go together, such as counts in a barrier */
#define PvmOverflow -4      /* a value does not fit its encoding */
#define PvmNoData -5        /* the message ends before what is to be unpacked */
#define PvmNoHost -6        /* no such host in the virtual machine */
#define PvmNoFile -7        /* no such program */
#define PvmDenied -8        /* somebody else owns it */
#define PvmNoMem -10        /* no memory, or the message would be too long */
#define PvmBadMsg -12       /* an encoding that this machine does not read, or no message */
#define PvmSysErr -14       /* no daemon, or it does not answer */
#define PvmNoBuf -15        /* no active buffer */
#define PvmNoSuchBuf -16    /* no such buffer */
#define PvmNullGroup -17    /* the group's name is empty */
#define PvmDupGroup -18     /* in that group already */
#define PvmNoGroup -19      /* no such group */
#define PvmNotInGroup -20   /* not in that group */
#define PvmNoInst -21       /* no such instance in the group */
#define PvmHostFail -22     /* the host has failed */
#define PvmNoParent -23     /* the task was not spawned by a task */
#define PvmNotImpl -24      /* not possible here */
#define PvmDSysErr -25      /* an error of the daemon's system */
#define PvmBadVersion -26   /* daemon, library or task are of another version */
#define PvmOutOfRes -27     /* some limit is reached */
#define PvmDupHost -28      /* the host is in the virtual machine already */
#define PvmCantStart -29    /* no daemon could be started */
#define PvmAlready -30      /* the same is being done already */
#define PvmNoTask -31       /* no such task */
#define PvmNotFound -32     /* no such entry */
#define PvmExists -33       /* there is such an entry */
#define PvmHostrNMstr -34   /* the hoster does not run on the first host */
#define PvmParentNotSet -35 /* the spawning task did not want to be the parent */
#define PvmIPLoopback -36   /* the first host's address is a loopback address */

/* Names of PVM 3.3. */
#define PvmNoEntry PvmNotFound
#define PvmDupEntry PvmDenied

/* ---- Types, for pvm_psend, pvm_precv and the collective calls */
#define PVM_STR 0
#define PVM_BYTE 1
#define PVM_SHORT 2
#define PVM_INT 3
#define PVM_FLOAT 4
#define PVM_CPLX 5  /* two float */
#define PVM_DOUBLE 6
#define PVM_DCPLX 7 /* two double */
#define PVM_LONG 8
#define PVM_USHORT 9
#define PVM_UINT 10
#define PVM_ULONG 11

/* A host, from pvm_config. */
struct pvmhostinfo {
	int hi_tid;    /* its daemon's tid */
	char *hi_name;
	char *hi_arch;
	int hi_speed;  /* relative to others; 1000 unless the hosts file says otherwise */
	int hi_dsig;   /* its data representation */
};

/* A task, from pvm_tasks. */
struct pvmtaskinfo {
	int ti_tid;
	int ti_ptid;    /* its parent's tid, or 0 */
	int ti_host;    /* its daemon's tid */
	int ti_flag;    /* its state */
	char *ti_a_out; /* name of the program, if PVM started it */
	int ti_pid;
};

/* The header of a message, for pvm_getminfo and pvm_setminfo. */
struct pvmminfo {
	int len; /* bytes */
	int ctx; /* context */
	int tag;
	int wid; /* wait ID, for replies */
	int enc; /* data representation */
	int crc;
	int src; /* tids */
	int dst;
};

/* A mailbox, from pvm_getmboxinfo. */
struct pvmmboxinfo {
	char *mi_name;
	int mi_nentries;  /* length of the next three */
	int *mi_indices;
	int *mi_owners;   /* tids; 0 of an owner that has ended */
	int *mi_flags;
};

/* ---- The task itself and other tasks */

int pvm_mytid(void);
int pvm_exit(void);
int pvm_parent(void);
/* Tids of those spawned in one call with the caller, itself included; how many. */
int pvm_siblings(int **tids);
/* Starts `ntask` tasks; how many started. A slot of one that did not holds the code. */
int pvm_spawn(char *file, char **argv, int flags, char *where, int ntask, int *tids);
int pvm_kill(int tid);
int pvm_sendsig(int tid, int signum);
/* PvmOk if it runs, PvmNoTask if not. */
int pvm_pstat(int tid);
/* `where`: 0 all hosts, a daemon's tid that host, a task's tid that task. */
int pvm_tasks(int where, int *ntask, struct pvmtaskinfo **tasks);
int pvm_tidtohost(int tid);
/* Children's output goes to `file` from now on; NULL: no longer. */
int pvm_catchout(FILE *file);
/* Environment variables that spawned tasks inherit. */
int pvm_export(char *name);
int pvm_unexport(char *name);

/* ---- The virtual machine */

int pvm_config(int *nhost, int *narch, struct pvmhostinfo **hosts);
/* Returns the number of added or deleted hosts; `infos` has a tid or a code for each. */
int pvm_addhosts(char **hosts, int nhost, int *infos);
int pvm_delhosts(char **hosts, int nhost, int *infos);
/* PvmOk if the host is there. */
int pvm_mstat(char *host);
/* The data representation of hosts of this architecture. */
int pvm_archcode(char *arch);
/* A host's clock, and its difference to this host's. */
int pvm_hostsync(int host, struct timeval *clock, struct timeval *delta);
int pvm_halt(void);
int pvm_start_pvmd(int argc, char **argv, int block);
char *pvm_version(void);
/* Asks the daemon about itself; see pvmd's debugging. */
int pvm_tickle(int narg, int *arguments, int *nresult, int *results);
/* Asks for messages with `tag` about events of a kind. For PvmHostAdd, `count` is how many
 * notices at most, -1 all, 0 no more. */
int pvm_notify(int what, int tag, int count, int *tids);
int pvm_getopt(int what);
/* Returns the value before. */
int pvm_setopt(int what, int value);
int pvm_getnoresets(int **tids, int *ntid);
/* File descriptors of the library, for select. */
int pvm_getfds(int **fds);

/* ---- Errors */

/* Prints what the last error was, to standard error, or standard output if that is closed. */
int pvm_perror(char *message);
/* Returns the text of the last error. */
char *pvm_strerror(void);

/* ---- Buffers */

int pvm_initsend(int encoding);
int pvm_mkbuf(int encoding);
int pvm_freebuf(int bufid);
int pvm_getsbuf(void);
int pvm_getrbuf(void);
/* Return the buffer before. */
int pvm_setsbuf(int bufid);
int pvm_setrbuf(int bufid);
int pvm_bufinfo(int bufid, int *bytes, int *tag, int *tid);
int pvm_getminfo(int bufid, struct pvmminfo *info);
int pvm_setminfo(int bufid, struct pvmminfo *info);

/* ---- Packing: `count` items, each `stride` items after the other */

int pvm_pkbyte(char *items, int count, int stride);
int pvm_pkcplx(float *items, int count, int stride);
int pvm_pkdcplx(double *items, int count, int stride);
int pvm_pkdouble(double *items, int count, int stride);
int pvm_pkfloat(float *items, int count, int stride);
int pvm_pkint(int *items, int count, int stride);
int pvm_pklong(long *items, int count, int stride);
int pvm_pkshort(short *items, int count, int stride);
int pvm_pkuint(unsigned int *items, int count, int stride);
int pvm_pkulong(unsigned long *items, int count, int stride);
int pvm_pkushort(unsigned short *items, int count, int stride);
int pvm_pkstr(char *string);
/* As printf does: "%3d %.*lf %s". */
int pvm_packf(const char *format, ...);
/* A whole message, and its body only. */
int pvm_pkmesg(int bufid);
int pvm_pkmesgbody(int bufid);

int pvm_upkbyte(char *items, int count, int stride);
int pvm_upkcplx(float *items, int count, int stride);
int pvm_upkdcplx(double *items, int count, int stride);
int pvm_upkdouble(double *items, int count, int stride);
int pvm_upkfloat(float *items, int count, int stride);
int pvm_upkint(int *items, int count, int stride);
int pvm_upklong(long *items, int count, int stride);
int pvm_upkshort(short *items, int count, int stride);
int pvm_upkuint(unsigned int *items, int count, int stride);
int pvm_upkulong(unsigned long *items, int count, int stride);
int pvm_upkushort(unsigned short *items, int count, int stride);
int pvm_upkstr(char *string);
int pvm_unpackf(const char *format, ...);
/* Returns the new buffer. */
int pvm_upkmesg(void);

/* ---- Sending and receiving. In what receives, a tid or tag of -1 is any. */

int pvm_send(int tid, int tag);
int pvm_mcast(int *tids, int count, int tag);
int pvm_psend(int tid, int tag, void *items, int count, int type);
/* Return the new active receive buffer; 0 if there is no such message (yet). */
int pvm_recv(int tid, int tag);
int pvm_nrecv(int tid, int tag);
/* Waits `timeout` at most; NULL: for ever. */
int pvm_trecv(int tid, int tag, struct timeval *timeout);
/* The message that has come, which stays to be received. */
int pvm_probe(int tid, int tag);
int pvm_precv(int tid, int tag, void *items, int count, int type, int *from_tid,
	      int *from_tag, int *received);
/* Installs what decides whether a message (1st argument) is one that a receive wants (tid,
 * tag): below 0 an error, 0 no, 1 yes, more: the best of all. NULL installs the default.
 * Returns the function before. */
int (*pvm_recvf(int (*match)(int bufid, int tid, int tag)))(int bufid, int tid, int tag);

/* ---- Message handlers: called for messages from `src` with `tag` in `ctx`, each -1 for
 * any, whenever the library checks for messages */

int pvm_addmhf(int src, int tag, int ctx, int (*handler)(int bufid));
int pvm_delmhf(int handler);

/* ---- Contexts: a receive matches messages of the task's current context only */

int pvm_newcontext(void);
/* Returns the context before. */
int pvm_setcontext(int context);
int pvm_freecontext(int context);
int pvm_getcontext(void);

/* ---- Mailboxes: messages that the virtual machine keeps under a name */

/* Returns the entry's index. */
int pvm_putinfo(char *name, int bufid, int flags);
/* Returns a buffer. */
int pvm_recvinfo(char *name, int index, int flags);
int pvm_delinfo(char *name, int index, int flags);
int pvm_getmboxinfo(char *pattern, int *nclasses, struct pvmmboxinfo **classes);
/* As they were in PVM 3.3. */
int pvm_insert(char *name, int index, int data);
int pvm_lookup(char *name, int index, int *data);
int pvm_delete(char *name, int index);

/* ---- Groups (libgpvm3): members have instance numbers from 0 */

int pvm_joingroup(char *group);
int pvm_lvgroup(char *group);
int pvm_getinst(char *group, int tid);
int pvm_gettid(char *group, int instance);
int pvm_gsize(char *group);
int pvm_barrier(char *group, int count);
/* To all members but the caller. */
int pvm_bcast(char *group, int tag);
int pvm_gather(void *result, void *items, int count, int type, int tag, char *group,
	       int root);
int pvm_scatter(void *result, void *items, int count, int type, int tag, char *group,
		int root);
int pvm_reduce(void (*function)(int *type, void *x, void *y, int *count, int *info),
	       void *items, int count, int type, int tag, char *group, int root);
/* The group has `size` members once all have called this, and changes no more. */
int pvm_freezegroup(char *group, int size);

/* For pvm_reduce. */
void PvmMax(int *type, void *x, void *y, int *count, int *info);
void PvmMin(int *type, void *x, void *y, int *count, int *info);
void PvmSum(int *type, void *x, void *y, int *count, int *info);
void PvmProduct(int *type, void *x, void *y, int *count, int *info);

/* ---- Plug-ins: the caller takes over a part of the daemon's work. The daemon sends it
 * messages of pvmproto.h. */

/* Starts daemons. */
int pvm_reg_hoster(void);
/* Starts tasks. */
int pvm_reg_tasker(void);
/* Decides where, and about all requests that concern the virtual machine. */
int pvm_reg_rm(struct pvmhostinfo **host);
/* Gets the trace events and output of tasks. */
int pvm_reg_tracer(int trace_ctx, int trace_tag, int output_ctx, int output_tag,
		   char *trace_mask, int trace_buffer, int trace_options);

/* ---- What the library knows of its surroundings */

char *pvmgetrsh(void);
char *pvmgettmp(void);

#ifdef __cplusplus
}
#endif

#endif
