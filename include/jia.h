/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * jia.h - software distributed shared memory, source compatible with JIAJIA.
 *
 * All tasks of a job run the same program. What jia_alloc() and its variants return is
 * memory that all of them share, at the same address in each, on one machine or on many:
 *
 *	jia_init(argc, argv);
 *	double *sum = (double *)jia_alloc(sizeof *sum);
 *	jia_barrier();
 *	jia_lock(0);
 *	*sum += part;
 *	jia_unlock(0);
 *	jia_barrier();
 *	if (jiapid == 0) printf("%f\n", *sum);
 *	jia_exit();
 *
 * Memory is consistent by scopes: who acquires a lock sees what was written under that lock
 * before; after a barrier everybody sees everything. Programs without data races that keep
 * what belongs to a lock under that lock see what they would see on one machine.
 *
 * Start with `mpirun -n 4 ./app` (any launcher with PMIx or PMI-1), or alone as one task. Where
 * JIAJIA would print a line and end the job, so do these calls. A job's tasks must make the
 * same calls of jia_alloc* in the same order, between the same barriers, and each task makes
 * its calls from one thread at a time. A forked child has no shared memory. See jia(7);
 * nagaya_dsm.h has the same with error codes, jiaf.h is for Fortran.
 *
 * Sizes have 64 bits; hosts, locks and bytes have no limits of their own.
 * Linux 5.19 or newer. Link with -ljia (pkg-config jia).
 */
#ifndef JIA_H
#define JIA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- begin and end ------------------------------------------------------------ */

/* Joins the job. The arguments are not looked at. */
void jia_init(int argc, char **argv);

/* Waits until all tasks have called it, and leaves the job. The shared memory is gone then. A
 * program that ends with status 0 and has not called it does so at its end; with another status it
 * ends the job. */
void jia_exit(void);

/* This task's number, from 0, and how many tasks there are. JIAJIA calls them hosts. */
#define jiapid jia_task()
#define jiahosts jia_tasks()
int jia_task(void);
int jia_tasks(void);
/* The same in JIAJIA 2.1's variables, from jia_init on. */
extern int jia_pid;
extern int hostc;

/* Prints a line, as printf does, and ends the job with status 1. */
void jia_error(const char *format, ...)
#ifdef __GNUC__
	__attribute__((format(printf, 1, 2), noreturn))
#endif
	;
#define jia_errexit jia_error

/* JIAJIA's own: ends the job with the message if the condition is 0. Programs that mean another
 * assert include <assert.h>, or define JIA_NO_ASSERT before. */
#if !defined(JIA_NO_ASSERT) && !defined(assert)
void assert(int condition, const char *message);
#endif

/* ---- memory: addresses, page aligned, zeroed ----------------------------------- */

/* All of it lives on one host: the first call's on 0, the next one's on 1, and so on. */
unsigned long jia_alloc(size_t size);
/* All on host 0. */
unsigned long jia_alloc1(size_t size);
/* In blocks (rounded up to pages), host by host in turns, from host 0 on. */
unsigned long jia_alloc2(size_t size, size_t block);
/* All on the given host. */
unsigned long jia_alloc2p(size_t size, int host);
/* In blocks, from the given host on. */
unsigned long jia_alloc3(size_t size, size_t block, int starthost);
/* In blocks of n different sizes, from the given host on: each host gets blocks[0] bytes, then each
 * from host 0 on blocks[1], and so on, until there are `size` bytes. */
unsigned long jia_alloc4(size_t size, const int *blocks, int n, int starthost);
/* sizes[i] bytes on host i, for n hosts, again and again until there are `size` bytes. */
unsigned long jia_alloc_array(size_t size, const int *sizes, int n);
/* All on one host, which is drawn: the same one in all tasks. */
unsigned long jia_alloc_random(size_t size);

/* Gives back what one of these calls has returned. All tasks make the call, which waits for all
 * as jia_barrier does. The memory is kept for later calls with the same sizes and hosts. */
void jia_free(void *address);

/* Copies n bytes of shared memory to a private buffer, which it returns. */
void *jia_get(void *buffer, const void *address, int n);
/* Copies a page (8 KB, or NAGAYA_DSM_PAGE) from a private buffer to shared memory. */
void jia_put(const void *buffer, void *address);

/* ---- synchronization ------------------------------------------------------------ */

/* Any number from 0 on is a lock. Not recursive. */
void jia_lock(int lock);
void jia_unlock(int lock);

/* Waits for all tasks; then all tasks see all writes. Not while holding a lock. */
void jia_barrier(void);

/* Waits for all tasks, and makes nothing consistent. */
void jia_wait(void);

