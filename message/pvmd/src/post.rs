//! Delivery into the receive buffers of this host's tasks, without ever waiting: what finds
//! no room, or no task yet at its place, is kept and tried again.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fcp::error::WindowError;
use fcp::header::Plan;
use fcp::mapped::size_of_ring;
use fcp::member::{Card, Members};
use fcp::memory::{Memory, PAGE_SIZE};
use fcp::port::Port;
use fcp::ring::Kind;
use fcp::window::Window;
use pvm::envelope::Part;
use pvm::slots::Count;
use pvm::tid::{MEMBERS, PVMD, Tid};

use crate::groups::{Closing, SlotChange};
use crate::slots;

/// Lines of a task's receive buffer.
const LINES: u32 = 4096;
/// Bytes of a window besides the receive buffers: header, member table, and the memory that
/// groups share.
const REST: usize = 2 << 20;

/// Bytes that a task can lend with its messages. Only what is used exists.
const LENDABLE: usize = 1 << 30;

/// Most bytes that are delivered in one piece: a few fit into a receive buffer at once.
const PIECE_MAX: usize = 32 << 10;

/// A host's window, and what waits to go into it.
#[derive(Debug)]
pub struct Post {
    port: Port,
    queues: BTreeMap<Tid, VecDeque<Vec<u8>>>,
    /// Numbers of messages that go in parts.
    next_serial: u32,
}

impl Post {
    /// A new window, with the daemon at place 0.
    pub fn new() -> Result<Post, WindowError> {
        let messages = usize::from(MEMBERS) * size_of_ring(LINES);
        let messages = messages.next_multiple_of(PAGE_SIZE);
        let memory = Memory::anonymous(messages + REST + usize::from(MEMBERS) * LENDABLE)?;
        let plan = Plan { members: MEMBERS, messages, lendable: LENDABLE, listed: false };
        let window = Arc::new(Window::open(memory, Some(plan))?);
        let members = Arc::new(Members::of(window)?);
        let port = Port::join(&members, Card { id: PVMD.0, group: 0 }, Some(0))?;
        Ok(Post { port, queues: BTreeMap::new(), next_serial: 0 })
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
    pub fn deliver(&mut self, to: Tid, bytes: Vec<u8>) {
        let queue = self.queues.entry(to).or_default();
        if bytes.len() <= PIECE_MAX {
            queue.push_back(bytes);
        } else {
            let mut part = Part {
                source: PVMD.as_int(),
                destination: to.as_int(),
                serial: self.next_serial,
                offset: 0,
                total: bytes.len() as u32,
            };
            self.next_serial = self.next_serial.wrapping_add(1);
            for piece in bytes.chunks(PIECE_MAX) {
                queue.push_back([&part.to_bytes(), piece].concat());
                part.offset += piece.len() as u32;
            }
        }
        self.try_task(to);
    }

    /// Drops what still waits for a task that has ended, and gives the system the memory
    /// back that it had for its messages.
    pub fn forget(&mut self, tid: Tid) {
        self.queues.remove(&tid);
        // If that fails, it is given back when the place is taken anew.
        let _ = self.port.members().give_back_of_the_dead();
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
        let Some(queue) = self.queues.get_mut(&tid) else { return false };
        while let Some(bytes) = queue.front() {
            // If not, it has not come yet, is busy, or its end will be told.
            if self.port.try_send(tid.place(), Some(tid.0), Kind::Inline, &[bytes]).is_err() {
                return went;
            }
            went = true;
            queue.pop_front();
        }
        self.queues.remove(&tid);
        went
    }
}
