//! The endpoint of FCP II: an inbox, and a route to each other member.
//!
//! A route needs no connection: the index of an entry gives the location of its receive buffer. A
//! message for a member that no longer has its entry is refused. While the port sends, it holds the
//! receiver's entry (`hold`), so that the buffer remains the receiver's.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::advance::{self, Writing};
use crate::arrived::Arrived;
use crate::bell::Bell;
use crate::endpoint::Endpoint;
use crate::error::{Broken, Refused, WindowError};
use crate::fork;
use crate::hold::Peer;
use crate::inbox::{Corrupt, First, Inbox};
use crate::lend::{Block, Lendable, Lender};
use crate::loan::{Loan, Terms};
use crate::member::{Card, Hold, Life, Members, Membership};
use crate::offer;
use crate::outbox::{self, Meanwhile, Outbox};
use crate::protocol::Protocol;
use crate::together;
use sync::ring::{Kind, LINE_SIZE, SendError};
use sync::wait::{self, DOUBT, WaitPolicy};

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
pub(crate) struct Fcp2 {
    // It is dropped before the membership, which keeps the window.
    inbox: Inbox,
    routes: Routes,
    /// Made when it is first needed.
    lender: Option<Arc<Lender>>,
    /// Number of offers that were made.
    offers: u32,
    /// Waits until a receiver shares the copy of an offer, or answers it.
    answer_policy: WaitPolicy,
}

