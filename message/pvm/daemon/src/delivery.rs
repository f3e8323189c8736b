//! Delivery into the receive buffers of this host's tasks. It never blocks: a message that finds
//! no room, or whose receiver has not joined the window yet, is queued and retried.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fcp::error::{Refused, WindowError};
use fcp::header::Plan;
use fcp::lend::Lendable;
use fcp::loan::{Loan, Terms};
use fcp::member::{Card, Members};
use fcp::memory::{Memory, PAGE_SIZE};
use fcp::port::Port;
use fcp::protocol::Protocol;
use fcp::window::Window;
use fcp_classic::port;
use fcp_classic::table::size_of_buffers;
use pvm::envelope::{INLINE_MAX, Part, SIZE, TABLE_MAX};
use pvm::slots::Count;
use pvm::tid::{MEMBERS, PVMD, Tid};
use sync::mapped::size_of_ring;
use sync::ring::Kind;

use crate::groups::{Closing, SlotChange};
use crate::slots;
use crate::task_message::{self, TaskMessage};

/// Lines of a task's receive buffer with FCP II.
const RING_LINES: u32 = 4096;
/// Bytes of a task's receive buffer with FCP and FCP plus.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes of a window besides the receive buffers: header, member table, and the group slots.
const OVERHEAD_BYTES: usize = 2 << 20;

/// Bytes of the buffers that a task can expose with its messages. Only touched pages take
/// memory.
const EXPOSED_BYTES: usize = 1 << 30;

/// Most bytes of data in one part of a message whose data cannot be exposed. A few parts fit
/// into a receive buffer at once.
const PART_BYTES_MAX: usize = 32 << 10;

/// Bytes queued for a task above which its senders are stopped.
const FULL_BYTES: usize = 16 << 20;
/// Bytes queued for a task below which stopped senders resume.
const ROOM_BYTES: usize = 4 << 20;
/// Fixed cost of a queued message, in bytes, besides its data.
const QUEUED_BYTES: usize = 64;

/// A queued message.
#[derive(Debug)]
enum Queued {
    /// It goes into the receive buffer.
    Inline(Vec<u8>),
    /// Its head goes into the receive buffer; the daemon exposes its data.
    Own(Vec<u8>, Lendable),
    /// Its head goes into the receive buffer; its data is a buffer exposed to the daemon, which
    /// passes it on.
    Exposed(Vec<u8>, Loan),
}

impl Queued {
    /// Returns the bytes of the daemon's memory that it takes.
    fn size(&self) -> usize {
        QUEUED_BYTES
            + match self {
                Queued::Inline(head) | Queued::Exposed(head, _) => head.len(),
                Queued::Own(head, data) => head.len() + data.len(),
            }
    }
}

/// Messages queued for one task, in order.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    /// Bytes of all queued messages.
    size: usize,
}

impl Queue {
    fn push(&mut self, waiting: Queued) {
        self.size += waiting.size();
        self.waiting.push_back(waiting);
    }
}

/// This host's window, and the messages queued for it.
#[derive(Debug)]
pub struct Delivery {
    port: Port,
    queues: BTreeMap<Tid, Queue>,
    /// Member indices of ended tasks whose memory is not released yet. `may_release` is set
    /// when a release may succeed.
    ended: Vec<u16>,
    may_release: bool,
    /// Serial number of the next message that goes in parts.
    next_serial: u32,
}

impl Delivery {
    /// Returns a new window with the daemon as member 0.
    pub fn new(protocol: Protocol) -> Result<Delivery, WindowError> {
        let listed = protocol.is_listed();
        let messages = match listed {
            true => size_of_buffers(MEMBERS, BUFFER_BYTES),
            false => usize::from(MEMBERS) * size_of_ring(RING_LINES),
        };
        let messages = messages.next_multiple_of(PAGE_SIZE);
        let lendable = if listed { 0 } else { EXPOSED_BYTES };
        let memory =
            Memory::anonymous(messages + OVERHEAD_BYTES + usize::from(MEMBERS) * lendable)?;
        let plan = Plan { members: MEMBERS, messages, lendable, listed };
        let window = Arc::new(Window::open(memory, Some(plan))?);
        let members = Arc::new(Members::of(window)?);
        let card = Card { id: PVMD.0, group: 0 };
        let port = port::join(protocol, &members, card, Some(0))?;
        let (queues, ended) = (BTreeMap::new(), Vec::new());
        Ok(Delivery { port, queues, ended, may_release: false, next_serial: 0 })
    }

