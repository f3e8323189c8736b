//! Delivery into the receive buffers of this host's tasks, without ever waiting: what finds
//! no room, or no task yet at its place, is kept and tried again.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fcp::error::WindowError;
use fcp::header::Plan;
use fcp::lend::Lendable;
use fcp::listed::size_of_buffers;
use fcp::loan::{Loan, Terms};
use fcp::member::{Card, Members};
use fcp::memory::{Memory, PAGE_SIZE};
use fcp::port::{Port, Refused};
use fcp::protocol::Protocol;
use fcp::window::Window;
use pvm::envelope::{INLINE_MAX, Part, SIZE, TABLE_MAX};
use pvm::slots::Count;
use pvm::tid::{MEMBERS, PVMD, Tid};
use sync::mapped::size_of_ring;
use sync::ring::Kind;

use crate::groups::{Closing, SlotChange};
use crate::load::{self, Load};
use crate::slots;

/// Lines of a task's receive buffer, by FCP II.
const LINES: u32 = 4096;
/// Bytes of a task's receive buffer, by FCP and FCP plus.
const BUFFER: usize = 256 << 10;
/// Bytes of a window besides the receive buffers: header, member table, and the memory that
/// groups share.
const REST: usize = 2 << 20;

/// Bytes that a task can lend with its messages. Only what is used exists.
const LENDABLE: usize = 1 << 30;

/// Most bytes of data in one piece, where they cannot be lent: a few fit into a receive buffer
/// at once.
const PIECE_MAX: usize = 32 << 10;

/// Bytes that may wait for a task before those who send more must wait, too; and so few must
/// be left before they go on.
const FULL: usize = 16 << 20;
const ROOM: usize = 4 << 20;
/// What a message counts for besides its bytes.
const WAITING_SIZE: usize = 64;

/// Something that waits to be delivered.
#[derive(Debug)]
enum Waiting {
    /// It goes into the receive buffer.
    Inline(Vec<u8>),
    /// So does its head; its data are lent by the daemon.
    Own(Vec<u8>, Lendable),
    /// The same, lent to the daemon, who hands it on.
    Lent(Vec<u8>, Loan),
}

impl Waiting {
    /// Bytes of the daemon's memory.
    fn size(&self) -> usize {
        WAITING_SIZE
            + match self {
                Waiting::Inline(head) | Waiting::Lent(head, _) => head.len(),
                Waiting::Own(head, data) => head.len() + data.len(),
            }
    }
}

/// What waits for one task, in order.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Bytes of all.
    size: usize,
}

impl Queue {
    fn push(&mut self, waiting: Waiting) {
        self.size += waiting.size();
        self.waiting.push_back(waiting);
    }
}

/// A host's window, and what waits to go into it.
#[derive(Debug)]
pub struct Post {
    port: Port,
    queues: BTreeMap<Tid, Queue>,
    /// Places of tasks that have ended, whose memory may not be given back yet; and whether it
    /// should be tried.
    left: Vec<u16>,
    may_give_back: bool,
    /// Numbers of messages that go in parts.
    next_serial: u32,
}

impl Post {
    /// A new window, with the daemon at place 0.
    pub fn new(protocol: Protocol) -> Result<Post, WindowError> {
        let listed = protocol.is_listed();
        let messages = match listed {
            true => size_of_buffers(MEMBERS, BUFFER),
            false => usize::from(MEMBERS) * size_of_ring(LINES),
        };
        let messages = messages.next_multiple_of(PAGE_SIZE);
        let lendable = if listed { 0 } else { LENDABLE };
        let memory = Memory::anonymous(messages + REST + usize::from(MEMBERS) * lendable)?;
        let plan = Plan { members: MEMBERS, messages, lendable, listed };
        let window = Arc::new(Window::open(memory, Some(plan))?);
        let members = Arc::new(Members::of(window)?);
        let card = Card { id: PVMD.0, group: 0 };
        let port = Port::join_by(protocol, &members, card, Some(0))?;
        let (queues, left) = (BTreeMap::new(), Vec::new());
        Ok(Post { port, queues, left, may_give_back: false, next_serial: 0 })
    }