impl Fcp2 {
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
        // SAFETY: the entry is ours until the membership ends. The inbox, which has the ring, is
        // dropped before the membership, which keeps the window mapped.
        let ring = unsafe { window.ring(peer.index) }.expect("all entries have a buffer");
        let routes = Routes {
            ticket: members.ticket(peer),
            source: card.id,
            membership,
            routes: Vec::new(),
            forks: fork::watch(),
        };
        let mut inbox = Inbox::new(ring);
        inbox.receive_as(routes.membership.clone());
        Ok(Self { inbox, routes, lender: None, offers: 0, answer_policy: WaitPolicy::default() })
    }

    pub fn block(&mut self, length: usize) -> Option<Block> {
        if self.lender.is_none() {
            self.lender = Lender::new(self.routes.membership.clone());
        }
        self.lender.as_ref()?.block(length)
    }

    pub fn send_lent(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        lent: (&Lendable, Range<usize>),
        until: Option<Instant>,
        meanwhile: &mut dyn FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        self.lend_and_send(to, id, parts, lent, |route, parts, members, inbox| {
            route.send(Kind::Lent, parts, until, members, inbox, meanwhile)
        })
    }

    pub fn try_send_lent(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        lent: (&Lendable, Range<usize>),
    ) -> Result<(), Refused> {
        self.lend_and_send(to, id, parts, lent, |route, parts, _, _| {
            Ok(route.outbox.try_send(Kind::Lent, parts)?)
        })
    }

    /// Lends memory and sends its terms under one hold: between the two, no new owner of the entry
    /// can get the message without the loan.
    fn lend_and_send(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        (memory, range): (&Lendable, Range<usize>),
        send: impl FnOnce(&mut Route, &[&[u8]], &Members, &mut Inbox) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let (route, _hold, members) = self.routes.hold(to, id)?;
        let lender = self.lender.as_ref().expect("another port's memory");
        let terms = lender.lend(memory, range, route.peer).ok_or(Refused::Full)?;
        let sent = send(route, &with_terms(parts, &terms.bytes()), members, &mut self.inbox);
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
        let (route, _hold, _) = self.routes.hold(to, id)?;
        let lender = self.lender.as_ref().expect("another port's memory");
        lender.lend(memory, range, route.peer).ok_or(Refused::Full)
    }

    pub fn send_in_advance(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        pieces: &[&[u8]],
        until: Option<Instant>,
        meanwhile: &mut dyn FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        let block = self.block(advance::size(length, pieces.len())).ok_or(Refused::OutOfReach)?;
        let generation = self.routes.membership.peer().generation;
        let (route, hold, members) = self.routes.hold(to, id)?;
        let lender = self.lender.as_ref().expect("it has given the block");
        let writing = Writing::new(block.share(), length, pieces);
        let terms =
            lender.lend(writing.memory(), 0..length, route.peer).ok_or(Refused::OutOfReach)?;
        let terms = Terms { in_advance: generation, ..terms };
        let bytes = terms.bytes();
        let parts = with_terms(parts, &bytes);
        let sent = route.send(Kind::Lent, &parts, until, members, &mut self.inbox, meanwhile);
        drop(hold);
        match sent {
            Ok(()) => writing.write(terms, members, route.peer),
            Err(_) => writing.memory().take_back(terms),
        }
        sent
    }

    pub fn loan(&self, terms: Terms) -> Option<Loan> {
        let loan = Loan::new(&self.routes.membership, terms);
        loan.filter(|_| terms.in_advance == 0)
    }

    pub fn try_hand_on(
        &mut self,
        to: u16,
        id: Option<u32>,
        parts: &[&[u8]],
        loan: &mut Loan,
    ) -> Result<(), Refused> {
        let (route, _hold, _) = self.routes.hold(to, id)?;
        if !loan.hand_on(route.peer) {
            return Err(Refused::OutOfReach);
        }
        let terms = loan.terms().bytes();
        let sent = route.outbox.try_send(Kind::Lent, &with_terms(parts, &terms));
        if sent.is_err() {
            loan.take_back(route.peer);
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
        meanwhile: &mut dyn FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let sender = self.routes.membership.peer();
        let (route, hold, members) = self.routes.hold(to, id)?;
        let (receiver, word) = (route.peer, members.offer(sender.index));
        self.offers = self.offers.wrapping_add(1);
        let number = offer::number(sender.generation, self.offers);
        let (address, length) = (bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64);
        let terms = offer::Terms { address, length, number, sender: sender.index }.bytes();
        let parts = with_terms(parts, &terms);
        offer::offer(word, number);
        let sent = route.send(Kind::Remote, &parts, until, members, &mut self.inbox, meanwhile);
        drop(hold);
        if let Err(refused) = sent {
            offer::withdraw(word, number);
            return Err(refused);
        }
        let is_dead = |ticket| members.is_dead(ticket);
        let mut meanwhile =
            Meanwhile { inbox: &mut self.inbox, is_dead: &is_dead, take: meanwhile };
        let answered = |read| if read { Ok(()) } else { Err(Refused::OutOfReach) };
        let mut has_helped = false;
        loop {
            let state = offer::futex(word).load(Ordering::Acquire);
            let changed = self.answer_policy.poll(|| {
                meanwhile.take_all();
                match offer::answered(word, number) {
                    None if !has_helped && offer::is_shared(word, number) => Some(None),
                    answer => answer.map(Some),
                }
            });
            match changed {
                Some(Some(read)) => return answered(read),
                Some(None) => {
                    has_helped = true;
                    let tag = members.exposed(receiver.index).tag();
                    // The tag is of this offer if the receiver has not answered yet.
                    if offer::is_shared(word, number) {
                        together::help(members, receiver, tag, &[bytes]);
                    }
                    continue;
                }
                None => meanwhile.nap((offer::futex(word), state), wait::earlier(until, DOUBT)),
            }
            if members.life(receiver) == Life::Gone {
                self.answer_policy.give_up();
                return offer::answered(word, number).map_or(Err(Refused::Dead), answered);
            }
            let over = until.is_some_and(|until| Instant::now() >= until);
            if over && offer::withdraw(word, number) {
                self.answer_policy.give_up();
                return Err(Refused::Full);
            }
        }
    }

    /// Receives as [`Endpoint::receive`] does. Copies the message if it is of [`Kind::Inline`].
    #[inline]
    pub fn receive_into(
        &mut self,
        to: &mut [u8],
        until: Option<Instant>,
    ) -> Result<Option<First>, Broken> {
        if fork::happened_since(self.routes.forks) {
            return Err(Broken::Forked);
        }
        let members = self.routes.membership.members();
        Ok(self.inbox.receive_into(to, until, |ticket| members.is_dead(ticket))?)
    }
}

impl Endpoint for Fcp2 {
    fn protocol(&self) -> Protocol {
        Protocol::Fcp2
    }

    fn membership(&self) -> &Arc<Membership> {
        &self.routes.membership
    }

    fn capacity(&self) -> usize {
        let window = self.routes.membership.members().window();
        window.buffer(0).map_or(0, |(_, lines)| lines as usize * LINE_SIZE)
    }

    fn bell(&self) -> Bell {
        self.inbox.bell(self.routes.membership.members().window().clone())
    }

