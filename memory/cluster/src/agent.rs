//! The agent of a machine: a thread of the space's owner. It moves pages between this machine and
//! the others, and exchanges news about tasks with their agents. It accesses the memory of tasks
//! only through the file behind it, because no thread could resolve its own faults.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

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

use crate::blocks::Blocks;
use crate::changes::Changes;
use crate::frame::{Frame, Message};
use crate::orders::{Order, Orders};
use crate::plan::Plan;
use crate::pool::Pool;
use crate::pooled::Pooled;
use crate::tasks::Tasks;

/// Time for the output of a job that was killed.
const KILLED_PRINT_MAX: Duration = Duration::from_secs(1);

/// The parts of an agent.
pub struct Parts {
    /// The control area of the space.
    pub control: Control,
    /// The memory of all segments; those of other machines are watched.
    pub shared: Shared,
    /// The memory that the machines share, if they do.
    pub pool: Option<Pool>,
    /// The machines.
    pub plan: Plan,
    /// The connections to all of them.
    pub mesh: Mesh,
    /// The orders of other threads.
    pub orders: Arc<Orders>,
}

/// The agent of a machine.
pub struct Agent {
    pub(super) engine: Engine<Shared>,
    pub(super) pages: Sequential,
    pub(super) control: Control,
    /// Device and inode of the tasks' memory, which identify its mappings.
    pub(super) identity: (u64, u64),
    pub(super) pooled: Option<Pooled>,
    pub(super) plan: Plan,
    pub(super) orders: Arc<Orders>,
    /// A signalfd(2) that is readable when a task has a request or a thread has an order.
    pub(super) signals: OwnedFd,
    pub(super) segment_pages: u64,
    pub(super) blocks: Blocks,
    pub(super) changes: Changes,
    pub(super) tasks: Tasks,
    /// Pages that their home has not mapped, and until when they are closed: in order.
    pub(super) unmapped: VecDeque<(Instant, Page)>,
    pub(super) unmapped_pages: HashSet<Page>,
    pub(super) processors: usize,
    pub(super) is_over: bool,
}

impl Agent {
    /// Makes the agent of the calling thread. Also returns the thread's ID, to which tasks and
    /// threads send SIGURG when they need the agent.
    pub fn new(parts: Parts) -> Result<(Self, u32), String> {
        let Parts { control, shared, pool, plan, mesh, orders } = parts;
        let stat = rustix::fs::fstat(&shared).map_err(|why| format!("fstat: {why}"))?;
        let signals = signal_descriptor().map_err(|why| format!("signalfd: {why}"))?;
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
            pages: Sequential::new(node),
            engine: Engine::new(shared, Some(mesh)),
            control,
            identity: (stat.st_dev, stat.st_ino),
            pooled: pool.map(Pooled::new),
            plan,
            orders,
            signals,
            segment_pages,
            blocks: Blocks::default(),
            changes: Changes::default(),
            tasks: Tasks::default(),
            unmapped: VecDeque::new(),
            unmapped_pages: HashSet::new(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
            is_over: false,
        };
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        agent.orders.agent_tid.store(tid, Ordering::Release);
        Ok((agent, tid as u32))
    }

    /// Serves until the job is over. `early` are messages that have arrived already.
    pub fn run(mut self, early: Vec<Received>) {
        slice::shorten();
        let (name, pid) = (&self.plan.names[self.plan.me as usize], std::process::id());
        proc::log_line!(Info, "cluster", "{name} is ready: PID {pid}");
        early.into_iter().for_each(|message| self.handle(message));
        self.serve();
        // A killed job does not wait for a reader of its output that has stopped.
        let time_max = if self.orders.outcome().kill { KILLED_PRINT_MAX } else { Duration::MAX };
        self.tasks.finish_printing(time_max);
        proc::log_line!(Info, "cluster", "{} ends", self.plan.names[self.plan.me as usize]);
        self.orders.close();
    }

    /// Returns the home of a page: the machine of its segment.
    pub(super) fn home(&self, page: Page) -> Option<NodeId> {
        self.plan.machine_of(self.id_of(page))
    }

    /// Returns the ID of the task in whose segment a page lies.
    pub(super) fn id_of(&self, page: Page) -> u32 {
        (page / self.segment_pages) as u32
    }

    /// Returns true if this machine is the home of a page.
    pub(super) fn is_own(&self, page: Page) -> bool {
        self.home(page) == Some(self.plan.me)
    }

    pub(super) fn send(&mut self, to: NodeId, frame: Frame, body: Vec<u8>) {
        self.engine.send(to, &frame.bytes(), body);
    }

    pub(super) fn send_message(&mut self, to: NodeId, message: Message) {
        self.send(to, Frame::Word(message), Vec::new());
    }

    /// Sends a message to all other machines.
    pub(super) fn broadcast(&mut self, message: Message) {
        self.plan.others().for_each(|machine| self.send_message(machine, message));
    }

    /// Handles a message of another machine.
    pub(super) fn handle(&mut self, message: Received) {
        let Received { from, header, body } = message;
        match Frame::parse(&header) {
            Some(Frame::Page(_) | Frame::Batch) if self.pooled.is_some() => {
                self.protocol_violation(from, "a request for a page of the pool");
            }
            Some(Frame::Page(header)) => self.receive(from, header, &body),
            Some(Frame::Batch) => self.receive_batch(from, &body),
            Some(Frame::Word(message)) => self.handle_message(from, message, body),
            None => self.protocol_violation(from, "an unknown header"),
        }
    }

