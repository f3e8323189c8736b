//! Messages of any length, to anybody, received from anybody or from some: what a message
//! passing library needs of a port.
//!
//! Short messages go through the ring. Long ones are offered (`offer`), and copied once.
//! A receiver that cannot read our memory says so; from then on it is sent parts, which
//! it puts together while others' messages come between them.
//!
//! What comes while we wait for something else, to send or from somebody else, is kept
//! until it is asked for.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use crate::hold::Peer;
use crate::inbox::{Arrived, Bell};
use crate::member::{Life, Members};
use crate::offer::Lost;
use crate::port::{Broken, Port, Refused};
use crate::ring::{Kind, LINE_SIZE};

/// Longest message that goes through the ring in one piece, if the ring is four times that.
const SHORT_MAX: usize = 32 << 10;

/// What each part begins with: the sender's entry and generation, how long the message is,
/// and where the part lies in it.
const PART_HEAD: usize = 24;

/// A port, and what has come to it.
#[derive(Debug)]
pub struct Mail {
    port: Port,
    kept: Kept,
    /// Who cannot read our memory.
    unreadable: HashSet<Peer>,
    short_max: usize,
}

/// A message that is being put together, and who sends it.
#[derive(Debug)]
struct Partial {
    source: u32,
    bytes: Vec<u8>,
    /// How many there will be.
    length: usize,
}

/// What has come and was not asked for yet.
#[derive(Debug, Default)]
struct Kept {
    whole: VecDeque<(u32, Vec<u8>)>,
    /// By sender: the parts of one message come in order.
    partial: HashMap<Peer, Partial>,
}

/// A message that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Who sent it: its card's ID.
    pub source: u32,
    /// Its bytes, of which there may have been room for fewer.
    pub length: usize,
}

impl Mail {
    /// Messages by this port, which nobody else has received from.
    pub fn new(port: Port) -> Self {
        let (_, lines) = port.members().window().buffer(0).expect("ports have buffers");
        let short_max = SHORT_MAX.min(lines as usize * LINE_SIZE / 4);
        let (kept, unreadable) = (Kept::default(), HashSet::new());
        Self { port, kept, unreadable, short_max }
    }

    /// The port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// What ends a wait from another thread: it returns as if the time were over.
    pub fn bell(&self) -> Bell {
        self.port.bell()
    }

