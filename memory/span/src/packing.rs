//! Decides on how many nodes a program's threads run (`--place auto`). They start on the origin,
//! are tried on all nodes when they wait for processors, and are packed on fewer nodes when they
//! slow each other down. This module is pure, so that it can be tested. The agent measures, and
//! moves threads.
//!
//! **The measure** is the number of processors that the program's threads really use, on all nodes
//! together: their running time divided by the elapsed time. A program that computes and shares
//! nothing uses all processors. Threads that wait for each other's pages use few, however many
//! processors there are.
//!
//! **Evidence for more nodes.** Nobody can predict which pages threads will share, so the policy
//! tries it. Threads that can run and wait for a processor for a part of the time ([`CROWD`]) are
//! tried on all nodes. A trial ends at once when it has cost [`LOSS_MIN_NS`] or a small part of the
//! time since the last one ([`LOSS_PART`]), as compared with the rate before. It succeeds if
//! threads used more processors by its end. It takes a small part of the pause before it
//! ([`TRIAL_PART`]), so that long ones leave time for many pages to move. Programs have phases, so
//! there are more trials after pauses. Each pause is twice the one before unless threads were
//! spread for longer than that, so there is no long oscillation. After a failed trial it is also so
//! long that the trial's cost is at most the part [`LOSS_PART`] of it.
//!
//! **Expectation for fewer nodes.** Threads that ran on R processors and waited for other nodes on
//! W (pages, round trips of calls to the origin) would use R + W. On k of K nodes a thread's data
//! are elsewhere in (k - 1) / k of the cases instead of (K - 1) / K, as in
//! [`estimate`](crate::estimate). So the threads would wait that much less, on one node not at
//! all, and run instead, but on no more processors than those nodes have. On two nodes with a
//! processor each the rule is: pack if R < 1 and R + W > R. Waits for other threads, for devices
//! or for nothing are not included: an idle thread stays.
//!
//! **Time of a decision.** Each sample adds the part of the time that would be gained, and the sum
//! decays. When it reaches [`LOST_NS`], threads are packed: after a tenth of a second if they make
//! no progress, after two thirds of a second if a fifth would be gained, never if less than a
//! tenth would. Samples without a gain reduce the sum. Sampling begins when a node's threads wait,
//! and ends when they do not.
//!
//! **Verification.** The expectation does not include processors that other programs use, nor
//! threads that spin. So the result is measured after packing. If threads then wait for processors
//! and use fewer than before, they return.

use serde::{Deserialize, Serialize};

/// Between two looks, in ns.
pub const LOOK_NS: u64 = 50_000_000;
/// The same while threads that wait for processors are counted, and in a trial.
const SHORT_LOOK_NS: u64 = 5_000_000;
/// A look after a longer time is the first of others.
const LOOK_MAX_NS: u64 = 8 * LOOK_NS;
/// Time that would have been gained, by which packing is decided.
const LOST_NS: f64 = 40e6;
/// Decay of the sum at the next sample: a gain below a tenth of the time never reaches the limit.
const STAYS: f64 = 0.95;
/// Minimum gain in processors: a nearly idle program is left alone.
const LEAST: f64 = 0.05;
/// Looks without anything to gain, after which there are no more.
const QUIET: u32 = 10;
/// Looks after threads have gone, in which pages follow them; and those then that count.
const SETTLE: u32 = 2;
const PROOF: u32 = 4;
/// Threads that can run wait for processors if they do so for this part of the time, together.
const CROWD: f64 = 0.3;
/// Looks by which that is decided.
const ASKS: u32 = 2;
/// The first and the longest time until the next of these decisions, in ns.
const ASK_AFTER_NS: u64 = 2 * SHORT_LOOK_NS;
const ASK_AFTER_MAX_NS: u64 = 250_000_000;
/// Cost that ends a trial: at least so many ns, or this part of the time since the last one.
const LOSS_MIN_NS: f64 = 20e6;
const LOSS_PART: f64 = 0.01;
/// The first pause, and the longest, in ns.
const PAUSE_NS: u64 = 1_000_000_000;
const PAUSE_MAX_NS: u64 = 32_000_000_000;
/// A trial takes this part of the pause before it, but at least so long, in ns.
const TRIAL_PART: u64 = 32;
const TRIAL_MIN_NS: u64 = 2 * LOOK_NS;
/// Minimum ratio by which the state before packing must be better.
const BETTER: f64 = 1.05;
/// The same for a trial: running time on several nodes is worth less, since caches are cold.
const WORTH: f64 = 1.15;
/// Cost of a fault to a thread besides the wait, in ns. It is not work of the program.
const STOP_NS: u64 = 3_000;