    fn handle_message(&mut self, from: NodeId, message: Message, body: Vec<u8>) {
        match message {
            Message::Alive => {}
            Message::Lookup { page } => self.answer_lookup(from, page, &body),
            Message::LookupReply { block, chunk } => {
                self.looked_up(from, block, chunk, &body);
            }
            Message::Close { change, first, pages } => self.close(from, change, first, pages),
            Message::Reset { change, first, pages } => self.reset(from, change, first, pages),
            Message::Mapped { change, first, pages } => self.mapped(from, change, first, pages),
            Message::Open { first, pages } => self.open(from, first, pages),
            Message::Acknowledge { change } => self.acknowledged(from, change),
            Message::Task { .. } | Message::Forgotten { .. } | Message::Event => {
                self.handle_task_message(from, message);
            }
            Message::Wake { address } => self.wakes(from, address),
            Message::Print { stream } if self.plan.me == 0 => self.tasks.print(stream, body),
            Message::Signal { signal } if from == 0 => {
                // SAFETY: kill accesses no memory. The signal is handled like one from outside.
                unsafe { libc::kill(libc::getpid(), signal) };
            }
            Message::Finish { status } if self.plan.me == 0 => self.finished(from, status),
            Message::Fail { status } if self.plan.me == 0 => self.kill_all(status),
            Message::Kill if from == 0 => self.orders.update(|outcome| outcome.kill = true),
            Message::Lost { machine }
                if self.plan.me == 0 && self.plan.others().any(|it| it == machine) =>
            {
                self.lost(machine, "another machine has lost its connection")
            }
            Message::End if from == 0 => {
                self.is_over = true;
                self.orders.update(|outcome| outcome.over = true);
            }
            _ => self.protocol_violation(from, "an unexpected message"),
        }
    }

    /// Carries out an order of another thread of this process.
    pub(super) fn carry_out_order(&mut self, order: Order) {
        match order {
            Order::Ended(id, done) => self.ended(id, done),
            Order::Cleared(id, done) => self.cleared(id, done),
            Order::Loaded(id, done) => {
                self.loaded(id);
                drop(done);
            }
            Order::CheckTasks => self.check_tasks(),
            Order::Print(stream, bytes) => match self.plan.me {
                0 => self.tasks.print(stream, bytes),
                _ => self.send(0, Frame::Word(Message::Print { stream }), bytes),
            },
            Order::Signal(signal) => self.broadcast(Message::Signal { signal }),
            Order::Finish(status) => match self.plan.me {
                0 => self.finished(0, status),
                _ => self.send_message(0, Message::Finish { status }),
            },
            Order::Fail(status) => match self.plan.me {
                0 => self.kill_all(status),
                _ => self.send_message(0, Message::Fail { status }),
            },
            Order::Stop => self.is_over = true,
            Order::End(done) => {
                self.broadcast(Message::End);
                self.flush();
                self.is_over = true;
                drop(done);
            }
        }
    }

    fn finished(&mut self, machine: NodeId, status: i32) {
        let machines = self.plan.names.len();
        self.orders.update(|outcome| {
            outcome.statuses.resize(machines, None);
            outcome.statuses[machine as usize] = Some(status);
        });
    }

    /// On the first machine: a task has failed, and all tasks are to be killed.
    fn kill_all(&mut self, status: i32) {
        self.broadcast(Message::Kill);
        self.orders.update(|outcome| {
            outcome.kill = true;
            outcome.failure.get_or_insert(status);
        });
    }

    /// Sends all queued messages.
    fn flush(&mut self) {
        if let Some(mesh) = &mut self.engine.mesh {
            FLUSH.run(mesh);
        }
    }

    /// The connection to a machine is lost: ends the job. The first machine reports it.
    pub(super) fn lost(&mut self, machine: NodeId, why: &str) {
        let name = &self.plan.names[machine as usize];
        if self.is_over || self.orders.outcome().lost {
            return;
        }
        match self.plan.me {
            0 => {
                proc::error_line!("nagaya: {name} is lost: {why}");
                self.broadcast(Message::End);
                self.flush();
            }
            _ if machine != 0 => return self.send_message(0, Message::Lost { machine }),
            _ => {}
        }
        self.give_up();
    }

    /// Reports why this machine cannot continue, and ends its tasks.
    pub(super) fn fails(&mut self, why: &str) {
        proc::error_line!("nagaya: {}: {why}", self.plan.names[self.plan.me as usize]);
        self.give_up();
    }

    /// Ends all tasks. They may be stopped at pages that never arrive.
    fn give_up(&mut self) {
        self.is_over = true;
        self.orders.update(|outcome| {
            outcome.lost = true;
            outcome.kill = true;
            outcome.over = true;
        });
    }

    /// A machine has sent a message that the protocol does not allow: this machine cannot continue.
    pub(super) fn protocol_violation(&mut self, from: NodeId, what: &str) {
        let name = self.plan.names[from as usize].clone();
        self.fails(&format!("{name} has sent {what}: a protocol violation (an error of nagaya)"));
    }
}

/// Blocks SIGURG in this thread, and returns a descriptor from which it is read.
fn signal_descriptor() -> std::io::Result<OwnedFd> {
    let set = 1u64 << (libc::SIGURG - 1);
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: `set` has eight bytes, the size that is passed. The signalfd is new, and owned by
    // the returned value alone.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const set, 0, 8);
        match libc::syscall(libc::SYS_signalfd4, -1, &raw const set, 8, flags) {
            fd if fd < 0 => Err(std::io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
        }
    }
}
