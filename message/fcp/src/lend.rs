//! The lender's side of loans. The sender writes a large message once, in memory of the window, and
//! lends that memory to its receivers, which read it in place. The message outlives its sender.
//!
//! Each member has a region of the window. It takes a [`Block`] of the region, fills it, makes it
//! [`Lendable`], and lends it to any number of receivers, each by a slot (`slot`). The block is
//! free when the program has dropped it, and each receiver has returned its loan or has ended. Only
//! the owner knows which blocks are free. The window holds just slots and bytes, so a death at any
//! instant leaves it consistent.

use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::allocate::Allocator;
use crate::fork;
use crate::hold::Peer;
use crate::loan::Terms;
use crate::member::{Life, Membership};
use crate::slot;
use crate::window::Window;

/// Time that unused pages stay populated.
const WARM: Duration = Duration::from_secs(2);
/// Interval of the checks whether borrowers of old loans live.
const ASK: Duration = Duration::from_secs(1);

/// The lendable memory of a member, and its loans.
#[derive(Debug)]
pub(crate) struct Lender {
    membership: Arc<Membership>,
    books: Mutex<Books>,
    start: Instant,
    forks: u32,
}

#[derive(Debug)]
struct Books {
    allocator: Allocator,
    /// Free slots. The last one is the next to be used.
    slots: Vec<u16>,
    /// Number of slots that were ever used.
    used: u16,
    /// Blocks that the program has dropped, and that receivers still have on loan.
    away: Vec<(Range<usize>, Vec<Lent>)>,
    asked: Duration,
}

/// A slot and its first borrower.
type Lent = (u16, Peer);

impl Lender {
    /// Returns the lender of this member, if the window has lendable memory that can be mapped.
    pub fn new(membership: Arc<Membership>) -> Option<Arc<Self>> {
        let window = membership.members().window();
        let size = window.lendable();
        window.lendable_at(membership.peer().index, 0, size).filter(|_| size > 0)?;
        let books = Mutex::new(Books {
            allocator: Allocator::new(size),
            slots: Vec::new(),
            used: 0,
            away: Vec::new(),
            asked: Duration::ZERO,
        });
        let (start, forks) = (Instant::now(), fork::watch());
        Some(Arc::new(Self { membership, books, start, forks }))
    }

    /// Returns a block of `length` bytes, if there is one.
    pub fn block(self: &Arc<Self>, length: usize) -> Option<Block> {
        if fork::happened_since(self.forks) {
            return None;
        }
        let now = self.start.elapsed();
        let mut books = self.books();
        let ask = !books.away.is_empty() && now - books.asked > ASK;
        self.collect(&mut books, ask, now);
        while let Some(area) = books.allocator.cool(time(now.saturating_sub(WARM))) {
            self.window().give_back(self.peer().index, area);
        }
        let (range, fresh) = books.allocator.take(length).or_else(|| {
            self.collect(&mut books, true, now);
            books.allocator.take(length)
        })?;
        drop(books);
        let lent = Mutex::default();
        let block = Block(Memory { lender: self.clone(), range: range.clone(), length, lent });
        // Without memory of the system, the block is dropped, and so it is free again.
        (!fresh || self.window().populate(self.peer().index, range)).then_some(block)
    }

    fn window(&self) -> &Window {
        self.membership.members().window()
    }

    fn slot(&self, number: u16) -> &AtomicU64 {
        self.window().slot(self.peer().index, number.into()).expect("mapped by `Lender::new`")
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // No change under the lock panics half-way, so a poisoned lock is consistent.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peer(&self) -> Peer {
        self.membership.peer()
    }

    /// Lends `range` of the memory to `borrower`, by a slot of its own. `None` if no slot is free.
    pub fn lend(&self, memory: &Lendable, range: Range<usize>, borrower: Peer) -> Option<Terms> {
        let whole = &memory.0;
        assert!(range.start <= range.end && range.end <= whole.length, "outside the block");
        assert!(std::ptr::eq(&*whole.lender, self), "another port's memory");
        let mut books = self.books();
        let mut lent = memory.0.lent.lock().unwrap_or_else(PoisonError::into_inner);
        self.keep_lent(&mut books, &mut lent, false);
        let number = match books.slots.pop() {
            Some(number) => number,
            None => {
                let next = books.used + 1;
                if usize::from(next) >= self.window().slots() {
                    return None;
                }
                books.used = next;
                // Before the slot is set: the next owner of the entry looks at this many slots.
                self.slot(0).store(next.into(), Release);
                next
            }
        };
        slot::lend(self.slot(number), borrower);
        lent.push((number, borrower));
        Some(Terms {
            lender: self.peer().index,
            slot: number,
            at: (whole.range.start + range.start) as u64,
            length: range.len() as u64,
            in_advance: 0,
        })
    }