/* Condition variables; any number from 0 on is one, and at first not set. A task that waits
 * goes on when it is set, or at once if it is, and sees what was written before. They share
 * their numbers with no lock. */
void jia_setcv(int cv);
void jia_resetcv(int cv);
void jia_waitcv(int cv);

/* ---- messages --------------------------------------------------------------------- */

/* For jia_recv: from anyone, with any tag. */
#define MSG_PROC_ALL (-1)
#define MSG_TAG_ALL (-1)

/* Copies the message; does not wait for its receiver, as long as no more than 64 MB of this
 * node's messages to that task are not received (NAGAYA_DSM_MESSAGES, jia(7)). Messages between
 * two tasks stay in order. A message of a task to itself is allowed. Tags are not negative. */
void jia_send(const void *buffer, size_t size, int to, int tag);

/* Waits for a message; returns its size, or `size` where it was longer: the rest is lost. */
long jia_recv(void *buffer, size_t size, int from, int tag);

/* All tasks get what the root has in its buffer. */
void jia_bcast(void *buffer, size_t size, int root);

/* The root's `result` gets the sum, maximum or minimum of all tasks' values, one by one. On
 * other tasks `result` is overwritten by partial results. */
void jia_reduce(const void *values, void *result, int count, int operation, int root);

#define SUM_INT 0
#define MAX_INT 1
#define MIN_INT 2
#define SUM_FLOAT 10
#define MAX_FLOAT 11
#define MIN_FLOAT 12
#define SUM_DOUBLE 20
#define MAX_DOUBLE 21
#define MIN_DOUBLE 22

/* ---- settings, load, time, statistics ---------------------------------------------- */

#ifndef ON
#define OFF 0
#define ON 1
#endif

/* Switches an option on or off. All tasks make the same calls between the same barriers. */
void jia_config(int option, int value);

#define HMIG 0      /* a page that one host alone wrote moves there at a barrier; off */
#define ADWD 1      /* pages that no other host has are written without notice; on */
#define BROADCAST 2 /* accepted; barriers tell all hosts at once in any case */
#define LOADBAL 3   /* jia_divtask divides by measured speed; off */
#define WVEC 4      /* accepted; changes are always exact to the byte */
#define ON2 2       /* a value that Water gives to WVEC */

/* Of the iterations begin to end (both included), those of this task. */
void jia_divtask(int *begin, int *end);

/* With LOADBAL: all tasks report their time since the last call, and the next jia_divtask
 * gives the fast ones more. */
void jia_loadcheck(void);

/* Seconds since jia_init; after jia_exit, too. Before jia_init, since it was first called. */
float jia_clock(void);

/* Reset the counters; stop, and print this node's statistics if NAGAYA_DSM_STATISTICS is
 * set. Both return the microseconds since jia_init. */
unsigned int jia_startstat(void);
unsigned int jia_stopstat(void);

/* Hints of older programs, without effect. */
#define jia_wtnt(address, size)
#define jia_wtntw(address)
#define jia_wtntd(address)

/* ---- the macros of Argonne, in which SPLASH programs are written --------------------- */

/* A lock number that was not given before; the same sequence in all tasks. */
int jia_newlock(void);
/* For programs that count lock numbers themselves. */
extern int jia_lock_index;

#define LOCKDEC(x) int x;
#define LOCKINIT(x) (x) = jia_newlock();
#define LOCK(x) jia_lock(x);
#define UNLOCK(x) jia_unlock(x);
#define ALOCKDEC(x, n) int x[n];
#define ALOCKINIT(x, n) \
	for (int jia_at = 0; jia_at < (n); jia_at++) \
		(x)[jia_at] = jia_newlock();
#define ALOCK(x, at) jia_lock((x)[at]);
#define AULOCK(x, at) jia_unlock((x)[at]);
#define BARDEC(x) int x;
#define BARINIT(x)
#define BARRIER(x, n) jia_barrier();
#define WAIT_FOR_END(n) jia_barrier();
#define PAUSEDEC(x) int x;
#define PAUSEINIT(x)
#define PAUSE_POLL(x)
#define PAUSE_SET(x, value)
#define PAUSE_RESET(x)
#define PAUSE_ACCEPT(x)
#define GSDEC(x) int x;
#define GSINIT(x)
#define GETSUB(x, y, z, n)
#define EXTERN_ENV
#define MAIN_ENV
#define MAIN_INITENV(x, y)
#define MAIN_END
#define G_MALLOC(size) jia_alloc1(size);
#define CLOCK(x) x = jia_clock();

#ifdef __cplusplus
}
#endif

#endif
