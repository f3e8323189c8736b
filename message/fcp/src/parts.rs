//! Messages in parts, and received messages that nobody has asked for yet.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::arrived::Arrived;
use crate::hold::Peer;
use crate::member::{Life, Members};
use sync::ring::Kind;

/// The start of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The sender.
    pub sender: Peer,
    /// Length of the whole message, in bytes.
    pub length: usize,
    /// Offset of the part in the message.
    pub at: usize,
}

impl Head {
    /// Length in a part, in bytes.
    pub const SIZE: usize = 24;

    /// Returns the head as a part carries it.
    pub fn bytes(self) -> [u8; Self::SIZE] {
        let Peer { index, generation } = self.sender;
        let sender = u64::from(generation) << 32 | u64::from(index);
        let words = [sender, self.length as u64, self.at as u64].map(u64::to_le_bytes);
        std::array::from_fn(|i| words[i / 8][i % 8])
    }

    /// Returns the head of a part. `None` if the message is no part, or the head is invalid.
    #[inline]
    pub fn of(arrived: &Arrived<'_>) -> Option<Self> {
        if arrived.header().kind != Kind::Part {
            return None;
        }
        let part = (arrived.header().length as usize).checked_sub(Self::SIZE)?;
        let mut head = [0; Self::SIZE];
        arrived.read(0, &mut head);
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| head[8 * n + i]));
        let sender = Peer { index: word(0) as u16, generation: (word(0) >> 32) as u32 };
        let (length, at) = (usize::try_from(word(1)).ok()?, usize::try_from(word(2)).ok()?);
        (at.checked_add(part)? <= length).then_some(Self { sender, length, at })
    }
}

/// A message of which some parts have arrived.
#[derive(Debug)]
pub(crate) struct Partial {
    /// ID of the sender's card.
    pub source: u32,
    /// The bytes that have arrived.
    pub bytes: Vec<u8>,
    /// Length of the whole message, in bytes.
    pub length: usize,
}

/// Received messages that nobody has asked for yet.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Complete messages with the IDs of their senders, in order.
    pub whole: VecDeque<(u32, Vec<u8>)>,
    /// By sender: the parts of one message arrive in order.
    partial: HashMap<Peer, Partial>,
    members: Arc<Members>,
}

impl Kept {
    /// Returns an empty store for messages of these members.
    pub fn new(members: Arc<Members>) -> Self {
        Self { whole: VecDeque::new(), partial: HashMap::new(), members }
    }

    /// Returns true if the sender has ended: it never finishes its message.
    pub fn has_lost(&self, sender: Peer) -> bool {
        self.members.life(sender) == Life::Gone
    }

    /// Stores a received message.
    pub fn take(&mut self, mut arrived: Arrived<'_>) {
        let header = arrived.header();
        match header.kind {
            Kind::Part => {
                if let Some(head) = Head::of(&arrived) {
                    self.take_part(head, &arrived);
                }
            }
            Kind::Remote => {
                let Some(offer) = arrived.offer() else { return };
                drop(arrived);
                let mut bytes = vec![0; offer.length()];
                if offer.pull(&mut bytes).is_ok() {
                    self.whole.push_back((header.source, bytes));
                }
            }
            Kind::Inline | Kind::Lent | Kind::Skip => {
                let mut bytes = vec![0; header.length as usize];
                arrived.read(0, &mut bytes);
                if let Some(loan) = arrived.loan() {
                    bytes.extend_from_slice(&loan);
                }
                self.whole.push_back((header.source, bytes));
            }
        }
    }

    fn take_part(&mut self, head: Head, arrived: &Arrived<'_>) {
        let Head { sender, length, at } = head;
        if at == 0 {
            let members = &self.members;
            self.partial.retain(|peer, _| members.life(*peer) != Life::Gone);
            let mut bytes = Vec::new();
            // No sender has more memory than this process: the length is invalid.
            if bytes.try_reserve_exact(length).is_err() {
                return;
            }
            self.partial.insert(sender, Partial { source: arrived.header().source, bytes, length });
        }
        let Some(partial) = self.partial.get_mut(&sender) else { return };
        if partial.bytes.len() != at || partial.length != length {
            self.partial.remove(&sender);
            return;
        }
        partial.bytes.resize(at + arrived.header().length as usize - Head::SIZE, 0);
        arrived.read(Head::SIZE, &mut partial.bytes[at..]);
        if partial.bytes.len() == length {
            let Partial { source, bytes, .. } = self.partial.remove(&sender).expect("just found");
            self.whole.push_back((source, bytes));
        }
    }

    /// Stores the first parts of a message; the others will arrive.
    pub fn put_aside(&mut self, sender: Peer, partial: Partial) {
        self.partial.insert(sender, partial);
    }
}
