/* returns.c - returns small parts of shared memory to the kernel together.
 *
 * To free a part of the memory's file the kernel visits every mm that maps it, one for each
 * domain. So small unmapped parts wait until there are RETURNS_MAX of them, and adjacent
 * ones are then returned in one call. Until then their pages stay taken. They are not given
 * to others, and nothing is mapped there, but views of other domains still show their
 * contents. A thread that needs such a page ends the wait.
 *
 * Parts are recorded by atomic operations. Returning them takes a lock: a thread that has
 * mapped something at their addresses waits until no other thread is about to discard the
 * contents. */
#include "gate.h"

/* Pages of a part. Larger ones go back at once: their pages cost more than the visits. */
#define PART_MAX 16ul
/* A note is its first page, counted from the segment, and how many there are. */
#define COUNT_BITS 8

static u64 note_of(struct task *t, u64 address, u64 size)
{
	return (address - t->segment) / PAGE << COUNT_BITS | size / PAGE;
}

static u64 start_of(struct task *t, u64 note)
{
	return t->segment + (note >> COUNT_BITS) * PAGE;
}

static u64 end_of(struct task *t, u64 note)
{
	return start_of(t, note) + (note & ((1ul << COUNT_BITS) - 1)) * PAGE;
}

/* Returns true if there are records, or a thread is processing some. */
static int are_waiting(struct task *t)
{
	for (int i = 0; i < RETURNS_MAX; i++)
		if (__atomic_load_n(&t->returns[i], __ATOMIC_ACQUIRE))
			return 1;
	return __atomic_load_n(&t->returns_lock, __ATOMIC_ACQUIRE) != 0;
}

/* Takes all notes, in order. */
static int take_notes(struct task *t, u64 *notes)
{
	int count = 0;
	for (int i = 0; i < RETURNS_MAX; i++) {
		u64 note = __atomic_exchange_n(&t->returns[i], 0, __ATOMIC_ACQ_REL);
		if (!note)
			continue;
		int at = count++;
		for (; at && notes[at - 1] > note; at--)
			notes[at] = notes[at - 1];
		notes[at] = note;
	}
	return count;
}

/* Returns all waiting parts to the kernel. Returns true if there may have been some. To be
 * called where something is mapped whose pages were not claimed, before it is marked and
 * used. */
int end_returns(struct task *t)
{
	u64 notes[RETURNS_MAX];
	if (!has_shared(t) || !are_waiting(t))
		return 0;
	u64 mask = lock(&t->returns_lock);
	int count = take_notes(t, notes);
	for (int i = 0; i < count;) {
		u64 start = start_of(t, notes[i]), end = end_of(t, notes[i]);
		/* A part that was unmapped twice overlaps itself. */
		for (i++; i < count && start_of(t, notes[i]) <= end; i++)
			if (end_of(t, notes[i]) > end)
				end = end_of(t, notes[i]);
		give_back(t, start, end - start);
		release(t, start, end - start);
	}
	unlock(&t->returns_lock, mask);
	return 1;
}

static int note(struct task *t, u64 address, u64 size)
{
	for (int i = 0; i < RETURNS_MAX; i++) {
		u64 none = 0;
		if (__atomic_compare_exchange_n(&t->returns[i], &none, note_of(t, address, size), 0,
		                                __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return 1;
	}
	return 0;
}

/* To be called when the program has unmapped the range: gives it back, soon at the
 * latest, and releases it then. */
void give_back_soon(struct task *t, u64 address, u64 size)
{
	if (!size)
		return;
	/* Other machines must not go on with it. */
	int small = has_shared(t) && size <= PART_MAX * PAGE && !is_published(address, size);
	/* Pages that are not taken might belong to another thread later. */
	for (int tries = 0; tries < 2 && small && is_taken(t, address, size); tries++) {
		forget_memory(t, address, size);
		if (note(t, address, size))
			return;
		end_returns(t);
	}
	/* Notes of pages in this range must not outlive it. */
	end_returns(t);
	give_back(t, address, size);
	release(t, address, size);
}
