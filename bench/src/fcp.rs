//! FCP's three protocols between two processes, beside plain shared memory, sockets and the limits
//! of the machine: Tables 2 to 5 of the FOLON paper, with the numbers of the paper in a column.

mod options;
mod paper;
mod report;
mod sample;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::progress::progress;
use crate::results::{Measure, Results};
use crate::spread::Spread;
use crate::{copy, programs};

pub use options::Options;
use sample::{BUFFERS, SENDERS, SENDERS_BYTES, Sample, TRANSPORTS, Transport, line};

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Measures, prints tables, writes CSV files and a figure. Failures are reported at the end; the
/// rest is measured nevertheless.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut run = Run {
        options,
        nagaya,
        out,
        samples: Vec::new(),
        senders: Results::new(),
        failures: Vec::new(),
    };
    let mut parts: Vec<(&str, Part<'_>)> = vec![
        ("shared memory and sockets", Run::peers),
        ("one copy", Run::copies),
        ("FCP", Run::processes),
        ("FCP II in a space", Run::tasks),
        ("many senders", Run::senders),
    ];
    for round in 1..=options.rounds {
        parts.retain(|(name, part)| {
            progress(&format!("fcp, round {round} of {}: {name}", options.rounds));
            match part(&mut run, round) {
                Ok(()) => true,
                Err(failure) => {
                    eprintln!("nagaya-bench: fcp: {name}: {failure}");
                    run.failures.push(Failure::new(format!("{name}: {failure}")));
                    false
                }
            }
        });
    }
    progress("");
    if !run.samples.is_empty() {
        report::write(&run.samples, &run.senders, options, nagaya, out)?;
    }
    Failure::of_all(run.failures)
}

type Part<'a> = fn(&mut Run<'a>, u32) -> Result<(), Failure>;

/// The state of all rounds.
struct Run<'a> {
    options: &'a Options,
    nagaya: &'a Nagaya,
    out: &'a Path,
    samples: Vec<Sample>,
    /// Times per message of several senders to one receiver.
    senders: Results<Transport>,
    failures: Vec<Failure>,
}

impl Run<'_> {
    fn peers(&mut self, round: u32) -> Result<(), Failure> {
        let program = programs::compile("fcp_peers", self.out)?;
        self.pair(Command::new(program), "word,vcl,unix,tcp,udp", round)
    }

    fn processes(&mut self, round: u32) -> Result<(), Failure> {
        let program = programs::compile_with_fcp("fcp_messages", self.nagaya, self.out)?;
        self.pair(Command::new(program), "fcp,fcp-plus,fcp2,fcp2-huge", round)
    }

    fn tasks(&mut self, round: u32) -> Result<(), Failure> {
        let program = programs::compile_with_fcp("fcp_messages", self.nagaya, self.out)?;
        let mut command = Command::new(&self.nagaya.command);
        command.args(["run", "-n", "2"]).arg(program);
        self.pair(command, "fcp2-space", round)
    }

    /// Runs 1 to 16 processes that send to one receiver as fast as possible.
    fn senders(&mut self, round: u32) -> Result<(), Failure> {
        let program = programs::compile_with_fcp("fcp_senders", self.nagaya, self.out)?;
        let place = Place::new();
        let messages = 10_000 * self.options.milliseconds;
        let mut command = Command::new(program);
        command.arg(&place.0).arg("fcp,fcp-plus,fcp2");
        command.args([self.options.repetitions, messages].map(|n| n.to_string()));
        command.arg(SENDERS_BYTES.to_string()).args(SENDERS.map(|n| n.to_string()));
        let output = output_of(&mut command, TIME_LIMIT)?;
        let read = |text: &str| {
            let [transport, senders, _, messages, ns] =
                text.split_whitespace().collect::<Vec<_>>()[..]
            else {
                return None;
            };
            let transport = TRANSPORTS.into_iter().find(|of| of.key() == transport)?;
            let each = ns.parse::<f64>().ok()? / messages.parse::<f64>().ok()?;
            Some(((transport, senders.parse::<usize>().ok()?), each / 1000.0))
        };
        let all: Option<Vec<_>> = output.lines().map(read).collect();
        let all = all.ok_or_else(|| Failure::new(format!("unexpected output: {output}")))?;
        for repetitions in all.chunk_by(|a, b| a.0 == b.0) {
            let (transport, senders) = repetitions[0].0;
            let times: Vec<f64> = repetitions.iter().map(|(_, us)| *us).collect();
            let measure = Measure { what: "senders", tasks: senders + 1, bytes: SENDERS_BYTES };
            self.senders.add(measure, transport, round, Spread::of(&times).median);
        }
        Ok(())
    }

    /// Runs two processes that map one file.
    fn pair(&mut self, mut command: Command, transports: &str, round: u32) -> Result<(), Failure> {
        let place = Place::new();
        let file = &place.0;
        fs::write(file, [])
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        command.arg(file).arg(transports);
        let times = [self.options.repetitions, self.options.milliseconds];
        command.args(times.map(|n| n.to_string()));
        command.args(self.options.sizes.iter().map(usize::to_string));
        let output = output_of(&mut command, TIME_LIMIT)?;
        let samples: Option<Vec<Sample>> = output.lines().map(|text| line(text, round)).collect();
        let samples = samples.filter(|samples| !samples.is_empty());
        let unexpected = || Failure::new(format!("unexpected output: {output}"));
        self.samples.extend(samples.ok_or_else(unexpected)?);
        Ok(())
    }

    /// Measures the lower bound of a message.
    fn copies(&mut self, round: u32) -> Result<(), Failure> {
        for what in BUFFERS {
            let times = copy::limit(what, &self.options.sizes, self.out)?;
            self.samples.extend(times.into_iter().map(|time| Sample {
                round,
                what,
                transport: Transport::Copy,
                bytes: time.bytes,
                ns: time.ns,
                line_ns: time.distance_ns,
            }));
        }
        Ok(())
    }
}

/// A path in /dev/shm for the files of programs. They are removed with this value, even those of a
/// failed program.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        Place(PathBuf::from(format!("/dev/shm/nagaya-bench-{}", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        for transport in TRANSPORTS {
            let _ = fs::remove_file(self.0.with_extension(transport.key()));
        }
    }
}