    /// Returns the window's descriptor, which tasks get.
    pub fn window(&self) -> BorrowedFd<'_> {
        self.port.members().window().memory().as_fd()
    }

    /// Changes a group's slot. Returns the slot's count if the change closes it.
    pub fn change_slot(&self, slot: u16, change: SlotChange) -> Option<(Closing, Count)> {
        slots::change(self.port.members().window(), slot, change)
    }

    /// Delivers a message after those queued for the same task, now or later.
    pub fn deliver(&mut self, to: Tid, message: TaskMessage) {
        match message {
            TaskMessage::Exposed(head, terms) => {
                // Only a task that violates the protocol sends terms without an exposed buffer.
                if let Some(loan) = self.port.loan(terms) {
                    self.queues.entry(to).or_default().push(Queued::Exposed(head, loan));
                }
            }
            TaskMessage::Split(head, data) if head.len() + data.len() > INLINE_MAX => {
                self.deliver_long(to, &head, &data);
            }
            TaskMessage::Split(head, data) => self.deliver_short(to, [head, data].concat()),
            TaskMessage::Whole(bytes) => match task_message::head_size(&bytes) {
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
        self.queues.entry(to).or_default().push(Queued::Inline(bytes));
    }

    fn deliver_long(&mut self, to: Tid, head: &[u8], data: &[u8]) {
        let can_be_exposed = head.len() <= SIZE + TABLE_MAX;
        let block = can_be_exposed.then(|| self.port.block(data.len())).flatten();
        let queue = self.queues.entry(to).or_default();
        if let Some(mut block) = block {
            block.copy_from_slice(data);
            return queue.push(Queued::Own(head.to_vec(), block.share()));
        }
        let mut part = Part {
            source: PVMD.as_int(),
            destination: to.as_int(),
            serial: self.next_serial,
            offset: 0,
            total: (head.len() + data.len()) as u32,
        };
        self.next_serial = self.next_serial.wrapping_add(1);
        for piece in head.chunks(PART_BYTES_MAX).chain(data.chunks(PART_BYTES_MAX)) {
            queue.push(Queued::Inline([&part.to_bytes(), piece].concat()));
            part.offset += piece.len() as u32;
        }
    }

    /// Returns the exposed buffer with the data of a message.
    pub fn loan(&self, terms: Terms) -> Option<Loan> {
        self.port.loan(terms)
    }

    /// Returns true if too many bytes are queued for the task; its senders must stop.
    pub fn is_full(&self, tid: Tid) -> bool {
        self.queues.get(&tid).is_some_and(|queue| queue.size > FULL_BYTES)
    }

    /// Returns true if stopped senders may resume.
    pub fn has_room(&self, tid: Tid) -> bool {
        self.queues.get(&tid).is_none_or(|queue| queue.size <= ROOM_BYTES)
    }

    /// Drops the messages queued for a task that has ended.
    pub fn forget(&mut self, tid: Tid) {
        self.queues.remove(&tid);
        if !self.ended.contains(&tid.place()) {
            self.ended.push(tid.place());
        }
        self.may_release = true;
    }

    /// Records the end of a process. It may come after the end of its task.
    pub fn process_ended(&mut self) {
        self.may_release = true;
    }

    /// Releases the message memory of ended tasks to the system. This takes a while, so call it
    /// after the notices of their end.
    pub fn release_ended(&mut self) {
        if std::mem::take(&mut self.may_release) {
            // If that fails, the next member at the same index releases it.
            let _ = self.port.members().give_back_of_the_dead(&mut self.ended);
        }
    }

    /// Retries all queued messages. Returns true if some were delivered.
    pub fn retry(&mut self) -> bool {
        let waiting: Vec<Tid> = self.queues.keys().copied().collect();
        waiting.into_iter().filter(|tid| self.try_task(*tid)).count() > 0
    }

    /// Returns true if messages are queued.
    pub fn has_queued(&self) -> bool {
        !self.queues.is_empty()
    }

    fn try_task(&mut self, tid: Tid) -> bool {
        let mut went = false;
        let Delivery { port, queues, .. } = self;
        let Some(queue) = queues.get_mut(&tid) else { return false };
        let (place, id) = (tid.place(), Some(tid.0));
        while let Some(first) = queue.waiting.front_mut() {
            let sent = match first {
                Queued::Inline(bytes) => port.try_send(place, id, Kind::Inline, &[bytes]),
                Queued::Own(head, data) => {
                    port.try_send_lent(place, id, &[head], (data, 0..data.len()))
                }
                Queued::Exposed(head, loan) => port.try_hand_on(place, id, &[head], loan),
            };
            match sent {
                Ok(()) => went = true,
                // The exposed buffer was overwritten, so there is no data to deliver.
                Err(Refused::OutOfReach) => {}
                // The task has not joined the window, is busy, or has ended; an end is reported
                // elsewhere.
                Err(_) => return went,
            }
            queue.size -= queue.waiting.pop_front().map_or(0, |first| first.size());
        }
        debug_assert_eq!(queue.size, 0, "an empty queue holds no bytes");
        queues.remove(&tid);
        went
    }
}
