//! Letters between tasks: those that have come and wait for their receiver, and the tasks that
//! wait for one. Between two tasks they stay in order.
//!
//! What a node has sent to a task that has not received it is bounded: the node counts it
//! ([`Unreceived`]), and is told now and then what was received ([`Received`]).

use std::collections::{HashMap, VecDeque};

use coherence::message::NodeId;

use crate::frame::Address;

/// What a task wants to receive; `None` where it does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// From this task.
    pub from: Option<u32>,
    /// About this.
    pub tag: Option<i32>,
}

/// A letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// From whom, and about what.
    pub address: Address,
    /// What it says.
    pub text: Vec<u8>,
}

/// A task's letter box.
#[derive(Debug, Default)]
pub struct Box {
    letters: VecDeque<Letter>,
    waits: Option<Wanted>,
}

impl Wanted {
    fn fits(self, address: &Address) -> bool {
        self.from.is_none_or(|from| from == address.from)
            // Who takes any tag does not take those of broadcasts and reductions.
            && self.tag.map_or(address.tag >= 0, |tag| tag == address.tag)
    }
}

impl Box {
    /// One has come: given back if the task waits for it.
    pub fn put(&mut self, letter: Letter) -> Option<Letter> {
        if self.waits.is_some_and(|wanted| wanted.fits(&letter.address)) {
            self.waits = None;
            return Some(letter);
        }
        self.letters.push_back(letter);
        None
    }

    /// Whether the task waits for a letter from this task and no other.
    pub fn waits_for(&self, task: u32) -> bool {
        self.waits.is_some_and(|wanted| wanted.from == Some(task))
    }

    /// The task wants one: the oldest that fits, or it waits.
    pub fn take(&mut self, wanted: Wanted) -> Option<Letter> {
        let at = self.letters.iter().position(|letter| wanted.fits(&letter.address));
        if at.is_none() {
            self.waits = Some(wanted);
        }
        self.letters.remove(at?)
    }
}

/// What a letter of so many bytes counts: an empty one takes room, too.
pub fn cost(bytes: usize) -> u64 {
    bytes as u64 + size_of::<Letter>() as u64
}

/// At the senders' node: what each task has not received yet, as far as is known.
#[derive(Debug)]
pub struct Unreceived {
    bytes_max: u64,
    /// By task.
    bytes: HashMap<u32, u64>,
}

impl Unreceived {
    /// So much for each task, and one letter more.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, bytes: HashMap::new() }
    }

    /// Whether a letter to this task may go now.
    pub fn has_room(&self, task: u32) -> bool {
        self.bytes.get(&task).is_none_or(|&bytes| bytes <= self.bytes_max)
    }

    /// One goes.
    pub fn add(&mut self, task: u32, bytes: u64) {
        *self.bytes.entry(task).or_default() += bytes;
    }

    /// It has received so much; nothing if so much was never sent.
    pub fn remove(&mut self, task: u32, bytes: u64) -> Option<()> {
        let left = self.bytes.get_mut(&task)?;
        *left = left.checked_sub(bytes)?;
        Some(())
    }
}

/// At the receivers' node: what has come from the senders', and what they have not been told yet.
#[derive(Debug)]
pub struct Received {
    bytes_max: u64,
    /// What has come and the sender's node cannot know to be received.
    here: HashMap<(u32, NodeId), u64>,
    told_at: u64,
    bytes: HashMap<(u32, NodeId), u64>,
}

impl Received {
    /// With the bound that the senders' nodes keep to.
    pub fn new(bytes_max: u64) -> Self {
        // Less than the bound: who has received all has told so much that there is room.
        Self { bytes_max, here: HashMap::new(), told_at: bytes_max / 4, bytes: HashMap::new() }
    }

    /// So much has come for a task from a node: nothing if that does not keep to the bound.
    pub fn came(&mut self, which: (u32, NodeId), bytes: u64) -> Option<()> {
        let here = self.here.entry(which).or_default();
        let had_room = *here <= self.bytes_max;
        *here = here.saturating_add(bytes);
        had_room.then_some(())
    }

    /// A task has received so much from a node: what is to be told now, if anything.
    pub fn add(&mut self, which: (u32, NodeId), bytes: u64) -> Option<u64> {
        let untold = self.bytes.entry(which).or_default();
        *untold += bytes;
        if *untold <= self.told_at {
            return None;
        }
        let told = std::mem::take(untold);
        let here = self.here.entry(which).or_default();
        *here = here.saturating_sub(told);
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(from: u32, tag: i32, text: u8) -> Letter {
        Letter { address: Address { from, to: 0, tag }, text: vec![text] }
    }

    #[test]
    fn letters_are_taken_in_order_by_sender_and_tag() {
        let mut letters = Box::default();
        for (from, tag, text) in [(1, 5, 0), (2, 5, 1), (1, 6, 2), (1, 5, 3), (3, -2, 4)] {
            assert_eq!(letters.put(letter(from, tag, text)), None);
        }
        let mut take = |from, tag| letters.take(Wanted { from, tag }).map(|it| it.text[0]);
        assert_eq!(take(Some(1), Some(6)), Some(2));
        assert_eq!(take(None, None), Some(0));
        assert_eq!(take(Some(1), None), Some(3));
        assert_eq!(take(None, Some(5)), Some(1));
        assert_eq!(take(None, None), None, "what is left is a broadcast");
        assert!(letters.put(letter(9, -3, 5)).is_none());
        assert_eq!(letters.put(letter(9, 0, 6)).expect("it waits").text, [6]);
        assert_eq!(
            letters.take(Wanted { from: Some(3), tag: Some(-2) }).expect("it is there").text,
            [4]
        );
    }

    #[test]
    fn senders_wait_while_too_much_is_not_received_and_then_continue() {
        for bytes_max in [0, 1, 3, 1000] {
            let (mut sent, mut got) = (Unreceived::new(bytes_max), Received::new(bytes_max));
            for bytes in [1, 7, 400, 100_000, 1] {
                let mut letters = 0;
                while sent.has_room(5) {
                    sent.add(5, bytes);
                    assert_eq!(got.came((5, 0), bytes), Some(()), "there was room");
                    letters += 1;
                }
                let mut mad = Received { here: got.here.clone(), ..Received::new(bytes_max) };
                assert_eq!(mad.came((5, 0), bytes), None, "there was none");
                assert!(letters > 0, "who has received all can be sent more");
                assert!(sent.has_room(4), "another task has room");
                assert!(letters <= bytes_max / bytes + 1);
                for _ in 0..letters {
                    if let Some(bytes) = got.add((5, 0), bytes) {
                        sent.remove(5, bytes).expect("it was sent");
                    }
                }
            }
            assert_eq!(sent.remove(5, 1 << 40), None);
            assert_eq!(sent.remove(6, 1), None);
        }
    }
}
