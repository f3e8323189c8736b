//! Random programs whose results are known, on random clusters: messages come late, nodes stand
//! still, one may be lost in the middle, and nonsense comes to all.
//!
//! What must hold: every read gives what scope consistency promises, everybody comes to the
//! end, unless a node was lost, and then nobody does anything wrong; the recording of each node
//! gives the same again; and a message that makes no sense is refused, and changes nothing.
//! [`racing`] has programs that only sequential consistency gives a meaning.

use coherence::content::Content;
use coherence::message::{Header, NodeId, Op};
use coherence::record;
use coherence::ride::{By, Fate, Ride};
use coherence::run::Run;
use coherence::scope::{Event, Node};
use coherence::story::{Operation, Random, Size, Story, story};

use crate::cluster::Cluster;
use crate::host::Host;
use crate::machine::{Machine, Setup, Stuck};
use crate::program::{Allocation, Program};
use crate::protocol::Consistency;
use crate::task::{Life, Me};

pub mod racing;

/// What goes wrong on a cluster.
#[derive(Clone, Debug)]
pub struct Faults {
    random: Random,
    /// How long a message is held up, at most.
    late_ns: usize,
    /// How long a node stands still, at most.
    pause_ns: usize,
    /// Which node is lost, and when.
    pub(crate) lost: Option<(NodeId, u64)>,
}

impl Faults {
    /// How long the next message is held up.
    pub(crate) fn delay(&mut self) -> u64 {
        match self.random.one_in(3) {
            // Most are not, and some are for very long.
            true => self.random.below(self.late_ns) as u64 >> self.random.below(10),
            false => 0,
        }
    }

    /// How long the node stands still before its next step.
    pub(crate) fn pause(&mut self) -> u64 {
        match self.random.one_in(20) {
            true => self.random.below(self.pause_ns) as u64,
            false => 0,
        }
    }

    /// Tells a copy of the node something that makes no sense, most likely.
    pub(crate) fn nonsense(&mut self, host: &Host) -> Result<(), String> {
        if !self.random.one_in(8) {
            return Ok(());
        }
        match &host.sequential {
            None => self.scope_nonsense(&host.node),
            Some(node) => racing::nonsense(&mut self.random, node),
        }
    }

    fn scope_nonsense(&mut self, node: &Node) -> Result<(), String> {
        let random = &mut self.random;
        let op = Op::ALL[random.below(Op::ALL.len())];
        let header = Header {
            op,
            from: random.below(6) as u32,
            to: if random.one_in(20) { random.below(6) as u32 } else { node.options().me },
            lock: random.below(12) as u32,
            scope: random.below(6) as u64,
            epoch: (node.epoch() + random.below(3) as u64).saturating_sub(1),
            rides: 0,
        };
        let content = match random.below(4) {
            0 => Content::Empty,
            1 => Content::Page,
            2 => Content::Diffs((0..random.below(3)).map(|_| random.below(6) as u64).collect()),
            _ => {
                let mut first = 0;
                let runs = (0..random.below(4)).map(|_| {
                    let begin = first + random.below(3) as u64;
                    first = begin + 1 + random.below(3) as u64;
                    Run { first: begin, pages: first - begin, writer: random.below(6) as u32 }
                });
                Content::Runs(runs.collect())
            }
        };
        let mut copy = node.clone();
        let mut actions = Vec::new();
        let rides = (0..random.below(3)).map(|_| Ride {
            page: random.below(6) as u64,
            by: By::ALL[random.below(By::ALL.len())],
            fate: Fate::ALL[random.below(Fate::ALL.len())],
        });
        let event = Event::Message(header, content, rides.collect());
        let told = format!("{event:?}");
        if copy.step(event, node.now(), &mut actions).is_err()
            && (copy != *node || !actions.is_empty())
        {
            return Err(format!("node {}: {told} is refused, and changed it", header.to));
        }
        Ok(())
    }
}

struct Told<'a> {
    story: &'a Story,
    page_bytes: u64,
}

impl Program for Told<'_> {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, tasks: u64, page_bytes: u64) -> Vec<Allocation> {
        let nodes = self.story.nodes.len() as u32;
        let home = |page| u64::from(self.story.homes.of(page, nodes)) * tasks / u64::from(nodes);
        (0..self.story.pages).map(|page| Allocation::on(home(page), page_bytes)).collect()
    }

    fn task(&self, me: Me, _: &[u64]) -> Life {
        let each = me.tasks as usize / self.story.nodes.len();
        let (node, task) = (me.task as usize / each, me.task as usize % each);
        let script = self.story.nodes[node][task].clone();
        let page_bytes = self.page_bytes;
        Box::pin(async move {
            for next in script {
                match next {
                    Operation::Expect(page, at, value) => {
                        let at = page * page_bytes + at as u64;
                        let read = me.load(at..at + 1).await[0];
                        if read != value {
                            me.wrong(format!("byte {at} is {read}, not {value}"));
                        }
                    }
                    Operation::Write(page, at, value) => {
                        me.store(page * page_bytes + at as u64, &[value]).await;
                    }
                    Operation::Add(page, at) => {
                        let at = page * page_bytes + at as u64;
                        let read = me.load(at..at + 1).await[0];
                        me.store(at, &[read.wrapping_add(1)]).await;
                    }
                    Operation::Lock(lock) => me.lock(lock).await,
                    Operation::Unlock(lock) => me.unlock(lock).await,
                    Operation::Barrier => me.barrier().await,
                    Operation::Set(variable) => me.set(variable).await,
                    Operation::Reset(variable) => me.reset(variable).await,
                    Operation::Wait(variable) => me.wait(variable).await,
                    Operation::Meet => me.meet().await,
                }
                me.compute(1, 1000.0).await;
            }
        })
    }
}

/// Runs the program of a seed.
///
/// # Errors
/// What went wrong.
pub fn run(seed: u64) -> Result<(), String> {
    const PAGE_BYTES: usize = 4;
    let mut random = Random::new(seed);
    let size = match random.one_in(50) {
        true => Size { nodes: 24, tasks: 1, same: true },
        false => Size { nodes: 6, tasks: 3, same: true },
    };
    let story = story(&mut random, size, PAGE_BYTES);
    let nodes = story.nodes.len() as u32;
    let cluster = if random.one_in(2) { "paper" } else { "current" };
    let setup = Setup {
        cluster: Cluster::known(cluster).expect("it is known"),
        nodes,
        tasks: story.nodes[0].len() as u32,
        page_bytes: PAGE_BYTES,
        consistency: Consistency::Scope,
        copies_max: u64::MAX,
        migrate: story.migrate,
        alone: story.alone,
        rides: story.rides,
        contention: random.one_in(2),
    };
    let scale = if cluster == "paper" { 400_000 } else { 15_000 };
    let lost = random
        .one_in(10)
        .then(|| (random.below(nodes as usize) as NodeId, random.below(100 * scale) as u64));
    let late_ns = scale << random.below(6);
    let pause_ns = scale << random.below(6);
    let mut machine = Machine::new(&setup, &Told { story: &story, page_bytes: PAGE_BYTES as u64 });
    machine.record();
    machine.disturb(Faults { random, late_ns, pause_ns, lost });
    match machine.run() {
        Ok(_) => {}
        // Those who wait for the node that is lost.
        Err(Stuck::Waiting(_)) if lost.is_some() => {}
        Err(stuck) => return Err(format!("{stuck:?}")),
    }
    for (node, recording) in machine.recordings().iter().enumerate() {
        record::replay(recording).map_err(|differs| format!("node {node}: {differs:?}"))?;
    }
    Ok(())
}
