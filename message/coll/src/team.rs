//! The team: the ranks of a communicator, if all are tasks of one space.
//!
//! At the first operation on a communicator, its ranks agree by the MPI's own operations whether
//! they form a team, and exchange the addresses of their outboxes. An attribute of the communicator
//! keeps the result, and its callback frees it. Each thread caches the result for its last
//! communicator.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use control::Identity;
use control::hold::{Hold, KEEP};
use control::{ThisTask, this_task};
use outbox::group::Group;
use outbox::outbox::Outbox;

use crate::abi::{Handle, SUCCESS};
use crate::mpi::{Mpi, mpi};
use crate::pool;
use crate::registry;
use crate::wait::{self, Waiter};

/// Most ranks of a team: a task can hold as many others at once.
const RANKS_MAX: usize = 128;

/// The way in which the operations of a communicator run.
enum Mode {
    /// In place, by this library.
    Team(Team),
    /// By the MPI.
    Mpi,
}

/// One rank's part of a team.
pub struct Team {
    /// The communicator's handle.
    pub comm: Handle,
    group: Group<Waiter>,
    /// Memory for intermediate results.
    pub scratch: Vec<u8>,
    /// Keeps the memory of the other ranks mapped.
    _holds: Vec<Arc<Hold>>,
}

/// Number of communicators that have ended. A cache from before the last end is invalid.
static ENDED: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy)]
struct Cached {
    comm: Handle,
    ended: u64,
    mode: *mut Mode,
}

thread_local! {
    static LAST: Cell<Cached> =
        const { Cell::new(Cached { comm: 0, ended: u64::MAX, mode: ptr::null_mut() }) };
}

/// Returns the team of a communicator for one operation of this thread; `None` if the MPI runs the
/// operation.
#[inline]
pub fn of(comm: Handle) -> Option<&'static mut Team> {
    let last = LAST.get();
    let mode = match last.comm == comm && last.ended == ENDED.load(Acquire) {
        true => last.mode,
        false => find(comm)?,
    };
    // SAFETY: `find` allocated it. The communicator lives, or `ENDED` would have changed. By MPI's
    // standard no other thread uses the communicator during a collective operation.
    match unsafe { &mut *mode } {
        Mode::Team(team) => Some(team),
        Mode::Mpi => None,
    }
}

#[cold]
fn find(comm: Handle) -> Option<*mut Mode> {
    let mpi = mpi();
    if mpi.is_unknown() || comm == mpi.comm_null() || !mpi.is_running() {
        return None;
    }
    let key = key(mpi)?;
    let ended = ENDED.load(Acquire);
    let (mut mode, mut is_known): (*mut Mode, c_int) = (ptr::null_mut(), 0);
    // SAFETY: MPI writes the attribute, which is a pointer, and a flag.
    unsafe { (mpi.comm_get_attr)(comm, key, (&raw mut mode).cast(), &mut is_known) };
    if is_known == 0 {
        let made = match Team::gather(mpi, comm) {
            Some(team) => Mode::Team(team),
            None => Mode::Mpi,
        };
        log(mpi, comm, &made);
        mode = Box::into_raw(Box::new(made));
        // SAFETY: the callbacks of this key expect such a pointer.
        if unsafe { (mpi.comm_set_attr)(comm, key, mode.cast()) } != SUCCESS {
            // Leaks the mode: MPI may keep the pointer.
            return None;
        }
    }
    LAST.set(Cached { comm, ended, mode });
    Some(mode)
}

/// Prints the mode of a communicator with several ranks, at rank 0, if NAGAYA_COLL_LOG is set.
fn log(mpi: &Mpi, comm: Handle, mode: &Mode) {
    if std::env::var_os("NAGAYA_COLL_LOG").is_none_or(|value| value.is_empty()) {
        return;
    }
    let (mut rank, mut ranks): (c_int, c_int) = (0, 0);
    // SAFETY: each writes one number.
    unsafe {
        (mpi.comm_rank)(comm, &mut rank);
        (mpi.comm_size)(comm, &mut ranks);
    }
    let how = match mode {
        Mode::Team(_) => "in place",
        Mode::Mpi => "by the MPI: not all are tasks of one space, with this library",
    };
    if rank == 0 && ranks > 1 {
        proc::error_line!("nagaya-coll: operations of {ranks} ranks: {how}");
    }
}

/// Returns the key of the attribute.
fn key(mpi: &Mpi) -> Option<c_int> {
    static KEY: OnceLock<Option<c_int>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the callbacks have the types that MPI demands.
        let made = unsafe { (mpi.comm_create_keyval)(copy, delete, &mut key, ptr::null_mut()) };
        (made == SUCCESS).then_some(key)
    })
}

/// Does not copy the attribute to a duplicate, which gets its own team.
extern "C" fn copy(
    _: Handle,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    is_copied: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes a pointer to a flag.
    unsafe { *is_copied = 0 };
    SUCCESS
}

/// Frees the team of a communicator that ends.
extern "C" fn delete(_: Handle, _: c_int, mode: *mut c_void, _: *mut c_void) -> c_int {
    ENDED.fetch_add(1, Release);
    // SAFETY: the attribute is a box of `find`. The communicator is not used any more.
    drop(unsafe { Box::from_raw(mode.cast::<Mode>()) });
    SUCCESS
}

