//! A port of FCP II: an inbox, and ways to all other members.
//!
//! A way needs no connection: where the receiver's buffer is, its entry's index tells. An
//! entry that is another's by now than the program expects gets nothing. While it sends, the
//! port holds the receiver's entry (`hold`), so that the buffer stays the receiver's.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::advance::{self, Writing};
use crate::arrived::Arrived;
use crate::bell::Bell;
use crate::error::WindowError;
use crate::fork;
use crate::hold::Peer;
use crate::inbox::{Corrupt, First, Inbox};
use crate::lend::{Block, Lendable, Lender};
use crate::loan::{Loan, Terms};
use crate::member::{Card, Hold, Life, Members, Membership};
use crate::offer;
use crate::outbox::{self, Meanwhile, Outbox};
use crate::port::{Broken, Refused};
use crate::window::Window;
use sync::ring::{Kind, LINE_SIZE, SendError};
use sync::wait::{self, DOUBT};

impl From<Corrupt> for Broken {
    fn from(_: Corrupt) -> Self {
        Self::Corrupt
    }
}

impl From<outbox::Refused> for Refused {
    fn from(refused: outbox::Refused) -> Self {
        match refused {
            outbox::Refused::TooLong => Self::TooLong,
            outbox::Refused::TimedOut => Self::Full,
            outbox::Refused::Dead => Self::Dead,
        }
    }
}

impl From<SendError> for Refused {
    fn from(error: SendError) -> Self {
        match error {
            SendError::TooLong => Self::TooLong,
            SendError::Full => Self::Full,
        }
    }
}

/// A member that sends and receives by FCP II.
#[derive(Debug)]
pub(crate) struct Computed {
    // The inbox does not outlive the membership, which keeps the window.
    inbox: Inbox,
    ways: Ways,
    /// Made when it is first needed.
    lender: Option<Arc<Lender>>,
    /// How many offers were made.
    offers: u32,
}

impl Computed {
    pub fn join(
        members: &Arc<Members>,
        card: Card,
        index: Option<u16>,
    ) -> Result<Self, WindowError> {
        let window = members.window();
        if window.buffer(0).is_none() {
            return Err(WindowError::NoMessages { place: window.memory().place().to_owned() });
        }
        let membership = Arc::new(members.join(card, index)?);
        let peer = membership.peer();
        // SAFETY: our own, and the membership keeps the window.
        let ring = unsafe { window.ring(peer.index) }.expect("all entries have a buffer");
        let ways = Ways {
            ticket: members.ticket(peer),
            source: card.id,
            membership,
            ways: Vec::new(),
            forks: fork::watch(),
        };
        let mut inbox = Inbox::new(ring);
        inbox.receive_as(ways.membership.clone());
        Ok(Self { inbox, ways, lender: None, offers: 0 })
    }

    pub fn membership(&self) -> &Membership {
        &self.ways.membership
    }

    pub fn capacity(&self) -> usize {
        let window = self.membership().members().window();
        window.buffer(0).map_or(0, |(_, lines)| lines as usize * LINE_SIZE)
    }

    pub fn bell(&self, window: Arc<Window>) -> Bell {
        self.inbox.bell(window)
    }

