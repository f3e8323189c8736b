//! Simulated runs.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::options::{NORMAL, Options};
use super::paper::PROGRAMS;
use crate::dsm::traffic::{cell_of, parameters, read};
use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::progress::progress;

const TIME_LIMIT: Duration = Duration::from_secs(1200);

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub program: &'static str,
    pub policy: String,
    pub processes: usize,
    pub seconds: f64,
    /// The speed-up over one process.
    pub speedup: f64,
    /// Number of page messages: OP_GETPGRANT, OP_BARRGRANT and OP_PUSH.
    pub page_messages: u64,
    pub messages: u64,
    pub bytes: u64,
    pub rides: u64,
    pub used: u64,
    pub wasted: u64,
    pub late: u64,
}

impl Run {
    /// Returns the number of page messages.
    pub fn sent(&self) -> f64 {
        self.page_messages as f64
    }
}

/// All runs, and their duration.
pub struct Runs {
    pub all: Vec<Run>,
    pub took: Duration,
}

impl Runs {
    /// Returns one run.
    pub fn get(&self, program: &str, policy: &str, processes: usize) -> Option<&Run> {
        self.all
            .iter()
            .find(|run| (run.program, &*run.policy, run.processes) == (program, policy, processes))
    }

    /// Returns the saving of a run against `normal`, in percent.
    pub fn saved(&self, run: &Run, of: fn(&Run) -> f64) -> f64 {
        let normal = self.get(run.program, NORMAL, run.processes).map_or(0.0, of);
        if normal == 0.0 { 0.0 } else { (1.0 - of(run) / normal) * 100.0 }
    }
}

/// Runs them.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<Runs, Failure> {
    let began = Instant::now();
    let csv = out.join("ainori-run.csv");
    let counts: Vec<String> = options.processes.iter().map(usize::to_string).collect();
    let mut all = Vec::new();
    for program in &PROGRAMS {
        for policy in &options.rides {
            progress(&format!("ainori, {} in the simulator, {policy}", program.name));
            let _ = std::fs::remove_file(&csv); // from the previous run
            let mut command = Command::new(&nagaya.command);
            command.args(["sim", program.name]);
            command.args(parameters(if options.small { program.quick } else { "" }));
            command.args(["-c", "paper", "--per-machine", "2", "--rides", policy]);
            command.args(["-n", &counts.join(","), "--csv"]).arg(&csv);
            output_of(&mut command, TIME_LIMIT)?;
            let table = read(&csv)?;
            for line in table.lines().skip(1) {
                all.push(of(&table, line, program.name, policy).ok_or_else(|| {
                    Failure::new(format!("{}: not a table of `nagaya sim`", csv.display()))
                })?);
            }
        }
    }
    progress("");
    Ok(Runs { all, took: began.elapsed() })
}

/// Parses a line of the simulator's table.
fn of(table: &str, line: &str, program: &'static str, policy: &str) -> Option<Run> {
    let number = |name: &str| cell_of::<u64>(table, line, name);
    Some(Run {
        program,
        policy: policy.to_string(),
        processes: cell_of(table, line, "tasks")?,
        seconds: cell_of(table, line, "time_s")?,
        speedup: cell_of(table, line, "speedup")?,
        page_messages: number("page_messages")?,
        messages: number("messages")?,
        bytes: number("bytes")?,
        rides: number("rides")?,
        used: number("rides_used")?,
        wasted: number("rides_wasted")?,
        late: number("rides_late")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "program,cluster,nodes,tasks,time_s,speedup,pages,page_messages,messages,\
                         bytes,diffs,rides,rides_used,rides_wasted,rides_late";

    #[test]
    fn savings_are_compared_with_normal_on_as_many_processes() {
        let line = |tasks: u64, sent: u64| {
            format!("mm,\"16 nodes, fast\",{tasks},{tasks},2.0,1.5,9,{sent},20,4000,1,5,4,1,0")
        };
        let run = |policy: &str, tasks, sent| of(TABLE, &line(tasks, sent), "mm", policy).unwrap();
        let all = vec![run("normal", 2, 40), run("normal", 4, 100), run("ainori1", 4, 25)];
        let runs = Runs { all, took: Duration::ZERO };
        let ainori1 = runs.get("mm", "ainori1", 4).unwrap();
        assert_eq!((ainori1.rides, ainori1.used, ainori1.wasted), (5, 4, 1));
        assert_eq!(runs.saved(ainori1, |run| run.page_messages as f64), 75.0);
        assert_eq!(runs.get("mm", "ainori1", 2), None);
    }
}
