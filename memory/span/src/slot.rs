//! A thread's slot: its requests and answers, flags, pending signal, identity and stacks. The slot
//! has the same index on all nodes.
//!
//! Code on the program's threads uses no libc and no thread area, since both are the program's. A
//! thread finds its slot by the GS base, which programs do not use.
//!
//! The cells of a slot have one owner at a time, by its `state`: the thread while it is FREE or
//! ANSWERED, the agent while it is TAKEN. ASKED and the flags hand cells over.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use libc::{SS_DISABLE, stack_t};

use crate::call::Call;
use crate::context::Context;
use crate::processors::{self, Mask};
use crate::raw;
use crate::request::Request;
use crate::signal::{Signal, send};

/// Slots that are allocated together: one for each bit of a word.
pub const SLOTS_PER_BLOCK: usize = 64;
/// Bytes of a thread's private area: its context, and the stacks of Nagaya's code.
const AREA_BYTES: usize = 256 << 10;
/// No alternate stack, as sigaltstack(2) reports that.
pub const NO_STACK: stack_t =
    stack_t { ss_sp: std::ptr::null_mut(), ss_flags: SS_DISABLE, ss_size: 0 };

/// The registers of a thread that enters a function of the program's vDSO: the function's address,
/// RSP, RDI, RSI, and those that a function preserves.
pub type ClockRegisters = [u64; 10];

/// Addresses of Nagaya's code at which code of the program continues.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// Functions of the program's vDSO.
    pub clocks: u64,
    /// Stubs of patched system-call sites.
    pub calls: u64,
}

/// The offset of [`Slot::call_entry`] from the GS base.
pub const CALL_ENTRY_OFFSET: usize = std::mem::offset_of!(Slot, call_entry);

/// States of the request cell.
const FREE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;
const ANSWERED: u32 = 3;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The answer to its request.
    Answer,
    /// A wake-up from a futex queue, or work for its way back to the program.
    WakeUp,
}

/// A thread's slot.
#[repr(C, align(128))]
pub struct Slot {
    /// Its own address: GS points here.
    itself: u64,
    /// The code at which functions of the program's vDSO continue.
    pub clock_entry: AtomicU64,
    /// The code to which stubs of patched system-call sites jump.
    pub call_entry: AtomicU64,
    /// A call by a stub: the address at which the stub continues, the result, and the program's
    /// stack pointer. `call_leaves` is 1 while the thread asks for a signal frame.
    pub call_return: AtomicU64,
    pub call_result: AtomicU64,
    pub call_stack: AtomicU64,
    pub call_leaves: AtomicU32,
    /// The end of the [stack of Nagaya's handlers](Self::handler_stack).
    pub handlers_end: u64,
    /// The registers with which the thread entered a function of the vDSO.
    pub clock_registers: UnsafeCell<ClockRegisters>,
    /// Pending work for the way back to the program.
    pub flags: AtomicU32,
    /// The thread is in a call that may block, or about to make it.
    pub in_call: AtomicU32,
    signal: UnsafeCell<Signal>,
    /// The signal mask of the thread when it stored a signal, if `has_signal_mask` is 1.
    signal_mask: AtomicU64,
    has_signal_mask: AtomicU32,
    /// The alternate stack that the program has set.
    alternate: UnsafeCell<stack_t>,
    /// The node to which the thread is to move.
    destination: AtomicU32,
    /// The frame of the SIGSYS that caught the thread's call, while Nagaya handles the call.
    caught_frame: AtomicU64,
    /// The stack pointer to which a shadow returns after a fault, or 0.
    pub guard: AtomicU64,
    /// The ID of the kernel thread of this node that uses the slot; the kernel clears it when
    /// that thread has exited.
    live_tid: AtomicU32,
    /// Of a shadow: the signal mask of its thread.
    pub mask: AtomicU64,
    /// The argument of set_robust_list(2), or 0.
    pub robust: AtomicU64,
    /// Its index in the request table.
    pub index: u32,
    state: AtomicU32,
    request: UnsafeCell<Request>,
    answer: UnsafeCell<i64>,
    /// A call for the shadow has been posted.
    call_posted: AtomicU32,
    call: UnsafeCell<Call>,
    /// The thread has been woken from a futex queue, or may start.
    pub woken: AtomicU32,
    /// The node on which the thread runs.
    pub node: AtomicU32,
    /// The thread's ID at the origin, which the program knows.
    pub tid: AtomicI32,
    /// The address of a word to clear when the thread has exited, or 0 (CLONE_CHILD_CLEARTID).
    pub clear_tid: AtomicU64,
    /// The thread's exit status.
    pub status: AtomicI32,
    /// At the origin: the affinity mask that the program has set.
    pub processors: Mask,
    context: *mut Context,
    stack_end: usize,
    /// As `live_tid`, but kept after the kernel thread has exited.
    pub kernel_tid: AtomicI32,
    /// The thread's last system call, and the address after its instruction.
    pub call_number: AtomicU64,
    pub call_end: AtomicU64,
    /// On a node other than the origin, the kernel's selector of syscall user dispatch: 1 while
    /// calls of code that is not Nagaya's are caught.
    pub selector: AtomicU8,
    /// Number of waits that ended while the thread drove the engine, and its processor time for
    /// that, in ns.
    pub drives: AtomicU64,
    pub driven_ns: AtomicU64,
}

