//! PVM beside stock PVM 3.4.6: messages by every route and encoding, groups, spawning, streams, two
//! hosts. One binary, compiled once against `pvm3.h`, runs under both; LD_LIBRARY_PATH selects the
//! library. MPIs exchange the same messages.
//!
//! A round starts each virtual machine, measures all parts under it, and halts it.

mod figures;
mod machine;
mod netpipe;
mod options;
mod paper;
mod part;
mod programs;
mod report;
mod rounds;
mod run;
mod targets;
mod transport;

use std::collections::BTreeMap;
use std::path::Path;

use crate::failure::Failure;
use crate::launch::Nagaya;
use crate::progress::progress;
use crate::results::Results;
use machine::{Machine, System, Wiring};
pub use options::Options;
use part::Part;
use programs::Programs;
use run::Run;
use transport::Transport;

/// Measures, prints tables, writes CSV files and a figure. Failures and missing programs are
/// reported at the end; the rest is measured nevertheless.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let programs = Programs::compile(out)?;
    let mut run = Run {
        options,
        nagaya,
        out,
        programs,
        results: Results::new(),
        failures: Vec::new(),
        failed: BTreeMap::new(),
    };
    let systems = [System::Stock, System::Nagaya, System::Space, System::Fcp, System::FcpPlus];
    let mut wirings: &[Wiring] = &[Wiring::Loopback, Wiring::Namespaces];
    if !options.namespaces {
        wirings = &wirings[..1];
    } else if !rustix::process::geteuid().is_root() {
        eprintln!("nagaya-bench: pvm: only root can make network namespaces; left out");
        wirings = &wirings[..1];
    }
    for round in 1..=options.rounds {
        for system in systems {
            run.one_host(system, round);
        }
        run.mpis(round);
        for &wiring in wirings {
            for system in [System::Stock, System::Nagaya] {
                run.two_hosts(system, wiring, round);
            }
        }
    }
    progress("");
    if !run.results.is_empty() {
        report::write(&run.results, options, out)?;
    }
    Failure::of_all(run.failures)
}

impl Run<'_> {
    /// Runs all parts that need one host. After a failure it starts a new virtual machine, since
    /// tasks may be left in the old one.
    fn one_host(&mut self, system: System, round: u32) {
        let parts = [Part::Messages, Part::Stream, Part::Groups, Part::Spawn, Part::NetPipe];
        let mut machine = None;
        let wanted = |part: &Part| self.options.only.contains(part) && system.has(*part);
        let parts: Vec<Part> = parts.into_iter().filter(wanted).collect();
        for part in parts {
            if part == Part::NetPipe {
                machine = None; // it wants a machine without other tasks, such as group servers
            }
            if machine.is_none() {
                machine = self.attempt(system.name(), round, |run| {
                    Machine::start(system, Wiring::One, run.nagaya, run.out)
                });
            }
            let Some(of) = &machine else { return };
            let name = format!("{}, {}", system.name(), part.name());
            let tried = !self.is_given_up(&name);
            let done = self.attempt(&name, round, |run| run.part(part, of, system, round));
            if tried && done.is_none() {
                machine = None;
            }
        }
    }

    fn two_hosts(&mut self, system: System, wiring: Wiring, round: u32) {
        if self.options.only.contains(&Part::Hosts) {
            let name = format!("{}, {}", system.name(), wiring.name());
            self.attempt(&name, round, |run| {
                let machine = Machine::start(system, wiring, run.nagaya, run.out)?;
                run.hosts(&machine, system, wiring, round)
            });
        }
    }

    fn mpis(&mut self, round: u32) {
        if self.options.only.contains(&Part::Messages) {
            for (transport, mpi) in Transport::MPI {
                self.attempt(mpi.name(), round, |run| run.mpi(transport, mpi, round));
            }
        }
    }
}
