//! Requests that are answered later, not when their operation returns: one thread can have any
//! number of them on their way, such as messages that it waits for.
//!
//! Until then the requester is held. One word serves all requests of one requester that are
//! kept, however many.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use control::hold::Hold;
use control::{Identity, ThisTask};
use rustix::io::Errno;

use crate::delegatee::{CANCELLED, Job};
use crate::queue;
use crate::record::Record;

/// A requester of whom we keep so many requests.
struct Keeping {
    whom: Identity,
    requests: usize,
    _hold: Hold,
}

static KEEPING: Mutex<Vec<Keeping>> = Mutex::new(Vec::new());

/// Holds the requester, in whose memory an operation is, for one request more.
fn keep(task: &ThisTask, whom: Identity) -> Result<(), Errno> {
    let mut keeping = KEEPING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = keeping.iter_mut().find(|known| known.whom == whom) {
        known.requests += 1;
        return Ok(());
    }
    // The operation holds it, too, by an earlier word.
    let hold = task.hold_on(whom, queue::KEEP).map_err(|_| Errno::AGAIN)?;
    keeping.push(Keeping { whom, requests: 1, _hold: hold });
    Ok(())
}

/// And for one less.
fn release(whom: Identity) {
    let mut keeping = KEEPING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(index) = keeping.iter().position(|known| known.whom == whom) {
        keeping[index].requests -= 1;
        if keeping[index].requests == 0 {
            keeping.swap_remove(index);
        }
    }
}

/// A request that is kept. Without an answer it is answered as cancelled when it goes.
#[derive(Debug)]
pub struct Kept {
    job: Job<'static>,
    _payload: Box<[u64]>,
    result: i64,
}

impl Job<'_> {
    /// Keeps the request beyond its operation, whose result is then not looked at. Errors:
    /// EALREADY, EAGAIN (as many requesters as there are words are held).
    pub fn keep(&self) -> Result<Kept, Errno> {
        if self.handed_on.load(Relaxed) {
            return Err(Errno::ALREADY);
        }
        keep(&self.task, self.requester)?;
        self.handed_on.store(true, Relaxed);
        let mut words =
            vec![0u64; self.payload.len().div_ceil(size_of::<u64>())].into_boxed_slice();
        let at = words.as_mut_ptr().cast::<u8>();
        // SAFETY: room for as many bytes, which nobody else uses, and which stays where it is
        // as long as the job that is made of it; so does the record, by the hold.
        let (payload, record) = unsafe {
            at.copy_from_nonoverlapping(self.payload.as_ptr(), self.payload.len());
            let record: *const Record = self.record;
            (std::slice::from_raw_parts(at, self.payload.len()), &*record)
        };
        let job = Job { payload, record, handed_on: AtomicBool::new(true), ..*self };
        Ok(Kept { job, _payload: words, result: CANCELLED })
    }
}

impl Kept {
    /// The request.
    pub fn job(&self) -> &Job<'_> {
        &self.job
    }

    /// Answers: not negative, or a negative errno.
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
