//! What the node's tasks ask for.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use coherence::message::{NodeId, Page};
use coherence::ride::Carrier;
use coherence::scope::Event;
use coherence::scope::event::{Misuse, Task};
use node::driver::Driver as _;

use super::Agent;
use super::allocations::Made;
use super::letters::Post;
use crate::desk::{ANY_TAG, Counted, Request, Setting};
use crate::mail::Wanted;
use crate::report::{self, Seen};
use crate::settings::Statistics;

impl Agent {
    pub(super) fn requested(&mut self, task: Task, request: Request) {
        self.seats[task as usize].letter = Vec::new();
        match request {
            Request::Join => self.seats[task as usize].joins = true,
            Request::Allocate { allocation, caller } => {
                let answer = self.allocate(task, allocation, caller);
                self.reply(task, answer.as_ref().map(|&at| [at, 0]).map_err(String::as_str));
            }
            Request::Acquire(lock) => self.wait(task, Event::Acquire(task, lock)),
            Request::Barrier => {
                let seat = &mut self.seats[task as usize];
                seat.is_at_barrier = true;
                seat.barriers += 1;
                self.compare_counts();
                self.check_ended();
                self.wait(task, Event::Barrier(task));
                self.check_asked();
            }
            Request::Meet => {
                self.wait(task, Event::Meet(task));
                self.check_asked();
            }
            Request::Wait(lock) => self.wait(task, Event::Wait(task, lock)),
            Request::Leave | Request::Exit => {
                if request == Request::Exit {
                    self.ends(task);
                }
                self.seats[task as usize].leaves = true;
                self.wait(task, Event::Meet(task));
                self.check_asked();
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
                self.posts.push(Post { task, to, tag, at, bytes });
                self.post_what_may_go();
            }
            Request::Receive { from, tag } => {
                let wanted =
                    Wanted { from: u32::try_from(from).ok(), tag: (tag != ANY_TAG).then_some(tag) };
                if let Some(letter) = self.seats[task as usize].letters.take(wanted) {
                    self.deliver(task, letter);
                }
                self.check_ended();
            }
            Request::Count { what, to } => {
                let is_there = self.count(what, to);
                self.reply(task, Ok([is_there.into(), 0]));
            }
            Request::CountAnew => {
                self.node.forget_statistics();
                self.traffic = report::Traffic::default();
                self.copies.changed = 0;
                self.reply(task, Ok([0, 0]));
            }
            Request::Report => {
                self.report();
                self.reply(task, Ok([0, 0]));
            }
            Request::Abort { status, at, bytes } => {
                // SAFETY: as above.
                let line = String::from_utf8_lossy(unsafe { bytes_of(at, bytes) }).into_owned();
                self.end(status, &line);
            }
        }
    }

    /// Whether nobody need be asked, so that a task could have it again and again while others
    /// ask for it in vain.
    pub(super) fn is_ours_to_give(&self, request: Request) -> bool {
        matches!(request, Request::Acquire(lock) if self.node.manager(lock) == self.options.me)
    }

    /// The task goes on when it is granted.
    fn wait(&mut self, task: Task, event: Event) {
        if let Some(misuse) = self.step(event, &mut Vec::new()) {
            self.reply(task, Err(&misuse));
        }
    }

    /// The task goes on at once.
    fn at_once(&mut self, task: Task, event: Event) {
        match self.step(event, &mut Vec::new()) {
            Some(misuse) => self.reply(task, Err(&misuse)),
            None => self.reply(task, Ok([0, 0])),
        }
    }

    /// The task goes on, if it waits for a grant.
    pub(super) fn granted(&mut self, task: Task) {
        let seat = &mut self.seats[task as usize];
        if std::mem::take(&mut seat.leaves) {
            seat.has_left = true;
        }
        self.reply(task, Ok([0, 0]));
    }

    pub(super) fn reply(&mut self, task: Task, answer: Result<[u64; 2], &str>) {
        self.seats[task as usize].is_at_barrier = false;
        self.waiting -= 1;
        self.desk.answer(task, answer);
        if self.driven.as_ref().is_some_and(|it| it.sleeps && it.task == task) {
            self.watch.call_task();
        }
    }

    /// Writes numbers to the task's memory; whether there are any.
    fn count(&mut self, what: Counted, to: usize) -> bool {
        /// # Safety
        /// A task waits, and has such a place for us there.
        unsafe fn put<T>(to: usize, value: Option<T>) -> bool {
            let Some(value) = value else { return false };
            // SAFETY: as the caller promises.
            unsafe { std::ptr::with_exposed_provenance_mut::<T>(to).write(value) };
            true
        }
        let traffic = self.traffic();
        // SAFETY: `Task::count` makes the place that fits.
        unsafe {
            match what {
                Counted::Node => put(to, Some(report::totals(&self.node, traffic))),
                Counted::Page(address) => {
                    let page: Option<Page> = self.engine.memory.page_at(address);
                    put(to, page.and_then(|page| report::of_page(&self.node, page)))
                }
                Counted::Lock(lock) => put(to, report::of_lock(&self.node, lock)),
                Counted::Rides(carrier) => {
                    let carrier = Carrier::ALL.get(carrier as usize);
                    put(to, carrier.map(|&it| report::of_carrier(&self.node, Some(it))))
                }
            }
        }
    }

    /// Says what was counted, where the settings want it.
    pub(super) fn report(&mut self) {
        let (node, me, now) = (&self.node, self.options.me, self.now());
        let (traffic, page_bytes) = (self.traffic(), self.engine.memory.place().page_bytes);
        let write = |variable: &str, beginning: &str, seen: Option<Seen>| {
            append(variable, beginning, me, |to| {
                report::write_json(to, node, me, traffic, page_bytes, now, seen)
            });
        };
        match &self.statistics {
            Statistics::None => {}
            Statistics::Print => drop(write!(
                std::io::stderr(),
                "{}",
                report::text(node, me, traffic, page_bytes, now)
            )),
            Statistics::Files(beginning) => write("STATISTICS", beginning, None),
        }
        if let Some((observer, beginning)) = &self.observer {
            let start = self.engine.memory.place().start;
            let place = |made: &Made| {
                let (first, bytes) = made.place(start, page_bytes);
                (first, bytes, made.caller)
            };
            let seen = Seen {
                allocations: self.allocations.iter().map(place).collect(),
                observed: observer.observed(page_bytes),
            };
            write("REPORT", beginning, Some(seen));
        }
    }
}

/// Appends to the file of this node. The environment variable `variable` has the beginning of its
/// path.
fn append(
    variable: &str,
    beginning: &str,
    me: NodeId,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) {
    let path = format!("{beginning}.{me}.json");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let written = file.map(BufWriter::new).and_then(|mut file| {
        write(&mut file)?;
        file.flush()
    });
    if let Err(error) = written {
        let _ = writeln!(std::io::stderr(), "nagaya: NAGAYA_DSM_{variable}: {path}: {error}");
    }
}

/// In words.
pub(super) fn reason(misuse: Misuse) -> String {
    match misuse {
        Misuse::HasIt(lock) => format!("lock {lock}: the task has it already; unlock it first"),
        Misuse::HasItNot(lock) => format!("lock {lock}: the task has it not; lock it first"),
        Misuse::Holds(lock) => {
            format!("the task goes to a barrier and holds lock {lock}; unlock it first")
        }
    }
}

/// # Safety
/// The task that says so waits, and the bytes are in its private memory.
pub(super) unsafe fn bytes_of<'a>(at: usize, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(at), bytes) }
}