/// The totals of a node's threads until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// When that is: by the node's clock, in ns.
    pub at: u64,
    /// Total running time in ns.
    pub running: u64,
    /// Total time of waits for other nodes.
    pub waited: u64,
    /// Number of waits.
    pub stops: u64,
    /// Time for which threads that could run have waited for a processor, in ns, or
    /// [`UNKNOWN`].
    pub delayed: u64,
    /// Those that can run now.
    pub runnable: u32,
}

/// The kernel does not show how long threads have waited for a processor.
pub const UNKNOWN: u64 = u64::MAX;

/// In processors, on all nodes together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// On which threads ran.
    pub running: f64,
    /// For which they waited for other nodes.
    pub waited: f64,
    /// For which threads that could run waited.
    delayed: f64,
    /// Threads that could run at once.
    runnable: u32,
}

impl Rates {
    /// Returns true if threads wait for processors. A single thread waits for those of other
    /// programs: that is no reason to send it elsewhere.
    fn is_crowded(&self) -> bool {
        self.delayed > CROWD && self.runnable > 1
    }
}

/// Why threads go.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Why {
    /// They wait for other nodes. On fewer nodes they would run on this many processors.
    Expected(f64),
    /// Other programs use the processors. On more nodes the threads ran on this many.
    Disproved(f64),
    /// They may do better on all nodes by now.
    Trial,
    /// The trial failed. Before it, the threads ran on this many processors.
    Failed(f64),
}

/// Threads move to the first nodes of this number, and new ones start there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The number of nodes.
    pub nodes: usize,
    /// Why.
    pub why: Why,
    /// The measurement before.
    pub rates: Rates,
}

/// The state of the policy.
#[derive(Debug)]
pub struct Packing {
    /// Of all nodes.
    processors: Vec<u32>,
    /// The nodes in use.
    nodes: usize,
    doing: Doing,
    last: Option<Vec<Spent>>,
    next: Option<u64>,
    /// Since when threads are on all nodes.
    spread: u64,
    pause: u64,
    /// Until when things stay as they are.
    rest: u64,
    /// Time until the next question whether threads wait for processors, while they do not.
    ask_after_ns: u64,
    /// No trial has failed since threads were on fewer nodes: they rest only because they did not
    /// wait for processors.
    may_ask: bool,
}

#[derive(Debug)]
enum Doing {
    /// Checks whether fewer nodes would be better: the possible gain in ns, the total measurement,
    /// and the number of samples without a gain.
    Watching { gain: f64, sum: Sum, quiet: u32 },
    /// Threads have been packed, and ran on this many processors before.
    Proving { before: f64, sum: Sum, looks: u32 },
    /// A pause is over: checks whether any thread waits for a processor.
    Asking { sum: Sum },
    /// On all nodes from one time until another. Before, the threads ran on these nodes and this
    /// many processors; the time that has been lost since, in ns, of at most `allowed`.
    Trying { nodes: usize, before: f64, sum: Sum, from: u64, until: u64, lost: f64, allowed: f64 },
}

/// Of several looks.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    rates: Rates,
    looks: u32,
}