    #[inline]
    fn try_send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
    ) -> Result<(), Refused> {
        let (route, _hold, _) = self.routes.hold(to, id)?;
        Ok(route.outbox.try_send(kind, parts)?)
    }

    #[inline]
    fn send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        meanwhile: &mut dyn FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let (route, _hold, members) = self.routes.hold(to, id)?;
        route.send(kind, parts, until, members, &mut self.inbox, meanwhile)
    }

    #[inline]
    fn try_receive(&mut self) -> Result<Option<Arrived<'_>>, Broken> {
        if fork::happened_since(self.routes.forks) {
            return Err(Broken::Forked);
        }
        let members = self.routes.membership.members();
        Ok(self.inbox.try_receive(|ticket| members.is_dead(ticket))?)
    }

    #[inline]
    fn receive(
        &mut self,
        word: Option<(&AtomicU32, u32)>,
        until: Option<Instant>,
    ) -> Result<Option<Arrived<'_>>, Broken> {
        if fork::happened_since(self.routes.forks) {
            return Err(Broken::Forked);
        }
        let members = self.routes.membership.members();
        let is_dead = |ticket| members.is_dead(ticket);
        Ok(match word {
            None => self.inbox.receive(until, is_dead)?,
            Some((word, is)) => self.inbox.receive_while(word, is, until, is_dead)?,
        })
    }
}

/// Returns the parts of a message that ends with these terms.
fn with_terms<'a>(parts: &[&'a [u8]], terms: &'a [u8]) -> Vec<&'a [u8]> {
    parts.iter().copied().chain([terms]).collect()
}

/// The routes to the other members.
#[derive(Debug)]
struct Routes {
    membership: Arc<Membership>,
    /// By entry. Each is made when it is first needed.
    routes: Vec<Option<Route>>,
    ticket: u32,
    source: u32,
    forks: u32,
}

/// The route to one member.
#[derive(Debug)]
struct Route {
    outbox: Outbox,
    peer: Peer,
    id: u32,
}

impl Route {
    /// Sends to the member, which is held, and waits for room.
    #[inline]
    fn send(
        &mut self,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        members: &Members,
        inbox: &mut Inbox,
        meanwhile: &mut dyn FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        match self.outbox.try_send(kind, parts) {
            Err(SendError::Full) => {
                let lives = || members.life(self.peer) != Life::Gone;
                let is_dead = &|ticket| members.is_dead(ticket);
                let meanwhile = Meanwhile { inbox, is_dead, take: meanwhile };
                Ok(self.outbox.send_when_free(kind, parts, until, lives, Some(meanwhile))?)
            }
            sent => Ok(sent?),
        }
    }
}

impl Routes {
    /// Returns the route to the member in entry `to`, a hold of that member, and the members.
    #[inline]
    fn hold(
        &mut self,
        to: u16,
        id: Option<u32>,
    ) -> Result<(&mut Route, Hold<'_>, &Members), Refused> {
        if fork::happened_since(self.forks) {
            return Err(Refused::Forked);
        }
        let slot = usize::from(to);
        let known = match self.routes.get(slot) {
            Some(Some(route)) if id.is_none_or(|id| id == route.id) => {
                self.membership.hold_alone(route.peer)
            }
            _ => None,
        };
        let hold = match known {
            Some(hold) => hold,
            None => {
                let (route, hold) = Self::open(&self.membership, self.ticket, self.source, to, id)?;
                if self.routes.len() <= slot {
                    self.routes.resize_with(slot + 1, || None);
                }
                self.routes[slot] = Some(route);
                hold
            }
        };
        let route = self.routes[slot].as_mut().expect("made above");
        Ok((route, hold, self.membership.members()))
    }

    /// Returns a new route to the member in entry `to`, and a hold of that member.
    #[cold]
    fn open(
        membership: &Membership,
        ticket: u32,
        source: u32,
        to: u16,
        id: Option<u32>,
    ) -> Result<(Route, Hold<'_>), Refused> {
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
                // SAFETY: `Routes::hold` returns the route with a hold of the member, and each use
                // is under such a hold. The membership keeps the window mapped.
                let ring = unsafe { members.window().ring(to) }.expect("a member's ring");
                let outbox = Outbox::new(ring, ticket, source);
                return Ok((Route { outbox, peer: entry.peer, id: entry.card.id }, hold));
            }
        }
    }
}
