//! The transports of the FCP benchmark, and the samples that its programs print.

/// A transport. The first three are lower bounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
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

pub const WAYS: [Way; 12] = [
    Way::Word,
    Way::Line,
    Way::Copy,
    Way::Vcl,
    Way::Fcp,
    Way::FcpPlus,
    Way::Fcp2,
    Way::Huge,
    Way::Space,
    Way::Unix,
    Way::Tcp,
    Way::Udp,
];

impl Way {
    /// Returns its name in tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Way::Word => "one word",
            Way::Line => "cache line",
            Way::Copy => "one copy",
            Way::Vcl => "VCL",
            Way::Fcp => "FCP",
            Way::FcpPlus => "FCP plus",
            Way::Fcp2 => "FCP II",
            Way::Huge => "FCP II, huge",
            Way::Space => "FCP II, space",
            Way::Unix => "Unix socket",
            Way::Tcp => "TCP",
            Way::Udp => "UDP",
        }
    }

    /// Returns its name in files and in the measuring programs.
    pub fn key(self) -> &'static str {
        match self {
            Way::Word => "word",
            Way::Line => "line",
            Way::Copy => "copy",
            Way::Vcl => "vcl",
            Way::Fcp => "fcp",
            Way::FcpPlus => "fcp-plus",
            Way::Fcp2 => "fcp2",
            Way::Huge => "fcp2-huge",
            Way::Space => "fcp2-space",
            Way::Unix => "unix",
            Way::Tcp => "tcp",
            Way::Udp => "udp",
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
    pub way: Way,
    pub bytes: usize,
    pub ns: f64,
    /// Transfer time of a cache line before and after it, in nanoseconds.
    pub line_ns: [f64; 2],
}

/// Parses a line of a measuring program: transport, buffers, size, time, and the transfer time of a
/// cache line before and after, in nanoseconds.
pub fn line(text: &str, round: u32) -> Option<Sample> {
    let [way, what, bytes, ns, before, after] = text.split_whitespace().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let number = |word: &str| word.parse::<f64>().ok();
    Some(Sample {
        round,
        what: BUFFERS.into_iter().find(|name| *name == what)?,
        way: WAYS.into_iter().find(|of| of.key() == way)?,
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
        assert_eq!((read.round, read.what, read.way, read.bytes), (3, "fresh", Way::Fcp2, 4096));
        assert_eq!((read.ns, read.line_ns), (310.5, [40.0, 42.0]));
        assert!(line("fcp3 fresh 4096 310.5 40.0 42.0", 1).is_none());
        assert!(line("fcp2 fresh 4096 310.5 40.0", 1).is_none());
    }
}
