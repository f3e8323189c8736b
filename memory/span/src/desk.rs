//! The desk, where the program's threads ask the agent of their node, and where an agent gives
//! work to shadows. A seat for each thread, the same on all nodes.
//!
//! The threads' side uses no libc and no thread area: both are the program's. A thread finds
//! its seat by GS, which programs do not use.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::addresses::Wish;
use crate::context::Context;
use crate::frame::Laid;
use crate::processors::{self, Mask};
use crate::raw;
use crate::signals::{Signal, send};
use crate::{alternate_stack, clocks, edges};

/// Threads that a program may have at once: about as many as Linux allows with its default
/// `vm.max_map_count`.
pub const THREADS_MAX: usize = 32 << 10;
/// Slots that are made together: as many as a word has bits.
const TOGETHER: usize = 64;
/// Bytes of a thread's own area: its context, and stacks that are not the program's.
const AREA_BYTES: usize = 256 << 10;

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Call {
    /// Which.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What a thread asks. Answers are as of system calls: errors are negative.
#[derive(Clone, Copy, Debug)]
#[repr(C, u32)]
pub enum Request {
    /// To make this call at the origin, for a thread of another node. Answer: its result.
    Call(Call),
    /// To a shadow's agent: the call's result. Told, not asked.
    Done(i64),
    /// Memory, where it is wished or anywhere, of zeros; to be read from a file, or not. Answer:
    /// its address.
    Map { bytes: u64, protection: u32, is_file: bool, wish: Wish },
    /// Memory at this address; of what is there already it replaces all, or is an error. Answer:
    /// as above.
    MapAt { start: u64, bytes: u64, protection: u32, replaces: bool, is_file: bool },
    /// Memory back.
    Unmap { start: u64, bytes: u64 },
    /// Zeros instead of what is there. Answer: of how many bytes that is done.
    Discard { start: u64, bytes: u64 },
    /// What is at these addresses, from this place in a file on, whose name stands at the seat's
    /// context; with no name a stack.
    Name { start: u64, bytes: u64, offset: u64, name: u32 },
    /// Another protection.
    Protect { start: u64, bytes: u64, protection: u32 },
    /// So many bytes of a file stand there, for reading.
    Text { descriptor: i32, start: u64, offset: u64, bytes: u64 },
    /// So many bytes of a file will stand there, shared and for reading.
    Lease { descriptor: i32, start: u64, offset: u64, bytes: u64 },
    /// At addresses that were given, where nothing was, stands another mapping than the segment's.
    Lay { start: u64, bytes: u64, kind: Laid },
    /// What may be done with an address, as mprotect(2) has it, and [`OF_FILE`](Self::OF_FILE) if
    /// a file is mapped there.
    Look(u64),
    /// What a forked child gets of these addresses: one of [`ADVICES`](crate::inherit::ADVICES).
    Inherit { start: u64, bytes: u64, advice: i32 },
    /// They are a segment of System V shared memory. Answer: 0.
    Attached { start: u64, bytes: u64 },
    /// It is that no more. Answer: its bytes, or an error if none begins there.
    Detached(u64),
    /// Where the heap ends.
    HeapEnd,
    /// The heap's new end. Answer: 0 if it cannot be that.
    Break(u64),
    /// To stand in line at a word, before one looks at it once more.
    Enqueue { word: u64, bits: u32 },
    /// Not to stand in line any more. Answer: 1, or 0 if one has been woken.
    Cancel,
    /// To wake so many who wait at the word for any of the bits. Answer: how many were.
    Wake { word: u64, count: u32, bits: u32 },
    /// To wake so many, and to let so many others wait at another word. Answer: how many in all.
    Requeue { word: u64, count: u32, to: u64, moved: u32 },
    /// A seat for a new thread. Answer: its number, and from bit 32 on its node.
    Place,
    /// The seat back: the thread could not be made.
    Vacate(u32),
    /// The thread of this seat, whose context is there, begins on its node.
    Begin(u32),
    /// The thread has ended, with this status. Its shadow says so, too.
    Gone(i32),
    /// By a shadow: the seat has a signal. Answer: 0, and the other half will say that it has
    /// taken it, or 1 if there is none, since it is on its way home.
    Signal,
    /// The thread of this seat is wanted on the processors of its mask.
    Bind(u32),
    /// The thread goes on on this node, with the context of its seat.
    Move(u32),
    /// A copy of all memory, for a child. Answer: the address of the
    /// [`Snapshot`](crate::snapshot::Snapshot), which is the thread's until `Forked`.
    Fork,
    /// The child has it, or there is none.
    Forked,
    /// The end of the program, with this status. Not answered.
    End(i32),
}

impl Request {
    /// In the answer to [`Look`](Self::Look): a file is mapped there.
    pub const OF_FILE: i64 = 8;
}

const FREE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;
const ANSWERED: u32 = 3;

/// A thread's seat.
#[repr(C, align(128))]
pub struct Seat {
    /// Its own address: what GS points to.
    itself: u64,
    /// Where functions of the program's vDSO go on.
    pub clocks: AtomicU64,
    /// Of a thread that is in one: with what it began.
    pub began: UnsafeCell<clocks::Began>,
    /// What is to be done before it goes back to the program.
    pub flags: AtomicU32,
    /// It is in a call that may block, or about to make it.
    pub in_call: AtomicU32,
    signal: UnsafeCell<Signal>,
    /// The alternate stack that the program has set.
    alternate: UnsafeCell<libc::stack_t>,
    /// Where it is to go.
    destination: AtomicU32,
    /// The frame of the signal by which its call was caught, while we answer.
    caught: AtomicU64,
    /// Of a shadow: the stack pointer to return to after a fault, or 0.
    pub guard: AtomicU64,
    /// The thread of this node's kernel that sits here; 0 when it has gone, for good.
    kernel: AtomicU32,
    /// Of a shadow: the mask of its other half.
    pub mask: AtomicU64,
    /// What set_robust_list said, or 0.
    pub robust: AtomicU64,
    /// Its number.
    pub index: u32,
    state: AtomicU32,
    request: UnsafeCell<Request>,
    answer: UnsafeCell<i64>,
    /// There is work for the shadow.
    work: AtomicU32,
    call: UnsafeCell<Call>,
    /// It has been woken at a word, or may begin.
    pub woken: AtomicU32,
    /// The node on which it runs.
    pub node: AtomicU32,
    /// Its thread ID at the origin, which is the program's name for it.
    pub tid: AtomicI32,
    /// Where a zero is to stand when it has ended, or 0.
    pub clear_tid: AtomicU64,
    /// With which status it has ended.
    pub status: AtomicI32,
    /// At the origin: the processors on which the program wants it.
    pub processors: Mask,
    context: *mut Context,
    stack_end: usize,
    /// The kernel's name for its thread on this node.
    pub kernel_tid: AtomicI32,
    /// Its last system call, and the instruction behind it.
    call_number: AtomicU64,
    call_end: AtomicU64,
}

// SAFETY: states say whose the cells are.
unsafe impl Sync for Seat {}
// SAFETY: as above.
unsafe impl Send for Seat {}

/// All slots of a node. Their memory is made when it is first needed.
pub struct Desk {
    seats: [OnceLock<Box<[Seat]>>; THREADS_MAX / TOGETHER],
    /// One bit for each slot with a request.
    asked: [AtomicU64; THREADS_MAX / TOGETHER],
    /// One bit for each word of `asked` that may have bits.
    asking: [AtomicU64; THREADS_MAX / TOGETHER / 64],
    /// Slots above this number were never made.
    made: AtomicU32,
    /// The agent sleeps, and wants to be rung.
    sleeps: AtomicU32,
    bell: i32,
}

impl Desk {
    /// With a bell that the threads' descriptors hold under this number; never freed.
    pub fn new(bell: i32) -> std::io::Result<&'static Self> {
        let desk = Box::leak(Box::new(Self {
            seats: [const { OnceLock::new() }; THREADS_MAX / TOGETHER],
            asked: [const { AtomicU64::new(0) }; THREADS_MAX / TOGETHER],
            asking: [const { AtomicU64::new(0) }; THREADS_MAX / TOGETHER / 64],
            made: AtomicU32::new(0),
            sleeps: AtomicU32::new(0),
            bell,
        }));
        desk.make(0)?;
        Ok(desk)
    }

    /// To the agent: makes the slot of this number, if it does not exist yet.
    ///
    /// # Panics
    /// The number is not below [`THREADS_MAX`].
    pub fn make(&self, index: u32) -> std::io::Result<()> {
        let first = index as usize / TOGETHER * TOGETHER;
        let slots = &self.seats[first / TOGETHER];
        if slots.get().is_none() {
            // Only the agent makes slots, so nobody else has made these meanwhile.
            let _ = slots.set(Seat::several(first as u32)?);
            self.made.fetch_max((first + TOGETHER) as u32, Ordering::SeqCst);
        }
        Ok(())
    }

    /// A seat, which was made.
    ///
    /// # Panics
    /// There is none of this number.
    pub fn seat(&self, index: u32) -> &Seat {
        let slots = self.seats[index as usize / TOGETHER].get().expect("a slot that was made");
        &slots[index as usize % TOGETHER]
    }

    /// All seats that were made.
    pub fn seats(&self) -> impl Iterator<Item = &Seat> {
        let made = self.made.load(Ordering::SeqCst) as usize / TOGETHER;
        self.seats[..made].iter().filter_map(OnceLock::get).flat_map(|slots| slots.iter())
    }

    /// At the origin: the seat of the thread with this ID, if it is one of the program's.
    pub fn seat_of(&self, tid: i32) -> Option<&Seat> {
        let is_there = |seat: &&Seat| seat.kernel() != 0 && seat.tid.load(Ordering::Relaxed) == tid;
        self.seats().find(is_there)
    }

    /// To a thread: asks, and waits for the answer.
    pub fn ask(&self, seat: &Seat, request: Request) -> i64 {
        self.tell(seat, request);
        loop {
            match seat.state.load(Ordering::SeqCst) {
                ANSWERED => break,
                state => raw::sleep(&seat.state, state, None),
            };
        }
        // SAFETY: answered, so it is ours.
        let answer = unsafe { *seat.answer.get() };
        seat.state.store(FREE, Ordering::Relaxed);
        answer
    }

    /// To a thread: what the agent takes without an answer.
    pub fn tell(&self, seat: &Seat, request: Request) {
        loop {
            match seat.state.load(Ordering::SeqCst) {
                FREE => break,
                // It has not taken yet what it was told last.
                state => raw::sleep(&seat.state, state, None),
            };
        }
        // SAFETY: free, so it is ours.
        unsafe { *seat.request.get() = request };
        seat.state.store(ASKED, Ordering::SeqCst);
        let word = seat.index as usize / TOGETHER;
        self.asked[word].fetch_or(1 << (seat.index % TOGETHER as u32), Ordering::SeqCst);
        self.asking[word / 64].fetch_or(1 << (word % 64), Ordering::SeqCst);
        if self.sleeps.swap(0, Ordering::SeqCst) != 0 {
            let one = 1u64;
            let arguments = [self.bell as u64, std::ptr::from_ref(&one) as u64, 8, 0, 0, 0];
            // SAFETY: eight bytes. Full is loud enough.
            unsafe { raw::call(libc::SYS_write as u64, arguments) };
        }
    }

    /// The bell's descriptor.
    pub fn bell(&self) -> i32 {
        self.bell
    }

    /// Whether this is the bell's descriptor, which is not the program's.
    pub fn is_bell(&self, descriptor: i32) -> bool {
        descriptor == self.bell
    }

    /// To the agent: the next request, and whose.
    pub fn take(&self) -> Option<(u32, Request)> {
        loop {
            let is_set = |(_, asking): &(usize, &AtomicU64)| asking.load(Ordering::SeqCst) != 0;
            let (at, asking) = self.asking.iter().enumerate().find(is_set)?;
            let bit = asking.load(Ordering::SeqCst).trailing_zeros();
            let word = at * 64 + bit as usize;
            // Whoever asks after this sets it again.
            asking.fetch_and(!(1 << bit), Ordering::SeqCst);
            let bits = self.asked[word].load(Ordering::SeqCst);
            if bits == 0 {
                continue;
            }
            let first = bits & bits.wrapping_neg();
            self.asked[word].fetch_and(!first, Ordering::SeqCst);
            if bits != first {
                asking.fetch_or(1 << bit, Ordering::SeqCst);
            }
            let seat = self.seat(word as u32 * TOGETHER as u32 + first.trailing_zeros());
            seat.state.store(TAKEN, Ordering::Relaxed);
            // SAFETY: asked, so it is ours.
            return Some((seat.index, unsafe { *seat.request.get() }));
        }
    }

    /// To the agent: answers.
    pub fn answer(&self, index: u32, answer: i64) {
        let seat = self.seat(index);
        assert_eq!(seat.state.load(Ordering::Relaxed), TAKEN, "thread {index} did not ask");
        // SAFETY: taken, so it is ours.
        unsafe { *seat.answer.get() = answer };
        seat.state.store(ANSWERED, Ordering::SeqCst);
        raw::wake(&seat.state);
    }

    /// To the agent: it has taken what it was told.
    pub fn took(&self, index: u32) {
        let seat = self.seat(index);
        seat.state.store(FREE, Ordering::SeqCst);
        raw::wake(&seat.state);
    }

    /// To the agent: it is about to sleep. If not, somebody has asked.
    pub fn may_sleep(&self) -> bool {
        self.sleeps.store(1, Ordering::SeqCst);
        let asked = self.asking.iter().any(|asking| asking.load(Ordering::SeqCst) != 0);
        if asked {
            self.wakes();
        }
        !asked
    }

    /// To the agent: it is awake.
    pub fn wakes(&self) {
        self.sleeps.store(0, Ordering::Relaxed);
    }
}

