//! Messages of any length, to any member, received from any or from some: what a message-passing
//! library needs of a port.
//!
//! A short message goes through the ring. A long one is offered (`offer`) and copied once, or goes
//! through the ring in parts (`parts`); the receiver copies a part while the sender writes the
//! next. Messages of other senders may come between parts. In a space an offer is one copy in user
//! space. Between processes the kernel copies, which may be refused, or take longer than two copies
//! in parts at the same time. So the sender takes the route that was faster recently (`faster`).
//! FCP and FCP plus have parts only.
//!
//! Messages that arrive during another wait, to send or for another sender, are stored until the
//! program asks for them.

use std::collections::HashSet;
use std::time::Instant;

use crate::arrived::Arrived;
use crate::bell::Bell;
use crate::error::{Broken, Refused};
use crate::faster::{Faster, Route};
use crate::hold::Peer;
use crate::inbox::First;
use crate::member::Life;
use crate::offer::Lost;
use crate::parts::{Head, Kept, Partial};
use crate::port::Port;
use sync::ring::{Header, Kind};
use sync::wait::{self, DOUBT};

/// Longest message that goes through the ring in one piece, in bytes; at most a quarter of the
/// ring.
const SHORT_MAX: usize = 32 << 10;
/// Longest part, in bytes; at most an eighth of the ring.
const PART_MAX: usize = 16 << 10;

/// A port, and the messages that have arrived at it.
#[derive(Debug)]
pub struct Mail {
    port: Port,
    kept: Kept,
    /// Members that cannot read this process's memory.
    unreadable: HashSet<Peer>,
    faster: Faster,
    short_max: usize,
    part_max: usize,
}

/// A message that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// ID of the sender's card.
    pub source: u32,
    /// Length of the message in bytes; the caller's buffer may have been shorter.
    pub length: usize,
}

impl Mail {
    /// Returns the mailbox of this port, from which nobody else has received.
    pub fn new(port: Port) -> Self {
        let size = port.capacity();
        let (short_max, part_max) = (SHORT_MAX.min(size / 4), PART_MAX.min(size / 8) - Head::SIZE);
        let (kept, unreadable) = (Kept::new(port.members().clone()), HashSet::new());
        Self { port, kept, unreadable, faster: Faster::default(), short_max, part_max }
    }

    /// Returns the port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Returns the bell that ends a wait from another thread, as if the time were over.
    pub fn bell(&self) -> Bell {
        self.port.bell()
    }

