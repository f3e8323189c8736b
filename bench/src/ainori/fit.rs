//! The choices that the paper leaves open, fitted to all numbers of its text.
//!
//! Every combination of [`Choices`] runs all programs of [`CLAIMS`] in the simulator. LU also has
//! several placements of pages, and JIAJIA's layout in which blocks overlap. The distance of a
//! combination is the root of the mean square of the differences from the paper, in percent points.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use coherence::ride::Policy;
use coherence::ride::choices::Choices;
use sim::cluster::Cluster;
use sim::machine::Machine;
use sim::program::{Allocation, Home, Program, known};
use sim::protocol::Consistency;
use sim::setup::Setup;
use sim::task::{Task, TaskFuture};

use super::options::{NORMAL, Options};
use super::paper::{CLAIMS, Claim};
use crate::failure::Failure;
use crate::table::{Table, write_lines};

const PAGE_BYTES: usize = 8192;
/// Number of combinations that are printed. The CSV file has all.
const PRINTED: usize = 12;

/// The layouts of LU's pages.
const LAYOUTS: [&str; 4] = ["owner", "node 0", "by page", "overlap"];

/// A program whose pages have other homes.
struct Placed {
    program: Box<dyn Program>,
    home: Option<Home>,
}

impl Program for Placed {
    fn allocations(&self, tasks: u64, page_bytes: u64) -> Vec<Allocation> {
        let mut all = self.program.allocations(tasks, page_bytes);
        if let Some(home) = self.home {
            all.iter_mut().for_each(|allocation| allocation.home = home);
        }
        all
    }

    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture {
        self.program.task(me, bases)
    }

    fn has_contents(&self) -> bool {
        self.program.has_contents()
    }
}

/// Page messages and seconds.
type Cost = [f64; 2];

/// Runs a program on the paper's cluster, two nodes per machine.
fn cost(claim: &Claim, layout: &str, policy: &str, choices: Choices) -> Result<Cost, Failure> {
    let failure = |why: String| Failure::new(format!("{}: {why}", claim.program));
    let mut cluster = Cluster::known("paper").ok_or_else(|| failure("no cluster".to_string()))?;
    cluster.network.machine_nodes = 2;
    cluster.cores = (cluster.cores / 2).max(1);
    let known = known::ALL.iter().find(|known| known.name == claim.program);
    let known = known.ok_or_else(|| failure("no such program".to_string()))?;
    let mut parameters = toml::Table::new();
    if layout == "overlap" {
        parameters.insert("apart".to_string(), toml::Value::Integer(1024));
    }
    let home = match layout {
        "node 0" => Some(Home::Task(0)),
        "by page" => Some(Home::Blocks(PAGE_BYTES as u64)),
        _ => None,
    };
    let program = Placed { program: known.make(&parameters, &cluster).map_err(failure)?, home };
    let setup = Setup {
        cluster,
        nodes: u32::try_from(claim.processes).expect("few processes"),
        tasks: 1,
        page_bytes: PAGE_BYTES,
        consistency: Consistency::Scope,
        copies_max: u64::MAX,
        migrate: false,
        alone: true,
        rides: Policy::named(policy).ok_or_else(|| failure("no such policy".to_string()))?,
        contention: true,
    };
    let mut machine = Machine::new(&setup, &program);
    machine.choose(choices);
    let outcome = machine.run().map_err(|error| failure(format!("{error:?}")))?;
    Ok([outcome.page_messages() as f64, outcome.time_ns as f64 / 1e9])
}

/// The numbers of the paper that a claim has.
fn numbers(claim: &Claim) -> [Option<f64>; 2] {
    [claim.messages, claim.time]
}

/// A combination: savings in percent for each claim (page messages, time).
struct Fit {
    choices: Choices,
    layout: &'static str,
    saved: Vec<Cost>,
}

impl Fit {
    fn distance(&self) -> f64 {
        distance(&self.saved)
    }
}

/// Returns the root of the mean square of the differences from the paper's numbers.
fn distance(saved: &[Cost]) -> f64 {
    let pairs = CLAIMS.iter().zip(saved).flat_map(|(claim, saved)| {
        numbers(claim).into_iter().zip(*saved).filter_map(|(paper, ours)| Some(paper? - ours))
    });
    let (count, sum) = pairs.fold((0, 0.0), |(count, sum), by| (count + 1, sum + by * by));
    (sum / f64::from(count.max(1))).sqrt()
}

/// Returns the layouts that a claim's program is run with.
fn layouts(claim: &Claim) -> &'static [&'static str] {
    if claim.program == "lu" { &LAYOUTS } else { &LAYOUTS[..1] }
}