impl Seat {
    /// As many as are made together, from this number on, with their areas.
    fn several(first: u32) -> std::io::Result<Box<[Self]>> {
        let bytes = AREA_BYTES * TOGETHER;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory.
        let areas = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if areas == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let areas = areas as usize;
        let one = |at: usize| Self::new(first + at as u32, areas + at * AREA_BYTES);
        let mut slots: Box<[Self]> = (0..TOGETHER).map(one).collect();
        for slot in &mut slots {
            slot.itself = std::ptr::from_ref(slot) as u64;
        }
        Ok(slots)
    }

    fn new(index: u32, area: usize) -> Self {
        Self {
            itself: 0,
            clocks: AtomicU64::new(clocks::entry()),
            began: UnsafeCell::new([0; 10]),
            flags: AtomicU32::new(0),
            in_call: AtomicU32::new(0),
            signal: UnsafeCell::new(Signal::NONE),
            alternate: UnsafeCell::new(alternate_stack::NONE),
            destination: AtomicU32::new(0),
            caught: AtomicU64::new(0),
            guard: AtomicU64::new(0),
            kernel: AtomicU32::new(0),
            mask: AtomicU64::new(0),
            robust: AtomicU64::new(0),
            index,
            state: AtomicU32::new(FREE),
            request: UnsafeCell::new(Request::Cancel),
            answer: UnsafeCell::new(0),
            work: AtomicU32::new(0),
            call: UnsafeCell::new(Call { number: 0, arguments: [0; 6] }),
            woken: AtomicU32::new(0),
            node: AtomicU32::new(0),
            tid: AtomicI32::new(0),
            clear_tid: AtomicU64::new(0),
            status: AtomicI32::new(0),
            processors: processors::all(),
            context: area as *mut Context,
            stack_end: area + AREA_BYTES,
            kernel_tid: AtomicI32::new(0),
            call_number: AtomicU64::new(0),
            call_end: AtomicU64::new(0),
        }
    }

