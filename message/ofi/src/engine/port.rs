//! A port: what others see of an endpoint. It lies in its task's memory: a head, a stack of
//! records that are done, and the ring that messages come by.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use control::Identity;
use sync::doorbell::Doorbell;
use sync::mapped::{Mapped, size_of_ring};
use sync::ring::{Buffer as _, LINE_SIZE, Receiver, next_number};

use crate::engine::address::Address;
use crate::engine::counts::Counts;
use crate::engine::regions::Regions;
use crate::engine::space::Here;
use crate::protocol::posted::Posted;

/// The first word of a port, with the version of what follows.
const MAGIC: u64 = u64::from_le_bytes(*b"ofiport\x04");

/// Lines of a ring: 256 KiB.
const LINES: u32 = 4096;

/// What others read and write.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Head {
    magic: u64,
    lines: u32,
    /// Whose port it is: it changes when the port is used again, and is 0 in between.
    source: AtomicU32,
    /// Address of the bell that wakes its task.
    bell: AtomicU64,
    /// Address of the memory that others may reach.
    regions: AtomicU64,
    /// Addresses of what counts others' writes and reads; 0: nothing does.
    remote_counts: [AtomicU64; 2],
    /// Records of ours that others are done with.
    pub stack: Stack,
    /// Receives that senders may claim.
    pub posted: Posted,
}

/// A line of its own: others write it.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Stack(pub AtomicU64);

/// What tells without a lock whether a look at a port is worth it.
#[derive(Debug)]
pub struct Watch {
    /// The word in which the next message begins: 0 while there is none.
    next: AtomicPtr<AtomicU64>,
    stack: *const Stack,
    /// Something is still to be done.
    pub busy: AtomicBool,
}

// SAFETY: what it points to are atomics of a port, which is never freed.
unsafe impl Sync for Watch {}
// SAFETY: as above.
unsafe impl Send for Watch {}

impl Watch {
    /// Whether it is.
    #[inline]
    pub fn any(&self) -> bool {
        // SAFETY: as above.
        let (next, stack) = unsafe { (&*self.next.load(Relaxed), &*self.stack) };
        next.load(Relaxed) != 0 || stack.0.load(Relaxed) != 0 || self.busy.load(Relaxed)
    }
}

/// Bytes of a port.
fn size() -> usize {
    size_of::<Head>() + size_of_ring(LINES)
}

/// A port of ours.
#[derive(Debug)]
pub struct Port {
    head: NonNull<Head>,
    /// What comes in.
    pub ring: Mapped,
    /// Where we are in it.
    pub receiver: Receiver,
    /// What a glance tells.
    pub watch: &'static Watch,
}

// SAFETY: shared memory by design; the ring's rules and atomics guard it.
unsafe impl Send for Port {}

/// Ports that were used: others may remember where they are, so they stay for ever.
static USED: Mutex<Vec<Port>> = Mutex::new(Vec::new());

impl Port {
    /// One for messages to `source`. `None` without memory.
    pub fn open(source: u32, bell: &Doorbell, regions: &Regions) -> Option<Self> {
        let used = USED.lock().expect("no panic while held").pop();
        let port = used.or_else(Self::make)?;
        let head = port.head();
        head.bell.store(std::ptr::from_ref(bell) as u64, Relaxed);
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
        // SAFETY: new memory, large enough, and aligned.
        unsafe {
            (*head.as_ptr()).magic = MAGIC;
            (*head.as_ptr()).lines = LINES;
            let ring = Mapped::at(head.add(1).cast(), LINES);
            let watch = Watch {
                next: AtomicPtr::new(std::ptr::from_ref(ring.header(0)).cast_mut()),
                stack: &raw const (*head.as_ptr()).stack,
                busy: AtomicBool::new(false),
            };
            let watch = Box::leak(Box::new(watch));
            Some(Self { head, ring, receiver: Receiver::default(), watch })
        }
    }

    /// Others get no answer there any more.
    pub fn close(self) {
        self.head().source.store(0, Release);
        USED.lock().expect("no panic while held").push(self);
    }

    /// What others see.
    #[inline]
    pub fn head(&self) -> &Head {
        // SAFETY: it is never freed; what changes are atomics.
        unsafe { self.head.as_ref() }
    }

    /// Where it is.
    pub fn address(&self) -> u64 {
        self.head.as_ptr() as u64
    }

    /// Notes where the next message begins, and whether something is still to be done.
    #[inline]
    pub fn looked(&self, busy: bool) {
        let next = self.ring.header(self.receiver.next_line(&self.ring));
        self.watch.next.store(std::ptr::from_ref(next).cast_mut(), Relaxed);
        self.watch.busy.store(busy, Relaxed);
    }
}

