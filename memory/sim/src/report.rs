//! The outcome of a run, and tables of several outcomes.

use std::fmt::Write;

use coherence::message::{NodeId, Op};
use coherence::ride::Carrier;
use coherence::scope::statistics::{RideStatistics, Rides, Statistics};
use coherence::sequential;

/// The reason of a task's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A page.
    Fault,
    /// A lock.
    Lock,
    /// A barrier.
    Barrier,
    /// A condition variable.
    Condition,
}

impl Wait {
    /// Returns the name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Fault => "fault",
            Wait::Lock => "lock",
            Wait::Barrier => "barrier",
            Wait::Condition => "condition",
        }
    }
}

/// The reason why a program did not reach its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Nothing happens any more, and some tasks have not ended. For each of them: the node, the
    /// task, and its state.
    Deadlock(Vec<(NodeId, u32, String)>),
    /// A node refused a message, or a task misused the protocol: a defect of the protocol or of the
    /// program.
    Violation(String),
}

/// The outcome of a run. Counts cover the whole run and all nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of tasks per node.
    pub tasks: u32,
    /// The time between the program's marks. Without a start mark, it counts from the beginning.
    pub time_ns: u64,
    /// The time from the start of the program to its end.
    pub whole_ns: u64,
    /// Number of messages between nodes, by [`Op`].
    pub messages: [u64; Op::ALL.len()],
    /// Number of messages of sequential consistency, by [`Op`](sequential::message::Op).
    pub sequential: [u64; sequential::message::Op::ALL.len()],
    /// Size of all messages in bytes, with their headers.
    pub bytes: u64,
    /// Read faults.
    pub read_faults: u64,
    /// Write faults.
    pub write_faults: u64,
    /// Pages whose diffs were sent.
    pub diffs: u64,
    /// Pages whose home or owner moved.
    pub moved: u64,
    /// Statistics of rides, by [`Carrier`] and [`By`](coherence::ride::By).
    pub rides: Rides,
    /// Total time that tasks computed.
    pub computed_ns: u64,
    /// Total time that tasks waited, by [`Wait`].
    pub waited_ns: [u64; 4],
    /// Number of occurrences in the simulation.
    pub events: u64,
    started_ns: Option<u64>,
}

impl Outcome {
    pub(crate) fn new(nodes: u32, tasks: u32) -> Self {
        Self {
            nodes,
            tasks,
            time_ns: 0,
            whole_ns: 0,
            messages: [0; Op::ALL.len()],
            sequential: [0; sequential::message::Op::ALL.len()],
            bytes: 0,
            read_faults: 0,
            write_faults: 0,
            diffs: 0,
            moved: 0,
            rides: Rides::default(),
            computed_ns: 0,
            waited_ns: [0; 4],
            events: 0,
            started_ns: None,
        }
    }

    /// Records a mark of the program: the start or the end of the measured part.
    pub(crate) fn mark(&mut self, starts: bool, now: u64) {
        match (starts, self.started_ns) {
            (true, _) => self.started_ns = Some(now),
            (false, started) => self.time_ns = now - started.unwrap_or(0),
        }
    }

    pub(crate) fn add_wait(&mut self, wait: Wait, ns: u64) {
        self.waited_ns[wait as usize] += ns;
    }

    /// Adds the statistics of a node.
    pub(crate) fn add(&mut self, node: &Statistics) {
        for (sum, sent) in self.messages.iter_mut().zip(node.messages) {
            *sum += sent;
        }
        self.read_faults += node.read_faults;
        self.write_faults += node.write_faults;
        self.diffs += node.diffs;
        self.moved += node.gained;
        for (sums, counts) in self.rides.iter_mut().zip(&node.rides) {
            sums.iter_mut().zip(counts).for_each(|(sum, counts)| sum.add(counts));
        }
    }

    /// Adds the statistics of a node's pages under sequential consistency.
    pub(crate) fn add_sequential(&mut self, node: &sequential::statistics::Statistics) {
        for (sum, sent) in self.sequential.iter_mut().zip(node.messages) {
            *sum += sent;
        }
        self.read_faults += node.read_faults;
        self.write_faults += node.write_faults;
        self.moved += node.moved;
        let sums = &mut self.rides[Carrier::Page as usize];
        sums.iter_mut().zip(&node.rides).for_each(|(sum, counts)| sum.add(counts));
    }

    /// Returns the number of messages of this operation.
    pub fn sent(&self, op: Op) -> u64 {
        self.messages[op as usize - 1]
    }

