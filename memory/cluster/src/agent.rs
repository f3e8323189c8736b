//! A machine's agent: a thread of the space's owner that brings pages and takes them, tells others
//! of its tasks and hears of theirs. It never touches the memory of tasks as they see it, only the
//! file behind it: nobody would answer its own faults.

use std::collections::{HashSet, VecDeque};
use std::io::Write as _;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use coherence::message::{NodeId, Page};
use coherence::ride::Policy;
use coherence::sequential::message::PAGES_MAX;
use coherence::sequential::{Event, MIGRATORY_MAX, Node, Options};
use net::mesh::{Mesh, Received};
use net::slice;
use node::driver::{Engine, Server as _};
use node::flush::FLUSH;
use node::residency::MIN_RESIDENCE_NS;
use node::sequential::{Replica as _, Sequential};
use pager::Shared;
use pager::shared::PAGE;
use pvas::Control;

use crate::Plan;
use crate::changes::Changes;
use crate::desk::{Desk, Order};
use crate::frame::{Frame, Word};
use crate::pool::Pool;
use crate::pooled::Pooled;
use crate::publish::Blocks;
use crate::tasks::Tasks;

/// What an agent is made of.
pub struct Parts {
    pub control: Control,
    /// The memory of all segments; those of other machines are watched.
    pub shared: Shared,
    /// Where published blocks lie, if machines share memory.
    pub pool: Option<Pool>,
    pub plan: Plan,
    /// All are connected.
    pub mesh: Mesh,
    pub desk: Arc<Desk>,
}

pub struct Agent {
    pub(super) engine: Engine<Shared>,
    pub(super) pages: Sequential,
    pub(super) control: Control,
    /// Device and inode by which mappings of the memory are known.
    pub(super) identity: (u64, u64),
    pub(super) pooled: Option<Pooled>,
    pub(super) plan: Plan,
    pub(super) desk: Arc<Desk>,
    /// Where tasks' questions and orders are told.
    pub(super) signals: OwnedFd,
    pub(super) segment_pages: u64,
    pub(super) blocks: Blocks,
    pub(super) changes: Changes,
    pub(super) tasks: Tasks,
    /// Pages that are closed to who uses them wrongly, and until when: in order.
    pub(super) wrong: VecDeque<(Instant, Page)>,
    pub(super) wrong_pages: HashSet<Page>,
    pub(super) processors: usize,
    pub(super) is_over: bool,
}

