//! A task as its program sees it: each of its operations takes virtual time, during which the
//! rest of the cluster goes on.
//!
//! A program's task is a future. An operation leaves word of what is wanted and gives way; the
//! [machine](crate::machine) lets the future go on when that has been done.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use coherence::message::Lock;

use crate::frames::{Access, Frames};

/// What a task wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// To work for so many nanoseconds.
    Compute(u64),
    /// To read or write these bytes.
    Touch(Range<u64>, Access),
    /// A lock.
    Lock(Lock),
    /// To give it back.
    Unlock(Lock),
    /// A barrier.
    Barrier,
    /// To set a condition variable.
    Set(Lock),
    /// To reset it.
    Reset(Lock),
    /// To wait until it is set.
    Wait(Lock),
    /// To wait for all others, without consistency.
    Meet,
    /// The part of the program that is timed begins (true) or ends here.
    Mark(bool),
}

/// A task's whole life.
pub type Life = Pin<Box<dyn Future<Output = ()>>>;

/// A task.
#[derive(Clone)]
pub struct Me {
    /// Its number among all.
    pub task: u64,
    /// How many there are.
    pub tasks: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    wants: Rc<Cell<Option<Op>>>,
    wrong: Rc<Cell<Option<String>>>,
    frames: Rc<RefCell<Frames>>,
}

impl Me {
    pub(crate) fn new(task: u64, tasks: u64, page_bytes: u64, frames: Rc<RefCell<Frames>>) -> Self {
        Self { task, tasks, page_bytes, wants: Rc::default(), wrong: Rc::default(), frames }
    }

    /// What the task wants, if its future has given way.
    pub(crate) fn wanted(&self) -> Option<Op> {
        self.wants.take()
    }

    /// What the task has found to be wrong.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.wrong.take()
    }

    /// Something is not as it must be: the run ends.
    pub fn wrong(&self, what: String) {
        self.wrong.set(Some(what));
    }

    async fn done(&self, op: Op) {
        self.wants.set(Some(op));
        let mut asked = false;
        poll_fn(|_| match std::mem::replace(&mut asked, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    /// Works: `times` that take `ns` nanoseconds each.
    pub async fn compute(&self, times: u64, ns: f64) {
        self.done(Op::Compute((times as f64 * ns) as u64)).await;
    }

    /// Reads all of the bytes.
    pub async fn read(&self, bytes: Range<u64>) {
        if !bytes.is_empty() {
            self.done(Op::Touch(bytes, Access::Read)).await;
        }
    }

    /// Writes all of the bytes.
    pub async fn write(&self, bytes: Range<u64>) {
        if !bytes.is_empty() {
            self.done(Op::Touch(bytes, Access::Write)).await;
        }
    }

    /// Reads and writes all of the bytes, as `x += y` does, which reads first.
    pub async fn read_and_write(&self, bytes: Range<u64>) {
        for piece in self.pages(bytes) {
            self.read(piece.clone()).await;
            self.write(piece).await;
        }
    }

    /// The bytes, page by page.
    pub fn pages(&self, bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let size = self.page_bytes;
        // Of nothing there are none, wherever it lies in a page.
        let end = if bytes.is_empty() { bytes.start / size } else { bytes.end.div_ceil(size) };
        (bytes.start / size..end)
            .map(move |page| bytes.start.max(page * size)..bytes.end.min((page + 1) * size))
    }

    /// Reads the bytes, and answers what stands there.
    pub async fn load(&self, bytes: Range<u64>) -> Vec<u8> {
        let mut all = Vec::with_capacity((bytes.end - bytes.start) as usize);
        for piece in self.pages(bytes) {
            self.read(piece.clone()).await;
            all.extend(self.frames.borrow_mut().load(piece));
        }
        all
    }

    /// Writes bytes there.
    pub async fn store(&self, at: u64, bytes: &[u8]) {
        for piece in self.pages(at..at + bytes.len() as u64) {
            let from = (piece.start - at) as usize..(piece.end - at) as usize;
            self.write(piece.clone()).await;
            self.frames.borrow_mut().store(piece.start, &bytes[from]);
        }
    }

    /// Lets `change` change what stands there: page by page, read first.
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

    /// Takes a lock.
    pub async fn lock(&self, lock: Lock) {
        self.done(Op::Lock(lock)).await;
    }

    /// Gives a lock back.
    pub async fn unlock(&self, lock: Lock) {
        self.done(Op::Unlock(lock)).await;
    }

    /// Waits at a barrier for all tasks.
    pub async fn barrier(&self) {
        self.done(Op::Barrier).await;
    }

    /// Sets a condition variable.
    pub async fn set(&self, variable: Lock) {
        self.done(Op::Set(variable)).await;
    }

    /// Resets a condition variable.
    pub async fn reset(&self, variable: Lock) {
        self.done(Op::Reset(variable)).await;
    }

    /// Waits until a condition variable is set.
    pub async fn wait(&self, variable: Lock) {
        self.done(Op::Wait(variable)).await;
    }

    /// Waits for all tasks; nothing becomes consistent.
    pub async fn meet(&self) {
        self.done(Op::Meet).await;
    }

    /// What is timed begins here. (The first task says so, after a barrier.)
    pub async fn start(&self) {
        self.done(Op::Mark(true)).await;
    }

    /// What is timed ends here.
    pub async fn stop(&self) {
        self.done(Op::Mark(false)).await;
    }
}
