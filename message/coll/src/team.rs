//! The ranks of a communicator, if all are tasks of one space.
//!
//! At the first operation on a communicator its ranks agree by the MPI's own operations whether
//! they are a team, and tell each other where their seats are. The communicator keeps the answer
//! as an attribute, whose callbacks say when it ends; each thread remembers the last that it
//! asked for.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io::Write as _;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use control::Identity;
use control::hold::{Hold, KEEP};
use control::{ThisTask, this_task};
use sync::wait::WaitPolicy;

use crate::mpi::{Handle, Mpi, SUCCESS, mpi};
use crate::rest;
use crate::roll;
use crate::seat::{self, Place, SLOTS, Seat, Sight};

/// Most ranks of a team: each holds all others, and can hold as many.
const RANKS_MAX: usize = 128;

/// What a communicator is to us.
enum Kind {
    Team(Team),
    /// All operations are the MPI's own.
    Foreign,
}

/// One rank's part of a team.
pub struct Team {
    /// As the MPI calls it.
    pub comm: Handle,
    /// Our rank.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    seats: Box<[&'static Seat]>,
    /// More tasks than processors: ranks meet at one of them, so that the others wake once.
    is_crowded: bool,
    /// The last step.
    number: u64,
    /// All are through with the steps up to this one.
    all_through: u64,
    policy: WaitPolicy,
    /// Room for intermediate results.
    pub scratch: Vec<u8>,
    /// So that nobody's memory vanishes while we look at it.
    _holds: Vec<Arc<Hold>>,
}

/// Communicators that have ended; what a thread remembers from before is of no use.
static ENDED: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy)]
struct Remembered {
    comm: Handle,
    ended: u64,
    kind: *mut Kind,
}

thread_local! {
    static LAST: Cell<Remembered> =
        const { Cell::new(Remembered { comm: 0, ended: u64::MAX, kind: ptr::null_mut() }) };
}

/// The team of a communicator, for one operation of this thread's; `None`: the MPI is to do it.
#[inline]
pub fn of(comm: Handle) -> Option<&'static mut Team> {
    let last = LAST.get();
    let kind = match last.comm == comm && last.ended == ENDED.load(Acquire) {
        true => last.kind,
        false => find(comm)?,
    };
    // SAFETY: the communicator lives, else the word above had changed; and no other thread may
    // use it meanwhile, says the standard.
    match unsafe { &mut *kind } {
        Kind::Team(team) => Some(team),
        Kind::Foreign => None,
    }
}

#[cold]
fn find(comm: Handle) -> Option<*mut Kind> {
    let mpi = mpi();
    if mpi.abi.is_none() || comm == mpi.comm_null() || !mpi.is_running() {
        return None;
    }
    let key = key(mpi)?;
    let ended = ENDED.load(Acquire);
    let (mut kind, mut is_known): (*mut Kind, c_int) = (ptr::null_mut(), 0);
    // SAFETY: writes a pointer and a number.
    unsafe { (mpi.comm_get_attr)(comm, key, (&raw mut kind).cast(), &mut is_known) };
    if is_known == 0 {
        let made = match Team::gather(mpi, comm) {
            Some(team) => Kind::Team(team),
            None => Kind::Foreign,
        };
        log(mpi, comm, &made);
        kind = Box::into_raw(Box::new(made));
        // SAFETY: the callbacks are those of the key.
        if unsafe { (mpi.comm_set_attr)(comm, key, kind.cast()) } != SUCCESS {
            // A leak, as `Kind::Foreign` would be at each operation.
            return None;
        }
    }
    LAST.set(Remembered { comm, ended, kind });
    Some(kind)
}

/// Says what a communicator of several ranks is to us, once for all of them, to who has asked.
fn log(mpi: &Mpi, comm: Handle, kind: &Kind) {
    if std::env::var_os("NAGAYA_COLL_LOG").is_none_or(|value| value.is_empty()) {
        return;
    }
    let (mut rank, mut ranks): (c_int, c_int) = (0, 0);
    // SAFETY: each writes a number.
    unsafe {
        (mpi.comm_rank)(comm, &mut rank);
        (mpi.comm_size)(comm, &mut ranks);
    }
    let how = match kind {
        Kind::Team(_) => "in place",
        Kind::Foreign => "by the MPI: not all are tasks of one space, with this library",
    };
    if rank == 0 && ranks > 1 {
        let _ = writeln!(std::io::stderr(), "nagaya-coll: operations of {ranks} ranks: {how}");
    }
}

