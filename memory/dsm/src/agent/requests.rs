//! The requests of the node's tasks.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use coherence::message::{NodeId, Page};
use coherence::ride::Carrier;
use coherence::scope::Event;
use coherence::scope::event::{Misuse, Task};
use node::driver::Driver as _;
use node::scope::Scoped as _;

use super::Agent;
use super::tasks::PendingSend;
use crate::ledger::LocalAllocation;
use crate::mailbox::Wanted;
use crate::report::{self, Seen};
use crate::request_table::{ANY_TAG, Counted, Request, Setting};
use crate::settings::Statistics;

impl Agent {
    /// Handles a request of a task.
    pub(super) fn requested(&mut self, task: Task, request: Request) {
        self.tasks[task as usize].message = Vec::new();
        match request {
            Request::Join => self.tasks[task as usize].joins = true,
            Request::Allocate { allocation, caller } => {
                let answer = self.allocate(task, allocation, caller);
                self.reply(task, answer.as_ref().map(|&at| [at, 0]).map_err(String::as_str));
            }
            Request::Acquire(lock) => self.wait(task, Event::Acquire(task, lock)),
            Request::Barrier => {
                let state = &mut self.tasks[task as usize];
                state.is_at_barrier = true;
                state.barriers += 1;
                self.compare_counts();
                self.check_ended();
                self.wait(task, Event::Barrier(task));
                self.check_page_requests();
            }
            Request::Meet => {
                self.wait(task, Event::Meet(task));
                self.check_page_requests();
            }
            Request::Wait(lock) => self.wait(task, Event::Wait(task, lock)),
            Request::Leave | Request::Exit => {
                if request == Request::Exit {
                    self.ends(task);
                }
                self.tasks[task as usize].leaves = true;
                self.wait(task, Event::Meet(task));
                self.check_page_requests();
            }
            Request::Release(lock) => self.at_once(task, Event::Release(task, lock)),
            Request::Set(lock) => self.at_once(task, Event::Set(task, lock)),
            Request::Reset(lock) => self.at_once(task, Event::Reset(task, lock)),
            Request::Configure { option, on } => {
                match option {
                    Setting::Migrate => self.options.migrate = on,
                    Setting::Alone => self.options.alone = on,
                }
                let (migrate, alone) = (self.options.migrate, self.options.alone);
                self.at_once(task, Event::Configure { migrate, alone });
            }
            Request::Send { to, tag, at, bytes } => {
                self.pending_sends.push(PendingSend { task, to, tag, at, bytes });
                self.send_pending();
            }
            Request::Receive { from, tag } => {
                let wanted =
                    Wanted { from: u32::try_from(from).ok(), tag: (tag != ANY_TAG).then_some(tag) };
                if let Some(message) = self.tasks[task as usize].mailbox.take(wanted) {
                    self.deliver(task, message);
                }
                self.check_ended();
            }
            Request::Count { what, to } => {
                let is_there = self.count(what, to);
                self.reply(task, Ok([is_there.into(), 0]));
            }
            Request::ResetCounts => {
                self.pages.node.forget_statistics();
                self.traffic = report::Traffic::default();
                self.pages.twins.diff_bytes = 0;
                self.reply(task, Ok([0, 0]));
            }
            Request::Report => {
                self.report();
                self.reply(task, Ok([0, 0]));
            }
            Request::Abort { status, at, bytes } => {
                // SAFETY: `Task::abort` borrows the line and waits for an answer, which never
                // comes: the process ends first.
                let line = String::from_utf8_lossy(unsafe { bytes_of(at, bytes) }).into_owned();
                self.end(status, &line);
            }
        }
    }

    /// Returns true if this node can grant the request without another node. Its tasks could then
    /// take the lock again and again while other nodes wait for it.
    pub(super) fn can_grant_alone(&self, request: Request) -> bool {
        matches!(request, Request::Acquire(lock) if self.pages.node.manager(lock) == self.options.me)
    }

    /// Passes an event of a task to the protocol. The task resumes when the protocol grants it.
    fn wait(&mut self, task: Task, event: Event) {
        if let Some(misuse) = self.step(event, &mut Vec::new()) {
            self.reply(task, Err(&reason(misuse)));
        }
    }

