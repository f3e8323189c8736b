//! One round of each part: runs the measuring programs and collects their results.

use super::machine::{Machine, System, Wiring};
use super::part::Part;
use super::programs::{Line, lines_of};
use super::run::Run;
use super::transport::{TRANSPORTS, Transport};
use super::{netpipe, paper};
use crate::failure::Failure;
use crate::mode::Mode;
use crate::mpi::Mpi;
use crate::programs;
use crate::results::Measure;
use crate::spread::Spread;

/// Encodings and buffers, with the names of `programs/pvm_pingpong.c`.
pub const MESSAGES: [&str; 6] = [
    "xdr-unchanged",
    "xdr-fresh",
    "raw-unchanged",
    "raw-fresh",
    "inplace-unchanged",
    "inplace-fresh",
];
/// The corresponding messages of MPI. They are not packed, like those of PvmDataInPlace.
const LIKE_MPI: [(&str, &str); 2] =
    [("unchanged", "inplace-unchanged"), ("fresh", "inplace-fresh")];

/// Group operations, with the names of `programs/pvm_many.c`.
pub const OPERATIONS: [&str; 7] =
    ["barrier", "bcast", "gather", "reduce", "mcast", "ring", "pairs"];
/// Bytes per task of a group operation.
pub const OPERATION_BYTES: usize = 64;

/// Bytes of a message in a stream, as in the paper.
pub const STREAM_BYTES: usize = 4096;
const STREAM_MESSAGES: u32 = 2000;
pub const SENDERS: [u32; 2] = [1, 4];

/// Message sizes between two hosts, in bytes.
pub const HOSTS_BYTES: [usize; 4] = [4, 4 << 10, 64 << 10, 1 << 20];
/// Duration of a repetition between hosts. The network stack needs longer to reach a steady state.
const HOSTS_MILLISECONDS: u32 = 30;