impl Agent {
    /// For the calling thread; also its ID, by which it is asked.
    pub fn new(parts: Parts) -> Result<(Self, u32), String> {
        let Parts { control, shared, pool, plan, mesh, desk } = parts;
        let stat = rustix::fs::fstat(&shared).map_err(|why| format!("fstat: {why}"))?;
        let signals = questions().map_err(|why| format!("signalfd: {why}"))?;
        let segment_pages = control.layout().segment_size() / PAGE;
        let mut node = Node::new(Options {
            nodes: plan.names.len() as u32,
            me: plan.me,
            pages_max: PAGES_MAX,
            copies_max: u64::MAX,
            rides: Policy::Runs,
            migratory: MIGRATORY_MAX,
            rest: MIN_RESIDENCE_NS,
        });
        for (owner, ids) in (0..).zip(&plan.ids) {
            let pages = ids.len() as u64 * segment_pages;
            node.step(Event::Allocate { pages, owner, everywhere: false }, 0, &mut Vec::new())
                .expect("only messages are refused");
        }
        let agent = Self {
            // What is not published the protocol must not touch.
            pages: Sequential::new(node),
            engine: Engine::new(shared, Some(mesh)),
            control,
            identity: (stat.st_dev, stat.st_ino),
            pooled: pool.map(Pooled::new),
            plan,
            desk,
            signals,
            segment_pages,
            blocks: Blocks::default(),
            changes: Changes::default(),
            tasks: Tasks::default(),
            wrong: VecDeque::new(),
            wrong_pages: HashSet::new(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
            is_over: false,
        };
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        agent.desk.agent.store(tid, Ordering::Release);
        Ok((agent, tid as u32))
    }

    /// Serves until the job is over.
    pub fn run(mut self, early: Vec<Received>) {
        slice::shorten();
        early.into_iter().for_each(|message| self.handle(message));
        self.serve();
        self.desk.close();
    }

    /// Whose segment a page is in.
    pub(super) fn home(&self, page: Page) -> Option<NodeId> {
        let id = self.id_of(page);
        self.plan.ids.iter().position(|ids| ids.contains(&id)).map(|machine| machine as NodeId)
    }

    /// In whose segment it is.
    pub(super) fn id_of(&self, page: Page) -> u32 {
        (page / self.segment_pages) as u32
    }

    pub(super) fn is_ours(&self, page: Page) -> bool {
        self.home(page) == Some(self.plan.me)
    }

    pub(super) fn send(&mut self, to: NodeId, frame: Frame, body: Vec<u8>) {
        self.engine.send(to, &frame.bytes(), body);
    }

    pub(super) fn say(&mut self, to: NodeId, word: Word) {
        self.send(to, Frame::Word(word), Vec::new());
    }

    /// All other machines.
    pub(super) fn others(&self) -> impl Iterator<Item = NodeId> + use<> {
        let me = self.plan.me;
        (0..self.plan.names.len() as NodeId).filter(move |&machine| machine != me)
    }

    pub(super) fn tell_others(&mut self, word: Word) {
        self.others().for_each(|machine| self.say(machine, word));
    }

    /// Takes what another machine says.
    pub(super) fn handle(&mut self, message: Received) {
        let Received { from, header, body } = message;
        match Frame::parse(&header) {
            Some(Frame::Page(_) | Frame::Letters) if self.pooled.is_some() => {
                self.nonsense(from, "pages, which lie in the pool");
            }
            Some(Frame::Page(header)) => self.receive(from, header, &body),
            Some(Frame::Letters) => self.receive_batch(from, &body),
            Some(Frame::Word(word)) => self.handle_word(from, word, body),
            None => self.nonsense(from, "a header"),
        }
    }

    fn handle_word(&mut self, from: NodeId, word: Word, body: Vec<u8>) {
        match word {
            Word::Alive => {}
            Word::Look { page } => self.look(from, page),
            Word::Seen { block, chunk } => self.seen(from, block, chunk, &body),
            Word::Close { change, first, pages } => self.close(from, change, first, pages),
            Word::Renew { change, first, pages } => self.renew(from, change, first, pages),
            Word::Mapped { change, first, pages } => self.mapped(from, change, first, pages),
            Word::Open { first, pages } => self.open(from, first, pages),
            Word::Done { change } => self.done(from, change),
            Word::Task { .. } | Word::Forgotten { .. } | Word::Event => {
                self.record_tasks(from, word)
            }
            Word::Wake { address } => self.wakes(from, address),
            Word::Print { stream } if self.plan.me == 0 => self.tasks.print(stream, body),
            Word::Signal { signal } if from == 0 => {
                // SAFETY: as if somebody had sent it to us.
                unsafe { libc::kill(libc::getpid(), signal) };
            }
            Word::Finish { status } if self.plan.me == 0 => self.finished(from, status),
            Word::Fail { status } if self.plan.me == 0 => self.kill_all(status),
            Word::Kill if from == 0 => self.desk.learn(|outcome| outcome.kill = true),
            Word::Lost { machine }
                if self.plan.me == 0 && self.others().any(|it| it == machine) =>
            {
                self.lost(machine, "another has lost it")
            }
            Word::End if from == 0 => {
                self.is_over = true;
                self.desk.learn(|outcome| outcome.over = true);
            }
            _ => self.nonsense(from, "a word"),
        }
    }

    pub(super) fn ordered(&mut self, order: Order) {
        match order {
            Order::Ended(id, done) => self.ended(id, done),
            Order::Cleared(id, done) => self.cleared(id, done),
            Order::Loaded(id, done) => {
                self.loaded(id);
                drop(done);
            }
            Order::Look => self.look_at_tasks(),
            Order::Print(stream, bytes) => match self.plan.me {
                0 => self.tasks.print(stream, bytes),
                _ => self.send(0, Frame::Word(Word::Print { stream }), bytes),
            },
            Order::Signal(signal) => self.tell_others(Word::Signal { signal }),
            Order::Finish(status) => match self.plan.me {
                0 => self.finished(0, status),
                _ => self.say(0, Word::Finish { status }),
            },
            Order::Fail(status) => match self.plan.me {
                0 => self.kill_all(status),
                _ => self.say(0, Word::Fail { status }),
            },
            Order::Stop => self.is_over = true,
            Order::End(done) => {
                self.tell_others(Word::End);
                self.flush();
                self.is_over = true;
                drop(done);
            }
        }
    }

    fn finished(&mut self, machine: NodeId, status: i32) {
        let machines = self.plan.names.len();
        self.desk.learn(|outcome| {
            outcome.statuses.resize(machines, None);
            outcome.statuses[machine as usize] = Some(status);
        });
    }

    /// On the first machine: all tasks are to be killed, as one has failed.
    fn kill_all(&mut self, status: i32) {
        self.tell_others(Word::Kill);
        self.desk.learn(|outcome| {
            outcome.kill = true;
            outcome.failure.get_or_insert(status);
        });
    }

    /// Sends what is queued.
    fn flush(&mut self) {
        if let Some(mesh) = &mut self.engine.mesh {
            FLUSH.run(mesh);
        }
    }

    /// A machine is gone before its time: the job is over, and the first machine says so.
    pub(super) fn lost(&mut self, machine: NodeId, why: &str) {
        let name = &self.plan.names[machine as usize];
        if self.is_over || self.desk.outcome().lost {
            return;
        }
        match self.plan.me {
            0 => {
                let _ = writeln!(std::io::stderr(), "nagaya: {name} is lost: {why}");
                self.tell_others(Word::End);
                self.flush();
            }
            _ if machine != 0 => return self.say(0, Word::Lost { machine }),
            _ => {}
        }
        self.give_up();
    }

    /// This machine cannot go on.
    pub(super) fn fails(&mut self, why: &str) {
        let _ = writeln!(
            std::io::stderr(),
            "nagaya: {}: {why}",
            self.plan.names[self.plan.me as usize]
        );
        self.give_up();
    }

    /// Ends all tasks, which may be stopped at pages that never come.
    fn give_up(&mut self) {
        self.is_over = true;
        self.desk.learn(|outcome| {
            outcome.lost = true;
            outcome.kill = true;
            outcome.over = true;
        });
    }

    /// Who says such a thing is mad, or bad.
    pub(super) fn nonsense(&mut self, from: NodeId, what: &str) {
        let name = self.plan.names[from as usize].clone();
        self.fails(&format!("{name} says {what}, which makes no sense: an error of nagaya"));
    }
}

/// Where tasks' signals to this thread are read.
fn questions() -> std::io::Result<OwnedFd> {
    let set = 1u64 << (libc::SIGURG - 1);
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: eight-byte sets, as the kernel's are; a new descriptor.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const set, 0, 8);
        match libc::syscall(libc::SYS_signalfd4, -1, &raw const set, 8, flags) {
            fd if fd < 0 => Err(std::io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
        }
    }
}
