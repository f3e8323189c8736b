//! A message that has come, in the receive buffer of whatever protocol.

use crate::advance::Advance;
use crate::classic::Letter;
use crate::inbox::InRing;
use crate::loan::{self, Loan};
use crate::offer::{self, Offer};
use sync::ring::{Header, Kind};

/// A message that has come, still in the receive buffer. Dropped, it is done with.
#[derive(Debug)]
pub struct Arrived<'a> {
    place: Place<'a>,
    /// Its loan or offer was taken.
    taken: bool,
}

#[derive(Debug)]
enum Place<'a> {
    Ring(InRing<'a>),
    Queue(Letter<'a>),
}

impl<'a> Arrived<'a> {
    #[inline]
    pub(crate) fn by_ring(message: InRing<'a>) -> Self {
        Self { place: Place::Ring(message), taken: false }
    }

    pub(crate) fn by_classic(letter: Letter<'a>) -> Self {
        Self { place: Place::Queue(letter), taken: true }
    }

    /// Its header. The length is that of what it carries itself.
    #[inline]
    pub fn header(&self) -> Header {
        match &self.place {
            Place::Ring(message) => {
                let header = message.header();
                Header { length: header.length - terms_size(header.kind), ..header }
            }
            Place::Queue(letter) => {
                let head = letter.head();
                Header { kind: head.kind, length: head.length, source: head.source }
            }
        }
    }

    /// Copies part of what it carries itself.
    #[inline]
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        match &self.place {
            Place::Ring(message) => message.read(offset, to),
            Place::Queue(letter) => letter.read(offset, to),
        }
    }

    /// The memory that is lent with it, once. Nothing if the message lends none, or tells
    /// what no sender would, or it is lent in advance.
    pub fn loan(&mut self) -> Option<Loan> {
        self.any_loan().filter(|loan| loan.terms().in_advance == 0)
    }

    /// The memory that is lent with it in advance, once. Nothing if none is, or the sender has
    /// ended before all was there.
    pub fn advance(&mut self) -> Option<Advance> {
        let Place::Ring(message) = &self.place else { return None };
        let membership = message.membership()?.clone();
        let header = self.header();
        if header.kind != Kind::Lent || self.taken {
            return None;
        }
        let mut terms = [0; loan::Terms::SIZE];
        self.read(header.length as usize, &mut terms);
        let terms = loan::Terms::parse(terms);
        if terms.in_advance == 0 {
            return None;
        }
        self.taken = true;
        Advance::new(&membership, Loan::new(&membership, terms)?)
    }

    fn any_loan(&mut self) -> Option<Loan> {
        let terms = self.terms(Kind::Lent)?;
        let Place::Ring(message) = &self.place else { return None };
        Loan::new(message.membership()?, loan::Terms::parse(terms))
    }

    /// The message that is to be read from the sender's memory, once. Nothing if there is
    /// none, or the sender has gone.
    pub fn offer(&mut self) -> Option<Offer> {
        let terms = self.terms(Kind::Remote)?;
        let Place::Ring(message) = &self.place else { return None };
        Offer::new(message.membership()?, offer::Terms::parse(terms))
    }

    /// The end of the message, if it is of this kind, once.
    fn terms<const SIZE: usize>(&mut self, kind: Kind) -> Option<[u8; SIZE]> {
        let header = self.header();
        if header.kind != kind || self.taken {
            return None;
        }
        self.taken = true;
        let mut terms = [0; SIZE];
        self.read(header.length as usize, &mut terms);
        Some(terms)
    }

    /// Leaves the message: it is the next one again.
    pub fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for Arrived<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.taken {
            // What was not taken goes back.
            match self.header().kind {
                Kind::Lent => drop(self.any_loan()),
                Kind::Remote => drop(self.offer()),
                _ => {}
            }
        }
        match &mut self.place {
            Place::Ring(message) => message.consume(),
            Place::Queue(letter) => letter.consume(),
        }
    }
}

/// Bytes at the end of a message that say where the rest is.
#[inline]
pub(crate) fn terms_size(kind: Kind) -> u32 {
    match kind {
        Kind::Lent => loan::Terms::SIZE as u32,
        Kind::Remote => offer::Terms::SIZE as u32,
        Kind::Inline | Kind::Part | Kind::Skip => 0,
    }
}
