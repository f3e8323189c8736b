//! Mailboxes of tasks: messages that have arrived, and tasks that wait for one. Messages between
//! two tasks stay in order.
//!
//! Flow control: a node counts the bytes that it has sent to a task and that the task has not
//! received ([`Unreceived`]), and stops at a limit. The receiver's node reports received bytes now
//! and then ([`Received`]).

use std::collections::{HashMap, VecDeque};

use coherence::message::NodeId;

use crate::frame::Address;

/// The messages that a task accepts. `None` accepts any value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The sender.
    pub from: Option<u32>,
    /// The tag.
    pub tag: Option<i32>,
}

/// A message between tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sender, the receiver and the tag.
    pub address: Address,
    /// The bytes.
    pub text: Vec<u8>,
}

/// The mailbox of a task.
#[derive(Debug, Default)]
pub struct Mailbox {
    messages: VecDeque<Message>,
    waits: Option<Wanted>,
}

impl Wanted {
    fn fits(self, address: &Address) -> bool {
        self.from.is_none_or(|from| from == address.from)
            // "Any tag" excludes the tags of broadcasts and reductions.
            && self.tag.map_or(address.tag >= 0, |tag| tag == address.tag)
    }
}

impl Mailbox {
    /// Stores a message that has arrived. Returns it instead if the task waits for it.
    pub fn put(&mut self, message: Message) -> Option<Message> {
        if self.waits.is_some_and(|wanted| wanted.fits(&message.address)) {
            self.waits = None;
            return Some(message);
        }
        self.messages.push_back(message);
        None
    }

    /// Returns true if the task waits for a message of this sender and no other.
    pub fn waits_for(&self, task: u32) -> bool {
        self.waits.is_some_and(|wanted| wanted.from == Some(task))
    }

    /// Takes the oldest message that the task accepts. If there is none, the task waits.
    pub fn take(&mut self, wanted: Wanted) -> Option<Message> {
        let at = self.messages.iter().position(|message| wanted.fits(&message.address));
        if at.is_none() {
            self.waits = Some(wanted);
        }
        self.messages.remove(at?)
    }
}

/// Returns the counted size of a message with this many bytes. An empty one takes memory, too.
pub fn cost(bytes: usize) -> u64 {
    bytes as u64 + size_of::<Message>() as u64
}

/// On the senders' node: the bytes that each task has not received yet, as far as is known.
#[derive(Debug)]
pub struct Unreceived {
    bytes_max: u64,
    /// By task.
    bytes: HashMap<u32, u64>,
}

impl Unreceived {
    /// Creates the counts. A task may have `bytes_max` and one message more.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, bytes: HashMap::new() }
    }

    /// Returns true if a message to this task may be sent now.
    pub fn has_room(&self, task: u32) -> bool {
        self.bytes.get(&task).is_none_or(|&bytes| bytes <= self.bytes_max)
    }

    /// Counts a message that is sent.
    pub fn add(&mut self, task: u32, bytes: u64) {
        *self.bytes.entry(task).or_default() += bytes;
    }

    /// Records that a task has received this many bytes. Returns `None` if fewer were sent.
    pub fn remove(&mut self, task: u32, bytes: u64) -> Option<()> {
        let left = self.bytes.get_mut(&task)?;
        *left = left.checked_sub(bytes)?;
        Some(())
    }
}

/// On the receivers' node: the bytes that arrived from each node, and those not reported yet.
#[derive(Debug)]
pub struct Received {
    bytes_max: u64,
    /// Bytes that arrived and are not reported as received.
    here: HashMap<(u32, NodeId), u64>,
    report_at: u64,
    bytes: HashMap<(u32, NodeId), u64>,
}

impl Received {
    /// Creates the counts, with the limit of the senders' nodes.
    pub fn new(bytes_max: u64) -> Self {
        // Less than the limit: after a task has received all, the sender knows of enough room.
        Self { bytes_max, here: HashMap::new(), report_at: bytes_max / 4, bytes: HashMap::new() }
    }

    /// Counts a message that arrived for a task from a node. Returns `None` if the node exceeds the
    /// limit.
    pub fn arrived(&mut self, which: (u32, NodeId), bytes: u64) -> Option<()> {
        let here = self.here.entry(which).or_default();
        let had_room = *here <= self.bytes_max;
        *here = here.saturating_add(bytes);
        had_room.then_some(())
    }

    /// Records that a task has received this many bytes from a node. Returns the number of bytes to
    /// report now, if any.
    pub fn add(&mut self, which: (u32, NodeId), bytes: u64) -> Option<u64> {
        let unreported = self.bytes.entry(which).or_default();
        *unreported += bytes;
        if *unreported <= self.report_at {
            return None;
        }
        let reported = std::mem::take(unreported);
        let here = self.here.entry(which).or_default();
        *here = here.saturating_sub(reported);
        Some(reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(from: u32, tag: i32, text: u8) -> Message {
        Message { address: Address { from, to: 0, tag }, text: vec![text] }
    }

    #[test]
    fn letters_are_taken_in_order_by_sender_and_tag() {
        let mut messages = Mailbox::default();
        for (from, tag, text) in [(1, 5, 0), (2, 5, 1), (1, 6, 2), (1, 5, 3), (3, -2, 4)] {
            assert_eq!(messages.put(message(from, tag, text)), None);
        }
        let mut take = |from, tag| messages.take(Wanted { from, tag }).map(|it| it.text[0]);
        assert_eq!(take(Some(1), Some(6)), Some(2));
        assert_eq!(take(None, None), Some(0));
        assert_eq!(take(Some(1), None), Some(3));
        assert_eq!(take(None, Some(5)), Some(1));
        assert_eq!(take(None, None), None, "what is left is a broadcast");
        assert!(messages.put(message(9, -3, 5)).is_none());
        assert_eq!(messages.put(message(9, 0, 6)).expect("the task waits").text, [6]);
        assert_eq!(
            messages.take(Wanted { from: Some(3), tag: Some(-2) }).expect("it is there").text,
            [4]
        );
    }

    #[test]
    fn senders_wait_while_too_much_is_not_received_and_then_continue() {
        for bytes_max in [0, 1, 3, 1000] {
            let (mut sent, mut got) = (Unreceived::new(bytes_max), Received::new(bytes_max));
            for bytes in [1, 7, 400, 100_000, 1] {
                let mut messages = 0;
                while sent.has_room(5) {
                    sent.add(5, bytes);
                    assert_eq!(got.arrived((5, 0), bytes), Some(()), "there was room");
                    messages += 1;
                }
                let mut mad = Received { here: got.here.clone(), ..Received::new(bytes_max) };
                assert_eq!(mad.arrived((5, 0), bytes), None, "there was none");
                assert!(messages > 0, "after all is received there is room");
                assert!(sent.has_room(4), "another task has room");
                assert!(messages <= bytes_max / bytes + 1);
                for _ in 0..messages {
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
