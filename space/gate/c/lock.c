/* lock.c - a lock among the threads of a task.
 *
 * It holds its owner's TID, since a vfork child can die with it. Signals are blocked
 * meanwhile: a handler that wants the same lock would wait for its own thread. */
#include "gate.h"

#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129

/* Returns the program's signal mask. */
u64 lock(u32 *word)
{
	u64 all = ~0ul, mask;
	raw6(SYS_rt_sigprocmask, 2, (long)&all, (long)&mask, 8, 0, 0);
	u32 tid = raw1(SYS_gettid, 0);
	for (;;) {
		u32 holder = 0;
		if (__atomic_compare_exchange_n(word, &holder, tid, 0, __ATOMIC_ACQUIRE,
		                                __ATOMIC_RELAXED))
			return mask;
		u64 timeout[2] = {0, 20 * 1000 * 1000};
		raw6(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, holder, (long)timeout, 0, 0);
		if (__atomic_load_n(word, __ATOMIC_RELAXED) == holder &&
		    raw3(SYS_tkill, holder, 0, 0) == -ESRCH)
			__atomic_compare_exchange_n(word, &holder, 0, 0, __ATOMIC_RELAXED,
			                            __ATOMIC_RELAXED);
	}
}

void unlock(u32 *word, u64 mask)
{
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
	raw3(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1);
	raw6(SYS_rt_sigprocmask, 2, (long)&mask, 0, 8, 0, 0);
}