    #[inline]
    pub fn try_send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
    ) -> Result<(), Refused> {
        let (way, _hold, _) = self.ways.hold(to, id)?;
        Ok(way.outbox.try_send(kind, parts)?)
    }

    #[inline]
    pub fn send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let (way, _hold, members) = self.ways.hold(to, id)?;
        way.send(kind, parts, until, members, &mut self.inbox, meanwhile)
    }

    pub fn block(&mut self, length: usize) -> Option<Block> {
        if self.lender.is_none() {
            self.lender = Lender::new(self.ways.membership.clone());
        }
        self.lender.as_ref()?.block(length)
    }

    pub fn send_lent(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        (memory, range): (&Lendable, Range<usize>),
        until: Option<Instant>,
        meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let (way, _hold, members) = self.ways.hold(to, id)?;
        let lender = self.lender.as_ref().expect("another port's memory");
        let terms = lender.lend(memory, range, way.peer).ok_or(Refused::Full)?;
        let bytes = terms.bytes();
        let parts: Vec<&[u8]> = parts.iter().copied().chain([&bytes[..]]).collect();
        let sent = way.send(Kind::Lent, &parts, until, members, &mut self.inbox, meanwhile);
        if sent.is_err() {
            memory.take_back(terms);
        }
        sent
    }

    pub fn lend(
        &mut self,
        to: u16,
        id: Option<u32>,
        (memory, range): (&Lendable, Range<usize>),
    ) -> Result<Terms, Refused> {
        let (way, _hold, _) = self.ways.hold(to, id)?;
        let lender = self.lender.as_ref().expect("another port's memory");
        lender.lend(memory, range, way.peer).ok_or(Refused::Full)
    }

    pub fn send_in_advance(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        pieces: &[&[u8]],
        until: Option<Instant>,
        meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        let block = self.block(advance::size(length, pieces.len())).ok_or(Refused::OutOfReach)?;
        let generation = self.membership().peer().generation;
        let (way, hold, members) = self.ways.hold(to, id)?;
        let lender = self.lender.as_ref().expect("it has given the block");
        let writing = Writing::new(block.share(), length, pieces);
        let terms =
            lender.lend(writing.memory(), 0..length, way.peer).ok_or(Refused::OutOfReach)?;
        let terms = Terms { in_advance: generation, ..terms };
        let bytes = terms.bytes();
        let parts: Vec<&[u8]> = parts.iter().copied().chain([&bytes[..]]).collect();
        let sent = way.send(Kind::Lent, &parts, until, members, &mut self.inbox, meanwhile);
        drop(hold);
        match sent {
            Ok(()) => writing.write(terms),
            Err(_) => writing.memory().take_back(terms),
        }
        sent
    }

    pub fn loan(&self, terms: Terms) -> Option<Loan> {
        let loan = Loan::new(&self.ways.membership, terms);
        loan.filter(|_| terms.in_advance == 0)
    }

    pub fn try_hand_on(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        loan: &mut Loan,
    ) -> Result<(), Refused> {
        let (way, _hold, _) = self.ways.hold(to, id)?;
        if !loan.hand_on(way.peer) {
            return Err(Refused::OutOfReach);
        }
        let terms = loan.terms().bytes();
        let parts: Vec<&[u8]> = parts.iter().copied().chain([&terms[..]]).collect();
        let sent = way.outbox.try_send(Kind::Lent, &parts);
        if sent.is_err() {
            loan.take_back(way.peer);
        }
        Ok(sent?)
    }

    pub fn send_remote(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        bytes: &[u8],
        until: Option<Instant>,
        mut meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let sender = self.membership().peer();
        let (way, hold, members) = self.ways.hold(to, id)?;
        let (receiver, word) = (way.peer, members.offer(sender.index));
        self.offers = self.offers.wrapping_add(1);
        let number = offer::number(sender.generation, self.offers);
        let (address, length) = (bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64);
        let terms = offer::Terms { address, length, number, sender: sender.index }.bytes();
        let parts: Vec<&[u8]> = parts.iter().copied().chain([&terms[..]]).collect();
        offer::offer(word, number);
        let sent = way.send(Kind::Remote, &parts, until, members, &mut self.inbox, &mut meanwhile);
        drop(hold);
        if let Err(refused) = sent {
            offer::withdraw(word, number);
            return Err(refused);
        }
        let is_dead = |ticket| members.is_dead(ticket);
        let mut meanwhile =
            Meanwhile { inbox: &mut self.inbox, is_dead: &is_dead, take: &mut meanwhile };
        // As long as a slow copy takes: to sleep and be woken costs as much.
        let usual = Duration::from_nanos(2_000 + (bytes.len() as u64 / 4).min(1_000_000));
        let answered = |read| if read { Ok(()) } else { Err(Refused::OutOfReach) };
        loop {
            let state = offer::futex(word).load(Ordering::Acquire);
            let read = wait::poll_for(usual, || {
                meanwhile.take_all();
                offer::answered(word, number)
            });
            if let Some(read) = read {
                return answered(read);
            }
            meanwhile.nap((offer::futex(word), state), wait::earlier(until, DOUBT));
            if members.life(receiver) == Life::Gone {
                return offer::answered(word, number).map_or(Err(Refused::Dead), answered);
            }
            let over = until.is_some_and(|until| Instant::now() >= until);
            if over && offer::withdraw(word, number) {
                return Err(Refused::Full);
            }
        }
    }

    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<Arrived<'_>>, Broken> {
        if fork::happened_since(self.ways.forks) {
            return Err(Broken::Forked);
        }
        let members = self.ways.membership.members();
        Ok(self.inbox.try_receive(|ticket| members.is_dead(ticket))?)
    }

    #[inline]
    pub fn receive(&mut self, until: Option<Instant>) -> Result<Option<Arrived<'_>>, Broken> {
        if fork::happened_since(self.ways.forks) {
            return Err(Broken::Forked);
        }
        let members = self.ways.membership.members();
        Ok(self.inbox.receive(until, |ticket| members.is_dead(ticket))?)
    }

    #[inline]
    pub fn receive_into(
        &mut self,
        to: &mut [u8],
        until: Option<Instant>,
    ) -> Result<Option<First>, Broken> {
        if fork::happened_since(self.ways.forks) {
            return Err(Broken::Forked);
        }
        let members = self.ways.membership.members();
        Ok(self.inbox.receive_into(to, until, |ticket| members.is_dead(ticket))?)
    }

    pub fn receive_while(
        &mut self,
        word: &AtomicU32,
        is: u32,
        until: Option<Instant>,
    ) -> Result<Option<Arrived<'_>>, Broken> {
        if fork::happened_since(self.ways.forks) {
            return Err(Broken::Forked);
        }
        let members = self.ways.membership.members();
        Ok(self.inbox.receive_while(word, is, until, |ticket| members.is_dead(ticket))?)
    }
}