impl Sum {
    fn add(&mut self, rates: Rates) {
        self.rates.running += rates.running;
        self.rates.waited += rates.waited;
        self.rates.delayed += rates.delayed;
        self.rates.runnable = self.rates.runnable.max(rates.runnable);
        self.looks += 1;
    }

    fn mean(&self) -> Rates {
        let mean = |sum: f64| sum / f64::from(self.looks.max(1));
        let Rates { running, waited, delayed, runnable } = self.rates;
        Rates { running: mean(running), waited: mean(waited), delayed: mean(delayed), runnable }
    }
}

const WATCHING: Doing =
    Doing::Watching { gain: 0.0, sum: Sum { rates: NOTHING, looks: 0 }, quiet: 0 };
const NOTHING: Rates = Rates { running: 0.0, waited: 0.0, delayed: 0.0, runnable: 0 };

impl Packing {
    /// Creates the policy for nodes with these numbers of processors. Only the first is in use.
    pub fn new(processors: Vec<u32>) -> Self {
        Self {
            nodes: 1.min(processors.len()),
            processors,
            doing: WATCHING,
            last: None,
            next: Some(ASK_AFTER_NS),
            spread: 0,
            pause: PAUSE_NS / 2,
            rest: 0,
            ask_after_ns: ASK_AFTER_NS,
            may_ask: true,
        }
    }

    /// Returns the number of nodes in use, which are the first ones.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns true in a trial of more nodes.
    pub fn is_trying(&self) -> bool {
        matches!(self.doing, Doing::Trying { .. })
    }

    /// When the next look is due, if at all.
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    /// Of how many nodes it wants to know: others are left in peace.
    pub fn looks_at(&self) -> usize {
        match self.doing {
            Doing::Watching { .. } | Doing::Asking { .. } => self.nodes,
            Doing::Proving { .. } | Doing::Trying { .. } => self.processors.len(),
        }
    }

    /// All threads have come to the origin by themselves, since they use memory or make calls
    /// there. They count as packed.
    pub fn are_home(&mut self, now: u64) {
        if self.nodes > 1 {
            self.nodes = 1;
            self.doing = WATCHING;
            self.packs(now);
            self.next = Some(self.rest);
        }
    }

    /// A thread starts. It may soon wait for a processor.
    pub fn starts_thread(&mut self, now: u64) {
        self.ask_after_ns = ASK_AFTER_NS;
        if matches!(self.doing, Doing::Watching { .. }) && self.may_ask && self.rest > now {
            self.rest = self.rest.min(now + SHORT_LOOK_NS);
            self.next = self.next.map(|next| next.min(self.rest));
        }
    }

    /// Threads of some node wait much.
    pub fn waits(&mut self, now: u64) {
        // On one node there are no waits for others; threads that moved there need not be counted.
        if matches!(self.doing, Doing::Watching { .. }) && self.nodes > 1 {
            self.next = Some(self.next.map_or(now, |next| next.min(now + LOOK_NS)));
        }
    }