    /// Removes returned loans from the list. With `ask`, loans of dead borrowers count as returned.
    fn keep_lent(&self, books: &mut Books, lent: &mut Vec<Lent>, ask: bool) {
        let members = self.membership.members();
        lent.retain(|&(number, _)| {
            let slot = self.slot(number);
            // The present borrower: the loan may have been handed on.
            let has = match slot::borrower(slot) {
                None => false,
                Some(peer) if ask && members.life(peer) == Life::Gone => {
                    !slot::give_back(slot, peer)
                }
                Some(_) => true,
            };
            if !has {
                books.slots.push(number);
            }
            has
        });
    }

    /// Frees the dropped blocks whose loans were all returned.
    fn collect(&self, books: &mut Books, ask: bool, now: Duration) {
        if ask {
            books.asked = now;
        }
        for (range, mut lent) in std::mem::take(&mut books.away) {
            self.keep_lent(books, &mut lent, ask);
            self.put(books, range, lent, now);
        }
    }

    /// Frees a block, or keeps it while it is lent.
    fn put(&self, books: &mut Books, range: Range<usize>, lent: Vec<Lent>, now: Duration) {
        if lent.is_empty() {
            books.allocator.give(range, time(now));
        } else {
            books.away.push((range, lent));
        }
    }
}

/// Returns the time as the allocator counts it, in milliseconds.
fn time(since_start: Duration) -> u64 {
    since_start.as_millis() as u64
}

/// A block of this member's memory. After it is dropped, it is free when nobody has it on loan.
#[derive(Debug)]
struct Memory {
    lender: Arc<Lender>,
    range: Range<usize>,
    length: usize,
    lent: Mutex<Vec<Lent>>,
}

impl Memory {
    fn address(&self) -> NonNull<u8> {
        let window = self.lender.window();
        let index = self.lender.peer().index;
        window.lendable_at(index, self.range.start, self.length).expect("inside the region")
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `address` has checked the bounds, and the lender keeps the window mapped. Only
        // the unique `Block` writes there, and it is gone when it becomes `Lendable`.
        unsafe { slice::from_raw_parts(self.address().as_ptr(), self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if fork::happened_since(self.lender.forks) {
            return; // the allocator is the parent's
        }
        let lent = self.lent.get_mut().unwrap_or_else(PoisonError::into_inner);
        let now = self.lender.start.elapsed();
        let books = &mut *self.lender.books();
        self.lender.keep_lent(books, lent, false);
        self.lender.put(books, self.range.clone(), std::mem::take(lent), now);
    }
}

/// Memory to be filled, and then lent. Its first contents are arbitrary.
#[derive(Debug)]
pub struct Block(Memory);

impl Block {
    /// Makes the filled block lendable. It can no longer be written.
    pub fn share(self) -> Lendable {
        Lendable(Arc::new(self.0))
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `address` has checked the bounds, and the lender keeps the window mapped. A
        // `Block` is unique, and no member has it on loan before `share`.
        unsafe { slice::from_raw_parts_mut(self.0.address().as_ptr(), self.0.length) }
    }
}

/// Memory that can be lent any number of times. It is free when all copies are dropped and all
/// receivers have returned their loans.
#[derive(Debug, Clone)]
pub struct Lendable(Arc<Memory>);

impl Lendable {
    /// Returns its local address.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.0.address()
    }

    /// Returns true if a member has the loan with these terms.
    pub(crate) fn is_lent(&self, terms: Terms) -> bool {
        slot::borrower(self.0.lender.slot(terms.slot)).is_some()
    }

    /// Takes a loan back whose message was not sent: no member has it.
    pub fn take_back(&self, terms: Terms) {
        let lender = &self.0.lender;
        let mut books = lender.books();
        let mut lent = self.0.lent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = lent.iter().position(|lent| lent.0 == terms.slot) {
            let (_, borrower) = lent.swap_remove(at);
            slot::give_back(lender.slot(terms.slot), borrower);
            books.slots.push(terms.slot);
        }
    }
}

impl Deref for Lendable {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}
