//! Simulated nodes: processes with control channels, and the clock and signals of their starter.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use sync::clock;

use crate::messages::{self, Answer, Begun, Kind, Refusal};
use crate::status;
use crate::system::{Events, Process, System};

/// The kind of the nodes.
pub const KIND: Kind = Kind { name: "test", version: "1.2-3" };

/// The number of the node, and bytes that make the order long.
pub type Order = (u32, Vec<u8>);

/// An event of a run. Each must happen in some run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    Interrupted,
    Again,
    PartialRead,
    PartialWrite,
    BrokenPipe,
    Reset,
    Died,
    Closed,
    Garbage,
    Flood,
    PartialMessage,
    Hung,
    OtherVersion,
    RefusedReady,
    RefusedBegin,
    RefusedProgram,
    Disagreed,
    Signal,
    SpawnFailed,
    Late,
    EndedBeforeOthers,
    Killed,
    Forwarded,
    Reported,
    AllBegan,
}

impl Path {
    pub const ALL: [Self; 25] = [
        Self::Interrupted,
        Self::Again,
        Self::PartialRead,
        Self::PartialWrite,
        Self::BrokenPipe,
        Self::Reset,
        Self::Died,
        Self::Closed,
        Self::Garbage,
        Self::Flood,
        Self::PartialMessage,
        Self::Hung,
        Self::OtherVersion,
        Self::RefusedReady,
        Self::RefusedBegin,
        Self::RefusedProgram,
        Self::Disagreed,
        Self::Signal,
        Self::SpawnFailed,
        Self::Late,
        Self::EndedBeforeOthers,
        Self::Killed,
        Self::Forwarded,
        Self::Reported,
        Self::AllBegan,
    ];
}

/// A step of a node.
#[derive(Clone, Debug)]
pub enum Act {
    /// Prints on the control channel: text before the greeting, the greeting, or garbage.
    Print(Vec<u8>),
    /// Prints on standard error.
    Complain(String),
    ReadOrder,
    Ready,
    ReadAll,
    Begin,
    Refuse(Refusal),
    /// Closes the channel.
    Close,
    /// Ends. The starter sees the wait status after this time.
    Die(i32, Duration),
}

/// A simulated node.
#[derive(Debug, Default)]
pub struct Node {
    pub script: VecDeque<(Duration, Act)>,
    /// Time of the next step.
    next: Duration,
    /// Bytes that were sent to the node, as far as the pipe has room, and those that it has read.
    inbox: Vec<u8>,
    pub read: Vec<u8>,
    pub room: usize,
    /// Bytes that the starter has not read.
    outbox: Vec<u8>,
    /// Its end of the channel is closed, which the starter reads as the end, or as ECONNRESET.
    is_closed: bool,
    resets: bool,
    /// Standard error, if the node is on another host, and true if that is never closed.
    pub errors: Option<(Vec<u8>, bool)>,
    /// The wait status, and the time at which the starter sees it.
    pub died: Option<(Duration, i32)>,
    /// The starter has ended it, or has seen that it has ended.
    pub is_over: bool,
    /// The starter has closed the channel.
    pub is_left: bool,
    pub has_begun: bool,
    /// The channel waits.
    waits: bool,
    greeted: Option<Duration>,
    /// The signals that the starter has forwarded.
    pub signals: Vec<i32>,
}

/// The nodes, and their starter's clock and signals.
#[derive(Debug)]
pub struct World {
    pub random: Rng,
    /// No system call fails.
    pub is_calm: bool,
    start: Instant,
    pub now: Duration,
    pub nodes: Vec<Node>,
    /// Signals to the starter, and when; true if the terminal sends it.
    pub signals: Vec<(Duration, i32, bool)>,
    /// The children whose end the starter knows by SIGCHLD.
    known: Vec<usize>,
    /// The starter has ended like this.
    pub ended_as: Option<i32>,
    pub paths: [u64; Path::ALL.len()],
}

impl World {
    pub fn new(random: Rng) -> Self {
        let start = Instant::now();
        clock::simulate(Some(start));
        Self {
            random,
            is_calm: false,
            start,
            now: Duration::ZERO,
            nodes: Vec::new(),
            signals: Vec::new(),
            known: Vec::new(),
            ended_as: None,
            paths: [0; Path::ALL.len()],
        }
    }

    pub fn count(&mut self, path: Path) {
        self.paths[path as usize] += 1;
    }

    fn one_in(&mut self, n: u32) -> bool {
        !self.is_calm && self.random.u32(0..n) == 0
    }

    /// Adds a node.
    pub fn add(&mut self, script: Vec<(Duration, Act)>, errors: Option<(Vec<u8>, bool)>) {
        let next = self.now + script.first().map_or(Duration::ZERO, |it| it.0);
        let room = 1 << self.random.u32(4..17);
        let (script, resets) = (script.into(), self.one_in(4));
        self.nodes.push(Node { script, next, room, resets, errors, ..Node::default() });
    }