    /// Adds a sample of all nodes. For nodes that were not queried it contains the earlier values.
    pub fn look(&mut self, now: u64, spent: &[Spent]) -> Option<Change> {
        let asked = self.looks_at();
        let last = self.last.replace(spent.to_vec());
        let rates = last.and_then(|last| rates(&last[..asked], &spent[..asked]));
        if matches!(self.doing, Doing::Watching { .. })
            && self.nodes < self.processors.len()
            && now >= self.rest
        {
            if spent[..asked].iter().all(|node| node.runnable == 0) {
                self.waits_again(now);
                return None;
            }
            self.doing = Doing::Asking { sum: Sum::default() };
        }
        self.next = Some(now + self.until_next());
        let rates = rates?;
        let change = match &mut self.doing {
            Doing::Watching { .. } => self.watch(now, rates),
            Doing::Proving { before, sum, looks } => {
                *looks += 1;
                if *looks > SETTLE {
                    sum.add(rates);
                }
                let (before, sum) = (*before, *sum);
                (sum.looks == PROOF).then(|| self.proved(now, before, sum.mean())).flatten()
            }
            Doing::Asking { sum } => {
                sum.add(rates);
                let sum = *sum;
                (sum.looks == ASKS).then(|| self.asked(now, sum.mean())).flatten()
            }
            Doing::Trying { nodes, before, sum, from, until, lost, allowed } => {
                // In the first half threads go, and pages follow them.
                if now >= *from + (*until - *from) / 2 {
                    sum.add(rates);
                }
                *lost = (*lost + (*before - rates.running) * SHORT_LOOK_NS as f64).max(0.0);
                let (is_lost, is_over) = (*lost > *allowed, now >= *until);
                let (nodes, before, lost) = (*nodes, *before, *lost);
                let rates = if is_over { sum.mean() } else { rates };
                let change = || self.tried(now, nodes, before, rates, lost);
                (is_lost || is_over).then(change).flatten()
            }
        };
        if let Some(change) = change {
            self.nodes = change.nodes;
        }
        change
    }

    /// Returns the time until the next look.
    fn until_next(&self) -> u64 {
        match self.doing {
            Doing::Watching { .. } | Doing::Proving { .. } => LOOK_NS,
            Doing::Asking { .. } | Doing::Trying { .. } => SHORT_LOOK_NS,
        }
    }

    fn watch(&mut self, now: u64, rates: Rates) -> Option<Change> {
        let best = self.best(rates);
        let (is_all, may) = (self.nodes == self.processors.len(), now >= self.rest);
        let Doing::Watching { gain, sum, quiet } = &mut self.doing else { return None };
        let is_better = |(_, expected): &(usize, f64)| expected - rates.running > LEAST;
        *gain *= STAYS;
        match best.filter(is_better) {
            Some((_, expected)) => {
                *quiet = 0;
                sum.add(rates);
                *gain += (1.0 - rates.running / expected) * LOOK_NS as f64;
                *gain = gain.min(LOST_NS);
            }
            None => {
                *quiet += 1;
                *gain -= LOOK_NS as f64;
                if *gain <= 0.0 {
                    (*gain, *sum) = (0.0, Sum::default());
                }
            }
        }
        if *quiet >= QUIET {
            self.doing = WATCHING;
            self.next = (!is_all).then_some(self.rest);
            return None;
        }
        if *gain < LOST_NS || (is_all && !may) {
            return None;
        }
        let rates = sum.mean();
        let (nodes, expected) = self.best(rates)?;
        self.doing = Doing::Proving { before: rates.running, sum: Sum::default(), looks: 0 };
        if is_all {
            self.packs(now);
        }
        Some(Change { nodes, why: Why::Expected(expected), rates })
    }

    /// Fewer nodes than now, and on how many processors threads would run there: the fewest
    /// that are as good as any.
    fn best(&self, rates: Rates) -> Option<(usize, f64)> {
        let elsewhere = |nodes: usize| (nodes - 1) as f64 / nodes as f64;
        let wanted = rates.running + rates.waited;
        let expected = |nodes: usize| {
            let waited = rates.waited * elsewhere(nodes) / elsewhere(self.nodes);
            let share = if waited > 0.0 { rates.running / (rates.running + waited) } else { 1.0 };
            (wanted * share).min(self.processors_of(nodes))
        };
        let all = (1..self.nodes).map(|nodes| (nodes, expected(nodes)));
        all.reduce(|best, it| if it.1 > BETTER * best.1 { it } else { best })
    }

    fn processors_of(&self, nodes: usize) -> f64 {
        self.processors[..nodes].iter().sum::<u32>().into()
    }

