//! Faults of a simulated cluster: late messages, nodes that pause, a node that is lost, and random
//! messages.
//!
//! A random message goes to a copy of a node. A message that the copy refuses must not change it.

use coherence::content::Content;
use coherence::message::{Header, NodeId, Op};
use coherence::random::Random;
use coherence::ride::{By, Fate, Ride};
use coherence::run::{NOBODY, Run};
use coherence::{scope, sequential};

/// The faults of a run.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The source of all decisions.
    pub random: Random,
    /// Maximum delay of a message.
    pub delay_ns_max: usize,
    /// Maximum pause of a node.
    pub pause_ns_max: usize,
    /// The node that is lost, and the time of the loss.
    pub lost: Option<(NodeId, u64)>,
}

impl Faults {
    /// Returns the delay of the next message.
    pub(crate) fn delay_ns(&mut self) -> u64 {
        match self.random.one_in(3) {
            // Most delays are short, and some are very long.
            true => self.random.below(self.delay_ns_max) as u64 >> self.random.below(10),
            false => 0,
        }
    }

    /// Returns the pause of a node before its next step.
    pub(crate) fn pause_ns(&mut self) -> u64 {
        match self.random.one_in(20) {
            true => self.random.below(self.pause_ns_max) as u64,
            false => 0,
        }
    }

    /// Sends a random message to a copy of a node, at some of its steps. `sequential` is the part
    /// of the node that keeps the pages under sequential consistency.
    pub(crate) fn random_message(
        &mut self,
        scope: &scope::Node,
        sequential: Option<&sequential::Node>,
    ) -> Result<(), String> {
        if !self.random.one_in(8) {
            return Ok(());
        }
        match sequential {
            None => random_scope_message(&mut self.random, scope),
            Some(node) => random_sequential_message(&mut self.random, node),
        }
    }
}

fn random_scope_message(random: &mut Random, node: &scope::Node) -> Result<(), String> {
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
    let event = scope::Event::Message(header, content, rides.collect());
    let text = format!("{event:?}");
    let result = copy.step(event, node.now(), &mut actions);
    check(&text, result.is_err(), copy != *node || !actions.is_empty())
}

fn random_sequential_message(random: &mut Random, node: &sequential::Node) -> Result<(), String> {
    use sequential::message::{Header, Op};
    let header = Header {
        op: Op::ALL[random.below(Op::ALL.len())],
        from: random.below(6) as u32,
        to: if random.one_in(20) { random.below(6) as u32 } else { node.options().me },
        node: random.below(6) as u32,
        page: random.below(6) as u64,
        set: if random.one_in(2) { 0 } else { random.below(1 << 8) as u64 },
        whole: random.one_in(2),
        hops: 0,
        runs: 0,
    };
    let runs = (0..random.below(3)).map(|at| {
        let first = 3 * at as u64 + random.below(3) as u64;
        Run { first, pages: 1, writer: NOBODY }
    });
    let event = sequential::Event::Message(header, runs.collect());
    let text = format!("{event:?}");
    let (mut copy, mut actions) = (node.clone(), Vec::new());
    let result = copy.step(event, node.now(), &mut actions);
    check(&text, result.is_err(), copy != *node || !actions.is_empty())
}

fn check(event: &str, is_refused: bool, is_changed: bool) -> Result<(), String> {
    match is_refused && is_changed {
        true => Err(format!("a node refuses {event}, but its state changes")),
        false => Ok(()),
    }
}
