//! The waiters at each word, for all nodes' threads: the origin's service for futex(2).
//!
//! A thread first enters the queue and then reads the word again. So a thread that changes the
//! word later finds it in the queue, and an earlier change is seen. Memory is sequentially
//! consistent, so no more is needed.

use std::collections::{BTreeMap, HashMap, VecDeque};

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
        self.lines.entry(word).or_default().push_back(Waiter { thread, bits });
    }

    /// Removes a waiter. Returns true if it was waiting.
    pub fn cancel(&mut self, thread: u32) -> bool {
        let Some(word) = self.words.remove(&thread) else { return false };
        self.edit(word, |line| line.retain(|waiter| waiter.thread != thread));
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
