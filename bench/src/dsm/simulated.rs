//! Simulated and real time on two nodes of this machine.
//!
//! Each round calibrates the simulator (`nagaya sim --calibrate`), and runs the programs for real
//! and in the simulator. The time of their inner loops is measured, too: by the program itself on
//! one node, in as many instances as there will be nodes, since nodes share caches and memory. So
//! no part of the simulated time comes from a run on two nodes.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::traffic::{PROGRAMS, Program, cell, parameters, read, seconds_of};
use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::programs;
use crate::progress::progress;
use crate::spread::Spread;
use crate::table::{Table, write_lines};

const NODES: usize = 2;

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The times of a program in seconds, one per round.
struct Times {
    name: &'static str,
    one: Vec<f64>,
    real: Vec<f64>,
    simulated: Vec<f64>,
}

/// Measures, prints a table, writes `dsm-simulated.csv`.
pub fn run(rounds: u32, small: bool, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let new = |of: &Program| Times { name: of.name, one: vec![], real: vec![], simulated: vec![] };
    let mut all = PROGRAMS.each_ref().map(new);
    for round in 1..=rounds {
        progress(&format!("dsm, simulated time against real time, round {round} of {rounds}"));
        let cluster = out.join(format!("this-machine-{round}.toml"));
        output_of(nagaya_sim(nagaya).arg("--calibrate").arg(&cluster), TIME_LIMIT)?;
        for (times, program) in all.iter_mut().zip(&PROGRAMS) {
            times.measure(program, small, &cluster, nagaya, out)?;
        }
    }
    progress("");
    report(&all, out)
}

impl Times {
    fn measure(
        &mut self,
        program: &Program,
        small: bool,
        cluster: &Path,
        nagaya: &Nagaya,
        out: &Path,
    ) -> Result<(), Failure> {
        let arguments = if small { program.small } else { "" };
        let compiled = programs::compile_with_jia(program.name, nagaya, out)?;
        let real = |nodes: usize| {
            let nodes = nodes.to_string();
            let mut command = Command::new(&nagaya.command);
            command.args(["run", "--nodes", &nodes, "-n", &nodes]).arg(&compiled);
            let output = output_of(command.args(arguments.split_whitespace()), TIME_LIMIT)?;
            seconds_of(&output)
                .ok_or_else(|| Failure::new(format!("{}: unexpected output: {output}", self.name)))
        };
        let one = thread::scope(|scope| {
            let runs = [(); NODES].map(|()| scope.spawn(|| real(1)));
            let seconds = runs.map(|run| run.join().expect("it does not panic"));
            seconds.into_iter().sum::<Result<f64, Failure>>()
        })? / NODES as f64;
        let two = real(NODES)?;

        let csv = out.join("dsm-simulated-run.csv");
        let _ = std::fs::remove_file(&csv); // from an earlier run
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get()) / NODES;
        let mut command = nagaya_sim(nagaya);
        command.arg(program.name).args(parameters(arguments)).arg("-c").arg(cluster);
        command.args(["-n", &NODES.to_string(), "--cores", &cores.max(1).to_string()]);
        // Programs print milliseconds, which is too coarse for the loop of a small one.
        if !small {
            command.args(["--one-node", &one.to_string()]);
        }
        command.arg("--csv").arg(&csv);
        output_of(&mut command, TIME_LIMIT)?;
        let simulated = cell(&read(&csv)?, "time_s").ok_or_else(|| {
            Failure::new(format!("{}: not a table of `nagaya sim`", csv.display()))
        })?;
        self.one.push(one);
        self.real.push(two);
        self.simulated.push(simulated);
        Ok(())
    }

    /// Returns the error of the simulated time in percent of the real one, over all rounds.
    fn error(&self) -> Spread {
        let quotients = Spread::quotients(&self.simulated, &self.real);
        Spread::of(&quotients.iter().map(|of| (of - 1.0) * 100.0).collect::<Vec<_>>())
    }
}

fn nagaya_sim(nagaya: &Nagaya) -> Command {
    let mut command = Command::new(&nagaya.command);
    command.arg("sim");
    command
}

fn report(all: &[Times], out: &Path) -> Result<(), Failure> {
    let mut table = Table::new([
        "",
        "1 node, s",
        "2 nodes, s",
        "(min..max)",
        "simulated",
        "error",
        "(min..max)",
    ]);
    let mut lines = vec!["program,one_s,real_s,real_min,real_max,simulated_s,error_percent".into()];
    for times in all {
        let [one, real, simulated] =
            [&times.one, &times.real, &times.simulated].map(|seconds| Spread::of(seconds));
        let error = times.error();
        table.row([
            times.name.to_string(),
            format!("{:.3}", one.median),
            format!("{:.3}", real.median),
            format!("({:.3}..{:.3})", real.min, real.max),
            format!("{:.3}", simulated.median),
            format!("{:+.0} %", error.median),
            format!("({:+.0}..{:+.0})", error.min, error.max),
        ]);
        lines.push(format!(
            "{},{},{},{},{},{},{:.1}",
            times.name, one.median, real.median, real.min, real.max, simulated.median, error.median
        ));
    }
    table.print(&format!(
        "simulated time against real time on {NODES} nodes of this machine; medians of {} rounds",
        all[0].real.len()
    ));
    write_lines(&out.join("dsm-simulated.csv"), &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_of_simulated_time_against_real_time() {
        let times = Times {
            name: "mm",
            one: vec![2.0; 3],
            real: vec![1.0, 2.0, 1.0],
            simulated: vec![1.1, 1.0, 1.3],
        };
        let error = times.error();
        assert_eq!([error.median, error.min].map(f64::round), [10.0, -50.0]);
    }
}
