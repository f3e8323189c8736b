//! A task as its program sees it. Each operation takes virtual time, in which the rest of the
//! cluster continues.
//!
//! The task of a program is a future. An operation stores its parameters and suspends the future.
//! The [machine](crate::machine) resumes the future when the operation is done.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use coherence::message::Lock;

use crate::frames::{Access, Frames};

/// An operation of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Computes for this number of nanoseconds.
    Compute(u64),
    /// Reads or writes these bytes.
    Touch(Range<u64>, Access),
    /// Acquires a lock.
    Lock(Lock),
    /// Releases a lock.
    Unlock(Lock),
    /// Waits at a barrier.
    Barrier,
    /// Sets a condition variable.
    Set(Lock),
    /// Resets a condition variable.
    Reset(Lock),
    /// Waits until a condition variable is set.
    Wait(Lock),
    /// Waits at a barrier without consistency.
    Meet,
    /// The measured part of the program starts (true) or ends here.
    Mark(bool),
}

/// A task from its start to its end.
pub type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A task.
#[derive(Clone)]
pub struct Task {
    /// The index of the task among all tasks.
    pub task: u64,
    /// Number of all tasks.
    pub tasks: u64,
    /// Size of a page in bytes.
    pub page_bytes: u64,
    operation: Rc<Cell<Option<Operation>>>,
    failure: Rc<Cell<Option<String>>>,
    frames: Rc<RefCell<Frames>>,
}

impl Task {
    pub(crate) fn new(task: u64, tasks: u64, page_bytes: u64, frames: Rc<RefCell<Frames>>) -> Self {
        Self { task, tasks, page_bytes, operation: Rc::default(), failure: Rc::default(), frames }
    }

    /// Takes the operation of a suspended task.
    pub(crate) fn take_operation(&self) -> Option<Operation> {
        self.operation.take()
    }

    /// Takes the failure that the task has reported.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.failure.take()
    }

    /// Reports a failure of the program, which ends the run.
    pub fn fail(&self, what: String) {
        self.failure.set(Some(what));
    }

    /// Performs an operation.
    async fn perform(&self, operation: Operation) {
        self.operation.set(Some(operation));
        let mut is_suspended = false;
        poll_fn(|_| match std::mem::replace(&mut is_suspended, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Computes `times` iterations of `ns` nanoseconds each.
    pub async fn compute(&self, times: u64, ns: f64) {
        self.perform(Operation::Compute((times as f64 * ns) as u64)).await;
    }

    /// Reads all of the bytes.
    pub async fn read(&self, bytes: Range<u64>) {
        if !bytes.is_empty() {
            self.perform(Operation::Touch(bytes, Access::Read)).await;
        }
    }

    /// Writes all of the bytes.
    pub async fn write(&self, bytes: Range<u64>) {
        if !bytes.is_empty() {
            self.perform(Operation::Touch(bytes, Access::Write)).await;
        }
    }

    /// Reads and then writes all of the bytes, page by page, as `x += y` does.
    pub async fn read_and_write(&self, bytes: Range<u64>) {
        for piece in self.pages(bytes) {
            self.read(piece.clone()).await;
            self.write(piece).await;
        }
    }

    /// Splits bytes at the borders of pages.
    pub fn pages(&self, bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let size = self.page_bytes;
        // An empty range has no pieces, even in the middle of a page.
        let end = if bytes.is_empty() { bytes.start / size } else { bytes.end.div_ceil(size) };
        (bytes.start / size..end)
            .map(move |page| bytes.start.max(page * size)..bytes.end.min((page + 1) * size))
    }

    /// Reads bytes and returns them.
    pub async fn load(&self, bytes: Range<u64>) -> Vec<u8> {
        let mut all = Vec::with_capacity((bytes.end - bytes.start) as usize);
        for piece in self.pages(bytes) {
            self.read(piece.clone()).await;
            all.extend(self.frames.borrow_mut().load(piece));
        }
        all
    }

    /// Writes these bytes at the address `at`.
    pub async fn store(&self, at: u64, bytes: &[u8]) {
        for piece in self.pages(at..at + bytes.len() as u64) {
            let from = (piece.start - at) as usize..(piece.end - at) as usize;
            self.write(piece.clone()).await;
            self.frames.borrow_mut().store(piece.start, &bytes[from]);
        }
    }

    /// Reads bytes, changes them by `change` and writes them, page by page.
    pub async fn update(&self, bytes: Range<u64>, mut change: impl FnMut(u64, &mut [u8])) {
        for piece in self.pages(bytes) {
            self.read(piece.clone()).await;
            self.write(piece.clone()).await;
            let mut frames = self.frames.borrow_mut();
            let mut now = frames.load(piece.clone());
            change(piece.start, &mut now);
            frames.store(piece.start, &now);
        }
    }

    /// Acquires a lock.
    pub async fn lock(&self, lock: Lock) {
        self.perform(Operation::Lock(lock)).await;
    }

    /// Releases a lock.
    pub async fn unlock(&self, lock: Lock) {
        self.perform(Operation::Unlock(lock)).await;
    }

    /// Waits at a barrier for all tasks.
    pub async fn barrier(&self) {
        self.perform(Operation::Barrier).await;
    }

    /// Sets a condition variable.
    pub async fn set(&self, variable: Lock) {
        self.perform(Operation::Set(variable)).await;
    }

    /// Resets a condition variable.
    pub async fn reset(&self, variable: Lock) {
        self.perform(Operation::Reset(variable)).await;
    }

    /// Waits until a condition variable is set.
    pub async fn wait(&self, variable: Lock) {
        self.perform(Operation::Wait(variable)).await;
    }

    /// Waits for all tasks, at a barrier without consistency.
    pub async fn meet(&self) {
        self.perform(Operation::Meet).await;
    }

    /// Starts the measured part of the program. The first task calls this after a barrier.
    pub async fn start(&self) {
        self.perform(Operation::Mark(true)).await;
    }

    /// Ends the measured part of the program.
    pub async fn stop(&self) {
        self.perform(Operation::Mark(false)).await;
    }
}