/// Runs the claims with these choices. `normal` has the costs without rides, by claim and layout.
fn fits(choices: Choices, normal: &[Vec<Cost>]) -> Result<Vec<Fit>, Failure> {
    let mut all = Vec::new();
    for (claim, normal) in CLAIMS.iter().zip(normal) {
        let mut saved = Vec::new();
        for (layout, normal) in layouts(claim).iter().zip(normal) {
            let cost = cost(claim, layout, claim.policy, choices)?;
            saved.push([0, 1].map(|at| (1.0 - cost[at] / normal[at]) * 100.0));
        }
        all.push(saved);
    }
    let fit = |(at, &layout)| {
        let saved = all.iter().map(|saved| *saved.get(at).unwrap_or(&saved[0])).collect();
        Fit { choices, layout, saved }
    };
    Ok(LAYOUTS.iter().enumerate().map(fit).collect())
}

/// Searches, prints the best combinations and the default, writes `ainori-fit.csv`.
pub fn run(options: &Options, out: &Path) -> Result<(), Failure> {
    let none = Choices::default();
    let normal = CLAIMS.iter().map(|claim| {
        layouts(claim).iter().map(|layout| cost(claim, layout, NORMAL, none)).collect()
    });
    let normal: Vec<Vec<Cost>> = normal.collect::<Result<_, _>>()?;
    let count = if options.small { 1 } else { usize::MAX };
    let todo: Vec<Choices> = Choices::all().take(count).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        while let Some(&choices) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
            mine.extend(fits(choices, &normal)?);
        }
        Ok::<_, Failure>(mine)
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let all: Result<Vec<Vec<Fit>>, Failure> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut all: Vec<Fit> = all?.into_iter().flatten().collect();
    all.sort_by(|a, b| a.distance().total_cmp(&b.distance()));
    print(&all);
    write_lines(&out.join("ainori-fit.csv"), &csv(&all))
}

/// Returns a description of the choices.
fn described(choices: Choices) -> String {
    let Choices { shared, sequence, zero, barrier_ends, any } = choices;
    let table = if shared { "shared" } else { "own" };
    let used = if any { "any" } else { "all" };
    let end = if barrier_ends { "barrier" } else { "request" };
    format!("{table} {sequence:?} {zero:?} {end} {used}").to_lowercase()
}

fn print(all: &[Fit]) {
    let names = CLAIMS.iter().map(|it| format!("{} {} {}", it.program, it.processes, it.policy));
    let mut headings = vec!["distance".to_string(), "choices".into(), "LU's pages".into()];
    headings.extend(names);
    headings.push(String::new());
    let mut table = Table::new(headings.iter().map(String::as_str));
    let both = |[messages, time]: [Option<f64>; 2]| {
        let one = |of: Option<f64>| of.map_or("-".to_string(), |of| format!("{of:.1}"));
        format!("{} / {}", one(messages), one(time))
    };
    let mut paper = vec!["0".to_string(), "the paper".into(), String::new()];
    paper.extend(CLAIMS.iter().map(|claim| both(numbers(claim))));
    paper.push(String::new());
    table.row(paper);
    let default = |fit: &Fit| fit.choices == Choices::default() && fit.layout == LAYOUTS[0];
    for (_, fit) in all.iter().enumerate().filter(|(at, fit)| *at < PRINTED || default(fit)) {
        let mut row = vec![format!("{:.1}", fit.distance())];
        row.extend([described(fit.choices), fit.layout.to_string()]);
        row.extend(fit.saved.iter().map(|saved| both(saved.map(Some))));
        row.push(String::new());
        table.row(row);
    }
    table.print(
        "page messages and time saved, in percent, by the choices that the paper leaves open: \
         table, sequence, count at zero, end of a trial, used pages",
    );
}

fn csv(all: &[Fit]) -> Vec<String> {
    let mut lines = vec![
        "distance,choices,layout,program,processes,policy,messages,paper_messages,time,paper_time"
            .to_string(),
    ];
    for fit in all {
        lines.extend(CLAIMS.iter().zip(&fit.saved).map(|(claim, [messages, time])| {
            let paper = numbers(claim).map(|of| of.map_or(String::new(), |of| of.to_string()));
            format!(
                "{:.3},{},{},{},{},{},{messages:.2},{},{time:.2},{}",
                fit.distance(),
                described(fit.choices),
                fit.layout,
                claim.program,
                claim.processes,
                claim.policy,
                paper[0],
                paper[1]
            )
        }));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_zero_at_the_papers_numbers_and_grows_with_each() {
        let paper: Vec<Cost> =
            CLAIMS.iter().map(|claim| numbers(claim).map(|of| of.unwrap_or(-99.0))).collect();
        assert_eq!(distance(&paper), 0.0, "a number that the paper does not have counts nothing");
        for at in 1..CLAIMS.len() {
            for number in [0, 1] {
                let mut other = paper.clone();
                other[at][number] += 10.0;
                assert!(distance(&other) > 1.0);
            }
        }
    }

    #[test]
    fn all_pages_have_the_same_home_if_asked() {
        let cluster = Cluster::known("paper").unwrap();
        let lu = known::ALL.iter().find(|known| known.name == "lu").unwrap();
        let program = lu.make(&toml::Table::new(), &cluster).unwrap();
        let placed = Placed { program, home: Some(Home::Task(0)) };
        assert!(placed.allocations(8, 8192).iter().all(|it| it.home == Home::Task(0)));
    }
}