    /// Returns the number of page messages. Sakaguchi et al. count OP_GETPGRANT and OP_BARRGRANT;
    /// OP_PUSH is not part of their protocol and counts too. With sequential consistency, page
    /// messages are the grants of pages.
    pub fn page_messages(&self) -> u64 {
        match self.page_grants() {
            0 => self.sent(Op::GetPageGrant) + self.sent(Op::BarrierGrant) + self.sent(Op::Push),
            grants => grants,
        }
    }

    /// Returns the number of page grants with sequential consistency.
    fn page_grants(&self) -> u64 {
        use sequential::message::Op::{GrantRead, GrantWrite};
        [GrantRead, GrantWrite].iter().map(|&op| self.sequential[op as usize - 1]).sum()
    }

    /// Returns the number of all messages.
    pub fn all_messages(&self) -> u64 {
        self.messages.iter().chain(&self.sequential).sum()
    }
}

/// The columns of both tables.
const COLUMNS: [&str; 13] = [
    "nodes",
    "tasks",
    "time_s",
    "speedup",
    "pages",
    "page_messages",
    "messages",
    "bytes",
    "diffs",
    "work",
    "faults",
    "locks",
    "barriers",
];

/// Returns one line of a table. The last four cells are shares of all tasks' time, in percent.
fn cells(outcome: &Outcome, one: Option<&Outcome>) -> [String; COLUMNS.len()] {
    let speedup = one.map(|one| one.time_ns as f64 / outcome.time_ns.max(1) as f64);
    let tasks = u64::from(outcome.nodes) * u64::from(outcome.tasks);
    let whole = (outcome.whole_ns * tasks).max(1) as f64;
    let share = |ns: u64| format!("{:.1}", ns as f64 * 100.0 / whole);
    let [fault, lock, barrier, condition] = outcome.waited_ns;
    [
        outcome.nodes.to_string(),
        tasks.to_string(),
        format!("{:.6}", outcome.time_ns as f64 / 1e9),
        speedup.map_or("-".into(), |speedup| format!("{speedup:.2}")),
        (outcome.sent(Op::GetPageGrant) + outcome.page_grants()).to_string(),
        outcome.page_messages().to_string(),
        outcome.all_messages().to_string(),
        outcome.bytes.to_string(),
        outcome.diffs.to_string(),
        share(outcome.computed_ns),
        share(fault),
        share(lock + condition),
        share(barrier),
    ]
}

/// Returns the runs of a program as aligned columns. `one` is the reference for speed-ups.
pub fn table(runs: &[Outcome], one: Option<&Outcome>) -> String {
    let mut lines = vec![COLUMNS.map(String::from)];
    lines.extend(runs.iter().map(|run| cells(run, one)));
    for (at, line) in lines.iter_mut().enumerate() {
        for share in &mut line[COLUMNS.len() - 4..] {
            share.push_str(if at == 0 { " %" } else { "" });
        }
    }
    let widths = (0..COLUMNS.len()).map(|at| lines.iter().map(|line| line[at].len()).max());
    let widths: Vec<usize> = widths.flatten().collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "))
            .expect("a string takes all text");
    }
    text
}

/// Returns the statistics of rides, run by run. The text is empty without rides.
pub fn rides(runs: &[Outcome]) -> String {
    let mut text = String::new();
    for run in runs {
        for (carrier, by, it) in coherence::scope::statistics::each(&run.rides) {
            let saved = it.used as f64 * 100.0 / it.sent.max(1) as f64;
            writeln!(
                text,
                "{} nodes: {} rides by {}: predicted {}, sent {}, used {} ({saved:.1} %), wasted \
                 {}, late {}",
                run.nodes,
                carrier.name(),
                by.name(),
                it.predicted,
                it.sent,
                it.used,
                it.wasted,
                it.late,
            )
            .expect("a string takes all text");
        }
    }
    text
}

/// Returns the header line of a CSV file.
pub fn csv_head() -> String {
    format!("program,cluster,{},rides,rides_used,rides_wasted,rides_late\n", COLUMNS.join(","))
}

/// Returns the runs of a program as lines of a CSV file.
pub fn csv(program: &str, cluster: &str, runs: &[Outcome], one: Option<&Outcome>) -> String {
    let mut text = String::new();
    for run in runs {
        let cells = cells(run, one).join(",");
        let mut all = RideStatistics::default();
        run.rides.iter().flatten().for_each(|rides| all.add(rides));
        let RideStatistics { sent, used, wasted, late, .. } = all;
        writeln!(text, "{program},\"{cluster}\",{cells},{sent},{used},{wasted},{late}")
            .expect("a string takes all text");
    }
    text
}
