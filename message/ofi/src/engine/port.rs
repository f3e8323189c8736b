//! Ports: the part of an endpoint that other tasks use. A port lies in the memory of the endpoint's
//! task. It has a head, a stack of records that receivers have returned, and the ring of messages.
//!
//! A port is never freed: other tasks may remember its address. A new endpoint uses the port of a
//! closed one, under another source number.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use control::Identity;
use sync::doorbell::Doorbell;
use sync::mapped::{Mapped, size_of_ring};
use sync::pieces::Pieces;
use sync::ring::{Buffer as _, LINE_SIZE, Receiver, next_number};

use crate::engine::address::Address;
use crate::engine::counts::Counts;
use crate::engine::regions::Regions;
use crate::engine::remote::{HeldTask, Shared};
use crate::engine::space::Here;
use crate::protocol::posted::Posted;
use crate::protocol::record::{self, Record};
use crate::protocol::slot_use::SlotUse;

/// The first word of a port, with the version of its layout.
const MAGIC: u64 = u64::from_le_bytes(*b"ofiport\x04");

/// Number of lines of a ring: 256 KiB.
const LINES: u32 = 4096;

/// The part of a port that other tasks read and write, beside the ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Head {
    magic: u64,
    lines: u32,
    /// The source number of the endpoint; 0 while no endpoint uses the port.
    source: AtomicU32,
    /// Address of the doorbell that wakes the task.
    doorbell: AtomicU64,
    /// Address of the table of memory regions that other tasks may access.
    regions: AtomicU64,
    /// Addresses of the counters of remote writes and remote reads; 0: no counter.
    remote_counts: [AtomicU64; 2],
    /// Records of this endpoint that receivers have returned.
    pub stack: Stack,
    /// Receives that senders may claim.
    pub posted: Posted,
}

// SAFETY: `magic` and `lines` are written before the address is sent; all else are atomics.
unsafe impl Shared for Head {}
// SAFETY: a doorbell consists of atomics.
unsafe impl Shared for Doorbell {}
// SAFETY: a table of regions consists of atomics.
unsafe impl Shared for Regions {}

/// The top of a stack of records. It has a cache line of its own, since other tasks write it.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Stack(pub AtomicU64);

/// Hints, readable without a lock, that a port may have something to do.
#[derive(Debug)]
pub struct Watch {
    /// The first word of the next message's header: 0 while there is no message.
    next: AtomicPtr<AtomicU64>,
    stack: *const Stack,
    /// The endpoint has work left.
    busy: AtomicBool,
}

// SAFETY: both pointers lead to atomics of a port, and ports are never freed.
unsafe impl Sync for Watch {}
// SAFETY: both pointers lead to atomics of a port, and ports are never freed.
unsafe impl Send for Watch {}

impl Watch {
    /// Returns true if the port may have something to do.
    #[inline]
    pub fn any(&self) -> bool {
        // SAFETY: `Port::make` and `Port::update_watch` set both to places in a port, and ports
        // are never freed.
        let (next, stack) = unsafe { (&*self.next.load(Relaxed), &*self.stack) };
        next.load(Relaxed) != 0 || stack.0.load(Relaxed) != 0 || self.busy.load(Relaxed)
    }
}

/// Number of ports that a queue checks without the lock.
const PORTS: usize = 4;

/// Hints, readable without the lock, that a queue or a domain may have something to do.
#[derive(Debug, Default)]
pub struct News {
    /// Number of completions in the queue.
    pub entries: AtomicUsize,
    /// Watches of the endpoints' ports, then null.
    ports: [AtomicPtr<Watch>; PORTS],
    /// There are more than [`PORTS`] endpoints.
    more: AtomicBool,
}

impl News {
    /// Returns true if there may be something to do.
    #[inline]
    pub fn any(&self) -> bool {
        if self.entries.load(Relaxed) != 0 || self.more.load(Relaxed) {
            return true;
        }
        let ports = self.ports.iter().map(|port| port.load(Relaxed));
        // SAFETY: `watch` stores `&'static Watch` only.
        ports.take_while(|port| !port.is_null()).any(|port| unsafe { &*port }.any())
    }

    /// Sets the ports to check.
    pub fn watch(&self, watches: impl Iterator<Item = &'static Watch>) {
        let mut ports = watches.map(std::ptr::from_ref);
        for entry in &self.ports {
            entry.store(ports.next().unwrap_or(std::ptr::null()).cast_mut(), Relaxed);
        }
        self.more.store(ports.next().is_some(), Relaxed);
    }
}

/// Number of bytes of a port.
fn size() -> usize {
    size_of::<Head>() + size_of_ring(LINES)
}

