//! Words that PEs write into each other's control blocks, and the meeting of all PEs.

use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use crate::block::{Block, ROUNDS_MAX};
use crate::context;
use crate::job::{Job, Peer};
use crate::remote::operation::Call;
use crate::wait;

/// Stores a value in a word of a PE's control block, and wakes the PE. `word` is that of this
/// PE's block. Stores and operations on the same PE take effect in the order of the calls.
pub fn notify(job: &Job, peer: &Peer, word: &AtomicU64, value: u64) {
    let offset = ptr::from_ref(word).addr() - ptr::from_ref(job.block()).addr();
    assert!(offset < size_of::<Block>(), "a word of this PE's block");
    if peer.is_far() {
        let call = Call { f: "notify", job, context: context::default(), peer };
        return call.notify(offset, value);
    }
    let at = ptr::from_ref(peer.block).wrapping_byte_add(offset).cast::<AtomicU64>();
    // SAFETY: the word lies in the peer's block, which has the layout of this PE's.
    unsafe { &*at }.store(value, SeqCst);
    peer.wake();
}

/// Waits until all PEs have called this. In round r each PE notifies the one at a distance of
/// 2^r (dissemination barrier: Hensgen, Finkel, Manber, 1988). All notifications that a PE gets
/// have arrived when it leaves, so it may end then.
pub fn all(job: &Job) {
    let count = job.block().arrivals[ROUNDS_MAX - 1].0.load(Relaxed) + 1;
    job.block().arrivals[ROUNDS_MAX - 1].0.store(count, Relaxed);
    let mut distance = 1;
    let mut round = 0;
    while distance < job.n {
        let to = &job.peers[(job.me + distance) % job.n];
        notify(job, to, &job.block().arrivals[round].0, count);
        let here = &job.block().arrivals[round].0;
        wait::until(job, || (here.load(Acquire) >= count).then_some(()));
        (distance, round) = (distance * 2, round + 1);
    }
}
