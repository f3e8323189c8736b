//! Deferred requests: they are answered later, not when their operation returns. So one thread can
//! have any number of requests in progress, such as messages that it waits for.
//!
//! The requester is held until then. One hold word serves all deferred requests of one requester.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use control::hold::Hold;
use control::{Identity, ThisTask};
use rustix::io::Errno;

use crate::delegatee::{CANCELLED, Job};
use crate::queue;
use crate::record::Record;

/// A requester with deferred requests, and their number.
struct Keeping {
    requester: Identity,
    requests: usize,
    _hold: Hold,
}

static KEEPING: Mutex<Vec<Keeping>> = Mutex::new(Vec::new());

/// Holds the requester for one more request. An operation must work for that requester.
fn keep(task: &ThisTask, requester: Identity) -> Result<(), Errno> {
    let mut keeping = KEEPING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = keeping.iter_mut().find(|known| known.requester == requester) {
        known.requests += 1;
        return Ok(());
    }
    // The operation holds the requester by an earlier word, so it cannot end before this hold.
    let hold = task.hold_on(requester, queue::KEEP).map_err(|_| Errno::AGAIN)?;
    keeping.push(Keeping { requester, requests: 1, _hold: hold });
    Ok(())
}

/// Holds the requester for one request less.
fn release(requester: Identity) {
    let mut keeping = KEEPING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(index) = keeping.iter().position(|known| known.requester == requester) {
        debug_assert!(keeping[index].requests > 0, "more answers than deferred requests");
        keeping[index].requests -= 1;
        if keeping[index].requests == 0 {
            keeping.swap_remove(index);
        }
    }
}

/// A deferred request. If it is dropped without an answer, the answer is that it was cancelled.
#[derive(Debug)]
pub struct Kept {
    job: Job<'static>,
    _payload: Box<[u64]>,
    result: i64,
}

impl Job<'_> {
    /// Defers the request beyond its operation, whose result is then ignored. Errors: EALREADY,
    /// EAGAIN (the hold words are used up).
    pub fn keep(&self) -> Result<Kept, Errno> {
        if self.is_deferred.load(Relaxed) {
            return Err(Errno::ALREADY);
        }
        keep(&self.task, self.requester)?;
        self.is_deferred.store(true, Relaxed);
        let mut words =
            vec![0u64; self.payload.len().div_ceil(size_of::<u64>())].into_boxed_slice();
        let at = words.as_mut_ptr().cast::<u8>();
        // SAFETY: `words` has room for the payload, is not shared, and does not move: `Kept` has
        // both it and the job. The record remains mapped because `keep` holds the requester.
        let (payload, record) = unsafe {
            at.copy_from_nonoverlapping(self.payload.as_ptr(), self.payload.len());
            let record: *const Record = self.record;
            (std::slice::from_raw_parts(at, self.payload.len()), &*record)
        };
        let job = Job { payload, record, is_deferred: AtomicBool::new(true), ..*self };
        Ok(Kept { job, _payload: words, result: CANCELLED })
    }
}

impl Kept {
    /// Returns the request.
    pub fn job(&self) -> &Job<'_> {
        &self.job
    }

    /// Answers with a result that is not negative, or a negative errno.
    pub fn answer(mut self, result: i64) {
        self.result = result;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.job.record.give(self.result);
        release(self.job.requester);
    }
}
