//! The node of each PE, which all PEs know alike.

use std::sync::atomic::Ordering::{Acquire, Release};

use crate::atomic::{Op, perform};
use crate::collectives::area;
use crate::context;
use crate::job::Job;
use crate::rma;

/// Tells all PEs the node of this one. Before they use it, they must meet.
pub fn announce(f: &str, job: &Job) {
    area::prepare(job);
    let first = job.peers.iter().position(|peer| !peer.is_far()).unwrap_or(job.me) as u64;
    let word = area::node(job, job.me);
    if job.peers.iter().all(|peer| !peer.is_far()) {
        return;
    }
    word.store(first, Release);
    let object = std::ptr::from_ref(word).cast_mut().cast();
    for pe in (0..job.n).filter(|&pe| pe != job.me) {
        perform::<u64>(f, context::default(), Op::Set, object, [first, 0], pe as i32);
    }
    rma::quiet();
}

/// Returns the node of a PE: the number of the first PE there.
pub fn node(job: &Job, pe: usize) -> usize {
    area::node(job, pe).load(Acquire) as usize
}
