//! The workloads of the ping-pong, and its samples.

use clap::ValueEnum;

use crate::mode::Mode;
use crate::mpi::Mpi;

/// A program and its use of buffers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Workload {
    /// The own program; buffers are written once.
    Unchanged,
    /// The own program; buffers are written before every send.
    Fresh,
    /// The own program; windows of messages in one direction.
    Stream,
    /// NetPIPE with its defaults: unchanged buffers.
    #[value(name = "netpipe")]
    NetPipe,
}

impl Workload {
    /// Returns its name in tables and figures.
    pub fn title(self) -> &'static str {
        match self {
            Workload::Unchanged => "own ping-pong, unchanged buffers",
            Workload::Fresh => "own ping-pong, freshly written buffers",
            Workload::Stream => "own stream",
            Workload::NetPipe => "NetPIPE",
        }
    }

    /// Returns its name in files and options.
    pub fn key(self) -> &'static str {
        match self {
            Workload::Unchanged => "unchanged",
            Workload::Fresh => "fresh",
            Workload::Stream => "stream",
            Workload::NetPipe => "netpipe",
        }
    }
}

/// One sample.
pub struct Sample {
    pub workload: Workload,
    pub bytes: usize,
    pub us: f64,
    /// Shortest and longest distance of the two cores around it, in nanoseconds.
    pub distance_ns: [f64; 2],
}

/// One run in one mode.
pub struct Run {
    pub mpi: Mpi,
    pub mode: Mode,
    pub round: u32,
    pub samples: Vec<Sample>,
}

/// Parses a line of the own program: buffers, size, iterations, one-way time, and the distance of
/// the cores before and after, in nanoseconds.
pub fn sample(line: &str) -> Option<Sample> {
    let [buffers, bytes, _iterations, ns, before, after] =
        line.split_whitespace().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let number = |word: &str| word.parse::<f64>().ok();
    let (before, after) = (number(before)?, number(after)?);
    Some(Sample {
        workload: Workload::from_str(buffers, false).ok()?,
        bytes: bytes.parse().ok()?,
        us: number(ns)? / 1000.0,
        distance_ns: [before.min(after), before.max(after)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_our_program_is_read_and_others_are_refused() {
        let read = sample("fresh 8 100 300.0 42.0 40.0").unwrap();
        assert_eq!((read.workload, read.bytes, read.us), (Workload::Fresh, 8, 0.3));
        assert_eq!(read.distance_ns, [40.0, 42.0]);
        assert!(sample("").is_none());
        assert!(sample("fresh 8 100 300.0").is_none());
        assert!(sample("stale 8 100 300.0 42.0 40.0").is_none());
    }
}
