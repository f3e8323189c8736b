//! The transports of the FCP benchmark, and the samples that its programs print.

/// A transport. The first three are lower bounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Transport {
    /// One word that two processes increment alternately.
    Word,
    /// Two cache lines: a word for each direction, set alternately.
    Line,
    /// One copy of the sender's buffer by the best loop, without notification.
    Copy,
    Vcl,
    Fcp,
    FcpPlus,
    Fcp2,
    /// FCP II with messages in huge pages.
    Huge,
    /// FCP II between two tasks of a space.
    Space,
    Unix,
    Tcp,
    Udp,
}

pub const TRANSPORTS: [Transport; 12] = [
    Transport::Word,
    Transport::Line,
    Transport::Copy,
    Transport::Vcl,
    Transport::Fcp,
    Transport::FcpPlus,
    Transport::Fcp2,
    Transport::Huge,
    Transport::Space,
    Transport::Unix,
    Transport::Tcp,
    Transport::Udp,
];

impl Transport {
    /// Returns its name in tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Word => "one word",
            Transport::Line => "cache line",
            Transport::Copy => "one copy",
            Transport::Vcl => "VCL",
            Transport::Fcp => "FCP",
            Transport::FcpPlus => "FCP plus",
            Transport::Fcp2 => "FCP II",
            Transport::Huge => "FCP II, huge",
            Transport::Space => "FCP II, space",
            Transport::Unix => "Unix socket",
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        }
    }

    /// Returns its name in files and in the measuring programs.
    pub fn key(self) -> &'static str {
        match self {
            Transport::Word => "word",
            Transport::Line => "line",
            Transport::Copy => "copy",
            Transport::Vcl => "vcl",
            Transport::Fcp => "fcp",
            Transport::FcpPlus => "fcp-plus",
            Transport::Fcp2 => "fcp2",
            Transport::Huge => "fcp2-huge",
            Transport::Space => "fcp2-space",
            Transport::Unix => "unix",
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        }
    }
}

/// Use of buffers: written once, or before each message.
pub const BUFFERS: [&str; 2] = ["unchanged", "fresh"];

/// Numbers of senders to one receiver, and bytes of their messages.
pub const SENDERS: [usize; 5] = [1, 2, 4, 8, 16];
pub const SENDERS_BYTES: usize = 64;

/// One sample.
pub struct Sample {
    pub round: u32,
    pub what: &'static str,
    pub transport: Transport,
    pub bytes: usize,
    pub ns: f64,
    /// Transfer time of a cache line before and after it, in nanoseconds.
    pub line_ns: [f64; 2],
}

/// Parses a line of a measuring program: transport, buffers, size, time, and the transfer time of a
/// cache line before and after, in nanoseconds.
pub fn line(text: &str, round: u32) -> Option<Sample> {
    let [transport, what, bytes, ns, before, after] =
        text.split_whitespace().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let number = |word: &str| word.parse::<f64>().ok();
    Some(Sample {
        round,
        what: BUFFERS.into_iter().find(|name| *name == what)?,
        transport: TRANSPORTS.into_iter().find(|of| of.key() == transport)?,
        bytes: bytes.parse().ok()?,
        ns: number(ns)?,
        line_ns: [number(before)?, number(after)?],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_others_are_refused() {
        let read = line("fcp2 fresh 4096 310.5 40.0 42.0", 3).unwrap();
        assert_eq!(
            (read.round, read.what, read.transport, read.bytes),
            (3, "fresh", Transport::Fcp2, 4096)
        );
        assert_eq!((read.ns, read.line_ns), (310.5, [40.0, 42.0]));
        assert!(line("fcp3 fresh 4096 310.5 40.0 42.0", 1).is_none());
        assert!(line("fcp2 fresh 4096 310.5 40.0", 1).is_none());
    }
}