    /// The window's descriptor, for tasks.
    pub fn window(&self) -> BorrowedFd<'_> {
        self.port.members().window().memory().as_fd()
    }

    /// Changes a group's slot; what was counted if it is closed by that.
    pub fn change_slot(&self, slot: u16, change: SlotChange) -> Option<(Closing, Count)> {
        slots::change(self.port.members().window(), slot, change)
    }

    /// Delivers this, now or later, after what was to be delivered before.
    pub fn deliver(&mut self, to: Tid, load: Load) {
        match load {
            Load::Lent(head, terms) => {
                // If there is no such loan, no honest task has sent it.
                if let Some(loan) = self.port.loan(terms) {
                    self.queues.entry(to).or_default().push(Waiting::Lent(head, loan));
                }
            }
            Load::Apart(head, data) if head.len() + data.len() > INLINE_MAX => {
                self.deliver_long(to, &head, &data);
            }
            Load::Apart(head, data) => self.deliver_short(to, [head, data].concat()),
            Load::Whole(bytes) => match load::head_size(&bytes) {
                Some(head) if bytes.len() > INLINE_MAX => {
                    let (head, data) = bytes.split_at(head);
                    self.deliver_long(to, head, data);
                }
                _ => self.deliver_short(to, bytes),
            },
        }
        self.try_task(to);
    }

    fn deliver_short(&mut self, to: Tid, bytes: Vec<u8>) {
        self.queues.entry(to).or_default().push(Waiting::Inline(bytes));
    }

    fn deliver_long(&mut self, to: Tid, head: &[u8], data: &[u8]) {
        let can_be_lent = head.len() <= SIZE + TABLE_MAX;
        let block = can_be_lent.then(|| self.port.block(data.len())).flatten();
        let queue = self.queues.entry(to).or_default();
        if let Some(mut block) = block {
            block.copy_from_slice(data);
            return queue.push(Waiting::Own(head.to_vec(), block.share()));
        }
        let mut part = Part {
            source: PVMD.as_int(),
            destination: to.as_int(),
            serial: self.next_serial,
            offset: 0,
            total: (head.len() + data.len()) as u32,
        };
        self.next_serial = self.next_serial.wrapping_add(1);
        for piece in head.chunks(PIECE_MAX).chain(data.chunks(PIECE_MAX)) {
            queue.push(Waiting::Inline([&part.to_bytes(), piece].concat()));
            part.offset += piece.len() as u32;
        }
    }

    /// The data of a message that was lent to us.
    pub fn loan(&self, terms: Terms) -> Option<Loan> {
        self.port.loan(terms)
    }

    /// Whether so much waits for this task that nobody should send more to it.
    pub fn is_full(&self, tid: Tid) -> bool {
        self.queues.get(&tid).is_some_and(|queue| queue.size > FULL)
    }

    /// Whether those who waited for it may send more.
    pub fn has_room(&self, tid: Tid) -> bool {
        self.queues.get(&tid).is_none_or(|queue| queue.size <= ROOM)
    }

    /// Drops what still waits for a task that has ended.
    pub fn forget(&mut self, tid: Tid) {
        self.queues.remove(&tid);
        if !self.left.contains(&tid.place()) {
            self.left.push(tid.place());
        }
        self.may_give_back = true;
    }

    /// A process has ended, perhaps after the task that it was.
    pub fn process_ended(&mut self) {
        self.may_give_back = true;
    }

    /// Gives the system the memory back that tasks had for their messages that have ended. That
    /// takes a while: who waits for news of the end should have it before.
    pub fn give_back(&mut self) {
        if std::mem::take(&mut self.may_give_back) {
            // If that fails, it is given back when the place is taken anew.
            let _ = self.port.members().give_back_of_the_dead(&mut self.left);
        }
    }

    /// Tries again. Returns whether something went.
    pub fn try_again(&mut self) -> bool {
        let waiting: Vec<Tid> = self.queues.keys().copied().collect();
        waiting.into_iter().filter(|tid| self.try_task(*tid)).count() > 0
    }

    /// Whether something waits.
    pub fn waits(&self) -> bool {
        !self.queues.is_empty()
    }

    fn try_task(&mut self, tid: Tid) -> bool {
        let mut went = false;
        let Post { port, queues, .. } = self;
        let Some(queue) = queues.get_mut(&tid) else { return false };
        let (place, id) = (tid.place(), Some(tid.0));
        while let Some(first) = queue.waiting.front_mut() {
            let sent = match first {
                Waiting::Inline(bytes) => port.try_send(place, id, Kind::Inline, &[bytes]),
                Waiting::Own(head, data) => {
                    port.try_send_lent(place, id, &[head], (data, 0..data.len()))
                }
                Waiting::Lent(head, loan) => port.try_hand_on(place, id, &[head], loan),
            };
            match sent {
                Ok(()) => went = true,
                // Somebody has overwritten the lender's slots: there is nothing to deliver.
                Err(Refused::OutOfReach) => {}
                // It has not come yet, is busy, or its end will be told.
                Err(_) => return went,
            }
            queue.size -= queue.waiting.pop_front().map_or(0, |first| first.size());
        }
        queues.remove(&tid);
        went
    }
}
