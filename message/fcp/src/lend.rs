//! Memory that a member lends with its messages, so that a large message is written once,
//! where its receivers read it, and outlives its sender.
//!
//! Each member has a region of the window. It takes a [`Block`] of it, writes, makes it
//! [`Lendable`], and lends it to any number of receivers; each has a slot (`slot`). The
//! block is used again when the program has dropped it and all receivers have given it
//! back, or have ended. Which blocks are free is known to the owner alone: the window
//! holds the slots and the bytes, so a death at any instant can tear nothing.

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

/// How long pages stay that nobody uses.
const WARM: Duration = Duration::from_secs(2);
/// How often to ask whether those who have had something for long still live.
const ASK: Duration = Duration::from_secs(1);

/// What a member has lent, and can lend.
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
    /// The last is the next to be used.
    slots: Vec<u16>,
    /// How many slots have ever been used.
    used: u16,
    /// Blocks that the program has dropped, and receivers still have.
    away: Vec<(Range<usize>, Vec<Lent>)>,
    asked: Duration,
}

/// A slot, and who has its loan.
type Lent = (u16, Peer);

impl Lender {
    /// What this member can lend, if the window has that, and it can be mapped.
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

    /// A block of `length` bytes, if there is one.
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
        // Dropped, and so taken back, if the system has no memory for it.
        (!fresh || self.window().populate(self.peer().index, range)).then_some(block)
    }

    fn window(&self) -> &Window {
        self.membership.members().window()
    }

    fn slot(&self, number: u16) -> &AtomicU64 {
        self.window().slot(self.peer().index, number.into()).expect("mapped when we began")
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // What is done under the lock does not panic half-way.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peer(&self) -> Peer {
        self.membership.peer()
    }

    /// Lends `range` of the memory to `borrower`: a slot is its own from now on.
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
                // Before the slot: who takes the entry after us looks at so many.
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

    /// Forgets what was given back. What the dead have counts too if we `ask` for them.
    fn keep_lent(&self, books: &mut Books, lent: &mut Vec<Lent>, ask: bool) {
        let members = self.membership.members();
        lent.retain(|&(number, _)| {
            let slot = self.slot(number);
            // Whoever has it now: it may have been handed on.
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

    /// Takes back the blocks that nobody has any more.
    fn collect(&self, books: &mut Books, ask: bool, now: Duration) {
        if ask {
            books.asked = now;
        }
        for (range, mut lent) in std::mem::take(&mut books.away) {
            self.keep_lent(books, &mut lent, ask);
            self.put(books, range, lent, now);
        }
    }

    fn put(&self, books: &mut Books, range: Range<usize>, lent: Vec<Lent>, now: Duration) {
        if lent.is_empty() {
            books.allocator.give(range, time(now));
        } else {
            books.away.push((range, lent));
        }
    }
}

/// As the allocator counts it.
fn time(since_start: Duration) -> u64 {
    since_start.as_millis() as u64
}

/// Memory of the window that is ours. Dropped, it is free when nobody has it on loan.
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
        // SAFETY: in the window, which the lender keeps; only a `Block`, which is not
        // shared, writes there.
        unsafe { slice::from_raw_parts(self.address().as_ptr(), self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if fork::happened_since(self.lender.forks) {
            return; // the books are the parent's
        }
        let lent = self.lent.get_mut().unwrap_or_else(PoisonError::into_inner);
        let now = self.lender.start.elapsed();
        let books = &mut *self.lender.books();
        self.lender.keep_lent(books, lent, false);
        self.lender.put(books, self.range.clone(), std::mem::take(lent), now);
    }
}

/// Memory to be filled, and then lent. What it holds at first may be anything.
#[derive(Debug)]
pub struct Block(Memory);

impl Block {
    /// It is filled: from now on it can be lent, and not written.
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
        // SAFETY: as for `bytes`, and nobody else has it.
        unsafe { slice::from_raw_parts_mut(self.0.address().as_ptr(), self.0.length) }
    }
}

/// Memory that can be lent, any number of times. When all copies are dropped and all
/// receivers have given it back, it is free.
#[derive(Debug, Clone)]
pub struct Lendable(Arc<Memory>);

impl Lendable {
    /// Where it lies, here.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.0.address()
    }

    /// Whether somebody has what was lent on these terms.
    pub(crate) fn is_lent(&self, terms: Terms) -> bool {
        slot::borrower(self.0.lender.slot(terms.slot)).is_some()
    }

    /// Word of the loan did not go out: nobody has it.
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
