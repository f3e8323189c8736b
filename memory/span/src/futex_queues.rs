//! Who waits at which word, of all nodes' threads: the origin's service for futex(2).
//!
//! A thread stands in line first and looks at the word once more then; so whoever changes the
//! word afterwards finds it in line, and whoever has changed it before is seen. Memory is
//! sequentially consistent, so that is all there is to it.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Those in line, by words.
#[derive(Debug, Default)]
pub struct Futexes {
    lines: BTreeMap<u64, VecDeque<Waiter>>,
    /// Where each stands.
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

    /// It does not any more; whether it did.
    pub fn cancel(&mut self, thread: u32) -> bool {
        let Some(word) = self.words.remove(&thread) else { return false };
        self.edit(word, |line| line.retain(|waiter| waiter.thread != thread));
        true
    }

    /// The first so many who wait at the word for any of the bits: they are in line no longer.
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

    /// The first so many wait at another word from now on; how many that were.
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