impl Run<'_> {
    /// Runs a part under a virtual machine of one host, by each of its transports.
    pub fn part(
        &mut self,
        part: Part,
        machine: &Machine,
        system: System,
        round: u32,
    ) -> Result<(), Failure> {
        if part == Part::NetPipe {
            return self.netpipe(machine, system, round);
        }
        for transport in TRANSPORTS {
            let Some((of, route)) = transport.under() else { continue };
            match part {
                _ if of != system => {}
                Part::Messages => {
                    let sizes = match transport {
                        Transport::Fcp | Transport::FcpPlus => {
                            vec![paper::LATENCY_BYTES, paper::THROUGHPUT_BYTES]
                        }
                        _ => self.options.sizes.clone(),
                    };
                    let (encodings, buffers) = match transport {
                        Transport::Fcp | Transport::FcpPlus => ("raw", "unchanged"),
                        _ => ("xdr,raw,inplace", "unchanged,fresh"),
                    };
                    let milliseconds = self.options.milliseconds;
                    let lines =
                        self.messages(machine, encodings, buffers, route, milliseconds, &sizes)?;
                    self.add_messages(transport, round, &lines, |name| name);
                }
                Part::Stream => self.stream(machine, transport, route, round)?,
                Part::Groups if transport != Transport::NagayaDaemon => {
                    self.groups(machine, transport, route, round)?;
                }
                // Spawning does not depend on the route.
                Part::Spawn
                    if matches!(
                        transport,
                        Transport::StockDaemon | Transport::Nagaya | Transport::Space
                    ) =>
                {
                    self.spawn(machine, transport, round)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Runs the ping-pong. Returns lines of size, iterations and time (ns).
    fn messages(
        &self,
        machine: &Machine,
        encodings: &str,
        buffers: &str,
        route: &str,
        milliseconds: u32,
        sizes: &[usize],
    ) -> Result<Vec<Line>, Failure> {
        let mut command = machine.command(&self.programs.messages);
        // Each in its fastest configuration: stock PVM and routes through a daemon without binding.
        let cores = if route == "default" && machine.is_ours() { "bound" } else { "free" };
        command.args(["2", &machine.places(), encodings, route, cores, buffers]);
        command.args([self.options.repetitions, milliseconds].map(|n| n.to_string()));
        command.args(sizes.iter().map(usize::to_string));
        lines_of(&mut command, &MESSAGES, 3)
    }

    /// Adds the median of the repetitions to the results of the round.
    fn add_messages(
        &mut self,
        transport: Transport,
        round: u32,
        lines: &[Line],
        shown: impl Fn(&'static str) -> &'static str,
    ) {
        let key = |line: &Line| (line.name, line.numbers[0] as usize);
        for repetitions in lines.chunk_by(|a, b| key(a) == key(b)) {
            let times: Vec<f64> = repetitions.iter().map(|line| line.numbers[2]).collect();
            let (name, bytes) = key(&repetitions[0]);
            let measure = Measure { what: shown(name), tasks: 2, bytes };
            self.results.add(measure, transport, round, Spread::of(&times).median / 1000.0);
        }
    }

    /// Runs the ping-pong of `nagaya-bench pingpong` with the same sizes.
    pub fn mpi(&mut self, transport: Transport, mpi: Mpi, round: u32) -> Result<(), Failure> {
        let program = programs::compile_with_mpi("pingpong", mpi, self.out)?;
        let ranks = mpi.ranks(2, Mode::Cma, self.nagaya, &program)?;
        let mut command = ranks.ok_or_else(|| Failure::new("does not run plainly"))?;
        command.arg("unchanged,fresh");
        let times = [self.options.repetitions, self.options.milliseconds];
        command.args(times.map(|n| n.to_string()));
        command.args(self.options.sizes.iter().map(usize::to_string));
        // The distances of the cores follow the time.
        let lines = lines_of(&mut command, &LIKE_MPI.map(|(buffers, _)| buffers), 5)?;
        let like = |name| LIKE_MPI.iter().find(|of| of.0 == name).map_or(name, |of| of.1);
        self.add_messages(transport, round, &lines, like);
        Ok(())
    }

    fn stream(
        &mut self,
        machine: &Machine,
        transport: Transport,
        route: &str,
        round: u32,
    ) -> Result<(), Failure> {
        for senders in SENDERS {
            let messages = STREAM_MESSAGES / senders;
            let mut command = machine.command(&self.programs.stream);
            command.args([&(senders + 1).to_string(), &machine.places(), "raw", route]);
            command.args([self.options.repetitions, messages].map(|n| n.to_string()));
            // The line has senders, bytes, total number of messages, and time (ns).
            let lines = lines_of(command.arg(STREAM_BYTES.to_string()), &[], 4)?;
            let each: Vec<f64> =
                lines.iter().map(|line| line.numbers[3] / line.numbers[2]).collect();
            let tasks = senders as usize + 1;
            let measure = Measure { what: "stream", tasks, bytes: STREAM_BYTES };
            self.results.add(measure, transport, round, Spread::of(&each).median / 1000.0);
        }
        Ok(())
    }

    fn groups(
        &mut self,
        machine: &Machine,
        transport: Transport,
        route: &str,
        round: u32,
    ) -> Result<(), Failure> {
        for &tasks in &self.options.tasks {
            let mut command = machine.command(&self.programs.many);
            command.args([&tasks.to_string(), &machine.places(), route, &OPERATIONS.join(",")]);
            // Many tasks on few cores need longer to reach a steady state.
            let milliseconds = self.options.milliseconds * self.options.repetitions;
            command.args([milliseconds.to_string(), OPERATION_BYTES.to_string()]);
            for line in lines_of(&mut command, &OPERATIONS, 2)? {
                let bytes = if line.name == "barrier" { 0 } else { OPERATION_BYTES };
                let measure = Measure { what: line.name, tasks: tasks as usize, bytes };
                self.results.add(measure, transport, round, line.numbers[1] / 1000.0);
            }
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        machine: &Machine,
        transport: Transport,
        round: u32,
    ) -> Result<(), Failure> {
        let mut command = machine.command(&self.programs.spawn);
        command.args(["1", &machine.places(), &self.options.spawns.to_string()]);
        for line in lines_of(&mut command, &[], 3)? {
            for (what, ns) in [("spawn", line.numbers[1]), ("notice", line.numbers[2])] {
                let measure = Measure { what, tasks: 1, bytes: 0 };
                self.results.add(measure, transport, round, ns / 1000.0);
            }
        }
        Ok(())
    }

    fn netpipe(&mut self, machine: &Machine, system: System, round: u32) -> Result<(), Failure> {
        // It sets its own route. Its tasks are started by hand, so they are in no space.
        let transport = match system {
            System::Stock => Transport::StockDirect,
            System::Nagaya => Transport::Nagaya,
            System::Space | System::Fcp | System::FcpPlus => return Ok(()),
        };
        for (bytes, us) in netpipe::run(machine, &self.out.join("netpipe-pvm.txt"))? {
            if self.options.sizes.contains(&bytes) {
                let measure = Measure { what: "netpipe", tasks: 2, bytes };
                self.results.add(measure, transport, round, us);
            }
        }
        Ok(())
    }

    /// Runs a task on each of two hosts. Not with PvmDataInPlace: stock PVM writes header and data
    /// to TCP separately, and stalls for 22 ms per message from 64 KB on.
    pub fn hosts(
        &mut self,
        machine: &Machine,
        system: System,
        wiring: Wiring,
        round: u32,
    ) -> Result<(), Failure> {
        let what = match wiring {
            Wiring::Namespaces => "namespaces",
            _ => "loopback",
        };
        for transport in TRANSPORTS {
            let Some((of, route)) = transport.under() else { continue };
            if of == system {
                let lines = self.messages(
                    machine,
                    "raw",
                    "unchanged",
                    route,
                    HOSTS_MILLISECONDS.min(self.options.milliseconds * 3),
                    &HOSTS_BYTES,
                )?;
                self.add_messages(transport, round, &lines, |_| what);
            }
        }
        Ok(())
    }
}
