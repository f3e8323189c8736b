//! PVM beside stock PVM 3.4.6: messages by every route and encoding, groups, spawning,
//! streams, two hosts. One binary, compiled once against `pvm3.h`, runs under both; which
//! library it gets is a matter of LD_LIBRARY_PATH. MPIs exchange the same messages.
//!
//! A round starts each virtual machine, measures everything under it, and halts it.

mod figures;
mod machine;
mod namespaces;
mod netpipe;
mod paper;
mod report;
mod rounds;
mod targets;

use std::collections::BTreeMap;
use std::path::Path;

use clap::{Parser, ValueEnum};

use crate::failure::Failure;
use crate::launch::Nagaya;
use crate::mpi::Mpi;
use crate::progress::progress;
use crate::results::Results;
use machine::{Machine, System, Wiring};
use rounds::Programs;

/// What is run, how often.
#[derive(Parser)]
pub struct Options {
    /// Parts of the run
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "messages,netpipe,stream,groups,spawn,hosts"
    )]
    only: Vec<Part>,
    /// How often each way is run, in turns
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Repetitions a run, whose median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// How long a repetition lasts, for each size or operation
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
    /// How many tasks use groups, rings and pairs
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16",
          value_parser = clap::value_parser!(u32).range(2..=64))]
    tasks: Vec<u32>,
    /// Tasks that are spawned and killed a run
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1000))]
    spawns: u32,
    /// Message sizes in bytes
    #[arg(skip = vec![4, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20])]
    sizes: Vec<usize>,
    /// Whether two hosts are also measured in network namespaces.
    #[arg(skip = true)]
    namespaces: bool,
}

impl Options {
    /// The defaults.
    pub fn full() -> Self {
        Self::parse_from(["pvm"])
    }

    /// As little as shows that everything runs.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.repetitions, self.milliseconds, self.spawns) = (1, 1, 1, 2);
        self.tasks.truncate(2);
        self.sizes = vec![4, 4 << 10, 1 << 20];
        self.only.retain(|part| *part != Part::NetPipe);
        self.namespaces = false;
        self
    }
}

/// A part of the run: one measuring program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
enum Part {
    /// Ping-pong of two tasks
    Messages,
    /// Debian's unmodified NPpvm
    #[value(name = "netpipe")]
    NetPipe,
    /// Messages one way
    Stream,
    /// Barrier, broadcast and so on; rings and pairs
    Groups,
    /// Spawn to first message, death to notice
    Spawn,
    /// Ping-pong between two hosts
    Hosts,
}

/// How a message is brought.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    StockDaemon,
    StockDirect,
    Nagaya,
    NagayaDaemon,
    Space,
    /// Ours, over the paper's older protocols.
    Fcp,
    FcpPlus,
    OpenMpi,
    Mpich,
}

/// All, as columns stand.
const WAYS: [Way; 9] = [
    Way::StockDaemon,
    Way::StockDirect,
    Way::Nagaya,
    Way::NagayaDaemon,
    Way::Space,
    Way::Fcp,
    Way::FcpPlus,
    Way::OpenMpi,
    Way::Mpich,
];

impl Way {
    /// MPIs beside them.
    const MPI: [(Way, Mpi); 2] = [(Way::OpenMpi, Mpi::Ompi4), (Way::Mpich, Mpi::Mpich4)];

    /// Under which virtual machine, and what pvm_setopt(PvmRoute) is told: stock PVM goes
    /// through the daemon unless told otherwise, ours only when told to.
    fn under(self) -> Option<(System, &'static str)> {
        match self {
            Way::StockDaemon => Some((System::Stock, "default")),
            Way::StockDirect => Some((System::Stock, "direct")),
            Way::Nagaya => Some((System::Nagaya, "default")),
            Way::NagayaDaemon => Some((System::Nagaya, "daemon")),
            Way::Space => Some((System::Space, "default")),
            Way::Fcp => Some((System::Fcp, "default")),
            Way::FcpPlus => Some((System::FcpPlus, "default")),
            Way::OpenMpi | Way::Mpich => None,
        }
    }

    /// As it is called in tables and figures.
    fn name(self) -> &'static str {
        match self {
            Way::StockDaemon => "stock, daemon",
            Way::StockDirect => "stock, direct",
            Way::Nagaya => "nagaya",
            Way::NagayaDaemon => "nagaya, daemon",
            Way::Space => "space",
            Way::Fcp => "over FCP",
            Way::FcpPlus => "over FCP plus",
            Way::OpenMpi => "Open MPI",
            Way::Mpich => "MPICH",
        }
    }

    /// As it is called in files.
    fn key(self) -> &'static str {
        match self {
            Way::StockDaemon => "stock-daemon",
            Way::StockDirect => "stock-direct",
            Way::Nagaya => "nagaya",
            Way::NagayaDaemon => "nagaya-daemon",
            Way::Space => "space",
            Way::Fcp => "fcp",
            Way::FcpPlus => "fcp-plus",
            Way::OpenMpi => "openmpi",
            Way::Mpich => "mpich",
        }
    }
}

/// Measures, prints tables, writes CSV files and a figure. What fails or is not installed is
/// reported at the end; the rest is measured all the same.
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

/// All rounds.
struct Run<'a> {
    options: &'a Options,
    nagaya: &'a Nagaya,
    out: &'a Path,
    programs: Programs,
    results: Results<Way>,
    failures: Vec<Failure>,
    /// What has failed, how often.
    failed: BTreeMap<String, u32>,
}

impl Run<'_> {
    /// Whether something has failed too often to be tried again. Once may be an accident.
    fn is_given_up(&self, name: &str) -> bool {
        self.failed.get(name).is_some_and(|&often| often > 1)
    }

    /// Does something under a name, unless that is given up.
    fn attempt<T>(
        &mut self,
        name: &str,
        round: u32,
        work: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Option<T> {
        if self.is_given_up(name) {
            return None;
        }
        progress(&format!("pvm, round {round} of {}: {name}", self.options.rounds));
        match work(self) {
            Ok(done) => Some(done),
            Err(failure) => {
                eprintln!("nagaya-bench: pvm: {name}: {failure}");
                self.failures.push(Failure::new(format!("{name}: {failure}")));
                *self.failed.entry(name.to_string()).or_default() += 1;
                None
            }
        }
    }

    /// All parts that need one host. After a failure the virtual machine is a new one: what
    /// failed may have left tasks.
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
            for (way, mpi) in Way::MPI {
                self.attempt(mpi.name(), round, |run| run.mpi(way, mpi, round));
            }
        }
    }
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Messages => "messages",
            Part::NetPipe => "NetPIPE",
            Part::Stream => "streams",
            Part::Groups => "groups",
            Part::Spawn => "spawn",
            Part::Hosts => "two hosts",
        }
    }
}
