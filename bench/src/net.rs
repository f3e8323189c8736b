//! Messages between nodes: each carrier of `net` beside its limit. TCP inside Noise sessions is
//! compared with UCX over TCP, and shared memory with the round trip of a cache line.
//!
//! Two processes of this program exchange messages: this one, and one that echoes. Rounds of the
//! carriers alternate.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cores;
use crate::failure::Failure;
use crate::spread::Spread;
use crate::table::{Table, write_lines};
use crate::target::{Bound, Target, report};
use net::event::{Event, Peer, Sending};
use net::fabric::Fabric;
use net::hex;
use net::payload::Payload;
use net::secret::Secret;

/// The rounds, and the role of the other process.
#[derive(Parser)]
pub struct Options {
    /// Number of rounds; in each round every carrier runs once
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Messages of 8 bytes per round; fewer of longer ones
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..))]
    messages: u32,
    /// Echo messages over these carriers: the other process
    #[arg(long, hide = true)]
    serve: Option<String>,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["net"])
    }

    /// Returns the carriers, if this is the other process.
    pub fn serves(&self) -> Option<&str> {
        self.serve.as_deref()
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.messages) = (1, 100);
        self
    }
}

/// The carriers, and how the table calls them.
const CARRIERS: [(&str, &str); 3] =
    [("local", "shared memory"), ("tcp", "TCP, Noise"), ("ucx-tcp", "UCX over TCP")];
/// Their places in that list.
const LOCAL: usize = 0;
const TCP: usize = 1;
const UCX: usize = 2;
/// Sizes in bytes.
const SIZES: [usize; 6] = [8, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Messages under way in a stream.
const WINDOW: usize = 32;
const WAIT_MAX: Duration = Duration::from_secs(60);

fn secret() -> Secret {
    Secret::new([7; 32])
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("net: {error}"))
}

/// Returns the next message: its sender, header and payload.
fn message(fabric: &mut Fabric) -> Result<(Peer, Vec<u8>, Vec<u8>), Failure> {
    loop {
        match fabric.wait(WAIT_MAX).map_err(failed)? {
            Some(Event::Message { from, header, payload }) => return Ok((from, header, payload)),
            Some(Event::Lost { why, .. }) => return Err(failed(why)),
            Some(_) => {}
            None => return Err(failed("the other process does not answer")),
        }
    }
}

/// The other process: echoes messages with the header `echo`, answers `end`, and stops at `over`.
pub fn serve(carriers: &str) -> Result<(), Failure> {
    let mut fabric = Fabric::with_carriers(2, &secret(), carriers).map_err(failed)?;
    println!("{}", hex::encode(fabric.address()));
    loop {
        let (from, header, payload) = message(&mut fabric)?;
        let answer = match &header[..] {
            b"echo" => payload,
            b"end" => Vec::new(),
            b"over" => return Ok(()),
            _ => continue,
        };
        fabric.send(from, b"", answer).map_err(failed)?;
    }
}

/// Both ends of a carrier. Dropped, the other process is ended.
struct Pair {
    fabric: Fabric,
    peer: Peer,
    other: Child,
}

impl Pair {
    /// The other process is on this processor.
    fn new(carriers: &str, there: Option<usize>) -> Result<Self, Failure> {
        let own = std::env::current_exe().map_err(failed)?;
        let mut command = cores::on(there, own);
        let mut other = command
            .args(["net", "--serve", carriers])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        let output = other.stdout.take().expect("a pipe");
        let fabric = Fabric::with_carriers(1, &secret(), carriers).map_err(failed);
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
        let address = hex::decode(line.trim()).ok_or_else(|| failed("it has no address"));
        let connect = || {
            let mut fabric = fabric?;
            let peer = fabric.connect(&address?).map_err(failed)?;
            Ok((fabric, peer))
        };
        match connect() {
            Ok((fabric, peer)) => Ok(Self { fabric, peer, other }),
            Err(failure) => {
                let _ = other.kill();
                let _ = other.wait();
                Err(failure)
            }
        }
    }

    /// Returns the median of the round trips of `count` messages in microseconds.
    fn round_trip_us(&mut self, bytes: usize, count: usize) -> Result<f64, Failure> {
        let data = vec![1; bytes];
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begin = Instant::now();
            self.fabric.send(self.peer, b"echo", &data[..]).map_err(failed)?;
            message(&mut self.fabric)?;
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Spread::of(&times).median)
    }

    /// Returns the bandwidth of a stream of `count` messages in GB/s.
    fn bandwidth(&mut self, bytes: usize, count: usize) -> Result<f64, Failure> {
        let data = vec![1; bytes];
        let begin = Instant::now();
        let mut pending = 0;
        for _ in 0..count {
            // SAFETY: the data live until the answer to `end` has come, after all messages.
            let payload = unsafe { Payload::borrowed(data.as_ptr(), data.len()) };
            let sending = self.fabric.send(self.peer, b"", payload).map_err(failed)?;
            pending += usize::from(sending != Sending::Done);
            while pending > WINDOW {
                match self.fabric.wait(WAIT_MAX).map_err(failed)? {
                    Some(Event::Sent(_)) => pending -= 1,
                    Some(Event::Lost { why, .. }) => return Err(failed(why)),
                    Some(_) => {}
                    None => return Err(failed("the other process does not receive")),
                }
            }
        }
        self.fabric.send(self.peer, b"end", Vec::new()).map_err(failed)?;
        message(&mut self.fabric)?;
        Ok((count * bytes) as f64 / begin.elapsed().as_secs_f64() / 1e9)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.fabric.send(self.peer, b"over", Vec::new());
        let _ = self.other.kill();
        let _ = self.other.wait();
    }
}