/// A port of this task.
#[derive(Debug)]
pub struct Port {
    head: &'static Head,
    /// The ring of messages to the endpoint.
    pub ring: Mapped,
    /// The receiver's position in the ring.
    pub receiver: Receiver,
    /// Hints for polls without the lock.
    pub watch: &'static Watch,
}

/// Ports of closed endpoints, to be used again.
static USED: Mutex<Vec<Port>> = Mutex::new(Vec::new());

impl Port {
    /// Opens a port for messages to the endpoint with number `source`. Returns `None` without
    /// memory.
    pub fn open(source: u32, doorbell: &Doorbell, regions: &Regions) -> Option<Self> {
        debug_assert_ne!(source, 0, "0 marks a port without an endpoint");
        let used = USED.lock().expect("no panic while held").pop();
        let port = used.or_else(Self::make)?;
        let head = port.head();
        head.doorbell.store(std::ptr::from_ref(doorbell) as u64, Relaxed);
        head.regions.store(std::ptr::from_ref(regions) as u64, Relaxed);
        for counts in &head.remote_counts {
            counts.store(0, Relaxed);
        }
        head.source.store(source, Release);
        Some(port)
    }

    fn make() -> Option<Self> {
        let layout = Layout::from_size_align(size(), LINE_SIZE).expect("some KiB");
        // SAFETY: the size is not 0.
        let head = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<Head>())?;
        // SAFETY: `layout` has room for the head and the ring, with their alignment. The memory is
        // new and zero, which is a valid head and an empty ring, and it is never freed.
        let (head, ring) = unsafe {
            (*head.as_ptr()).magic = MAGIC;
            (*head.as_ptr()).lines = LINES;
            (&*head.as_ptr(), Mapped::at(head.add(1).cast(), LINES))
        };
        let watch = Watch {
            next: AtomicPtr::new(std::ptr::from_ref(ring.header(0)).cast_mut()),
            stack: &raw const head.stack,
            busy: AtomicBool::new(false),
        };
        let watch = Box::leak(Box::new(watch));
        Some(Self { head, ring, receiver: Receiver::default(), watch })
    }

    /// Closes the port: peers find no endpoint there.
    pub fn close(self) {
        self.head().source.store(0, Release);
        USED.lock().expect("no panic while held").push(self);
    }

    /// Returns the part that other tasks use.
    #[inline]
    pub fn head(&self) -> &'static Head {
        self.head
    }

    /// Returns the address of the port.
    pub fn address(&self) -> u64 {
        std::ptr::from_ref(self.head) as u64
    }

    /// Takes all records off the stack, and returns them one by one. Each may be used again as soon
    /// as the next was asked for.
    #[inline]
    pub fn take_returned(&self) -> Returned {
        let stack = &self.head.stack.0;
        let next = if stack.load(Relaxed) == 0 { 0 } else { record::take_all(stack) };
        Returned { next }
    }

    /// Updates the hints: where the next message begins, and if the endpoint has work left.
    #[inline]
    pub fn update_watch(&self, busy: bool) {
        let next = self.ring.header(self.receiver.next_line(&self.ring));
        self.watch.next.store(std::ptr::from_ref(next).cast_mut(), Relaxed);
        self.watch.busy.store(busy, Relaxed);
    }
}

/// Records that were taken off a port's stack.
pub struct Returned {
    /// Address of the next record, or 0.
    next: u64,
}

impl Returned {
    /// Returns the next record.
    pub fn pop(&mut self) -> Option<&Record> {
        if self.next == 0 {
            return None;
        }
        // SAFETY: receivers push only records that this task has sent them. A record stays until
        // it was taken off the stack for the last time, and `&mut self` ends this borrow before
        // the next one.
        let record = unsafe { &*(self.next as *const Record) };
        self.next = record.next.load(Relaxed);
        Some(record)
    }
}

/// A port of a peer, which may be this task. Its memory is mapped only while the peer's task is
/// held.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The peer's task.
    pub task: Identity,
    /// The source number of the peer's messages.
    pub source: u32,
    /// The peer's address in completions.
    pub fi_addr: u64,
    /// The peer's task has an mm of its own.
    pub is_far: bool,
    head: NonNull<Head>,
    /// The ring of messages to the peer.
    pub ring: Mapped,
    doorbell: NonNull<Doorbell>,
    regions: NonNull<Regions>,
    /// The ring's message number behind the last message of ours that the receiver must match.
    pub queued: u32,
    /// The peer is in its vector once, so `queued` covers all messages of ours to it.
    pub is_alone: bool,
    /// The last large message for which we checked the peer's table has found its receive there.
    pub finds: bool,
}