// SAFETY: `state`, `call_posted` and the SIGNAL flag give each cell one owner at a time; their
// changes are SeqCst, so the next owner sees what the last one wrote. `alternate` and
// `clock_registers` belong to the slot's thread alone.
unsafe impl Sync for Slot {}
// SAFETY: `context` points into an area that `Slot::allocate_block` maps and that is never
// unmapped, so it is valid on every thread.
unsafe impl Send for Slot {}

impl Slot {
    /// Of the flags: the slot holds a signal.
    pub const SIGNAL: u32 = 1;
    /// Of the flags: the thread is to move to `destination`.
    pub const MOVE: u32 = 2;

    /// Allocates the block of slots that begins with index `first`, and their areas.
    pub fn allocate_block(first: u32, entries: Entries) -> std::io::Result<Box<[Self]>> {
        let bytes = AREA_BYTES * SLOTS_PER_BLOCK;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: without MAP_FIXED the call maps only unused memory.
        let areas = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if areas == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let areas = areas as usize;
        let one = |at: usize| Self::new(first + at as u32, areas + at * AREA_BYTES, entries);
        let mut slots: Box<[Self]> = (0..SLOTS_PER_BLOCK).map(one).collect();
        for slot in &mut slots {
            slot.itself = std::ptr::from_ref(slot) as u64;
        }
        Ok(slots)
    }

    fn new(index: u32, area: usize, entries: Entries) -> Self {
        let mut slot = Self {
            itself: 0,
            clock_entry: AtomicU64::new(entries.clocks),
            call_entry: AtomicU64::new(entries.calls),
            call_return: AtomicU64::new(0),
            call_result: AtomicU64::new(0),
            call_stack: AtomicU64::new(0),
            call_leaves: AtomicU32::new(0),
            handlers_end: 0,
            clock_registers: UnsafeCell::new([0; 10]),
            flags: AtomicU32::new(0),
            in_call: AtomicU32::new(0),
            signal: UnsafeCell::new(Signal::NONE),
            signal_mask: AtomicU64::new(0),
            has_signal_mask: AtomicU32::new(0),
            alternate: UnsafeCell::new(NO_STACK),
            destination: AtomicU32::new(0),
            caught_frame: AtomicU64::new(0),
            guard: AtomicU64::new(0),
            live_tid: AtomicU32::new(0),
            mask: AtomicU64::new(0),
            robust: AtomicU64::new(0),
            index,
            state: AtomicU32::new(FREE),
            request: UnsafeCell::new(Request::Cancel),
            answer: UnsafeCell::new(0),
            call_posted: AtomicU32::new(0),
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
            selector: AtomicU8::new(1),
            drives: AtomicU64::new(0),
            driven_ns: AtomicU64::new(0),
        };
        slot.handlers_end = slot.handler_stack().end as u64;
        slot
    }