/// The samples of one size and carrier, one per round.
#[derive(Default, Clone)]
struct Samples {
    round_trip_us: Vec<f64>,
    bandwidth: Vec<f64>,
}

/// Measures, prints tables, writes `net.csv` and `net-targets.csv`.
pub fn run(options: &Options, out: &Path) -> Result<(), Failure> {
    // This thread stays on one processor, and the other process on another.
    let allowed = sched_getaffinity(None).map_err(failed)?;
    let processors = cores::first_pair();
    if let Some((here, _)) = processors {
        let mut only = CpuSet::new();
        only.set(here);
        sched_setaffinity(None, &only).map_err(failed)?;
    }
    let measured = measure(options, processors, out);
    sched_setaffinity(None, &allowed).map_err(failed)?;
    measured
}

fn measure(
    options: &Options,
    processors: Option<(usize, usize)>,
    out: &Path,
) -> Result<(), Failure> {
    let mut pairs = Vec::new();
    for (carriers, _) in CARRIERS {
        pairs.push(Pair::new(carriers, processors.map(|(_, there)| there))?);
    }
    let mut samples = vec![vec![Samples::default(); CARRIERS.len()]; SIZES.len()];
    let mut line_us = Vec::new();
    for _ in 0..options.rounds {
        // A round trip is two hand-overs.
        let distance = |(here, there)| cores::distance_between_ns(here, there);
        line_us.extend(processors.and_then(distance).map(|ns| 2.0 * ns / 1000.0));
        for (bytes, of_size) in SIZES.into_iter().zip(&mut samples) {
            let count = (options.messages as usize / bytes.div_ceil(4096)).max(10);
            for (pair, samples) in pairs.iter_mut().zip(of_size) {
                samples.round_trip_us.push(pair.round_trip_us(bytes, count)?);
                samples.bandwidth.push(pair.bandwidth(bytes, count)?);
            }
        }
    }
    drop(pairs);
    table(&samples, options, out)?;
    targets(&samples, &line_us, out)
}

fn table(samples: &[Vec<Samples>], options: &Options, out: &Path) -> Result<(), Failure> {
    let mut table =
        Table::new(["bytes", "carrier", "round trip µs", "(min..max)", "GB/s", "(min..max)"]);
    let headings = "bytes,carrier,round_trip_us,round_trip_us_min,round_trip_us_max,\
                    gb_per_s,gb_per_s_min,gb_per_s_max";
    let mut lines = vec![headings.to_string()];
    for (bytes, of_size) in SIZES.iter().zip(samples) {
        for ((carrier, words), samples) in CARRIERS.iter().zip(of_size) {
            let [time, rate] = [&samples.round_trip_us, &samples.bandwidth].map(|s| Spread::of(s));
            lines.push(format!(
                "{bytes},{carrier},{:.2},{:.2},{:.2},{:.3},{:.3},{:.3}",
                time.median, time.min, time.max, rate.median, rate.min, rate.max
            ));
            table.row([
                bytes.to_string(),
                words.to_string(),
                format!("{:.2}", time.median),
                format!("({:.2}..{:.2})", time.min, time.max),
                format!("{:.2}", rate.median),
                format!("({:.2}..{:.2})", rate.min, rate.max),
            ]);
        }
    }
    table.print(&format!("messages between nodes; median of {} rounds", options.rounds));
    write_lines(&out.join("net.csv"), &lines)
}

fn targets(samples: &[Vec<Samples>], line_us: &[f64], out: &Path) -> Result<(), Failure> {
    let mut targets = Vec::new();
    let at = |bytes: usize| &samples[SIZES.iter().position(|&size| size == bytes).expect("a size")];
    for bytes in [8, 4 << 10] {
        let of = at(bytes);
        targets.push(Target {
            what: format!("TCP with Noise over UCX over TCP: round trip of {bytes} bytes"),
            bound: Bound::AtMost(1.15),
            ratio: Some(Spread::of_quotients(&of[TCP].round_trip_us, &of[UCX].round_trip_us)),
        });
    }
    for bytes in [64 << 10, 256 << 10, 1 << 20] {
        let of = at(bytes);
        targets.push(Target {
            what: format!("TCP with Noise over UCX over TCP: bandwidth at {bytes} bytes"),
            bound: Bound::AtLeast(0.8),
            ratio: Some(Spread::of_quotients(&of[TCP].bandwidth, &of[UCX].bandwidth)),
        });
    }
    let small = &at(8)[LOCAL].round_trip_us;
    targets.push(Target {
        what: "shared memory over a cache line: round trip of 8 bytes".to_string(),
        bound: Bound::AtMost(1.6),
        ratio: (line_us.len() == small.len()).then(|| Spread::of_quotients(small, line_us)),
    });
    report("targets of messages between nodes", &targets, &out.join("net-targets.csv"))
}