    /// Advances the time, at most to `until`, to the next event.
    fn advance(&mut self, until: Duration) {
        let now = self.now;
        let steps = self.nodes.iter().filter(|node| node.can_act()).map(|node| node.next);
        let ends = self.nodes.iter().filter_map(|node| Some(node.died?.0));
        let signals = self.signals.iter().map(|it| it.0);
        let next = steps.chain(ends.chain(signals).filter(|&it| it > now)).min();
        self.now = next.unwrap_or(until).min(until).max(now + Duration::from_micros(1));
        clock::simulate(Some(self.start + self.now));
        for at in 0..self.nodes.len() {
            while self.nodes[at].can_act() && self.nodes[at].next <= self.now {
                self.act(at);
            }
        }
    }

    /// Takes the next step of a node.
    fn act(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        node.read.append(&mut node.inbox);
        let Some((_, act)) = node.script.front().cloned() else { return };
        match act {
            Act::Print(bytes) => {
                node.greeted = Some(now);
                node.outbox.extend(bytes);
            }
            Act::Complain(line) => {
                if let Some((errors, _)) = &mut node.errors {
                    errors.extend(line.as_bytes());
                }
            }
            Act::ReadOrder => {
                let order = messages::take::<Order>(&mut node.read).expect("an order");
                let Some(order) = order else { return };
                assert_eq!(order.0, at as u32, "the order of another node");
                let time = now - node.greeted.expect("it has greeted");
                assert!(time < Duration::from_millis(500), "its order takes {time:?}");
            }
            Act::Ready => node.send(&Answer::<u32>::Ok(at as u32)),
            Act::ReadAll => {
                let all = messages::take::<Vec<u32>>(&mut node.read).expect("the addresses");
                let Some(all) = all else { return };
                let count = self.nodes.len() as u32;
                assert_eq!(all, Vec::from_iter(0..count), "the addresses of others");
            }
            Act::Begin => {
                node.has_begun = true;
                node.send(&Answer::Ok(Begun));
            }
            Act::Refuse(refusal) => node.send(&Answer::<u32>::Err(refusal)),
            Act::Close => node.is_closed = true,
            Act::Die(status, notice) => {
                node.is_closed = true;
                node.died = Some((now + notice, status));
                node.errors.iter_mut().for_each(|errors| errors.1 = false);
            }
        }
        let node = &mut self.nodes[at];
        node.script.pop_front();
        node.next = now + node.script.front().map_or(Duration::ZERO, |it| it.0);
    }
}

impl Node {
    /// Returns true if the node has a step that needs no more bytes.
    fn can_act(&self) -> bool {
        let reads = matches!(self.script.front(), Some((_, Act::ReadOrder | Act::ReadAll)));
        let has_bytes = !self.inbox.is_empty() || self.read.len() >= 4;
        !self.is_over && !self.script.is_empty() && (!reads || has_bytes && !self.is_partial())
    }

    /// Returns true if only a part of a message has arrived, and nothing is to be read.
    fn is_partial(&self) -> bool {
        let Some(header) = self.read.first_chunk() else { return self.inbox.is_empty() };
        let is_whole = self.read.len() >= 4 + u32::from_le_bytes(*header) as usize;
        !is_whole && self.inbox.is_empty()
    }

    /// Takes the bytes that the node has not read.
    pub fn take_inbox(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.inbox)
    }

    fn send(&mut self, message: &impl serde::Serialize) {
        self.outbox.extend(messages::encode(message).expect("it is short"));
    }
}

/// A node's process, and its starter's end of the channel.
pub struct Simulated {
    pub world: Rc<RefCell<World>>,
    pub node: usize,
    pub errors: Option<Errors>,
}

/// The standard error of a node's command.
pub struct Errors {
    pub world: Rc<RefCell<World>>,
    pub node: usize,
}

fn interrupted(world: &mut World) -> Result<()> {
    if world.one_in(8) {
        world.count(Path::Interrupted);
        return Err(ErrorKind::Interrupted.into());
    }
    if world.one_in(16) {
        world.count(Path::Again);
        return Err(ErrorKind::WouldBlock.into());
    }
    Ok(())
}

/// Moves bytes of a pipe into a buffer.
fn take(world: &mut World, bytes: &mut Vec<u8>, buffer: &mut [u8]) -> usize {
    let mut length = bytes.len().min(buffer.len());
    if length > 1 && world.one_in(3) {
        world.count(Path::PartialRead);
        length = world.random.usize(1..length);
    }
    buffer[..length].copy_from_slice(&bytes[..length]);
    bytes.drain(..length);
    length
}

impl Read for Simulated {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut world = self.world.borrow_mut();
        interrupted(&mut world)?;
        let mut bytes = std::mem::take(&mut world.nodes[self.node].outbox);
        if !bytes.is_empty() {
            let length = take(&mut world, &mut bytes, buffer);
            world.nodes[self.node].outbox = bytes;
            return Ok(length);
        }
        if !world.nodes[self.node].is_closed {
            return Err(ErrorKind::WouldBlock.into());
        }
        if world.nodes[self.node].resets {
            world.count(Path::Reset);
            return Err(ErrorKind::ConnectionReset.into());
        }
        Ok(0)
    }
}