    /// To the agent: work for the shadow, which has none.
    pub fn post(&self, call: Call) {
        // SAFETY: it waits, so it is ours.
        unsafe { *self.call.get() = call };
        self.work.store(1, Ordering::SeqCst);
        raw::wake(&self.work);
    }

    /// To the shadow: waits for work, or with `signals` for one of these.
    pub fn work(&self, signals: bool) -> Option<Call> {
        while self.work.load(Ordering::SeqCst) == 0 {
            if signals && self.has(Self::SIGNAL) {
                return None;
            }
            match signals {
                // SAFETY: the shadow has sat down.
                true => unsafe { edges::sleep(&self.work, 0, None) },
                false => raw::sleep(&self.work, 0, None),
            };
        }
        self.work.store(0, Ordering::Relaxed);
        // SAFETY: posted, so it is ours.
        Some(unsafe { *self.call.get() })
    }

    /// Lets it go on that waits for that.
    pub fn wake(&self) {
        self.woken.store(1, Ordering::SeqCst);
        raw::wake(&self.woken);
    }

    /// Of the flags: it has a signal.
    pub const SIGNAL: u32 = 1;
    /// Of the flags: it is to go elsewhere.
    const MOVE: u32 = 2;

    /// Whether the flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::SeqCst) & flag != 0
    }

    /// Whether it was set.
    pub fn clear(&self, flag: u32) -> bool {
        self.flags.fetch_and(!flag, Ordering::SeqCst) & flag != 0
    }

    /// Gives it a signal, which it has not.
    pub fn put(&self, signal: &Signal) {
        // SAFETY: the flag is not set, so it is ours.
        unsafe { *self.signal.get() = *signal };
        self.flags.fetch_or(Self::SIGNAL, Ordering::SeqCst);
    }

    /// The signal that it has.
    pub fn signal(&self) -> Option<Signal> {
        // SAFETY: the flag is set, so it stays as it is until it is cleared.
        self.has(Self::SIGNAL).then(|| unsafe { *self.signal.get() })
    }

    /// To the thread: the signal that it has, which it has no longer.
    pub fn take(&self) -> Option<Signal> {
        let signal = self.signal();
        self.clear(Self::SIGNAL);
        signal
    }

    /// It is to go on on this node.
    pub fn go_to(&self, node: u32) {
        self.destination.store(node, Ordering::SeqCst);
        self.flags.fetch_or(Self::MOVE, Ordering::SeqCst);
    }

    /// To the thread: where it is to go, said once.
    pub fn wanted_elsewhere(&self) -> Option<u32> {
        self.clear(Self::MOVE).then(|| self.destination.load(Ordering::SeqCst))
    }

    /// To the thread, which blocks SIGSYS: it looks at its flags as soon as it does not.
    pub fn remind(&self) {
        if self.flags.load(Ordering::SeqCst) != 0 {
            send(self.kernel(), libc::SIGSYS);
        }
    }

    /// To the agent: the thread looks at its flags, wherever it is; if it waits for an answer, when
    /// it has that.
    pub fn poke(&self) {
        let kernel = self.kernel();
        if kernel != 0 && !self.asks() {
            send(kernel, libc::SIGSYS);
        }
    }

    /// To the agent: it asks, and has no answer yet.
    pub fn asks(&self) -> bool {
        matches!(self.state.load(Ordering::SeqCst), ASKED | TAKEN)
    }

    /// The frame by which its call was caught, or nothing.
    pub fn caught(&self) -> *mut libc::ucontext_t {
        self.caught.load(Ordering::Relaxed) as *mut libc::ucontext_t
    }

    /// To the thread: it answers a call that was caught by this frame, or none any more.
    pub fn answers(&self, frame: *mut libc::ucontext_t) {
        self.caught.store(frame as u64, Ordering::Relaxed);
    }

    /// The ID of this node's kernel of the thread that sits here, or 0.
    pub fn kernel(&self) -> i32 {
        self.kernel.load(Ordering::SeqCst).cast_signed()
    }

    /// Where the kernel writes that.
    pub fn kernel_word(&self) -> &AtomicU32 {
        &self.kernel
    }

    /// Waits until the kernel's thread that sat here has gone, for good: it may still be on the
    /// seat's stack.
    pub fn wait_until_left(&self) {
        loop {
            let kernel = self.kernel.load(Ordering::SeqCst);
            if kernel == 0 {
                return;
            }
            // The kernel wakes as for memory that others share.
            let arguments =
                [self.kernel.as_ptr() as u64, libc::FUTEX_WAIT as u64, kernel.into(), 0, 0, 0];
            // SAFETY: a word that lives.
            unsafe { raw::call(libc::SYS_futex as u64, arguments) };
        }
    }

    /// Is as if nobody had sat here.
    pub fn forget(&self) {
        self.flags.store(0, Ordering::SeqCst);
        self.in_call.store(0, Ordering::SeqCst);
        self.woken.store(0, Ordering::SeqCst);
        self.robust.store(0, Ordering::Relaxed);
        self.caught.store(0, Ordering::Relaxed);
        self.guard.store(0, Ordering::Relaxed);
    }

    /// The context with which its thread begins, or which goes with a call.
    pub fn context(&self) -> *mut Context {
        self.context
    }

    /// The end of a stack that is not the program's.
    pub fn stack_end(&self) -> usize {
        self.stack_end
    }

    /// The end of another, for a short while.
    pub fn second_stack_end(&self) -> usize {
        self.stack_end - AREA_BYTES / 2
    }

    /// The one between, for handlers: see [`alternate_stack`].
    pub fn handler_stack(&self) -> Range<usize> {
        self.second_stack_end()..self.stack_end - AREA_BYTES / 8
    }

    /// The program's alternate stack, which its thread alone uses.
    pub fn alternate(&self) -> *mut libc::stack_t {
        self.alternate.get()
    }

    /// To a new thread: this is its seat from now on.
    pub fn sit_down(&self) {
        /// `ARCH_SET_GS`.
        const SET_GS: u64 = 0x1001;
        // SAFETY: GS is ours.
        let tid = unsafe {
            raw::call(libc::SYS_arch_prctl as u64, [SET_GS, self.itself, 0, 0, 0, 0]);
            raw::call(libc::SYS_gettid as u64, [0; 6])
        };
        self.kernel_tid.store(tid as i32, Ordering::Relaxed);
    }

    /// To the thread of a child that is a process of its own: all that is left of its seat, which
    /// its threads will share, is where they read clocks.
    pub fn is_of_child(&self) {
        self.clocks.store(clocks::entry_alone(), Ordering::SeqCst);
    }

    /// To a thread: it makes this call, which ends there.
    pub fn calls(&self, number: u64, end: u64) {
        self.call_number.store(number, Ordering::Relaxed);
        self.call_end.store(end, Ordering::Relaxed);
    }

    /// To the agent: the call that it made last, and where that ends.
    pub fn last_call(&self) -> (u64, u64) {
        (self.call_number.load(Ordering::Relaxed), self.call_end.load(Ordering::Relaxed))
    }

    /// To a thread: its seat.
    pub fn own() -> &'static Self {
        let seat: *const Self;
        // SAFETY: GS points to the seat, whose first word is its address.
        unsafe {
            std::arch::asm!("mov {}, gs:[0]", out(reg) seat, options(nostack, readonly));
            &*seat
        }
    }
}
