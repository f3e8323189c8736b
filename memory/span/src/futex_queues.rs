//! The waiters at each word that are not at the origin: the origin's service for futex(2). Threads
//! at the origin wait in its kernel.
//!
//! A thread first enters the queue and then reads the word again. So a thread that changes the
//! word later finds it in the queue, and an earlier change is seen. Memory is sequentially
//! consistent, so no more is needed.
//!
//! Threads of the origin first check [`may_have_waiters`], and send no request if nobody waits.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The number of waiters at all words with the same hash.
static WAITING: [AtomicU32; 1 << HASH_BITS] = [const { AtomicU32::new(0) }; 1 << HASH_BITS];
const HASH_BITS: u32 = 12;

/// The waiters at words with the hash of this one.
fn waiting(word: u64) -> &'static AtomicU32 {
    /// 2^64 divided by the golden ratio: spreads neighbours.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    &WAITING[(word.wrapping_mul(SPREAD) >> (u64::BITS - HASH_BITS)) as usize]
}

/// At the origin, by a thread that has changed the word: returns false if nobody waits there. A
/// thread that enters the queue later reads the new value.
pub fn may_have_waiters(word: u64) -> bool {
    // The thread's change comes before the load. The agent counts a waiter before it answers, and
    // the waiter reads the word after that.
    fence(Ordering::SeqCst);
    waiting(word).load(Ordering::SeqCst) != 0
}

/// Those in line, by words.
#[derive(Debug, Default)]
pub struct Futexes {
    lines: BTreeMap<u64, VecDeque<Waiter>>,
    /// The word of each waiter.
    words: HashMap<u32, u64>,
}

#[derive(Debug, Clone, Copy)]
struct Waiter {
    thread: u32,
    bits: u32,
}

impl Futexes {
    /// The thread stands in line from now on.
    pub fn enqueue(&mut self, thread: u32, word: u64, bits: u32) {
        self.cancel(thread);
        self.words.insert(thread, word);
        waiting(word).fetch_add(1, Ordering::SeqCst);
        self.lines.entry(word).or_default().push_back(Waiter { thread, bits });
    }

    /// Removes a waiter. Returns true if it was waiting.
    pub fn cancel(&mut self, thread: u32) -> bool {
        let Some(word) = self.words.remove(&thread) else { return false };
        self.edit(word, |line| line.retain(|waiter| waiter.thread != thread));
        waiting(word).fetch_sub(1, Ordering::SeqCst);
        true
    }

    /// Removes and returns the first waiters, at most `count`, at the word for any of the bits.
    pub fn wake(&mut self, word: u64, count: u32, bits: u32) -> Vec<u32> {
        let mut woken = Vec::new();
        self.edit(word, |line| {
            line.retain(|waiter| {
                let wakes = woken.len() < count as usize && waiter.bits & bits != 0;
                if wakes {
                    woken.push(waiter.thread);
                }
                !wakes
            });
        });
        woken.iter().for_each(|thread| {
            self.words.remove(thread);
        });
        waiting(word).fetch_sub(woken.len() as u32, Ordering::SeqCst);
        woken
    }

    /// Moves the first waiters, at most `count`, to another word. Returns their number.
    pub fn requeue(&mut self, word: u64, to: u64, count: u32) -> u32 {
        let mut moved = VecDeque::new();
        self.edit(word, |line| {
            let count = line.len().min(count as usize);
            moved = line.drain(..count).collect();
        });
        let count = moved.len() as u32;
        waiting(to).fetch_add(count, Ordering::SeqCst);
        waiting(word).fetch_sub(count, Ordering::SeqCst);
        for waiter in &moved {
            self.words.insert(waiter.thread, to);
        }
        if count > 0 {
            self.lines.entry(to).or_default().append(&mut moved);
        }
        count
    }

    fn edit(&mut self, word: u64, change: impl FnOnce(&mut VecDeque<Waiter>)) {
        if let Some(line) = self.lines.get_mut(&word) {
            change(line);
            if line.is_empty() {
                self.lines.remove(&word);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: u32 = u32::MAX;

    #[test]
    fn the_first_waiter_is_woken_first() {
        let mut futexes = Futexes::default();
        (0..4).for_each(|thread| futexes.enqueue(thread, 64, ANY));
        assert_eq!(futexes.wake(64, 1, ANY), [0]);
        assert!(futexes.cancel(2) && !futexes.cancel(0));
        assert_eq!(futexes.wake(64, 9, ANY), [1, 3]);
        assert_eq!(futexes.wake(64, 9, ANY), []);
        assert!(futexes.lines.is_empty() && futexes.words.is_empty());
    }

    #[test]
    fn waiters_are_counted_by_word() {
        // No other test has words with these hashes.
        let [word, to, other] = [0x1000_0000, 0x2000_0000, 0x3000_0000];
        let mut futexes = Futexes::default();
        let seen = || [word, to, other].map(may_have_waiters);
        assert_eq!(seen(), [false; 3]);
        futexes.enqueue(0, word, ANY);
        futexes.enqueue(1, word, ANY);
        assert_eq!(seen(), [true, false, false]);
        assert_eq!(futexes.requeue(word, to, 1), 1);
        assert_eq!(seen(), [true, true, false]);
        assert!(futexes.cancel(1));
        // It waits at one word at a time.
        futexes.enqueue(0, other, ANY);
        assert_eq!(seen(), [false, false, true]);
        assert_eq!(futexes.wake(other, 1, ANY), [0]);
        assert_eq!(seen(), [false; 3]);
    }

    #[test]
    fn bits_choose() {
        let mut futexes = Futexes::default();
        futexes.enqueue(0, 8, 1);
        futexes.enqueue(1, 8, 2);
        assert_eq!(futexes.wake(8, 9, 2), [1]);
        assert_eq!(futexes.wake(8, 9, ANY), [0]);
    }

    #[test]
    fn a_requeued_waiter_waits_at_the_other_word() {
        let mut futexes = Futexes::default();
        (0..3).for_each(|thread| futexes.enqueue(thread, 8, ANY));
        assert_eq!(futexes.wake(8, 1, ANY), [0]);
        assert_eq!(futexes.requeue(8, 16, 1), 1);
        assert_eq!(futexes.wake(8, 9, ANY), [2]);
        assert!(futexes.cancel(1));
        assert_eq!(futexes.wake(16, 9, ANY), []);
    }
}
