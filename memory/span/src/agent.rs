//! A node's agent: it brings pages, forwards calls, wakes who waits at a word, and at the origin
//! keeps the memory map and says where threads go. A thread of its own, with descriptors of its
//! own.

mod callers;
mod driver;
mod forks;
mod load;
mod mapping;
mod moves;
mod orders;
mod origin;
mod packing;
mod seen;
mod shared;
mod telling;
mod texts;
mod waits;

use std::io::Write as _;
use std::iter;
use std::time::Duration;

use coherence::message::NodeId;
use coherence::sequential::{Event, Node, Options};
use launch::{control, status};
use net::mesh::{Mesh, Said};
use net::slice;
use node::driver::{Driver as _, Engine, Server as _};
use node::flush::FLUSH;
use node::sequential::{Replica as _, Sequential};
use pager::Region;

use crate::context::Context;
use crate::desk::{Call, Desk, Request};
use crate::frame::{Frame, Question, Word};
use crate::leases::{Copies, Leases};
use crate::packing::Spent;
use crate::ranges::Ranges;
use crate::texts::Texts;
use crate::{raw, scheduling, shadow, threads};
pub use orders::{Orders, order};
pub use origin::Origin;
pub use telling::Wanted;

/// How long others, who have heard of the end, wait before they end.
const AFTER: Duration = Duration::from_millis(50);

/// Time limit for the command to report the wait status of a lost node's process.
const STATUS_MAX: Duration = Duration::from_millis(200);

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
    engine: Engine<Region>,
    pages: Sequential,
    desk: &'static Desk,
    bell: std::os::fd::OwnedFd,
    origin: Option<Origin>,
    orders: Option<Orders>,
    counts: load::Counts,
    names: Vec<String>,
    me: NodeId,
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
    /// What is counted, if it is; and at the origin what for.
    seen: Option<Box<seen::Seen>>,
    /// Files that are mapped shared and for reading: the origin's leases, other nodes' copies.
    leases: Leases,
    copies: Copies,
    wanted: Option<Wanted>,
}

impl Agent {
    /// Of this process.
    pub fn new(parts: Parts) -> Self {
        let Parts { region, options, mesh, desk, bell, origin, orders, names, wanted } = parts;
        let mut node = Node::new(options);
        let first = Event::Allocate { pages: region.pages(), owner: 0, everywhere: false };
        let loaded = region.known().map(Event::Loaded);
        for event in iter::once(first).chain(loaded) {
            node.step(event, 0, &mut Vec::new()).expect("only messages are refused");
        }
        Self {
            engine: Engine::new(region, mesh),
            pages: Sequential::new(node),
            desk,
            bell,
            origin,
            orders,
            counts: load::Counts::default(),
            names,
            me: options.me,
            threads: u32::from(options.me == 0),
            processors: rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()),
            waits: waits::Waits::new(),
            packing: None,
            callers: callers::Callers::default(),
            tells_waits: false,
            texts: Texts::default(),
            shared: Ranges::default(),
            beyond: Ranges::default(),
            seen: None,
            leases: Leases::default(),
            copies: Copies::default(),
            wanted,
        }
    }

    /// Serves until the program ends, which ends the process.
    pub fn run(mut self) -> ! {
        scheduling::remember();
        slice::shorten();
        self.serve();
        unreachable!("the process ends with the program")
    }

    /// Answers a thread of this node.
    fn answer(&mut self, thread: u32, answer: i64) {
        self.waits.is_answered(thread, self.now());
        self.desk.answer(thread, answer);
    }

    fn send(&mut self, to: NodeId, frame: Frame, body: Vec<u8>) {
        self.engine.send(to, &frame.bytes(), body);
    }

    fn say(&mut self, to: NodeId, word: Word) {
        self.send(to, Frame::Word(word), Vec::new());
    }

    /// Takes what another node says.
    pub fn heard(&mut self, said: Said) {
        let Said { from, header, body } = said;
        let at_origin = self.origin.is_some();
        match Frame::parse(&header) {
            Some(Frame::Page(header)) => self.receive(from, header, &body),
            Some(Frame::Letters) => self.receive_batch(from, &body),
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
        // A thread may be told something before it is here.
        if let Word::Begin { thread, .. } | Word::Go { thread, .. } | Word::Signal { thread } = word
            && let Err(why) = self.desk.make(thread)
        {
            let line = format!("no memory for thread {thread}: {why}");
            self.end(1, &format!("{}: {line}", self.names[self.me as usize]));
        }
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
            Word::Lease { first, pages } => self.is_leased(first, pages),
            Word::Copies { first, pages } => self.copies_come(first, pages, body),
            Word::Recall { lease, first, pages } => self.drop_copies_of(lease, first, pages),
            Word::Used => self.tell_used(),
            Word::See => self.sees_from_now_on(),
            Word::Limit { bytes } => self.pages.residency.limit_bytes = Some(bytes),
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

    /// Ends the program because a node is lost. The origin names the node, the reason, and the wait
    /// status of its process if the command started it on this machine.
    fn lost(&mut self, node: NodeId, why: &str) -> ! {
        if self.origin.is_none() {
            self.send(0, Frame::Word(Word::Lost { node }), why.as_bytes().to_vec());
            self.quit(1)
        }
        let mut line = format!("{} is lost: {why}", self.names[node as usize]);
        if let Some(status) = control::wait_status(node, STATUS_MAX) {
            line += &format!("; its process {}", status::describe(status));
        }
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
        if let Some(mesh) = &mut self.engine.mesh {
            let end = Frame::Word(Word::End { status }).bytes();
            match self.origin {
                Some(_) => mesh.tell_all(&end, line.as_bytes()),
                None => {
                    let _ = mesh.send(0, &end, line.as_bytes().to_vec());
                }
            }
        }
        self.quit(status)
    }

    /// Ends this process after the messages to other nodes have left.
    fn quit(&mut self, status: i32) -> ! {
        if let Some(mesh) = &mut self.engine.mesh {
            FLUSH.run(mesh);
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
