//! The PEs of the job, and how this PE reaches their memory.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use control::hold::Hold;
use control::{Identity, ThisTask};
use shmem_wire::message::{Area, Place};
use sync::wait::WaitPolicy;

use crate::block::Block;
use crate::fatal::fatal;
use crate::heap::Heap;
use crate::remote::far::Far;
use crate::symmetric::Range;

/// A PE, as this one reaches it.
pub struct Peer {
    /// Distance of its heap from the heap of this PE; [`FAR`] if it is on another node.
    heap: usize,
    /// Distance of its static data.
    data: usize,
    /// It has the same static data: it runs the same program.
    has_data: bool,
    /// Its control block. For a PE of another node, an empty one that nobody uses.
    pub block: &'static Block,
    /// Its number.
    pub pe: usize,
    /// The starts of its heap and of its static data, if it is on this node.
    pub starts: [usize; 2],
    /// Its task, if it and this PE are tasks of a space.
    pub task: Option<Identity>,
    /// The process whose memory process_vm_writev(2) writes to reach it.
    pub pid: libc::pid_t,
}

/// No distance between two heaps, which are aligned to pages.
const FAR: usize = usize::MAX;

impl Peer {
    /// Returns a PE of this node, given this PE's ranges and their starts in the peer.
    pub fn new(
        pe: usize,
        ranges: [Range; 2],
        starts: [usize; 2],
        has_data: bool,
        block: &'static Block,
        task: Option<Identity>,
        pid: libc::pid_t,
    ) -> Self {
        let [heap, data] = [0, 1].map(|n| starts[n].wrapping_sub(ranges[n].start));
        Self { heap, data, has_data, block, pe, starts, task, pid }
    }

    /// Returns a PE of another node. `has_data`: it runs the same program.
    pub fn far(pe: usize, has_data: bool) -> Self {
        static NONE: OnceLock<Block> = OnceLock::new();
        let (block, starts) = (NONE.get_or_init(Block::default), [0, 0]);
        Self { heap: FAR, data: FAR, has_data, block, pe, starts, task: None, pid: 0 }
    }

    /// Returns true if the PE is on another node.
    #[inline(always)]
    pub fn is_far(&self) -> bool {
        self.heap == FAR
    }

    /// Wakes the peer's waiting threads. The caller has changed its memory.
    #[inline(always)]
    pub fn wake(&self) {
        self.block.doorbell.ring_unfenced();
    }
}

/// Time for the launcher to end the job after a death, before a PE reports it.
const REPORT_AFTER: Duration = Duration::from_millis(700);

/// Shortest spin of a PE that drives the agent of its node. If it sleeps instead, a message wakes
/// the agent, which wakes the PE. In a virtual machine a message over TCP then took 55 to 215 µs
/// instead of 15 to 25.
const DRIVE_MIN: Duration = Duration::from_micros(150);

/// This PE and all PEs of its job.
pub struct Job {
    /// The number of this PE.
    pub me: usize,
    /// Number of PEs.
    pub n: usize,
    /// The symmetric heap.
    pub heap: Range,
    /// The program's static data.
    pub data: Range,
    /// All PEs, by number.
    pub peers: Box<[Peer]>,
    /// The allocator of the heap.
    pub allocator: Mutex<Heap>,
    /// This process as a task. None in a job of one PE outside a space.
    pub task: Option<ThisTask>,
    /// Keeps the memory of the other PEs mapped.
    pub holds: Vec<Hold>,
    /// The other nodes, if there are any.
    pub far: Option<Box<Far>>,
    /// The level of thread support, as in `shmem_init_thread`.
    pub thread_level: c_int,
}

/// The job, from `shmem_init` on.
static JOB: AtomicPtr<Job> = AtomicPtr::new(ptr::null_mut());

/// Sets the job of this process. It lives for ever: threads may use it at the end of the process.
pub fn set(job: Job) -> &'static Job {
    let job = Box::leak(Box::new(job));
    JOB.store(job, Release);
    job
}

/// Returns the job if the library has been initialised.
#[inline(always)]
pub fn try_get() -> Option<&'static Job> {
    // SAFETY: null, or a job that is never freed (see `set`).
    unsafe { JOB.load(Relaxed).as_ref() }
}

/// Returns the job. The program must have called `shmem_init` before `function`.
#[inline(always)]
pub fn get(function: &str) -> &'static Job {
    match try_get() {
        Some(job) => job,
        None => uninitialised(function),
    }
}

#[cold]
fn uninitialised(function: &str) -> ! {
    fatal!(function, "the program has not called shmem_init")
}

