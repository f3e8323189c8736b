//! The messages that the ranks of an MPI job have counted (`libnagaya-traffic.so`): sums over the
//! ranks, as JSON and as text.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use traffic::{Record, Tally, range};

use crate::ps::human;

/// The variable by which the dynamic linker loads libraries before a program's own.
pub const PRELOAD: &str = "LD_PRELOAD";

/// Returns the value of [`PRELOAD`] with a library in front of those that it names already.
pub fn preload(library: &Path, before: Option<&OsStr>) -> OsString {
    let before = before.filter(|text| !text.is_empty());
    let all: Vec<&OsStr> = std::iter::once(library.as_os_str()).chain(before).collect();
    all.join(OsStr::new(":"))
}

/// Reads the records in a directory, in the order of the ranks.
pub fn read(directory: &Path) -> Vec<Record> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let mut records: Vec<Record> = texts.filter_map(|text| Record::parse(&text)).collect();
    records.sort_by_key(|record| record.rank);
    records.dedup_by_key(|record| record.rank);
    records
}

/// Why the counts of a job may have no data.
pub const NO_DATA: &str = "none was counted: the program sends none, or uses functions with 64-bit \
                           counts (mpi4py does, where the MPI has them)";

/// Where the receiver of a message is, seen from the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Where {
    /// It is the sender.
    Itself,
    /// On the same node.
    Node,
    /// On another node.
    OtherNode,
    /// A rank whose node is unknown: of another job, or one that left no record.
    Unknown,
}

impl Where {
    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Itself => "to itself",
            Self::Node => "within the node",
            Self::OtherNode => "between nodes",
            Self::Unknown => "to ranks of unknown nodes",
        }
    }
}

/// The messages of one range of sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Messages {
    #[serde(rename = "where")]
    to: Where,
    from_bytes: u64,
    to_bytes: u64,
    count: u64,
    bytes: u64,
}

/// The calls of a function with one range of sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calls {
    function: String,
    from_bytes: u64,
    to_bytes: u64,
    count: u64,
    bytes: u64,
    seconds: f64,
}

/// Large messages that a task has copied in user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Copies {
    pub count: u64,
    pub bytes: u64,
}

/// The counts of one rank, or the sums over all.
#[derive(Clone, Debug, Serialize)]
pub struct Counts {
    /// From the end of MPI_Init to the start of MPI_Finalize.
    pub seconds: f64,
    /// In functions of MPI; it includes the time in which they wait for other ranks.
    pub mpi_seconds: f64,
    pub copies_in_user_space: Copies,
    pub collectives_in_place: u64,
    pub messages: Vec<Messages>,
    pub calls: Vec<Calls>,
}

/// The messages from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Peer {
    rank: u32,
    count: u64,
    bytes: u64,
}

/// The counts of one rank.
#[derive(Clone, Debug, Serialize)]
pub struct Rank {
    rank: u32,
    host: String,
    task: Option<u32>,
    peers: Vec<Peer>,
    #[serde(flatten)]
    counts: Counts,
}

/// The counts of a job.
#[derive(Clone, Debug, Serialize)]
pub struct Job {
    /// Number of ranks of the job.
    pub ranks: u32,
    /// Number of ranks that left a record.
    pub ranks_counted: usize,
    /// Number of nodes with such ranks.
    pub nodes: usize,
    pub total: Counts,
    pub per_rank: Vec<Rank>,
}

const NS: f64 = 1e-9;

impl Counts {
    fn of(records: &[&Record], hosts: &BTreeMap<u32, &str>) -> Self {
        let (mut messages, mut calls) = (BTreeMap::new(), BTreeMap::new());
        for record in records {
            for message in &record.messages {
                let to = place(record, message.to, hosts);
                let sum: &mut Tally = messages.entry((to, message.class)).or_default();
                sum.add(message.tally);
            }
            for call in &record.calls {
                let sum: &mut Tally = calls.entry((&call.function, call.class)).or_default();
                sum.add(call.tally);
            }
        }
        let mpi_ns: u64 = calls.values().map(|tally| tally.time_ns).sum();
        let messages = messages.into_iter().map(|((to, class), Tally { count, bytes, .. })| {
            let (from_bytes, to_bytes) = range(class);
            Messages { to, from_bytes, to_bytes, count, bytes }
        });
        let calls =
            calls.into_iter().map(|((function, class), Tally { count, bytes, time_ns })| {
                let (from_bytes, to_bytes) = range(class);
                let seconds = time_ns as f64 * NS;
                Calls { function: function.clone(), from_bytes, to_bytes, count, bytes, seconds }
            });
        let sum = |of: fn(&Record) -> u64| records.iter().map(|record| of(record)).sum::<u64>();
        Self {
            seconds: sum(|it| it.time_ns) as f64 * NS,
            mpi_seconds: mpi_ns as f64 * NS,
            copies_in_user_space: Copies {
                count: sum(|it| it.copies.count),
                bytes: sum(|it| it.copies.bytes),
            },
            collectives_in_place: sum(|it| it.in_place),
            messages: messages.collect(),
            calls: calls.collect(),
        }
    }

    /// Returns true if calls with data were counted.
    pub fn has_data(&self) -> bool {
        self.calls.iter().any(|calls| calls.bytes > 0)
    }

    /// Returns the share of the ranks' time in functions of MPI, from 0 to 1.
    pub fn share(&self) -> f64 {
        if self.seconds > 0.0 { (self.mpi_seconds / self.seconds).min(1.0) } else { 0.0 }
    }