    /// Sends to the member in entry `to`, whose card says `id` if that is given. Waits
    /// until it has room, or, if the message is long, has copied it.
    pub fn send(
        &mut self,
        to: u16,
        id: Option<u32>,
        bytes: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Refused> {
        let members = self.port.members().clone();
        let kept = &mut self.kept;
        let take = |arrived: Arrived<'_>| kept.take(arrived, &members);
        if bytes.len() <= self.short_max {
            return self.port.send(to, id, Kind::Inline, &[bytes], until, take);
        }
        let peer = members.entry(to).ok_or(Refused::Gone)?.peer;
        if !self.unreadable.contains(&peer) {
            match self.port.send_remote(to, id, &[], bytes, until, take) {
                Err(Refused::OutOfReach) => {
                    self.unreadable.retain(|peer| members.life(*peer) != Life::Gone);
                    self.unreadable.insert(peer);
                }
                sent => return sent,
            }
        }
        self.send_parts(to, id, bytes, until)
    }

    fn send_parts(
        &mut self,
        to: u16,
        id: Option<u32>,
        bytes: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Refused> {
        let members = self.port.members().clone();
        let Peer { index, generation } = self.port.peer();
        let mut at = 0;
        for part in bytes.chunks(self.short_max - PART_HEAD) {
            let sender = u64::from(generation) << 32 | u64::from(index);
            let head = [sender, bytes.len() as u64, at as u64].map(u64::to_le_bytes);
            let parts = [head.as_flattened(), part];
            let take = |arrived: Arrived<'_>| self.kept.take(arrived, &members);
            // Begun, it is finished: a receiver must not wait for the rest.
            let until = until.filter(|_| at == 0);
            self.port.send(to, id, Kind::Part, &parts, until, take)?;
            at += part.len();
        }
        Ok(())
    }

    /// Receives the next message into `to`, from anybody or from one of `sources`; waits
    /// until the given time. What there is no room for is lost.
    pub fn receive(
        &mut self,
        to: &mut [u8],
        sources: &[u32],
        until: Option<Instant>,
    ) -> Result<Option<Received>, Broken> {
        let is_wanted = |source: u32| sources.is_empty() || sources.contains(&source);
        if let Some(at) = self.kept.whole.iter().position(|(source, _)| is_wanted(*source)) {
            let (source, bytes) = self.kept.whole.remove(at).expect("just found");
            let fits = bytes.len().min(to.len());
            to[..fits].copy_from_slice(&bytes[..fits]);
            return Ok(Some(Received { source, length: bytes.len() }));
        }
        let members = self.port.members().clone();
        loop {
            let Some(mut arrived) = self.port.receive(until)? else { return Ok(None) };
            let header = arrived.header();
            let source = header.source;
            if header.kind == Kind::Inline && is_wanted(source) {
                let length = header.length as usize;
                let fits = length.min(to.len());
                arrived.read(0, &mut to[..fits]);
                return Ok(Some(Received { source, length }));
            }
            if header.kind == Kind::Remote && is_wanted(source) {
                let Some(offer) = arrived.offer() else { continue };
                let length = offer.length();
                let fits = length.min(to.len());
                drop(arrived); // the ring goes on while we copy
                match offer.pull(&mut to[..fits]) {
                    Ok(()) => return Ok(Some(Received { source, length })),
                    Err(Lost::Withdrawn | Lost::Unreadable) => continue,
                }
            }
            self.kept.take(arrived, &members);
            if let Some((source, _)) = self.kept.whole.back()
                && is_wanted(*source)
            {
                return self.receive(to, sources, until);
            }
        }
    }

    /// Who sent the next message, from anybody or from one of `sources`, and how long it
    /// is; it stays. Waits until the given time.
    pub fn select(
        &mut self,
        sources: &[u32],
        until: Option<Instant>,
    ) -> Result<Option<Received>, Broken> {
        let members = self.port.members().clone();
        loop {
            let mut kept = self.kept.whole.iter();
            let is_wanted = |source: u32| sources.is_empty() || sources.contains(&source);
            if let Some((source, bytes)) = kept.find(|(source, _)| is_wanted(*source)) {
                return Ok(Some(Received { source: *source, length: bytes.len() }));
            }
            let Some(arrived) = self.port.receive(until)? else { return Ok(None) };
            let header = arrived.header();
            if header.kind == Kind::Inline && is_wanted(header.source) {
                arrived.leave();
                let (source, length) = (header.source, header.length as usize);
                return Ok(Some(Received { source, length }));
            }
            self.kept.take(arrived, &members);
        }
    }
}

impl Kept {
    /// Keeps what has come.
    fn take(&mut self, mut arrived: Arrived<'_>, members: &Members) {
        let header = arrived.header();
        let mut bytes = vec![0; header.length as usize];
        match header.kind {
            Kind::Remote => {
                let Some(offer) = arrived.offer() else { return };
                drop(arrived);
                let mut bytes = vec![0; offer.length()];
                if offer.pull(&mut bytes).is_ok() {
                    self.whole.push_back((header.source, bytes));
                }
            }
            Kind::Part => {
                arrived.read(0, &mut bytes);
                drop(arrived);
                self.take_part(header.source, &bytes, members);
            }
            Kind::Inline | Kind::Lent | Kind::Skip => {
                arrived.read(0, &mut bytes);
                if let Some(loan) = arrived.loan() {
                    bytes.extend_from_slice(&loan);
                }
                self.whole.push_back((header.source, bytes));
            }
        }
    }

    fn take_part(&mut self, source: u32, bytes: &[u8], members: &Members) {
        let Some((head, part)) = bytes.split_at_checked(PART_HEAD) else { return };
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| head[8 * n + i]));
        let peer = Peer { index: word(0) as u16, generation: (word(0) >> 32) as u32 };
        let (Ok(length), Ok(at)) = (usize::try_from(word(1)), usize::try_from(word(2))) else {
            return;
        };
        if at == 0 {
            // What the dead have begun is never finished.
            self.partial.retain(|peer, _| members.life(*peer) != Life::Gone);
            let mut bytes = Vec::new();
            // A length that nobody has memory for is no true one.
            if bytes.try_reserve_exact(length).is_err() {
                return;
            }
            self.partial.insert(peer, Partial { source, bytes, length });
        }
        let Some(partial) = self.partial.get_mut(&peer) else { return };
        if partial.bytes.len() != at || partial.length - at < part.len() {
            self.partial.remove(&peer);
            return;
        }
        partial.bytes.extend_from_slice(part);
        if partial.bytes.len() == partial.length {
            let Partial { source, bytes, .. } = self.partial.remove(&peer).expect("just found");
            self.whole.push_back((source, bytes));
        }
    }
}
