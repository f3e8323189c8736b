//! The system test of the Multiple PVAS paper with today's components: a requester sends and puts
//! to an accepter through UCX, directly and through a delegatee. The paper also predicts that
//! delegating a whole collective pays if the requester's core is slow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::slow::Slow;
use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mpi::Mpi;
use crate::programs;
use crate::progress::progress;
use crate::sizes;
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::target::{Bound, Target};

/// UCX's transports: name and UCX_TLS. With one device only, since TCP of UCX 1.13 crashes with
/// two.
const TRANSPORTS: [(&str, &str); 2] = [("shared memory", "shm,self"), ("TCP", "tcp,self")];

/// Bytes from which delegated transfers take as long as direct ones in the paper.
const LARGE_BYTES: usize = 4 << 10;
/// Maximum ratio that counts as equal.
const EQUAL_RATIO_MAX: f64 = 1.03;
/// Maximum overhead for smaller ones, in microseconds; 0.4 to 1.9 in the paper.
const ADDED_US_MAX: f64 = 0.8;

/// Factor between the durations of a collective and of a transfer: it must last for many periods of
/// the quota of a slow core.
const COLLECTIVE_FACTOR: u32 = 30;
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Number of ranks, and bytes per rank of a collective.
const RANKS: usize = 2;
const COLLECTIVE_BYTES: [usize; 3] = [8, 8 << 10, 1 << 20];

/// Operation, transport or core, number of bytes.
type Case = (String, &'static str, usize);

/// Times in nanoseconds, in the order of the rounds: direct, delegated.
#[derive(Default)]
struct Times(BTreeMap<Case, [Vec<f64>; 2]>);

const WAYS: [&str; 2] = ["direct", "delegated"];

impl Times {
    /// Parses the output of a program: operation, direct or delegated, bytes, ns.
    fn read(&mut self, place: &'static str, output: &str) -> Option<()> {
        for line in output.lines() {
            let [what, way, bytes, ns] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                return None;
            };
            let way = WAYS.iter().position(|of| *of == way)?;
            let case = (what.to_string(), place, bytes.parse().ok()?);
            self.0.entry(case).or_default()[way].push(ns.parse().ok()?);
        }
        Some(())
    }

    fn of(&self, what: &str, place: &str) -> impl Iterator<Item = (usize, &[Vec<f64>; 2])> {
        let cases = self.0.iter().filter(move |((w, p, _), _)| w == what && *p == place);
        cases.map(|((_, _, bytes), times)| (*bytes, times))
    }

    /// Returns the largest median, over these sizes, of a function of the two times.
    fn worst(
        &self,
        what: &str,
        place: &str,
        counts: impl Fn(usize) -> bool,
        of: impl Fn(f64, f64) -> f64,
    ) -> Option<Spread> {
        let sizes = self.of(what, place).filter(|(bytes, _)| counts(*bytes));
        let spreads = sizes.map(|(_, [direct, delegated])| {
            let pairs = direct.iter().zip(delegated).map(|(a, b)| of(*a, *b));
            Spread::of(&pairs.collect::<Vec<_>>())
        });
        spreads.max_by(|a, b| a.median.total_cmp(&b.median))
    }

    fn print(&self, whats: [&str; 2], title: &str) {
        let mut table =
            Table::new(["", "", "bytes", "direct µs", "delegated µs", "added µs", "ratio"]);
        for ((what, place, bytes), times) in &self.0 {
            if !whats.contains(&what.as_str()) {
                continue;
            }
            let [direct, delegated] = times.each_ref().map(|ns| Spread::of(ns).median / 1000.0);
            table.row([
                what.clone(),
                place.to_string(),
                sizes::shown(*bytes),
                three_digits(direct),
                three_digits(delegated),
                format!("{:+.2}", delegated - direct),
                format!("{:.2}", delegated / direct),
            ]);
        }
        table.print(title);
    }
}

