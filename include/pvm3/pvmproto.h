/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * pvmproto.h - tags of the messages that reach PVM's plug-ins (resource manager R, hoster H,
 * tasker T) and tasks (t), as PVM 3.4.6 numbers them. What daemons (d) say to each other and
 * to the library is no part of it.
 */
#ifndef _PVMPROTO_H_
#define _PVMPROTO_H_

/* ---- Messages of plug-ins */
#define SM_FIRST ((int)0x80040001)
#define SM_SPAWN (SM_FIRST + 0)     /* t-R: spawn; the answer has tids */
#define SM_EXEC (SM_FIRST + 1)      /* R-d: start tasks */
#define SM_EXECACK (SM_FIRST + 2)   /* d-R: its answer */
#define SM_TASK (SM_FIRST + 3)      /* t-R: list tasks */
#define SM_CONFIG (SM_FIRST + 4)    /* t-R: list hosts */
#define SM_ADDHOST (SM_FIRST + 5)   /* t-R: add hosts */
#define SM_DELHOST (SM_FIRST + 6)   /* t-R: delete hosts */
#define SM_ADD (SM_FIRST + 7)       /* R-d: add hosts */
#define SM_ADDACK (SM_FIRST + 8)    /* d-R: its answer */
#define SM_NOTIFY (SM_FIRST + 9)    /* t-R: notify */
#define SM_TASKX (SM_FIRST + 10)    /* d-R: a task has ended */
#define SM_HOSTX (SM_FIRST + 11)    /* d-R: a host has gone */
#define SM_HANDOFF (SM_FIRST + 12)  /* R-d: another resource manager takes over */
#define SM_SCHED (SM_FIRST + 13)    /* t-R: register as resource manager */
#define SM_STHOST (SM_FIRST + 14)   /* d-H: start daemons */
#define SM_STHOSTACK (SM_FIRST + 15) /* H-d: its answer */
#define SM_STTASK (SM_FIRST + 16)   /* d-T: start a task */
#define SM_LAST (SM_FIRST + 16)

/* ---- Messages between the libraries of tasks */
#define TC_FIRST ((int)0x80030001)
#define TC_CONREQ (TC_FIRST + 0)    /* a direct route is asked for */
#define TC_CONACK (TC_FIRST + 1)    /* its answer */
#define TC_TASKEXIT (TC_FIRST + 2)  /* a task has ended */
#define TC_NOOP (TC_FIRST + 3)
#define TC_OUTPUT (TC_FIRST + 4)    /* output of a child */
#define TC_SETTRACE (TC_FIRST + 5)  /* who gets trace events, */
#define TC_SETTMASK (TC_FIRST + 6)  /* which, */
#define TC_SETTRCBUF (TC_FIRST + 7) /* how many at a time, */
#define TC_SETTRCOPT (TC_FIRST + 8) /* and how much they say */
#define TC_SHMAT (TC_FIRST + 9)
#define TC_OUTPUTX (TC_FIRST + 10)
#define TC_SIBLINGS (TC_FIRST + 11) /* who was spawned together */
#define TC_LAST (TC_FIRST + 11)

/* ---- Output of children: what stands for a number of bytes */
#define TO_EOF 0
#define TO_SPAWN -1
#define TO_NEW -2

/* ---- Contexts of PVM's own messages */
#define SYSCTX_FIRST ((int)0x0007ffff)
#define SYSCTX_TC (SYSCTX_FIRST - 0) /* TC_ messages */
#define SYSCTX_TM (SYSCTX_FIRST - 1) /* requests to the daemon */
#define SYSCTX_SG (SYSCTX_FIRST - 2) /* static groups */
#define SYSCTX_DG (SYSCTX_FIRST - 3) /* groups that still change */
#define SYSCTX_LAST (SYSCTX_FIRST - 9)
#define BASECONTEXT 0

#endif
