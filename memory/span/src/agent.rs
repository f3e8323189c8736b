//! A node's agent: it brings pages, forwards calls, wakes who waits at a word, and at the origin
//! keeps the memory map and says where threads go. A thread of its own, with descriptors of its
//! own.

mod callers;
mod forks;
mod load;
mod mapping;
mod memory;
mod moves;
mod orders;
mod origin;
mod packing;
mod pages;
mod seen;
mod shared;
mod telling;
mod texts;
mod waits;

use std::collections::VecDeque;
use std::io::Write as _;
use std::iter;
use std::time::{Duration, Instant};

use coherence::message::{NodeId, Page};
use coherence::sequential::message::{Pages, letters, parse};
use coherence::sequential::{Action, Event, Node, Options};
use launch::control;
use net::mesh::{Gone, Mesh, Said};
use net::patience::Patience;
use net::slice;
use pager::{Access, Region};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::addresses::PAGE;
use crate::context::Context;
use crate::desk::{Call, Desk, Request};
use crate::frame::{Frame, Question, Word};
use crate::packing::Spent;
use crate::ranges::Ranges;
use crate::texts::Texts;
use crate::{raw, scheduling, shadow, threads};
pub use orders::{Orders, order};
pub use origin::Origin;
pub use telling::Wanted;

/// Messages that are taken before threads are looked after.
const MESSAGES: usize = 64;
/// How long the end waits for what it has said to be sent; and others, who have heard of it.
const FLUSH: Duration = Duration::from_millis(5);
const AFTER: Duration = Duration::from_millis(50);
/// How long a page stays for those who were let go on with it, in ns.
pub const HOLD: u64 = 20_000;

/// What an agent is made of.
pub struct Parts {
    /// The memory, as large as it is at first, and closed.
    pub region: Region,
    /// The protocol's.
    pub options: Options,
    /// At the origin: what comes from outside.
    pub orders: Option<Orders>,
    /// The way to other nodes, if there are any: all are connected.
    pub mesh: Option<Mesh>,
    /// Where threads ask.
    pub desk: &'static Desk,
    /// By which they wake it: a copy of the agent's own.
    pub bell: std::os::fd::OwnedFd,
    /// At the origin.
    pub origin: Option<Origin>,
    /// What the nodes are called.
    pub names: Vec<String>,
    /// At the origin, if the program is to be counted.
    pub wanted: Option<Wanted>,
}

/// A node's agent.
pub struct Agent {
    node: Node,
    region: Region,
    mesh: Option<Mesh>,
    desk: &'static Desk,
    bell: std::os::fd::OwnedFd,
    origin: Option<Origin>,
    orders: Option<Orders>,
    counts: load::Counts,
    names: Vec<String>,
    me: NodeId,
    begin: Instant,
    /// Pages that stay for a while, and until when: in order.
    holds: VecDeque<(u64, Page)>,
    /// Pages that threads were let go on with not long ago, and when: in order.
    let_go: VecDeque<(u64, Page)>,
    faults: Vec<pager::Fault>,
    actions: Vec<Action>,
    /// What is to be said to whom: the protocol's messages that bring no pages.
    letters: Vec<(NodeId, Vec<u8>)>,
    patience: Patience,
    /// Threads of the program on this node, and the processors for them.
    threads: u32,
    processors: u32,
    waits: waits::Waits,
    /// At the origin, where threads go if they are to be packed where that is better.
    packing: Option<packing::Packer>,
    callers: callers::Callers,
    /// This node's threads' waits are wanted.
    tells_waits: bool,
    texts: Texts,
    /// Pages that other processes may write: the origin's kernel has them.
    shared: Ranges,
    /// Pages of private file mappings beyond the end of their file.
    beyond: Ranges,
    /// Pages that begin anew.
    closed: Vec<mapping::Closed>,
    /// What is counted, if it is; and at the origin what for.
    seen: Option<Box<seen::Seen>>,
    memory: memory::Memory,
    wanted: Option<Wanted>,
}