/// The data about a rank that the ranks exchange. It has no padding, since all bytes are sent.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Announcement {
    /// Address of the rank's outbox; 0 if the rank is not the expected task.
    outbox: u64,
    id: u32,
    generation: u32,
    /// The domain. All ranks of a team are in one, where addresses have one meaning.
    domain: u32,
    is_crowded: u32,
}

impl Announcement {
    fn of(task: &ThisTask, outbox: &'static Outbox) -> Option<Self> {
        let own = task.control.identity(task.id)?;
        // SAFETY: sysconf(3) has no preconditions.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1);
        Some(Self {
            outbox: ptr::from_ref(outbox) as u64,
            id: own.id,
            generation: own.generation,
            domain: task.control.domain_of(own.id),
            is_crowded: (i64::from(task.control.tasks_high()) > processors).into(),
        })
    }
}

/// The holds on other tasks by ID. All communicators share one hold for each task.
static HELD: Mutex<Option<HashMap<u32, Weak<Hold>>>> = Mutex::new(None);

fn hold(task: &ThisTask, other: Identity) -> Option<Arc<Hold>> {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let held = held.get_or_insert_default();
    // A held task keeps its ID.
    if let Some(hold) = held.get(&other.id).and_then(Weak::upgrade) {
        return Some(hold);
    }
    let hold = Arc::new(task.hold(other, KEEP).ok()?);
    held.insert(other.id, Arc::downgrade(&hold));
    Some(hold)
}

impl Team {
    /// Agrees with the other ranks of a communicator whether they form a team. All ranks call this.
    fn gather(mpi: &Mpi, comm: Handle) -> Option<Self> {
        let (mut is_inter, mut rank, mut ranks): (c_int, c_int, c_int) = (0, 0, 0);
        // SAFETY: each writes one number.
        unsafe {
            (mpi.comm_test_inter)(comm, &mut is_inter);
            (mpi.comm_rank)(comm, &mut rank);
            (mpi.comm_size)(comm, &mut ranks);
        }
        let (rank, ranks) = (rank as usize, ranks as usize);
        if is_inter != 0 || !(2..=RANKS_MAX).contains(&ranks) {
            return None;
        }
        // Every registered rank gets to this line.
        let (tasks, task) = (registry::tasks(mpi, comm, ranks)?, this_task()?);
        let outbox = pool::take();
        let own = Announcement::of(&task, outbox).unwrap_or_default();
        let mut all = vec![Announcement::default(); ranks];
        let (size, byte) = (size_of::<Announcement>() as c_int, mpi.types.byte);
        let (from, to) = (ptr::from_ref(&own).cast(), all.as_mut_ptr().cast());
        // SAFETY: `all` has room for the announcements of all ranks.
        let done = unsafe { (mpi.short.allgather)(from, size, byte, to, size, byte, comm) };
        let domain = all[0].domain;
        let is_member = |(one, task): (&Announcement, &u32)| {
            one.outbox != 0 && one.id == *task && one.domain == domain
        };
        if done != SUCCESS || !all.iter().zip(&tasks).all(is_member) {
            pool::give(outbox, 0);
            return None;
        }
        // All ranks have the same result so far. A rank may fail to hold a task that just ended.
        let others = || all.iter().enumerate().filter(|(other, _)| *other != rank);
        let held: Option<Vec<_>> = others()
            .map(|(_, one)| hold(&task, Identity { id: one.id, generation: one.generation }))
            .collect();
        let (holds_all, mut all_hold): (c_int, c_int) = (held.is_some().into(), 0);
        let (from, to) = (ptr::from_ref(&holds_all).cast(), (&raw mut all_hold).cast());
        // SAFETY: both are one `int`.
        let done =
            unsafe { (mpi.short.allreduce)(from, to, 1, mpi.types.int, mpi.types.min, comm) };
        let Some(holds) = held.filter(|_| done == SUCCESS && all_hold == 1) else {
            pool::give(outbox, 0);
            return None;
        };
        wait::prepare(mpi);
        let outboxes = all.iter().map(|one| {
            let outbox = ptr::with_exposed_provenance::<Outbox>(one.outbox as usize);
            // SAFETY: the rank announced this address of its outbox, and keeps the outbox until
            // this rank leaves it. The hold keeps the rank's memory mapped.
            unsafe { &*outbox }
        });
        let is_crowded = all.iter().any(|one| one.is_crowded != 0);
        Some(Self {
            comm,
            group: Group::new(rank, outboxes.collect(), is_crowded, Waiter::default()),
            scratch: Vec::new(),
            _holds: holds,
        })
    }
}

impl Deref for Team {
    type Target = Group<Waiter>;

    fn deref(&self) -> &Group<Waiter> {
        &self.group
    }
}

impl DerefMut for Team {
    fn deref_mut(&mut self) -> &mut Group<Waiter> {
        &mut self.group
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        pool::give(self.group.leave(), self.ranks as u32 - 1);
    }
}