    /// A pause begins, since threads are packed or are to stay spread.
    fn packs(&mut self, now: u64) {
        self.pause = match now.saturating_sub(self.spread) < 2 * self.pause {
            true => (2 * self.pause).min(PAUSE_MAX_NS),
            false => PAUSE_NS,
        };
        self.rest = now + self.pause;
        self.may_ask = false;
    }

    fn proved(&mut self, now: u64, before: f64, rates: Rates) -> Option<Change> {
        self.doing = WATCHING;
        if BETTER * rates.running < before && rates.is_crowded() {
            self.pause = (2 * self.pause).min(PAUSE_MAX_NS);
            self.rest = now + self.pause;
            self.spread = self.rest;
            let why = Why::Disproved(before);
            return Some(Change { nodes: self.processors.len(), why, rates });
        }
        if self.nodes == 1 {
            self.next = Some(self.rest);
        }
        None
    }

    /// Nobody would use more processors: the question comes again later.
    fn waits_again(&mut self, now: u64) {
        self.doing = WATCHING;
        self.may_ask = true;
        self.rest = now + self.ask_after_ns;
        self.ask_after_ns = (2 * self.ask_after_ns).min(ASK_AFTER_MAX_NS);
        self.next = Some(self.rest);
    }

    fn asked(&mut self, now: u64, rates: Rates) -> Option<Change> {
        if !rates.is_crowded() {
            self.waits_again(now);
            return None;
        }
        let until = now + (self.pause / TRIAL_PART).max(TRIAL_MIN_NS);
        let allowed = (LOSS_PART * now.saturating_sub(self.spread) as f64).max(LOSS_MIN_NS);
        let (nodes, before, sum) = (self.nodes, rates.running, Sum::default());
        self.doing = Doing::Trying { nodes, before, sum, from: now, until, lost: 0.0, allowed };
        self.next = Some(now + SHORT_LOOK_NS);
        self.ask_after_ns = ASK_AFTER_NS;
        self.spread = now;
        Some(Change { nodes: self.processors.len(), why: Why::Trial, rates })
    }

    fn tried(
        &mut self,
        now: u64,
        nodes: usize,
        before: f64,
        rates: Rates,
        lost: f64,
    ) -> Option<Change> {
        self.doing = WATCHING;
        if rates.running > WORTH * before {
            return None;
        }
        // Not all nodes, but perhaps more than before.
        let fewer = self.best(rates).filter(|it| it.0 > nodes && it.1 > WORTH * before);
        if let Some((nodes, expected)) = fewer {
            self.doing = Doing::Proving { before, sum: Sum::default(), looks: 0 };
            self.packs(now);
            return Some(Change { nodes, why: Why::Expected(expected), rates });
        }
        self.packs(now);
        self.rest = self.rest.max(now + (lost / LOSS_PART) as u64);
        if nodes == 1 {
            self.next = Some(self.rest);
        }
        Some(Change { nodes, why: Why::Failed(before), rates })
    }
}

/// Between two looks, unless a node's are too far from each other.
fn rates(last: &[Spent], spent: &[Spent]) -> Option<Rates> {
    let mut all = NOTHING;
    for (last, now) in last.iter().zip(spent) {
        let time = now.at.saturating_sub(last.at);
        if !(1..=LOOK_MAX_NS).contains(&time) {
            return None;
        }
        let stops = STOP_NS.saturating_mul(now.stops.saturating_sub(last.stops));
        let running = now.running.saturating_sub(last.running).saturating_sub(stops);
        let running = running as f64 / time as f64;
        all.runnable = all.runnable.saturating_add(now.runnable);
        all.running += running;
        all.waited += now.waited.saturating_sub(last.waited) as f64 / time as f64;
        all.delayed += match now.delayed {
            UNKNOWN => (f64::from(now.runnable) - running).max(0.0),
            // A thread that has exited takes its time along.
            delayed => delayed.saturating_sub(last.delayed) as f64 / time as f64,
        };
    }
    Some(all)
}

#[cfg(test)]
mod tests;