// SAFETY: the pointers lead to shared memory that consists of atomics (`Shared`).
unsafe impl Send for Peer {}

impl Head {
    /// Counts remote reads or remote writes in `counts` from now on.
    pub fn count_remote(&self, counts: &Arc<Counts>, was_read: bool) {
        self.remote_counts[usize::from(was_read)].store(Counts::shared(counts), Release);
    }

    /// Returns the counter of remote reads or remote writes. `held` is the port's task.
    pub fn remote_counts<'a>(
        &self,
        here: &Here,
        held: &'a HeldTask,
        was_read: bool,
    ) -> Option<&'a Counts> {
        held.object(here, self.remote_counts[usize::from(was_read)].load(Acquire))
    }

    /// Wakes the port's task, `held`, if it sleeps.
    pub fn ring_doorbell(&self, here: &Here, held: &HeldTask) {
        if let Some(doorbell) = held.object::<Doorbell>(here, self.doorbell.load(Relaxed)) {
            doorbell.ring();
        }
    }
}

/// The reason why an address has no port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// The port is in another space, or on another machine.
    Elsewhere,
    /// The endpoint, or its task, has ended.
    Ended,
    /// No endpoint can have been there.
    Invalid,
}

impl Peer {
    /// Finds the port of an address.
    pub fn find(here: &Here, address: &Address) -> Result<Self, Absence> {
        if address.mark != here.mark {
            return Err(Absence::Elsewhere);
        }
        let task = address.task;
        let is_valid = here.contains(task.id, address.port, size(), LINE_SIZE);
        if !is_valid {
            return Err(Absence::Invalid);
        }
        let held = here.hold(task).ok_or(Absence::Ended)?;
        let head = held.object::<Head>(here, address.port).ok_or(Absence::Invalid)?;
        if head.magic != MAGIC || head.lines != LINES {
            return Err(Absence::Invalid);
        }
        if head.source.load(Acquire) != address.source {
            return Err(Absence::Ended);
        }
        let doorbell = held.object::<Doorbell>(here, head.doorbell.load(Relaxed));
        let regions = held.object::<Regions>(here, head.regions.load(Relaxed));
        let (doorbell, regions) = doorbell.zip(regions).ok_or(Absence::Invalid)?;
        let head = NonNull::from(head);
        // SAFETY: the segment has room for the ring behind the head, as `contains` has checked. A
        // task makes both together, and never frees them (`Port::make`).
        let ring = unsafe { Mapped::at(head.add(1).cast(), LINES) };
        Ok(Self {
            task,
            source: address.source,
            fi_addr: 0,
            is_far: here.is_far(task.id),
            head,
            ring,
            // Messages of an earlier endpoint of ours may be in the ring.
            queued: next_number(&ring),
            is_alone: true,
            finds: false,
            doorbell: NonNull::from(doorbell),
            regions: NonNull::from(regions),
        })
    }

    /// Returns the address of the port.
    pub fn address(&self, here: &Here) -> Address {
        let (task, source, port) = (self.task, self.source, self.head.as_ptr() as u64);
        Address { mark: here.mark, task, port, source }
    }

    /// Returns true if the endpoint is open. The caller holds the peer's task.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.head().source.load(Acquire) == self.source
    }

    /// Returns the part of the port beside the ring. The caller holds the peer's task.
    #[inline]
    pub fn head(&self) -> &Head {
        // SAFETY: `find` has checked the address, and tasks never free ports. The memory is mapped
        // while the caller holds the task.
        unsafe { self.head.as_ref() }
    }

    /// Returns the pieces of the message that gets this receive. The caller holds the peer's task
    /// as long as it uses them.
    pub fn pieces(&self, slot_use: SlotUse) -> &'static Pieces {
        // SAFETY: `find` has checked the address, and tasks never free ports. The memory is mapped
        // while the caller holds the task.
        unsafe { self.head.as_ref() }.posted.pieces(slot_use)
    }

    /// Wakes the peer's task, if it sleeps. The caller holds that task.
    #[inline]
    pub fn ring_doorbell(&self) {
        // SAFETY: `find` has checked the address, and domains never free their doorbells. The
        // memory is mapped while the caller holds the task.
        unsafe { self.doorbell.as_ref() }.ring();
    }

    /// Returns the memory regions that other tasks may access. The caller holds the peer's task.
    #[inline]
    pub fn regions(&self) -> &Regions {
        // SAFETY: `find` has checked the address, and domains never free their tables. The memory
        // is mapped while the caller holds the task.
        unsafe { self.regions.as_ref() }
    }
}