/// The key of the attribute.
fn key(mpi: &Mpi) -> Option<c_int> {
    static KEY: OnceLock<Option<c_int>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the callbacks are of these types.
        let made = unsafe { (mpi.comm_create_keyval)(copy, delete, &mut key, ptr::null_mut()) };
        (made == SUCCESS).then_some(key)
    })
}

/// A duplicate is a communicator of its own.
extern "C" fn copy(
    _: Handle,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    is_copied: *mut c_int,
) -> c_int {
    // SAFETY: MPI's.
    unsafe { *is_copied = 0 };
    SUCCESS
}

extern "C" fn delete(_: Handle, _: c_int, kind: *mut c_void, _: *mut c_void) -> c_int {
    ENDED.fetch_add(1, Release);
    // SAFETY: from `find`; nobody uses the communicator any more.
    drop(unsafe { Box::from_raw(kind.cast::<Kind>()) });
    SUCCESS
}

/// What a rank tells the others. Without padding: all of it is sent.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Card {
    /// Where its seat is; 0: it is not the task that it was taken for.
    seat: u64,
    id: u32,
    generation: u32,
    /// Whose addresses mean the same to all.
    domain: u32,
    is_crowded: u32,
}

impl Card {
    fn of(task: &ThisTask, seat: &'static Seat) -> Option<Self> {
        let us = task.control.identity(task.id)?;
        // SAFETY: a plain question.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1);
        Some(Self {
            seat: ptr::from_ref(seat) as u64,
            id: us.id,
            generation: us.generation,
            domain: task.control.domain_of(us.id),
            is_crowded: (i64::from(task.control.tasks_high()) > processors).into(),
        })
    }
}

/// Whom we hold, by ID: one word for each task, however many communicators there are.
static HELD: Mutex<Option<HashMap<u32, Weak<Hold>>>> = Mutex::new(None);

fn hold(task: &ThisTask, whom: Identity) -> Option<Arc<Hold>> {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let held = held.get_or_insert_default();
    // Whom we hold lives on under its ID.
    if let Some(hold) = held.get(&whom.id).and_then(Weak::upgrade) {
        return Some(hold);
    }
    let hold = Arc::new(task.hold(whom, KEEP).ok()?);
    held.insert(whom.id, Arc::downgrade(&hold));
    Some(hold)
}

impl Team {
    /// Agrees with the other ranks, who do the same, whether they are a team.
    fn gather(mpi: &Mpi, comm: Handle) -> Option<Self> {
        let (mut is_inter, mut rank, mut ranks): (c_int, c_int, c_int) = (0, 0, 0);
        // SAFETY: each writes a number.
        unsafe {
            (mpi.comm_test_inter)(comm, &mut is_inter);
            (mpi.comm_rank)(comm, &mut rank);
            (mpi.comm_size)(comm, &mut ranks);
        }
        let (rank, ranks) = (rank as usize, ranks as usize);
        if is_inter != 0 || !(2..=RANKS_MAX).contains(&ranks) {
            return None;
        }
        // Whoever is on the roll comes here, too.
        let (tasks, task) = (roll::tasks(mpi, comm, ranks)?, this_task()?);
        let seat = seat::take();
        let ours = Card::of(&task, seat).unwrap_or_default();
        let mut cards = vec![Card::default(); ranks];
        let (size, byte) = (size_of::<Card>() as c_int, mpi.types.byte);
        let (from, to) = (ptr::from_ref(&ours).cast(), cards.as_mut_ptr().cast());
        // SAFETY: `cards` has room for what all send.
        let done = unsafe { (mpi.short.allgather)(from, size, byte, to, size, byte, comm) };
        let domain = cards[0].domain;
        let is_near = |(card, task): (&Card, &u32)| {
            card.seat != 0 && card.id == *task && card.domain == domain
        };
        if done != SUCCESS || !cards.iter().zip(&tasks).all(is_near) {
            seat::give(seat, 0);
            return None;
        }
        // All say the same so far. Now some may fail to hold one that ends.
        let others = || cards.iter().enumerate().filter(|(other, _)| *other != rank);
        let held: Option<Vec<_>> = others()
            .map(|(_, card)| hold(&task, Identity { id: card.id, generation: card.generation }))
            .collect();
        let (mine, mut all): (c_int, c_int) = (held.is_some().into(), 0);
        let (from, to) = (ptr::from_ref(&mine).cast(), (&raw mut all).cast());
        // SAFETY: a number each.
        let done =
            unsafe { (mpi.short.allreduce)(from, to, 1, mpi.types.int, mpi.types.min, comm) };
        let Some(holds) = held.filter(|_| done == SUCCESS && all == 1) else {
            seat::give(seat, 0);
            return None;
        };
        rest::prepare(mpi);
        let seats = cards.iter().map(|card| {
            let seat = ptr::with_exposed_provenance::<Seat>(card.seat as usize);
            // SAFETY: its rank says so, keeps it while we are on the team, and we hold it.
            unsafe { &*seat }
        });
        Some(Self {
            comm,
            rank,
            ranks,
            seats: seats.collect(),
            is_crowded: cards.iter().any(|card| card.is_crowded != 0),
            number: 0,
            all_through: 0,
            policy: WaitPolicy::default(),
            scratch: Vec::new(),
            _holds: holds,
        })
    }

