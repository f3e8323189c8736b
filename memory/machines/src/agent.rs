//! A machine's agent: a thread of the space's owner that brings pages and takes them, tells others
//! of its tasks and hears of theirs. It never touches the memory of tasks as they see it, only the
//! file behind it: nobody would answer its own faults.

use std::collections::{HashSet, VecDeque};
use std::io::Write as _;
use std::iter;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use coherence::message::{NodeId, Page};
use coherence::ride::Policy;
use coherence::sequential::message::{PAGES_MAX, Pages, letters, parse};
use coherence::sequential::{Action, Event, MIGRATORY_MAX, Node, Options};
use launch::control;
use net::mesh::{Gone, Mesh, Said};
use net::patience::Patience;
use net::slice;
use pager::shared::PAGE;
use pager::{Fault, Shared};
use pvas::Control;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Plan;
use crate::changes::Changes;
use crate::desk::{Desk, Order};
use crate::frame::{Frame, Word};
use crate::pool::Pool;
use crate::pooled::Pooled;
use crate::publish::Blocks;
use crate::tasks::Tasks;

/// Messages that are taken before tasks are looked after.
const MESSAGES: usize = 64;
/// How long the end waits for what it has said to be sent.
const FLUSH: Duration = Duration::from_millis(20);
/// How long a page stays for those who were let go on with it, in ns.
pub const HOLD: u64 = 20_000;

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
    pub(super) node: Node,
    pub(super) shared: Shared,
    pub(super) control: Control,
    /// Device and inode by which mappings of the memory are known.
    pub(super) identity: (u64, u64),
    pub(super) pooled: Option<Pooled>,
    pub(super) plan: Plan,
    mesh: Mesh,
    pub(super) desk: Arc<Desk>,
    /// Where tasks' questions and orders are told.
    signals: OwnedFd,
    pub(super) segment_pages: u64,
    begin: Instant,
    /// Pages that stay for a while, and until when: in order.
    pub(super) holds: VecDeque<(u64, Page)>,
    /// Pages that tasks were let go on with not long ago, and when: in order.
    pub(super) let_go: VecDeque<(u64, Page)>,
    faults: Vec<Fault>,
    actions: Vec<Action>,
    /// What is to be said to whom: the protocol's messages that bring no pages.
    pub(super) letters: Vec<(NodeId, Vec<u8>)>,
    pub(super) blocks: Blocks,
    pub(super) changes: Changes,
    pub(super) tasks: Tasks,
    /// Pages that are closed to who uses them wrongly, and until when: in order.
    pub(super) wrong: VecDeque<(Instant, Page)>,
    pub(super) wrong_pages: HashSet<Page>,
    patience: Patience,
    processors: usize,
    is_over: bool,
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
            rest: HOLD,
        });
        // What is not published the protocol must not touch.
        node.foresee_only_told();
        for (owner, ids) in (0..).zip(&plan.ids) {
            let pages = ids.len() as u64 * segment_pages;
            node.step(Event::Allocate { pages, owner, everywhere: false }, 0, &mut Vec::new())
                .expect("only messages are refused");
        }
        let agent = Self {
            node,
            shared,
            control,
            identity: (stat.st_dev, stat.st_ino),
            pooled: pool.map(Pooled::new),
            plan,
            mesh,
            desk,
            signals,
            segment_pages,
            begin: Instant::now(),
            holds: VecDeque::new(),
            let_go: VecDeque::new(),
            faults: Vec::new(),
            actions: Vec::new(),
            letters: Vec::new(),
            blocks: Blocks::default(),
            changes: Changes::default(),
            tasks: Tasks::default(),
            wrong: VecDeque::new(),
            wrong_pages: HashSet::new(),
            patience: Patience::default(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
            is_over: false,
        };
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        agent.desk.agent.store(tid, Ordering::Release);
        Ok((agent, tid as u32))
    }

    /// Serves until the job is over.
    pub fn run(mut self, early: Vec<Said>) {
        slice::shorten();
        early.into_iter().for_each(|said| self.heard(said));
        let mut begin = Instant::now();
        while !self.is_over {
            if self.turn() {
                self.patience.learn(true, begin.elapsed());
                begin = Instant::now();
            } else if self.may_look() && self.patience.looks(begin.elapsed()) {
                std::hint::spin_loop();
            } else if self.mesh.may_sleep().unwrap_or(true) {
                self.sleep();
            }
        }
        self.desk.close();
    }

    /// Whether there is a processor on which one would look in nobody's way.
    fn may_look(&self) -> bool {
        let ours = self.plan.ids[self.plan.me as usize].clone();
        let alive = ours.filter(|&id| self.control.is_announced(id)).count();
        self.processors > alive
    }

    fn sleep(&mut self) {
        let now = Instant::now();
        let held = self.holds.front().map(|(until, _)| self.begin + Duration::from_nanos(*until));
        let wrong = self.wrong.front().map(|(until, _)| *until);
        let pooled = self.pooled.as_ref().and_then(Pooled::due);
        let until = held.into_iter().chain(wrong).chain(pooled).chain(self.mesh.deadline()).min();
        let left = until.map(|until| until.saturating_duration_since(now));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.mesh.descriptor(), PollFlags::IN),
        ];
        // Interrupted or not, we look again.
        let _ = poll(&mut fds, left.as_ref());
    }

    /// Takes what is there; whether anything was.
    fn turn(&mut self) -> bool {
        let mut found = false;
        for _ in 0..MESSAGES {
            let Some(said) = self.mesh.hear() else { break };
            found = true;
            match said {
                Ok(said) => self.heard(said),
                Err(Gone::Left(machine)) => self.lost(machine, "it has left"),
                Err(Gone::Lost(machine, why)) => self.lost(machine, &why),
            }
        }
        let mut faults = std::mem::take(&mut self.faults);
        if let Err(error) = self.shared.faults(&mut faults) {
            self.fails(&error.to_string());
        }
        for fault in faults.drain(..) {
            found = true;
            self.stopped(&fault);
        }
        self.faults = faults;
        let mut buffer = [0; 1024];
        while rustix::io::read(&self.signals, &mut buffer).is_ok_and(|count| count > 0) {
            found = true;
            self.answer_asks();
        }
        while let Some(order) = self.desk.take() {
            found = true;
            self.ordered(order);
        }
        let now = self.now();
        while let Some(&(until, page)) = self.holds.front()
            && until <= now
        {
            self.holds.pop_front();
            found = true;
            self.step(Event::Touched(page), None);
        }
        self.open_wrong();
        self.say_quiet();
        self.go_on_bringing();
        self.go_on_pooling();
        if let Some((machine, silent)) = self.mesh.beat(Instant::now()) {
            self.lost(machine, &format!("it has not answered for {:.1} s", silent.as_secs_f64()));
        }
        if control::is_closed() && !self.is_over {
            self.fails("who started it is gone");
        }
        found
    }

    /// Nanoseconds since the agent began.
    pub(super) fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
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

    /// Tells the protocol, and does what it wants.
    pub(super) fn step(&mut self, event: Event, came: Option<Pages<'_>>) {
        self.steps(iter::once(event), came);
    }

    /// Tells the protocol all that, and then does what it wants.
    fn steps(&mut self, events: impl Iterator<Item = Event>, came: Option<Pages<'_>>) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        for event in events {
            if let Err(refused) = self.node.step(event, now, &mut actions) {
                let why = format!("{}: {}", refused.op.name(), refused.why);
                self.nonsense(refused.from, &why);
            }
        }
        if let Err(error) = self.carry_out(&actions, came) {
            self.fails(&error.to_string());
        }
        actions.clear();
        self.actions = actions;
    }

    pub(super) fn send(&mut self, to: NodeId, frame: Frame, body: Vec<u8>) {
        // If it is not sent, its loss is told, or will be.
        let _ = self.mesh.send(to, &frame.bytes(), body);
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
    fn heard(&mut self, said: Said) {
        let Said { from, header, body } = said;
        match Frame::parse(&header) {
            Some(Frame::Page(_) | Frame::Letters) if self.pooled.is_some() => {
                self.nonsense(from, "pages, which lie in the pool");
            }
            Some(Frame::Page(header)) if header.from == from && header.to == self.plan.me => {
                match parse(&header, &body, PAGE as usize) {
                    Some((content, pages)) => {
                        self.publish_asked(&header, &content);
                        self.step(Event::Message(header, content), Some(pages));
                    }
                    None => self.nonsense(from, header.op.name()),
                }
            }
            Some(Frame::Letters) => match letters(&body) {
                Some(letters)
                    if letters.iter().all(|(it, _)| (it.from, it.to) == (from, self.plan.me)) =>
                {
                    for (header, content) in &letters {
                        self.publish_asked(header, content);
                    }
                    let event = |(header, content)| Event::Message(header, content);
                    self.steps(letters.into_iter().map(event), None);
                }
                _ => self.nonsense(from, "a letter"),
            },
            Some(Frame::Word(word)) => self.heard_word(from, word, body),
            Some(Frame::Page(_)) | None => self.nonsense(from, "a header"),
        }
    }

    fn heard_word(&mut self, from: NodeId, word: Word, body: Vec<u8>) {
        match word {
            Word::Alive => {}
            Word::Look { page } => self.look(from, page),
            Word::Seen { block, chunk } => self.seen(from, block, chunk, &body),
            Word::Close { change, first, pages } => self.close(from, change, first, pages),
            Word::Renew { change, first, pages } => self.renew(from, change, first, pages),
            Word::Mapped { change, first, pages } => self.mapped(from, change, first, pages),
            Word::Open { first, pages } => self.open(from, first, pages),
            Word::Done { change } => self.done(from, change),
            Word::Task { .. } | Word::Forgotten { .. } | Word::Event => self.heard_of(from, word),
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

    fn ordered(&mut self, order: Order) {
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

    /// Gives what was said time to be sent.
    fn flush(&mut self) {
        let until = Instant::now() + FLUSH;
        while Instant::now() < until {
            let _ = self.mesh.hear();
            std::thread::yield_now();
        }
    }

    /// A machine is gone before its time: the job is over, and the first machine says so.
    fn lost(&mut self, machine: NodeId, why: &str) {
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