    /// Sends to the member in entry `to`, whose card has `id` if that is given. Waits until the
    /// member has room or, if the message is long, has copied it.
    #[inline]
    pub fn send(
        &mut self,
        to: u16,
        id: Option<u32>,
        bytes: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Refused> {
        if bytes.len() <= self.short_max {
            return match self.port.try_send(to, id, Kind::Inline, &[bytes]) {
                Err(Refused::Full) => self.send_when_free(to, id, bytes, until),
                sent => sent,
            };
        }
        self.send_long(to, id, bytes, until)
    }

    #[cold]
    fn send_when_free(
        &mut self,
        to: u16,
        id: Option<u32>,
        bytes: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Refused> {
        let take = |arrived: Arrived<'_>| self.kept.take(arrived);
        self.port.send(to, id, Kind::Inline, &[bytes], until, take)
    }

    #[inline(never)]
    fn send_long(
        &mut self,
        to: u16,
        id: Option<u32>,
        bytes: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Refused> {
        if self.port.protocol().is_listed() {
            return self.send_parts(to, id, bytes, until);
        }
        let peer = self.port.members().entry(to).ok_or(Refused::Gone)?.peer;
        let unreadable = self.unreadable.contains(&peer);
        let route = if unreadable { Route::Parts } else { self.faster.next() };
        let begin = Instant::now();
        let sent = match route {
            Route::Offer => {
                let take = |arrived: Arrived<'_>| self.kept.take(arrived);
                self.port.send_remote(to, id, &[], bytes, until, take)
            }
            Route::Parts => self.send_parts(to, id, bytes, until),
        };
        match sent {
            Ok(()) => self.faster.learn(route, begin.elapsed(), bytes.len()),
            Err(Refused::OutOfReach) => {
                let members = self.port.members();
                self.unreadable.retain(|peer| members.life(*peer) != Life::Gone);
                self.unreadable.insert(peer);
                return self.send_parts(to, id, bytes, until);
            }
            Err(_) => {}
        }
        sent
    }

    fn send_parts(
        &mut self,
        to: u16,
        id: Option<u32>,
        bytes: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Refused> {
        let (sender, length) = (self.port.peer(), bytes.len());
        let mut at = 0;
        for part in bytes.chunks(self.part_max) {
            let parts = [&Head { sender, length, at }.bytes()[..], part];
            let take = |arrived: Arrived<'_>| self.kept.take(arrived);
            // If the time is over between two parts, the receiver drops those that it has.
            self.port.send(to, id, Kind::Part, &parts, until, take)?;
            at += part.len();
        }
        Ok(())
    }

    /// Receives the next message into `to`, from any sender or from one of `sources`. Waits until
    /// `until`. Bytes that `to` does not hold are lost.
    #[inline]
    pub fn receive(
        &mut self,
        to: &mut [u8],
        sources: &[u32],
        until: Option<Instant>,
    ) -> Result<Option<Received>, Broken> {
        if sources.is_empty() && self.kept.whole.is_empty() {
            match self.port.receive_into(to, until)? {
                None => return Ok(None),
                Some(First::Copied(Header { source, length, .. })) => {
                    return Ok(Some(Received { source, length: length as usize }));
                }
                Some(First::Other) => {}
            }
        }
        self.receive_any(to, sources, until)
    }

    #[inline(never)]
    fn receive_any(
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
        // The message whose parts are copied directly into `to`.
        let mut begun: Option<(Head, u32)> = None;
        loop {
            let end = begun.map_or(until, |_| Some(wait::earlier(until, DOUBT)));
            let Some(mut arrived) = self.port.receive(end)? else {
                // Before `end`, only the bell ends the wait.
                let over = |time: Instant| Instant::now() >= time;
                let ends = until.is_some_and(over) || !end.is_some_and(over);
                match begun {
                    Some((head, _)) if self.kept.has_lost(head.sender) => begun = None,
                    Some((Head { sender, length, at }, source)) if ends => {
                        let bytes = to[..at].to_vec();
                        self.kept.put_aside(sender, Partial { source, bytes, length });
                        return Ok(None);
                    }
                    _ if ends => return Ok(None),
                    _ => {}
                }
                if begun.is_none() && self.kept.whole.iter().any(|kept| is_wanted(kept.0)) {
                    return self.receive(to, sources, until);
                }
                continue;
            };
            let header = arrived.header();
            let (source, length) = (header.source, header.length as usize);
            if let Some(head) = Head::of(&arrived) {
                let starts = head.at == 0 && head.length <= to.len() && is_wanted(source);
                if starts && begun.is_none_or(|(begun, _)| begun.sender == head.sender) {
                    begun = Some((head, source));
                }
                if let Some((next, _)) = &mut begun
                    && *next == head
                {
                    let end = head.at + length - Head::SIZE;
                    arrived.read(Head::SIZE, &mut to[head.at..end]);
                    next.at = end;
                    if end == head.length {
                        return Ok(Some(Received { source, length: end }));
                    }
                    continue;
                }
            } else if begun.is_none() && is_wanted(source) && header.kind == Kind::Inline {
                let fits = length.min(to.len());
                arrived.read(0, &mut to[..fits]);
                return Ok(Some(Received { source, length }));
            } else if begun.is_none() && is_wanted(source) && header.kind == Kind::Remote {
                let Some(offer) = arrived.offer() else { continue };
                let length = offer.length();
                let fits = length.min(to.len());
                drop(arrived); // frees the ring during the copy
                match offer.pull(&mut to[..fits]) {
                    Ok(()) => return Ok(Some(Received { source, length })),
                    Err(Lost::Withdrawn | Lost::Unreadable) => continue,
                }
            }
            self.kept.take(arrived);
            if begun.is_none() && self.kept.whole.back().is_some_and(|kept| is_wanted(kept.0)) {
                return self.receive(to, sources, until);
            }
        }
    }

    /// Returns sender and length of the next message, from any sender or from one of `sources`. The
    /// message remains the next one. Waits until `until`.
    pub fn select(
        &mut self,
        sources: &[u32],
        until: Option<Instant>,
    ) -> Result<Option<Received>, Broken> {
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
            self.kept.take(arrived);
        }
    }
}
