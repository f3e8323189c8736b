//! Requests of threads to the agent of their node.

use crate::addresses::Hint;
use crate::call::Call;
use crate::shared::Overlay;

/// A request. Answers follow the convention of system calls: errors are negative.
#[derive(Clone, Copy, Debug)]
#[repr(C, u32)]
pub enum Request {
    /// Make this call at the origin, for a thread of another node. Answer: its result.
    Call(Call),
    /// A shadow has made a call with this result. The agent sends no answer.
    Completed(i64),
    /// Map zero-filled memory near `hint`. `is_file`: it will be filled from a file. Answer: its
    /// address.
    Map { bytes: u64, protection: u32, is_file: bool, hint: Hint },
    /// Map memory at this address. If mappings are there, `replaces` unmaps them; otherwise they
    /// are an error. Answer: the address.
    MapAt { start: u64, bytes: u64, protection: u32, replaces: bool, is_file: bool },
    /// Unmap memory.
    Unmap { start: u64, bytes: u64 },
    /// Reset memory to zeros. Answer: the bytes for which that is done.
    Discard { start: u64, bytes: u64 },
    /// Record the file that is mapped here from `offset` on, for reports. The slot's context
    /// holds its path, `name` bytes long; an empty path means a stack.
    Name { start: u64, bytes: u64, offset: u64, name: u32 },
    /// Change the protection.
    Protect { start: u64, bytes: u64, protection: u32 },
    /// Stubs for the code in these addresses are mapped here; they end with it.
    Stubs { text: [u64; 2], stubs: u64, bytes: u64 },
    /// These bytes of a file are mapped here, read-only: nodes may read their own copy.
    Text { descriptor: i32, start: u64, offset: u64, bytes: u64 },
    /// These bytes of a file will be mapped here, shared and read-only.
    Lease { descriptor: i32, start: u64, offset: u64, bytes: u64 },
    /// Addresses of this thread, with nothing mapped, will show another mapping than the segment.
    Overlay { start: u64, bytes: u64, kind: Overlay },
    /// Answer: the protection of an address, as in mprotect(2), and [`OF_FILE`](Self::OF_FILE) if
    /// a file is mapped there.
    Inspect(u64),
    /// Set what a forked child inherits: one of [`ADVICES`](crate::inherit::ADVICES).
    Inherit { start: u64, bytes: u64, advice: i32 },
    /// Record a segment of System V shared memory. Answer: 0.
    Attach { start: u64, bytes: u64 },
    /// Forget such a segment. Answer: its bytes, or an error if none starts there.
    Detach(u64),
    /// Answer: the end of the heap.
    HeapEnd,
    /// Set the end of the heap. Answer: 0 if that is impossible.
    Break(u64),
    /// Queue the thread at a futex word; it checks the word again before it sleeps.
    Enqueue { word: u64, bits: u32 },
    /// Remove the thread from the queue. Answer: 1, or 0 if it has been woken.
    Cancel,
    /// Wake up to `count` threads that wait at the word for any of the bits. Answer: their number.
    Wake { word: u64, count: u32, bits: u32 },
    /// Wake up to `count` threads, and move up to `moved` others to the queue of another word.
    /// Answer: the number of both.
    Requeue { word: u64, count: u32, to: u64, moved: u32 },
    /// Assign a slot to a new thread. Answer: its index, and its node from bit 32 on.
    PlaceThread,
    /// Release the slot: the thread could not be created.
    ReleaseSlot(u32),
    /// Start the thread of this slot, which holds its context, on its node.
    StartThread(u32),
    /// The thread has exited with this status. Its shadow reports that, too.
    Exited(i32),
    /// From a shadow: the slot holds a signal. Answer: 0 if the thread will acknowledge it, 1 if
    /// the thread is on its way to the origin.
    ForwardSignal,
    /// The program has set the affinity mask of this slot's thread.
    Bind(u32),
    /// Resume the thread on this node, with the context in its slot.
    Move(u32),
    /// Copy all memory, for a child. Answer: the address of the
    /// [`Snapshot`](crate::snapshot::Snapshot), which the thread owns until `ForkDone`.
    Fork,
    /// The fork is over: the child has its copy, or there is no child.
    ForkDone,
    /// End the program with this status. There is no answer.
    Exit(i32),
}

impl Request {
    /// In the answer to [`Inspect`](Self::Inspect): a file is mapped there.
    pub const OF_FILE: i64 = 8;
}