    /// By the thread: waits until the last request was taken, and stores the next one.
    pub fn store_request(&self, request: Request) {
        loop {
            match self.state.load(Ordering::SeqCst) {
                FREE => break,
                state => raw::sleep(&self.state, state, None),
            };
        }
        // SAFETY: the state is FREE, so the thread owns the cell.
        unsafe { *self.request.get() = request };
        self.state.store(ASKED, Ordering::SeqCst);
    }

    /// By the thread: waits for the answer to its request.
    pub fn wait_for_answer(&self) -> i64 {
        loop {
            match self.state.load(Ordering::SeqCst) {
                ANSWERED => break,
                state => {
                    debug_assert_ne!(state, FREE, "thread {} has requested nothing", self.index);
                    raw::sleep(&self.state, state, None)
                }
            };
        }
        // SAFETY: the state is ANSWERED, so the thread owns the cell.
        let answer = unsafe { *self.answer.get() };
        self.state.store(FREE, Ordering::Relaxed);
        answer
    }

    /// By the agent: takes the request that the thread has stored.
    ///
    /// # Panics
    /// There is none.
    pub fn take_request(&self) -> Request {
        let state = self.state.load(Ordering::SeqCst);
        assert_eq!(state, ASKED, "thread {} has requested nothing", self.index);
        // SAFETY: the thread does not touch the cell between ASKED and ANSWERED.
        let request = unsafe { *self.request.get() };
        self.state.store(TAKEN, Ordering::Relaxed);
        request
    }

    /// By the agent: answers the request that it has taken. The thread may sleep at
    /// [`answer_word`](Self::answer_word).
    ///
    /// # Panics
    /// It has taken none.
    pub fn store_answer(&self, answer: i64) {
        let state = self.state.load(Ordering::Relaxed);
        assert_eq!(state, TAKEN, "thread {} has requested nothing", self.index);
        // SAFETY: the state is TAKEN, so the agent owns the cell.
        unsafe { *self.answer.get() = answer };
        self.state.store(ANSWERED, Ordering::SeqCst);
    }

    /// The word at which the thread sleeps while it waits for an answer.
    pub fn answer_word(&self) -> &AtomicU32 {
        &self.state
    }

    /// By the agent: it has handled a request that has no answer.
    ///
    /// # Panics
    /// It has taken none.
    pub fn release_request(&self) {
        let state = self.state.load(Ordering::Relaxed);
        assert_eq!(state, TAKEN, "thread {} has requested nothing", self.index);
        self.state.store(FREE, Ordering::SeqCst);
        raw::wake(&self.state);
    }

    /// By the agent: posts a call to the shadow.
    ///
    /// # Panics
    /// The shadow has not taken the last one.
    pub fn post_call(&self, call: Call) {
        let posted = self.call_posted.load(Ordering::SeqCst);
        assert_eq!(posted, 0, "the shadow of thread {} has a call", self.index);
        // SAFETY: `call_posted` is 0, so the shadow does not read the cell.
        unsafe { *self.call.get() = call };
        self.call_posted.store(1, Ordering::SeqCst);
        raw::wake(&self.call_posted);
    }

    /// The futex word that is 0 while no call is posted.
    pub fn call_posted(&self) -> &AtomicU32 {
        &self.call_posted
    }

    /// By the shadow: takes the call that was posted, if any.
    pub fn take_call(&self) -> Option<Call> {
        if self.call_posted.load(Ordering::SeqCst) == 0 {
            return None;
        }
        // SAFETY: the agent posts no other call before `call_posted` is 0.
        let call = unsafe { *self.call.get() };
        self.call_posted.store(0, Ordering::SeqCst);
        Some(call)
    }

    /// Wakes the thread from a futex queue, or lets it start.
    pub fn wake(&self) {
        self.woken.store(1, Ordering::SeqCst);
        raw::wake(&self.woken);
    }