    /// Passes an event of a task to the protocol. The task resumes at once.
    fn at_once(&mut self, task: Task, event: Event) {
        match self.step(event, &mut Vec::new()) {
            Some(misuse) => self.reply(task, Err(&reason(misuse))),
            None => self.reply(task, Ok([0, 0])),
        }
    }

    /// Answers a task's request, and wakes the task.
    pub(super) fn reply(&mut self, task: Task, answer: Result<[u64; 2], &str>) {
        self.tasks[task as usize].is_at_barrier = false;
        self.waiting -= 1;
        self.table.answer(task, answer);
        if self.driving_task.as_ref().is_some_and(|it| it.sleeps && it.task == task) {
            self.watch.wake_task();
        }
    }

    /// Writes counts to the task's memory. Returns false if there are none.
    fn count(&mut self, what: Counted, to: usize) -> bool {
        /// # Safety
        /// `to` is valid for a write of a `T` until the task's request is answered.
        unsafe fn put<T>(to: usize, value: Option<T>) -> bool {
            let Some(value) = value else { return false };
            // SAFETY: the caller has established that `to` is valid for a `T`.
            unsafe { std::ptr::with_exposed_provenance_mut::<T>(to).write(value) };
            true
        }
        let traffic = self.traffic();
        // SAFETY: `Task::count` passes the address of a `MaybeUninit<T>`, where `T` is the type
        // that goes with `what`, and waits for the answer.
        unsafe {
            match what {
                Counted::Node => put(to, Some(report::totals(&self.pages.node, traffic))),
                Counted::Page(address) => {
                    let page: Option<Page> = self.engine.memory.page_at(address);
                    put(to, page.and_then(|page| report::of_page(&self.pages.node, page)))
                }
                Counted::Lock(lock) => put(to, report::of_lock(&self.pages.node, lock)),
                Counted::Rides(carrier) => {
                    let carrier = Carrier::ALL.get(carrier as usize);
                    put(to, carrier.map(|&it| report::of_carrier(&self.pages.node, Some(it))))
                }
            }
        }
    }

    /// Writes statistics and reports, as the settings say.
    pub(super) fn report(&mut self) {
        let (node, me, now) = (&self.pages.node, self.options.me, self.now());
        let (traffic, page_bytes) = (self.traffic(), self.engine.memory.place().page_bytes);
        let write = |variable: &str, prefix: &str, seen: Option<Seen>| {
            append(variable, prefix, me, |to| {
                report::write_json(to, node, me, traffic, page_bytes, now, seen)
            });
        };
        match &self.statistics {
            Statistics::None => {}
            Statistics::Print => {
                proc::stderr::write(&report::text(node, me, traffic, page_bytes, now));
            }
            Statistics::Files(prefix) => write("STATISTICS", prefix, None),
        }
        if let Some((observer, prefix)) = &self.observer {
            let start = self.engine.memory.place().start;
            let place = |made: &LocalAllocation| {
                let (first, bytes) = made.place(start, page_bytes);
                (first, bytes, made.caller)
            };
            let seen = Seen {
                allocations: self.allocations.iter().map(place).collect(),
                observed: observer.observed(page_bytes),
            };
            write("REPORT", prefix, Some(seen));
        }
    }
}

/// Appends to the file of this node. The environment variable `variable` has the prefix of its
/// path.
fn append(
    variable: &str,
    prefix: &str,
    me: NodeId,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) {
    let path = format!("{prefix}.{me}.json");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let written = file.map(BufWriter::new).and_then(|mut file| {
        write(&mut file)?;
        file.flush()
    });
    if let Err(error) = written {
        proc::error_line!("nagaya: NAGAYA_DSM_{variable}: {path}: {error}");
    }
}

/// Returns the line for a task's misuse.
fn reason(misuse: Misuse) -> String {
    match misuse {
        Misuse::HasIt(lock) => format!("lock {lock}: the task holds it already; unlock it first"),
        Misuse::HasItNot(lock) => format!("lock {lock}: the task does not hold it; lock it first"),
        Misuse::Holds(lock) => {
            format!("the task is at a barrier and holds lock {lock}; unlock it first")
        }
    }
}

/// Returns bytes of a task's memory.
///
/// # Safety
/// The task borrows the bytes, in private memory, until its request is answered, which is after the
/// end of `'a`.
pub(super) unsafe fn bytes_of<'a>(at: usize, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the caller has established that the task borrows these bytes. They are not null,
    // since `bytes` is not 0.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(at), bytes) }
}