    /// Returns number and bytes of the messages to such ranks.
    pub fn sent(&self, to: Where) -> Copies {
        let these = self.messages.iter().filter(|messages| messages.to == to);
        these.fold(Copies::default(), |sum, it| Copies {
            count: sum.count + it.count,
            bytes: sum.bytes + it.bytes,
        })
    }
}

/// Returns where a message of a rank went.
fn place(from: &Record, to: Option<u32>, hosts: &BTreeMap<u32, &str>) -> Where {
    match to.map(|to| (to, hosts.get(&to))) {
        Some((to, _)) if to == from.rank => Where::Itself,
        Some((_, Some(&host))) if host == from.host => Where::Node,
        Some((_, Some(_))) => Where::OtherNode,
        _ => Where::Unknown,
    }
}

impl Job {
    /// Sums the records of a job. `None` if there is none.
    pub fn of(records: &[Record]) -> Option<Self> {
        let hosts: BTreeMap<u32, &str> =
            records.iter().map(|record| (record.rank, record.host.as_str())).collect();
        let nodes: BTreeSet<&str> = hosts.values().copied().collect();
        let all: Vec<&Record> = records.iter().collect();
        let per_rank = all.iter().map(|record| {
            let mut peers: BTreeMap<u32, Tally> = BTreeMap::new();
            for message in &record.messages {
                if let Some(to) = message.to {
                    peers.entry(to).or_default().add(message.tally);
                }
            }
            let peer = |(rank, Tally { count, bytes, .. })| Peer { rank, count, bytes };
            Rank {
                rank: record.rank,
                host: record.host.clone(),
                task: record.task,
                peers: peers.into_iter().map(peer).collect(),
                counts: Counts::of(&[record], &hosts),
            }
        });
        Some(Self {
            ranks: records.first()?.ranks,
            ranks_counted: records.len(),
            nodes: nodes.len(),
            total: Counts::of(&all, &hosts),
            per_rank: per_rank.collect(),
        })
    }

    /// Returns true if all ranks have left a record.
    pub fn is_complete(&self) -> bool {
        self.ranks as usize == self.ranks_counted
    }

    /// Describes the counts of all ranks, in lines.
    pub fn text(&self) -> String {
        let Self { ranks, ranks_counted, nodes, total, .. } = self;
        let mut text = match self.is_complete() {
            true => {
                format!("{ranks} ranks on {nodes} node{}\n", if *nodes == 1 { "" } else { "s" })
            }
            false => format!("{ranks_counted} of {ranks} ranks counted\n"),
        };
        let percent = total.share() * 100.0;
        let mean = |seconds: f64| seconds / *ranks_counted as f64;
        let (mpi, all) = (mean(total.mpi_seconds), mean(total.seconds));
        let _ = writeln!(
            text,
            "time in functions of MPI: {percent:.0} % ({mpi:.2} of {all:.2} s a rank, waits \
             included)"
        );
        let copies = total.copies_in_user_space;
        let _ = writeln!(
            text,
            "copies in user space: {} ({}); collective operations in place: {}",
            copies.count,
            human(copies.bytes),
            total.collectives_in_place
        );
        for to in [Where::Node, Where::OtherNode, Where::Itself, Where::Unknown] {
            let sent = total.sent(to);
            if sent.count > 0 {
                let _ = writeln!(
                    text,
                    "messages {}: {} ({})",
                    to.name(),
                    sent.count,
                    human(sent.bytes)
                );
                for of in total.messages.iter().filter(|messages| messages.to == to) {
                    let sizes = sizes(of.from_bytes, of.to_bytes);
                    let _ =
                        writeln!(text, "  {sizes:<22} {:>10} {:>11}", of.count, human(of.bytes));
                }
            }
        }
        if !total.has_data() {
            let _ = writeln!(text, "messages: {NO_DATA}");
        }
        text.push_str(&functions(&total.calls));
        text
    }
}

/// Number of functions that the text names.
const FUNCTIONS: usize = 8;

/// Describes the functions in which the ranks spent most time, a line each.
fn functions(calls: &[Calls]) -> String {
    let mut sums: BTreeMap<&str, (u64, u64, f64)> = BTreeMap::new();
    for call in calls {
        let sum = sums.entry(&call.function).or_default();
        *sum = (sum.0 + call.count, sum.1 + call.bytes, sum.2 + call.seconds);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(_, a), (_, b)| b.2.total_cmp(&a.2));
    let mut text = String::new();
    if !sums.is_empty() {
        text.push_str("time by function, over all ranks:\n");
    }
    for (function, (count, bytes, seconds)) in sums.into_iter().take(FUNCTIONS) {
        let bytes = human(bytes);
        let _ = writeln!(text, "  {function:<22} {count:>10} {bytes:>11} {seconds:>10.3} s");
    }
    text
}

/// Names a range of sizes.
fn sizes(from: u64, to: u64) -> String {
    match to {
        0 => "0 B".into(),
        _ if from == to => human(from),
        _ => format!("{} to {}", human(from), human(to.saturating_add(1))),
    }
}

/// Writes a report: JSON if the file's name ends in `.json`, else text.
pub fn write(file: &Path, json: &impl Serialize, text: &str) -> std::io::Result<()> {
    let content = match file.extension().is_some_and(|end| end == "json") {
        true => serde_json::to_string_pretty(json).expect("numbers and strings only") + "\n",
        false => text.to_owned(),
    };
    // A reader sees the whole file or none.
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}", std::process::id()));
    let part = PathBuf::from(part);
    std::fs::write(&part, content)?;
    std::fs::rename(&part, file).inspect_err(|_| {
        let _ = std::fs::remove_file(&part);
    })
}