/// Another task's port, or one of ours as others see it. Its memory is there only while its task
/// is held.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Whose it is.
    pub whom: Identity,
    /// What its messages say that they are from.
    pub source: u32,
    /// What completions call it.
    pub name: u64,
    /// Its task has an mm of its own.
    pub is_far: bool,
    head: NonNull<Head>,
    /// Where messages go.
    pub ring: Mapped,
    bell: NonNull<Doorbell>,
    regions: NonNull<Regions>,
    /// The number in its ring behind our last message for which its receiver has to look.
    pub queued: u32,
    /// It stands in its vector once: `queued` counts all that we send there.
    pub is_alone: bool,
    /// The last large message for which we have looked has found its receive.
    pub finds: bool,
}

// SAFETY: as for `Port`.
unsafe impl Send for Peer {}

impl Head {
    /// Counts others' reads or writes there from now on.
    pub fn count_remote(&self, counts: &Arc<Counts>, was_read: bool) {
        self.remote_counts[usize::from(was_read)].store(Counts::shared(counts), Release);
    }

    /// What counts others' reads or writes. The caller holds whose port it is.
    pub fn remote_counts(&self, here: &Here, whom: Identity, was_read: bool) -> Option<&Counts> {
        Counts::of(here, whom, self.remote_counts[usize::from(was_read)].load(Acquire))
    }

    /// Wakes the port's task, if it sleeps. The caller holds it.
    pub fn ring_bell(&self) {
        let bell = self.bell.load(Relaxed) as *const Doorbell;
        // SAFETY: a held task's bell stays.
        unsafe { &*bell }.ring();
    }
}

/// Why there is no port where an address says that one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// It is in another space, or on another machine.
    Elsewhere,
    /// The endpoint, or its task, has ended.
    Ended,
    /// No endpoint can have been there.
    Invalid,
}

impl Peer {
    /// The port that an address tells of.
    pub fn find(here: &Here, address: &Address) -> Result<Self, Absence> {
        if address.mark != here.mark {
            return Err(Absence::Elsewhere);
        }
        let whom = address.whom;
        let segment = here.task.control.layout().segment(whom.id).ok_or(Absence::Invalid)?;
        let has = |at: u64, bytes: usize| {
            let end = at.checked_add(bytes as u64);
            at.is_multiple_of(LINE_SIZE as u64)
                && at >= segment.start()
                && end.is_some_and(|end| end <= segment.end())
        };
        if !has(address.port, size()) {
            return Err(Absence::Invalid);
        }
        let _held = here.hold(whom).ok_or(Absence::Ended)?;
        let head = NonNull::new(address.port as *mut Head).ok_or(Absence::Invalid)?;
        // SAFETY: its task lives, is held, and says that this is there.
        let seen = unsafe { head.as_ref() };
        if seen.magic != MAGIC || seen.lines != LINES {
            return Err(Absence::Invalid);
        }
        if seen.source.load(Acquire) != address.source {
            return Err(Absence::Ended);
        }
        let (bell, regions) = (seen.bell.load(Relaxed), seen.regions.load(Relaxed));
        if !has(bell, size_of::<Doorbell>()) || !has(regions, size_of::<Regions>()) {
            return Err(Absence::Invalid);
        }
        // SAFETY: as above.
        let ring = unsafe { Mapped::at(head.add(1).cast(), LINES) };
        Ok(Self {
            whom,
            source: address.source,
            name: 0,
            is_far: here.is_far(whom.id),
            head,
            ring,
            // We may have sent there before.
            queued: next_number(&ring),
            is_alone: true,
            finds: false,
            bell: NonNull::new(bell as *mut Doorbell).ok_or(Absence::Invalid)?,
            regions: NonNull::new(regions as *mut Regions).ok_or(Absence::Invalid)?,
        })
    }

    /// What it is called.
    pub fn address(&self, here: &Here) -> Address {
        let (whom, source, port) = (self.whom, self.source, self.head.as_ptr() as u64);
        Address { mark: here.mark, whom, port, source }
    }

    /// Whether the endpoint is still there. The caller holds its task.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.head().source.load(Acquire) == self.source
    }

    /// What others see of it. The caller holds its task.
    #[inline]
    pub fn head(&self) -> &Head {
        // SAFETY: a held task's port stays.
        unsafe { self.head.as_ref() }
    }

    /// Wakes its task, if it sleeps. The caller holds it.
    #[inline]
    pub fn ring_bell(&self) {
        // SAFETY: a held task's bell stays.
        unsafe { self.bell.as_ref() }.ring();
    }

    /// Memory that others may reach. The caller holds its task.
    #[inline]
    pub fn regions(&self) -> &Regions {
        // SAFETY: a held task's regions stay.
        unsafe { self.regions.as_ref() }
    }
}