impl Write for Simulated {
    fn write(&mut self, buffer: &[u8]) -> Result<usize> {
        let mut world = self.world.borrow_mut();
        if world.nodes[self.node].is_closed {
            world.count(Path::BrokenPipe);
            return Err(ErrorKind::BrokenPipe.into());
        }
        if world.nodes[self.node].waits {
            world.nodes[self.node].inbox.extend(buffer);
            return Ok(buffer.len());
        }
        interrupted(&mut world)?;
        let node = &world.nodes[self.node];
        let mut length = buffer.len().min(node.room.saturating_sub(node.inbox.len()));
        if length > 1 && world.one_in(3) {
            length = world.random.usize(1..length);
        }
        if length < buffer.len() {
            world.count(Path::PartialWrite);
        }
        world.nodes[self.node].inbox.extend(&buffer[..length]);
        if length == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(length) }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Read for Errors {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut world = self.world.borrow_mut();
        interrupted(&mut world)?;
        let Some((mut bytes, stays)) = world.nodes[self.node].errors.take() else {
            return Err(Error::other("no standard error"));
        };
        let is_open = stays || !world.nodes[self.node].is_closed;
        let length = take(&mut world, &mut bytes, buffer);
        world.nodes[self.node].errors = Some((bytes, stays));
        if length == 0 && is_open { Err(ErrorKind::WouldBlock.into()) } else { Ok(length) }
    }
}

impl Process for Simulated {
    fn errors(&mut self) -> Option<&mut impl Read> {
        self.errors.as_mut()
    }

    fn begin(&mut self, _: &str) {
        let node = &mut self.world.borrow_mut().nodes[self.node];
        assert!(node.has_begun && !node.waits, "it begins once");
        node.waits = true;
    }

    fn status(&mut self) -> Option<i32> {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let node = &mut world.nodes[self.node];
        let (_, status) = node.died.filter(|it| it.0 <= now)?;
        node.is_over = true;
        Some(status)
    }

    fn signal(&mut self, signal: i32) {
        self.world.borrow_mut().nodes[self.node].signals.push(signal);
    }

    fn end(&mut self) {
        let mut world = self.world.borrow_mut();
        if !std::mem::replace(&mut world.nodes[self.node].is_over, true) {
            world.count(Path::Killed);
        }
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.world.borrow_mut().nodes[self.node].is_left = true;
    }
}

/// The starter's system.
pub struct Starter(pub Rc<RefCell<World>>);

impl Starter {
    fn world(&self) -> RefMut<'_, World> {
        self.0.borrow_mut()
    }
}

impl System<Simulated> for Starter {
    fn wait(&self, events: &[(&Simulated, Events)], limit: Duration) {
        let mut world = self.world();
        let until = world.now + limit;
        loop {
            let before = world.now;
            let has_event = events.iter().any(|(process, events)| {
                let node = &world.nodes[process.node];
                let errors = node.errors.as_ref();
                let has_errors = |(bytes, stays): &(Vec<u8>, bool)| {
                    !bytes.is_empty() || node.is_closed && !stays
                };
                (events.input && (!node.outbox.is_empty() || node.is_closed))
                    || (events.output && (node.inbox.len() < node.room || node.is_closed))
                    || (events.errors && errors.is_some_and(has_errors))
            });
            if has_event {
                world.advance(before + Duration::from_micros(1));
                return;
            }
            if before >= until {
                return;
            }
            world.advance(until);
        }
    }

    fn sleep(&self, time: Duration) {
        let mut world = self.world();
        let until = world.now + time;
        while world.now < until {
            world.advance(until);
        }
    }

    fn pending(&self) -> Option<i32> {
        let mut world = self.world();
        let now = world.now;
        let at = world.signals.iter().position(|it| it.0 <= now)?;
        Some(world.signals.remove(at).1)
    }

    fn next(&self) -> (i32, bool) {
        let mut world = self.world();
        for _ in 0..100_000 {
            let now = world.now;
            let ended = |it: &Node| it.died.is_some_and(|it| it.0 <= now);
            let ended = (0..world.nodes.len())
                .find(|at| ended(&world.nodes[*at]) && !world.known.contains(at));
            if let Some(at) = ended {
                world.known.push(at);
                return (libc::SIGCHLD, false);
            }
            if let Some(at) = world.signals.iter().position(|it| it.0 <= now) {
                let (_, signal, from_terminal) = world.signals.remove(at);
                return (signal, from_terminal);
            }
            world.advance(now + Duration::from_secs(3600));
        }
        panic!("the program never ends");
    }

    fn end_as(&self, status: i32) -> i32 {
        self.world().ended_as = Some(status);
        status::shell_status(status)
    }
}

/// Returns the greeting of a node.
pub fn greeting(version: &str) -> Act {
    Act::Print(format!("nagaya-{} {version}\n", KIND.name).into_bytes())
}
