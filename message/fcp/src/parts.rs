//! Messages that come in parts, and what has come and was not asked for yet.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::arrived::Arrived;
use crate::hold::Peer;
use crate::member::{Life, Members};
use sync::ring::Kind;

/// What each part begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Who sends it.
    pub sender: Peer,
    /// Bytes of the whole message.
    pub length: usize,
    /// Where the part lies in it.
    pub at: usize,
}

impl Head {
    /// Bytes in a part.
    pub const SIZE: usize = 24;

    pub fn bytes(self) -> [u8; Self::SIZE] {
        let Peer { index, generation } = self.sender;
        let sender = u64::from(generation) << 32 | u64::from(index);
        let words = [sender, self.length as u64, self.at as u64].map(u64::to_le_bytes);
        std::array::from_fn(|i| words[i / 8][i % 8])
    }

    /// Of a message that is a part. Nothing if no sender would write it.
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

/// A message that is being put together.
#[derive(Debug)]
pub(crate) struct Partial {
    /// Who sends it: its card's ID.
    pub source: u32,
    /// What there is of it.
    pub bytes: Vec<u8>,
    /// How much there will be.
    pub length: usize,
}

/// What has come and was not asked for yet.
#[derive(Debug)]
pub(crate) struct Kept {
    pub whole: VecDeque<(u32, Vec<u8>)>,
    /// By sender: the parts of one message come in order.
    partial: HashMap<Peer, Partial>,
    members: Arc<Members>,
}

impl Kept {
    /// Of what comes from these.
    pub fn new(members: Arc<Members>) -> Self {
        Self { whole: VecDeque::new(), partial: HashMap::new(), members }
    }

    /// Whether this one has ended: what it has begun is never finished.
    pub fn has_lost(&self, sender: Peer) -> bool {
        self.members.life(sender) == Life::Gone
    }

    /// Keeps what has come.
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
            // A length that nobody has memory for is no true one.
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

    /// Keeps what there is of a message; its other parts will come.
    pub fn put_aside(&mut self, sender: Peer, partial: Partial) {
        self.partial.insert(sender, partial);
    }
}