    /// The others' ranks, the next first, so that not all look at the same at once.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, ranks) = (self.rank, self.ranks);
        (1..ranks).map(move |step| (rank + step) % ranks)
    }

    /// Begins a step. Returns its number.
    #[inline]
    pub fn step(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Waits until all are through with what we want to put something else in place of.
    #[inline]
    fn make_room(&mut self, number: u64) {
        if number > self.all_through + SLOTS {
            self.wait_through(number - SLOTS);
        }
    }

    /// Shows data in this step.
    ///
    /// # Safety
    /// It is readable, and not more than fits.
    #[inline]
    pub unsafe fn show_data(&mut self, number: u64, data: *const u8, length: usize) {
        self.make_room(number);
        // SAFETY: the caller's promise, and there is room.
        unsafe { self.seats[self.rank].show_data(number, data, length) };
    }

    /// Shows where data is in this step.
    #[inline]
    pub fn show_place(&mut self, number: u64, place: Place) {
        self.make_room(number);
        // SAFETY: there is room.
        unsafe { self.seats[self.rank].show_place(number, place) };
    }

    /// Shows that we are here.
    #[inline]
    pub fn show_nothing(&mut self, number: u64) {
        // SAFETY: nothing is read.
        unsafe { self.show_data(number, ptr::null(), 0) };
    }

    /// Waits for what a rank shows in this step.
    #[inline]
    pub fn await_sight(&mut self, rank: usize, number: u64) -> Sight {
        let seat = self.seats[rank];
        rest::wait(seat, &mut self.policy, self.is_crowded, |seat| seat.has_shown(number));
        seat.sight(number)
    }

    /// What a rank shows in this step, which all have shown.
    #[inline]
    pub fn sight(&self, rank: usize, number: u64) -> Sight {
        self.seats[rank].sight(number)
    }

    /// The seat of a rank.
    pub fn seat(&self, rank: usize) -> &'static Seat {
        self.seats[rank]
    }

    /// Whether each task has a processor: then two do a copy faster than one.
    pub fn has_processors(&self) -> bool {
        !self.is_crowded
    }

    /// Waits for something that a rank brings about, who rings its bell then.
    pub fn await_rank(&mut self, rank: usize, ready: impl Fn() -> bool) {
        rest::wait(self.seats[rank], &mut self.policy, self.is_crowded, |_| ready());
    }

    /// Waits until all have shown this step.
    #[inline]
    pub fn meet(&mut self, number: u64) {
        if !self.is_crowded {
            for other in self.others() {
                self.await_sight(other, number);
            }
        } else if self.rank == 0 {
            for other in self.others() {
                self.await_sight(other, number);
            }
            let go = self.step();
            self.show_nothing(go);
        } else {
            let go = self.step();
            self.await_sight(0, go);
        }
        // Who shows a step is through with those before.
        self.all_through = self.all_through.max(number - 1);
    }

    /// Says that we are through with all that was shown so far: the end of each operation.
    #[inline]
    pub fn through(&mut self) {
        self.seats[self.rank].is_through(self.number);
    }

    /// The same, and waits until all others are: nobody looks at our data any more.
    #[inline]
    pub fn part(&mut self) {
        self.through();
        let number = self.number;
        if !self.is_crowded {
            self.wait_through(number);
        } else if self.rank == 0 {
            self.wait_through(number);
            let go = self.step();
            self.show_nothing(go);
        } else {
            let go = self.step();
            self.await_sight(0, go);
            self.all_through = number;
        }
    }

    /// Waits until all are through with a step.
    pub fn wait_through(&mut self, number: u64) {
        let mut least = u64::MAX;
        for other in self.others() {
            let seat = self.seats[other];
            let is_through = |seat: &Seat| seat.through() >= number;
            rest::wait(seat, &mut self.policy, self.is_crowded, is_through);
            least = least.min(seat.through());
        }
        self.all_through = least;
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for other in self.others() {
            self.seats[other].leave();
        }
        seat::give(self.seats[self.rank], self.ranks as u32 - 1);
    }
}