    /// Returns true if the thread has what it waits for.
    pub fn has_got(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Answer => !self.awaits_answer(),
            Awaited::WakeUp => {
                self.woken.load(Ordering::SeqCst) != 0 || self.flags.load(Ordering::SeqCst) != 0
            }
        }
    }

    /// Returns true if the flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::SeqCst) & flag != 0
    }

    /// Clears the flag. Returns true if it was set.
    pub fn clear(&self, flag: u32) -> bool {
        self.flags.fetch_and(!flag, Ordering::SeqCst) & flag != 0
    }

    /// Stores a signal in a slot that holds none.
    pub fn set_signal(&self, signal: &Signal) {
        debug_assert!(!self.has(Self::SIGNAL), "thread {} has a signal", self.index);
        // SAFETY: the SIGNAL flag is not set, so no thread reads the cell.
        unsafe { *self.signal.get() = *signal };
        self.flags.fetch_or(Self::SIGNAL, Ordering::SeqCst);
    }

    /// By the thread: keeps its signal mask, since it blocks all signals until it has handled the
    /// one that the slot holds.
    pub fn keep_mask(&self, mask: u64) {
        self.signal_mask.store(mask, Ordering::Relaxed);
        self.has_signal_mask.store(1, Ordering::Relaxed);
    }

    /// By the thread: takes that mask, if there is one.
    pub fn take_mask(&self) -> Option<u64> {
        let is_kept = self.has_signal_mask.swap(0, Ordering::Relaxed) != 0;
        is_kept.then(|| self.signal_mask.load(Ordering::Relaxed))
    }

    /// Returns the signal that the slot holds.
    pub fn signal(&self) -> Option<Signal> {
        // SAFETY: while the SIGNAL flag is set, no thread writes the cell.
        self.has(Self::SIGNAL).then(|| unsafe { *self.signal.get() })
    }

    /// By the thread: takes the signal that the slot holds.
    pub fn take_signal(&self) -> Option<Signal> {
        let signal = self.signal();
        self.clear(Self::SIGNAL);
        signal
    }

    /// Tells the thread to move to this node.
    pub fn set_destination(&self, node: u32) {
        self.destination.store(node, Ordering::SeqCst);
        self.flags.fetch_or(Self::MOVE, Ordering::SeqCst);
    }

    /// By the thread: takes the node to which it is to move.
    pub fn take_destination(&self) -> Option<u32> {
        self.clear(Self::MOVE).then(|| self.destination.load(Ordering::SeqCst))
    }

    /// By the thread while it blocks SIGSYS: makes it check its flags when it unblocks SIGSYS.
    pub fn recheck_flags(&self) {
        if self.flags.load(Ordering::SeqCst) != 0 {
            send(self.live_tid(), libc::SIGSYS);
        }
    }

    /// By the agent: makes the thread check its flags, at once or after the answer that it awaits.
    pub fn interrupt(&self) {
        let tid = self.live_tid();
        if tid != 0 && !self.awaits_answer() {
            send(tid, libc::SIGSYS);
        }
    }

    /// Returns true if the thread waits for an answer of the agent.
    pub fn awaits_answer(&self) -> bool {
        matches!(self.state.load(Ordering::SeqCst), ASKED | TAKEN)
    }

    /// Returns true if a thread uses the slot and is in no call or request.
    pub fn is_runnable(&self) -> bool {
        self.live_tid() != 0 && !self.awaits_answer() && self.in_call.load(Ordering::SeqCst) == 0
    }

    /// Returns the frame of the SIGSYS that caught the thread's call, or null.
    pub fn caught_frame(&self) -> *mut libc::ucontext_t {
        self.caught_frame.load(Ordering::Relaxed) as *mut libc::ucontext_t
    }

    /// By the thread: sets that frame, or null when the call is over.
    pub fn set_caught_frame(&self, frame: *mut libc::ucontext_t) {
        self.caught_frame.store(frame as u64, Ordering::Relaxed);
    }

    /// Returns the ID of the kernel thread of this node that uses the slot, or 0.
    pub fn live_tid(&self) -> i32 {
        self.live_tid.load(Ordering::SeqCst).cast_signed()
    }

    /// The word to which the kernel writes that ID.
    pub fn live_tid_word(&self) -> &AtomicU32 {
        &self.live_tid
    }

    /// Waits until the kernel thread that used the slot has exited: until then it may use the
    /// slot's stack.
    pub fn wait_until_vacant(&self) {
        loop {
            let tid = self.live_tid.load(Ordering::SeqCst);
            if tid == 0 {
                return;
            }
            // The kernel wakes this word as a shared futex, without FUTEX_PRIVATE_FLAG.
            let arguments =
                [self.live_tid.as_ptr() as u64, libc::FUTEX_WAIT as u64, tid.into(), 0, 0, 0];
            // SAFETY: the word lies in the slot, which is never freed.
            unsafe { raw::call(libc::SYS_futex as u64, arguments) };
        }
    }

    /// Prepares the slot for a new thread.
    pub fn reset(&self) {
        debug_assert_eq!(self.live_tid(), 0, "thread {} is in use", self.index);
        self.flags.store(0, Ordering::SeqCst);
        self.in_call.store(0, Ordering::SeqCst);
        self.woken.store(0, Ordering::SeqCst);
        self.robust.store(0, Ordering::Relaxed);
        self.caught_frame.store(0, Ordering::Relaxed);
        self.guard.store(0, Ordering::Relaxed);
        self.has_signal_mask.store(0, Ordering::Relaxed);
        self.call_leaves.store(0, Ordering::Relaxed);
        self.selector.store(1, Ordering::Relaxed);
        self.drives.store(0, Ordering::Relaxed);
        self.driven_ns.store(0, Ordering::Relaxed);
    }

    /// The context with which the thread starts or resumes, or that goes with a call.
    pub fn context(&self) -> *mut Context {
        self.context
    }

    /// The end of the stack on which Nagaya starts and ends the thread.
    pub fn stack_end(&self) -> usize {
        self.stack_end
    }

    /// The end of the stack on which a child process starts.
    pub fn child_stack_end(&self) -> usize {
        self.stack_end - AREA_BYTES / 2
    }

    /// The stack of Nagaya's signal handlers (`alternate_stack`), between those two.
    pub fn handler_stack(&self) -> Range<usize> {
        self.child_stack_end()..self.stack_end - AREA_BYTES / 8
    }

    /// The program's alternate stack. Only the slot's thread uses it.
    pub fn alternate(&self) -> *mut stack_t {
        self.alternate.get()
    }

    /// By a new thread: uses this slot from now on.
    pub fn attach(&self) {
        /// `ARCH_SET_GS`.
        const SET_GS: u64 = 0x1001;
        // SAFETY: programs do not use the GS base, and `arch_prctl` refuses to let them change it.
        let tid = unsafe {
            raw::call(libc::SYS_arch_prctl as u64, [SET_GS, self.itself, 0, 0, 0, 0]);
            raw::call(libc::SYS_gettid as u64, [0; 6])
        };
        self.kernel_tid.store(tid as i32, Ordering::Relaxed);
    }

    /// By the thread: records the call that it makes, and the address after its instruction.
    pub fn record_call(&self, number: u64, end: u64) {
        self.call_number.store(number, Ordering::Relaxed);
        self.call_end.store(end, Ordering::Relaxed);
    }

    /// Returns the last call that was recorded.
    pub fn last_call(&self) -> (u64, u64) {
        (self.call_number.load(Ordering::Relaxed), self.call_end.load(Ordering::Relaxed))
    }

    /// Returns the slot of the calling thread, which has attached to it.
    pub fn current() -> &'static Self {
        let slot: *const Self;
        // SAFETY: `attach` has set the GS base to the slot, whose first word is its own address;
        // slots are never freed.
        unsafe {
            std::arch::asm!("mov {}, gs:[0]", out(reg) slot, options(nostack, readonly));
            &*slot
        }
    }
}