impl Job {
    /// Returns a PE.
    #[inline(always)]
    pub fn peer(&self, function: &str, pe: c_int) -> &Peer {
        match self.peers.get(pe as usize) {
            Some(peer) => peer,
            None => self.no_such_pe(function, pe),
        }
    }

    #[cold]
    fn no_such_pe(&self, function: &str, pe: c_int) -> ! {
        fatal!(function, "PE {pe} does not exist; the job has {} PEs", self.n)
    }

    /// Returns the address in another PE of this node of a symmetric object of `bytes` bytes.
    #[inline(always)]
    pub fn reach(&self, function: &str, address: *const u8, bytes: usize, peer: &Peer) -> *mut u8 {
        let at = address.addr();
        if self.heap.contains(at, bytes) {
            return ptr::with_exposed_provenance_mut(at.wrapping_add(peer.heap));
        }
        if self.data.contains(at, bytes) && peer.has_data {
            return ptr::with_exposed_provenance_mut(at.wrapping_add(peer.data));
        }
        self.not_symmetric(function, at, bytes, peer)
    }

    #[cold]
    fn not_symmetric(&self, function: &str, at: usize, bytes: usize, peer: &Peer) -> ! {
        let (pe, end) = (peer.pe, at.wrapping_add(bytes));
        if self.data.contains(at, bytes) {
            fatal!(
                function,
                "the static object at {at:#x} is not symmetric: PE {pe} runs another program. Use \
                 the symmetric heap"
            )
        }
        if bytes > 0 && (self.heap.contains(at, 1) || self.data.contains(at, 1)) {
            fatal!(function, "{bytes} bytes at {at:#x} go beyond the end of symmetric memory")
        }
        fatal!(
            function,
            "{at:#x}..{end:#x} is not symmetric: it is neither in the symmetric heap nor static \
             data of the program"
        )
    }

    /// Returns the place in a PE of another node of a symmetric object of `bytes` bytes.
    pub fn place(&self, function: &str, object: *const u8, bytes: usize, peer: &Peer) -> Place {
        let at = object.addr();
        if self.heap.contains(at, bytes) {
            return Place { area: Area::Heap, offset: (at - self.heap.start) as u64 };
        }
        if self.data.contains(at, bytes) && peer.has_data {
            return Place { area: Area::Data, offset: (at - self.data.start) as u64 };
        }
        self.not_symmetric(function, at, bytes, peer)
    }

    /// Returns true if a PE has the symmetric object.
    pub fn is_accessible(&self, address: *const u8, peer: &Peer) -> bool {
        let at = address.addr();
        self.heap.contains(at, 1) || self.data.contains(at, 1) && peer.has_data
    }

    /// Returns the address in another PE of an object, or none if it is not symmetric there or the
    /// PE is on another node.
    pub fn find(&self, address: *const u8, peer: &Peer) -> Option<*mut u8> {
        let at = address.addr();
        if peer.is_far() {
            return None;
        }
        let delta = match self.heap.contains(at, 1) {
            true => peer.heap,
            false if self.data.contains(at, 1) && peer.has_data => peer.data,
            false => return None,
        };
        Some(ptr::with_exposed_provenance_mut(at.wrapping_add(delta)))
    }

    /// Returns the number of the node of a PE, which all PEs know alike.
    pub fn node(&self, pe: usize) -> usize {
        self.far.as_ref().map_or(0, |far| far.nodes.of_pe[pe])
    }

    /// Returns a policy for waits. With several nodes, an event may depend on another node, and the
    /// first PE of a node drives the agent while it waits.
    pub fn wait_policy(&self) -> WaitPolicy {
        match &self.far {
            Some(far) if far.is_first(self.me) => WaitPolicy::for_drivers(DRIVE_MIN),
            Some(_) => WaitPolicy::for_nodes(),
            None => WaitPolicy::default(),
        }
    }

    /// The control block of this PE.
    #[inline(always)]
    pub fn block(&self) -> &'static Block {
        self.peers[self.me].block
    }

    /// Ends the job with one line if a PE has ended without `shmem_finalize`.
    #[cold]
    pub fn check_peers(&self) {
        // With several nodes, an agent watches the PEs of this one.
        let Some(this) = self.task.filter(|_| self.far.is_none()) else { return };
        let has_died = |peer: &&Peer| {
            let lives = peer.task.is_none_or(|task| this.control.is_living(task));
            !lives && peer.block.finalized.0.load(Acquire) == 0
        };
        if let Some(peer) = self.peers.iter().find(has_died) {
            // The launcher usually ends the job, with a line of its own.
            std::thread::sleep(REPORT_AFTER);
            fatal!("wait", "PE {} has ended without shmem_finalize", peer.pe);
        }
    }
}