/// The ways to the other members.
#[derive(Debug)]
struct Ways {
    membership: Arc<Membership>,
    /// By entry; made when they are first needed.
    ways: Vec<Option<Way>>,
    ticket: u32,
    source: u32,
    forks: u32,
}

/// The way to one member.
#[derive(Debug)]
struct Way {
    outbox: Outbox,
    peer: Peer,
    id: u32,
}

impl Way {
    /// Sends to the member, which is held; waits for room.
    #[inline]
    fn send(
        &mut self,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        members: &Members,
        inbox: &mut Inbox,
        mut meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        match self.outbox.try_send(kind, parts) {
            Err(SendError::Full) => {
                let lives = || members.life(self.peer) != Life::Gone;
                let is_dead = &|ticket| members.is_dead(ticket);
                let meanwhile = Meanwhile { inbox, is_dead, take: &mut meanwhile };
                Ok(self.outbox.send_when_free(kind, parts, until, lives, Some(meanwhile))?)
            }
            sent => Ok(sent?),
        }
    }
}

impl Ways {
    /// The way to the member in entry `to`, a hold of it, and who is alive.
    #[inline]
    fn hold(
        &mut self,
        to: u16,
        id: Option<u32>,
    ) -> Result<(&mut Way, Hold<'_>, &Members), Refused> {
        if fork::happened_since(self.forks) {
            return Err(Refused::Forked);
        }
        let slot = usize::from(to);
        let known = match self.ways.get(slot) {
            Some(Some(way)) if id.is_none_or(|id| id == way.id) => {
                self.membership.hold_alone(way.peer)
            }
            _ => None,
        };
        let hold = match known {
            Some(hold) => hold,
            None => {
                let (way, hold) = Self::open(&self.membership, self.ticket, self.source, to, id)?;
                if self.ways.len() <= slot {
                    self.ways.resize_with(slot + 1, || None);
                }
                self.ways[slot] = Some(way);
                hold
            }
        };
        let way = self.ways[slot].as_mut().expect("it is there");
        Ok((way, hold, self.membership.members()))
    }

    /// A new way to the member in entry `to`, and a hold of it.
    #[cold]
    fn open(
        membership: &Membership,
        ticket: u32,
        source: u32,
        to: u16,
        id: Option<u32>,
    ) -> Result<(Way, Hold<'_>), Refused> {
        let members = membership.members();
        loop {
            let entry = members.entry(to).ok_or(Refused::Gone)?;
            if id.is_some_and(|id| id != entry.card.id) {
                return Err(Refused::Gone);
            }
            if members.life(entry.peer) == Life::Gone {
                return Err(Refused::Dead);
            }
            if let Some(hold) = membership.hold_alone(entry.peer) {
                // SAFETY: held while it is used; the membership keeps the window.
                let ring = unsafe { members.window().ring(to) }.expect("the entry is there");
                let outbox = Outbox::new(ring, ticket, source);
                return Ok((Way { outbox, peer: entry.peer, id: entry.card.id }, hold));
            }
        }
    }
}