impl Agent {
    /// Of this process.
    pub fn new(parts: Parts) -> Self {
        let Parts { region, options, mesh, desk, bell, origin, orders, names, wanted } = parts;
        let mut node = Node::new(options);
        // What is mapped, with which something may be done.
        node.foresee_only_told();
        let first = Event::Allocate { pages: region.pages(), owner: 0, everywhere: false };
        let loaded = region.known().map(Event::Loaded);
        for event in iter::once(first).chain(loaded) {
            node.step(event, 0, &mut Vec::new()).expect("only messages are refused");
        }
        Self {
            node,
            region,
            mesh,
            desk,
            bell,
            origin,
            orders,
            counts: load::Counts::default(),
            names,
            me: options.me,
            begin: Instant::now(),
            holds: VecDeque::new(),
            let_go: VecDeque::new(),
            faults: Vec::new(),
            actions: Vec::new(),
            letters: Vec::new(),
            patience: Patience::default(),
            threads: u32::from(options.me == 0),
            processors: rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()),
            waits: waits::Waits::new(),
            packing: None,
            callers: callers::Callers::default(),
            tells_waits: false,
            texts: Texts::default(),
            shared: Ranges::default(),
            beyond: Ranges::default(),
            closed: Vec::new(),
            seen: None,
            memory: memory::Memory::default(),
            wanted,
        }
    }

    /// Serves until the program ends, which ends the process.
    pub fn run(mut self) -> ! {
        scheduling::remember();
        slice::shorten();
        let mut begin = Instant::now();
        loop {
            if self.turn() {
                self.patience.learn(true, begin.elapsed());
                begin = Instant::now();
                continue;
            }
            if self.may_look() && self.patience.looks(begin.elapsed()) {
                match self.origin.as_ref().is_some_and(|origin| origin.at_work > 0) {
                    // A shadow may want this processor.
                    true => std::thread::yield_now(),
                    false => std::hint::spin_loop(),
                }
                continue;
            }
            if !self.desk.may_sleep() {
                continue;
            }
            let may = self.mesh.as_mut().map_or(Ok(true), Mesh::may_sleep);
            match may {
                Ok(true) => self.sleep(),
                Ok(false) => {}
                Err(error) => self.end(1, &error.to_string()),
            }
            self.desk.wakes();
        }
    }

    /// Whether nobody here wants the processor on which one would look: to be woken takes as long
    /// as the network does.
    fn may_look(&self) -> bool {
        self.waits.count() >= self.threads as usize || self.processors > self.threads
    }

    /// Answers a thread of this node.
    fn answer(&mut self, thread: u32, answer: i64) {
        self.waits.is_answered(thread, self.now());
        self.desk.answer(thread, answer);
    }

    fn sleep(&mut self) {
        let now = Instant::now();
        let held = self.holds.front().map(|(until, _)| self.begin + Duration::from_nanos(*until));
        let network = self.mesh.as_ref().and_then(Mesh::deadline);
        let count = [self.counts.next, self.packs_next()].into_iter().flatten().min();
        let count = count.map(|next| self.begin + Duration::from_nanos(next));
        let until = held.into_iter().chain(network).chain(count).min();
        let left = until.map(|until| until.saturating_duration_since(now));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let faults = self.region.descriptor();
        let mut fds = vec![
            PollFd::new(&self.bell, PollFlags::IN),
            PollFd::from_borrowed_fd(faults, PollFlags::IN),
        ];
        if let Some(mesh) = &self.mesh {
            fds.push(PollFd::from_borrowed_fd(mesh.descriptor(), PollFlags::IN));
        }
        if let Some(orders) = &self.orders {
            fds.push(PollFd::from_borrowed_fd(orders.descriptor(), PollFlags::IN));
        }
        // Interrupted or not, we look again.
        let _ = poll(&mut fds, left.as_ref());
        if fds[0].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        let is_there = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
        if self.orders.is_some() && fds.last().is_some_and(is_there) {
            drop(fds);
            self.ordered();
        }
    }

    /// Takes what is there; whether anything was.
    fn turn(&mut self) -> bool {
        let mut found = false;
        for _ in 0..MESSAGES {
            let Some(said) = self.mesh.as_mut().and_then(Mesh::hear) else { break };
            found = true;
            match said {
                Ok(said) => self.heard(said),
                Err(Gone::Left(node)) => self.lost(node, "it has left"),
                Err(Gone::Lost(node, why)) => self.lost(node, &why),
            }
        }
        while let Some((thread, request)) = self.desk.take() {
            found = true;
            self.waits.asks(thread, self.now());
            match request {
                Request::Enqueue { .. } => drop(self.waits.queued.insert(thread)),
                Request::Cancel => drop(self.waits.queued.remove(&thread)),
                _ => {}
            }
            self.seen(|seen, _| seen.requested(thread, &request));
            self.requested(thread, request);
        }
        if control::is_closed() {
            let line = format!("{} is lost: who started it is gone", self.names[self.me as usize]);
            self.end(1, &line);
        }
        let mut faults = std::mem::take(&mut self.faults);
        if let Err(error) = self.region.faults(&mut faults) {
            self.end(1, &error.to_string());
        }
        for fault in faults.drain(..) {
            found = true;
            self.waits.stops_at(fault.page, self.now());
            self.sees(&fault);
            if self.is_closed(fault.page) || self.sends_home(&fault) {
                continue;
            }
            let writes = fault.wants == Access::Write || !self.region.can_allow_read();
            if !writes && self.read_text(fault.page) {
                continue;
            }
            self.step(
                if writes { Event::Write(fault.page) } else { Event::Read(fault.page) },
                None,
            );
        }
        self.faults = faults;
        let now = self.now();
        while let Some(&(until, page)) = self.holds.front()
            && until <= now
        {
            self.holds.pop_front();
            found = true;
            self.step(Event::Touched(page), None);
        }
        found |= self.copy();
        found |= self.count(now);
        found |= self.pack(now);
        self.say_quiet();
        if let Some((node, silent)) = self.mesh.as_mut().and_then(|it| it.beat(Instant::now())) {
            self.lost(node, &format!("it has not answered for {:.1} s", silent.as_secs_f64()));
        }
        if found {
            self.look_at_memory();
        }
        found
    }

    /// Nanoseconds since the agent began.
    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Tells the protocol, and does what it wants.
    fn step(&mut self, event: Event, came: Option<Pages<'_>>) {
        self.steps(iter::once(event), came);
    }

    /// Tells the protocol all that, and then does what it wants.
    fn steps(&mut self, events: impl Iterator<Item = Event>, came: Option<Pages<'_>>) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        for event in events {
            if let Err(refused) = self.node.step(event, now, &mut actions) {
                let (name, what) = (&self.names[refused.from as usize], refused.op.name());
                let line = format!("{name} says {what}, and {}: an error of nagaya", refused.why);
                self.end(1, &line);
            }
        }
        if let Err(error) = self.carry_out(&mut actions, came) {
            self.end(1, &format!("{}: {error}", self.names[self.me as usize]));
        }
        actions.clear();
        self.actions = actions;
    }

    fn send(&mut self, to: NodeId, frame: Frame, body: Vec<u8>) {
        self.seen(|seen, _| seen.sent(body.len()));
        let mesh = self.mesh.as_mut().expect("there is another node");
        // If it is not sent, its loss is told, or will be.
        let _ = mesh.send(to, &frame.bytes(), body);
    }

    fn say(&mut self, to: NodeId, word: Word) {
        self.send(to, Frame::Word(word), Vec::new());
    }

    /// Takes what another node says.
    pub fn heard(&mut self, said: Said) {
        let Said { from, header, body } = said;
        let at_origin = self.origin.is_some();
        match Frame::parse(&header) {
            Some(Frame::Page(header)) if header.from == from && header.to == self.me => {
                match parse(&header, &body, PAGE as usize) {
                    Some((content, pages)) => {
                        self.step(Event::Message(header, content), Some(pages));
                    }
                    None => self.nonsense(from, header.op.name()),
                }
            }
            Some(Frame::Letters) => match letters(&body) {
                Some(letters)
                    if letters.iter().all(|(it, _)| (it.from, it.to) == (from, self.me)) =>
                {
                    self.steps(
                        letters.into_iter().map(|(it, content)| Event::Message(it, content)),
                        None,
                    );
                }
                _ => self.nonsense(from, "a letter"),
            },
            Some(Frame::Word(Word::Alive)) => {}
            Some(Frame::Word(Word::End { status })) if at_origin => {
                self.end(status, &String::from_utf8_lossy(&body));
            }
            // Who ends it has said why.
            Some(Frame::Word(Word::End { status })) if from == 0 => {
                // Before 1.14 UCX may abort a process in which it notices that a peer has gone.
                std::thread::sleep(AFTER);
                exit(status)
            }
            Some(Frame::Word(word)) if at_origin => self.heard_at_origin(from, word, &body),
            Some(Frame::Word(word)) if from == 0 => self.heard_from_origin(word, &body),
            _ => self.nonsense(from, "a header"),
        }
    }

    fn heard_from_origin(&mut self, word: Word, body: &[u8]) {
        match word {
            Word::Result { thread, result } => self.answer(thread, result),
            Word::Answer { thread, answer } => self.answer(thread, answer),
            Word::Woken { thread } => self.wakes(thread),
            Word::Begin { thread, tid, clear_tid, robust } => {
                self.arrive(thread, tid, clear_tid, robust, body);
            }
            Word::Count => self.counts.next = Some(0),
            Word::Watch => self.tells_waits = true,
            Word::Spend => {
                let Spent { at, running, waited, stops, runnable } = self.spent();
                self.say(0, Word::Spent { at, running, waited, stops, runnable });
            }
            Word::Shed { node } => self.shed(node),
            Word::Go { thread, node } => self.goes(thread, node),
            Word::Signal { thread } => self.signalled(thread, body),
            Word::Text { first, pages, offset, bytes } => {
                self.is_text(first, pages, offset, bytes, body);
            }
            Word::Used => self.tell_used(),
            Word::See => self.sees_from_now_on(),
            Word::Limit { bytes } => self.memory.limit = Some(bytes),
            Word::Report => self.tell_counts(),
            word => {
                if !self.mapped(word) {
                    self.nonsense(0, "a word");
                }
            }
        }
    }

    /// A thread of this node goes on that stood in line.
    fn wakes(&mut self, thread: u32) {
        self.waits.queued.remove(&thread);
        self.desk.seat(thread).wake();
    }

    /// A thread of the program begins here.
    fn arrive(&mut self, thread: u32, tid: i32, clear_tid: u64, robust: u64, body: &[u8]) {
        use std::sync::atomic::Ordering::Relaxed;
        let seat = self.desk.seat(thread);
        seat.wait_until_left();
        seat.forget();
        seat.robust.store(robust, Relaxed);
        seat.node.store(self.me, Relaxed);
        seat.tid.store(tid, Relaxed);
        seat.clear_tid.store(clear_tid, Relaxed);
        // SAFETY: the seat's thread is not there yet; its area is its own.
        let began = unsafe {
            if !Context::set(seat.context(), body) {
                self.nonsense(0, "registers");
            }
            let word = seat.kernel_word();
            raw::thread(word, seat.stack_end(), threads::arrived, thread as usize)
        };
        self.threads += 1;
        self.has_come(thread);
        self.seen(|seen, _| seen.begins(thread));
        if began < 0 {
            let why = std::io::Error::from_raw_os_error(-began as i32);
            self.end(1, &format!("{}: cannot make a thread: {why}", self.names[self.me as usize]));
        }
    }

    /// A thread of this node asks.
    fn requested(&mut self, thread: u32, request: Request) {
        if self.origin.is_some() {
            return self.requested_at_origin(thread, request);
        }
        match request {
            Request::Call(Call { number, arguments }) => {
                self.calls(thread);
                let word = Word::Call { thread, number, arguments };
                let body = match shadow::takes_context(&Call { number, arguments }) {
                    // SAFETY: it has put its new thread's there.
                    true => unsafe { Context::bytes(self.desk.seat(thread).context()) },
                    false => Vec::new(),
                };
                self.send(0, Frame::Word(word), body);
            }
            Request::Gone(status) => {
                let desk = self.desk;
                self.seen(|seen, _| seen.ends(desk, thread));
                self.say(0, Word::Gone { thread, status });
                self.threads -= 1;
                self.answer(thread, 0);
            }
            Request::Move(node) => self.leaves(thread, node),
            Request::End(status) => self.say(0, Word::End { status }),
            request => match question(request) {
                Some(question) => self.say(0, Word::Ask { thread, question }),
                None => unreachable!("{request:?} is for the origin"),
            },
        }
    }

    fn nonsense(&mut self, from: NodeId, what: &str) -> ! {
        let name = self.names[from as usize].clone();
        self.end(1, &format!("{name} says {what} that makes no sense; is its nagaya the same?"))
    }

    fn lost(&mut self, node: NodeId, why: &str) -> ! {
        let line = format!("{} is lost: {why}", self.names[node as usize]);
        self.end(1, &line)
    }

    /// Ends the program, on all nodes.
    fn end(&mut self, status: i32, line: &str) -> ! {
        if !line.is_empty() && self.origin.is_some() {
            // The terminal may be gone.
            let _ = writeln!(std::io::stderr(), "nagaya: span: {line}");
        }
        if line.is_empty() {
            self.write_report();
        }
        if let Some(mesh) = &mut self.mesh {
            let end = Frame::Word(Word::End { status }).bytes();
            match self.origin {
                Some(_) => mesh.tell_all(&end, line.as_bytes()),
                None => {
                    let _ = mesh.send(0, &end, line.as_bytes().to_vec());
                }
            }
            let until = Instant::now() + FLUSH;
            while Instant::now() < until {
                let _ = mesh.hear();
            }
        }
        exit(status)
    }
}

/// What a request asks the futex service.
fn question(request: Request) -> Option<Question> {
    Some(match request {
        Request::Enqueue { word, bits } => Question::Enqueue { word, bits },
        Request::Cancel => Question::Cancel,
        Request::Wake { word, count, bits } => Question::Wake { word, count, bits },
        Request::Requeue { word, count, to, moved } => Question::Requeue { word, count, to, moved },
        _ => return None,
    })
}

fn exit(status: i32) -> ! {
    // SAFETY: ends the process. What the program wanted done before, it has done.
    unsafe { libc::_exit(status) }
}