/// Measures, prints tables, writes `delegate-system.csv`; returns the targets.
pub fn run(
    rounds: u32,
    milliseconds: u32,
    sizes: &[usize],
    nagaya: &Nagaya,
    out: &Path,
) -> Result<Vec<Target>, Failure> {
    let ucx = programs::compile_with_delegate_ucx("delegate_ucx", nagaya, out)?;
    let mpi = programs::compile_with_delegate_mpi("delegate_mpi", Mpi::Ompi4, nagaya, out)?;
    let slow = Slow::make(RANKS);
    let mut times = Times::default();
    for round in 1..=rounds {
        progress(&format!("delegate, system test, round {round} of {rounds}"));
        for (place, transports) in TRANSPORTS {
            let mut command = Command::new(&nagaya.command);
            command.args(["run", "-K", "-n", "3"]).arg(&ucx).arg("1");
            command.arg(milliseconds.to_string()).args(sizes.iter().map(usize::to_string));
            command.env("UCX_TLS", transports).env("UCX_NET_DEVICES", "lo");
            take(&mut times, place, &mut command)?;
        }
        for (place, group) in [("own core", None), ("slow core", slow.as_ref())] {
            if place == "slow core" && group.is_none() {
                continue;
            }
            for way in WAYS {
                let mut command = match way {
                    "direct" => Mpi::Ompi4.unbound(RANKS, &mpi)?,
                    _ => {
                        let mut command = Mpi::Ompi4.unbound(RANKS, &nagaya.command)?;
                        command.args(["run", "-K", "-n", "2"]).arg(&mpi);
                        command
                    }
                };
                let group = group.map_or(PathBuf::from("-"), |slow| slow.prefix.clone());
                command.arg(way).arg((COLLECTIVE_FACTOR * milliseconds).to_string()).arg(group);
                let sizes = COLLECTIVE_BYTES.iter().take(if milliseconds < 5 {
                    1
                } else {
                    COLLECTIVE_BYTES.len()
                });
                command.args(sizes.map(usize::to_string));
                take(&mut times, place, &mut command)?;
            }
        }
    }
    progress("");
    times.print(["send", "put"], "a transfer until its bytes may change, through UCX; medians");
    times.print(["allreduce", "alltoall"], "a collective of two Open MPI ranks; medians");
    if slow.is_none() {
        println!("slow cores: not measured, since we may not make control groups with a CPU quota");
    }
    write_lines(&out.join("delegate-system.csv"), &lines(&times))?;
    Ok(targets(&times, slow.is_some()))
}

fn take(times: &mut Times, place: &'static str, command: &mut Command) -> Result<(), Failure> {
    let output = output_of(command, TIME_LIMIT)?;
    let unexpected = || Failure::new(format!("delegate: unexpected output: {output}"));
    times.read(place, &output).ok_or_else(unexpected)
}

fn lines(times: &Times) -> Vec<String> {
    let mut lines = vec!["what,where,way,bytes,ns,ns_min,ns_max".to_string()];
    for ((what, place, bytes), both) in &times.0 {
        for (way, ns) in WAYS.iter().zip(both) {
            let Spread { median, min, max } = Spread::of(ns);
            lines.push(format!("{what},{place},{way},{bytes},{median:.1},{min:.1},{max:.1}"));
        }
    }
    lines
}

fn targets(times: &Times, slow: bool) -> Vec<Target> {
    let mut targets = Vec::new();
    for (place, _) in TRANSPORTS {
        for what in ["send", "put"] {
            targets.push(Target {
                what: format!("{what} of 4 KB and more by {place}: delegated over direct"),
                bound: Bound::AtMost(EQUAL_RATIO_MAX),
                ratio: times.worst(what, place, |bytes| bytes >= LARGE_BYTES, |a, b| b / a),
            });
            targets.push(Target {
                what: format!("{what} of less by {place}: added µs"),
                bound: Bound::AtMost(ADDED_US_MAX),
                ratio: times.worst(
                    what,
                    place,
                    |bytes| bytes < LARGE_BYTES,
                    |a, b| (b - a) / 1000.0,
                ),
            });
        }
    }
    for what in ["allreduce", "alltoall"].into_iter().filter(|_| slow) {
        targets.push(Target {
            what: format!("{what} on slow cores: delegated over direct"),
            bound: Bound::AtMost(1.0),
            ratio: times.worst(what, "slow core", |_| true, |a, b| b / a),
        });
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_compared_and_the_worst_size_counts() {
        let mut times = Times::default();
        let said =
            "put direct 1 100\nput delegated 1 900\nput direct 4096 200\nput delegated 4096 210";
        assert!(times.read("TCP", said).is_some());
        assert!(times.read("TCP", "put direct 1 300\nput delegated 1 700").is_some());
        let added = times.worst("put", "TCP", |bytes| bytes < LARGE_BYTES, |a, b| b - a).unwrap();
        assert_eq!((added.median, added.min, added.max), (600.0, 400.0, 800.0));
        let ratio = times.worst("put", "TCP", |bytes| bytes >= LARGE_BYTES, |a, b| b / a).unwrap();
        assert_eq!(ratio.median, 1.05);
        assert!(times.worst("send", "TCP", |_| true, |a, b| b / a).is_none());
        assert!(times.read("TCP", "put asked 1 300").is_none());
        assert!(times.read("TCP", "put direct 1").is_none());
    }
}
