//! The numbers of the paper's text (§3.3); its figures have no numbers.

/// A program of the paper. The paper's size is the default of `examples/dsm` and of `nagaya sim`.
pub struct Program {
    /// The name of its file.
    pub name: &'static str,
    /// Its computation.
    pub topic: &'static str,
    /// A description of its size.
    pub size: &'static str,
    /// The paper's figures: speed-up, page messages.
    pub figures: [u32; 2],
    /// Its arguments in real runs.
    pub real: &'static str,
    /// Its arguments in a smoke test.
    pub quick: &'static str,
}

/// All programs.
pub const PROGRAMS: [Program; 4] = [
    Program {
        name: "mm",
        topic: "matrix product",
        size: "2048 × 2048 doubles",
        figures: [5, 6],
        real: "--size 512",
        quick: "--size 256",
    },
    Program {
        name: "sor",
        topic: "successive over-relaxation",
        size: "5120 × 5120, 100 iterations",
        figures: [7, 8],
        real: "--rows 512 --columns 5120 --iterations 20",
        quick: "--rows 64 --columns 1024 --iterations 8",
    },
    Program {
        name: "lu",
        topic: "LU decomposition",
        size: "1024 × 1024 doubles, blocks of 32",
        figures: [9, 10],
        real: "--size 512",
        quick: "--size 128",
    },
    Program {
        name: "is",
        topic: "integer sort",
        size: "LARGE, 32768 keys",
        figures: [11, 12],
        real: "--integers 65536",
        quick: "--integers 10000 --iterations 2",
    },
];

/// A saving of a policy against `normal` in the paper, in percent.
pub struct Claim {
    /// The program.
    pub program: &'static str,
    /// Number of processes.
    pub processes: usize,
    /// The policy.
    pub policy: &'static str,
    /// Saved page messages.
    pub messages: Option<f64>,
    /// Saved time. (The paper calls it 性能向上, improvement, and does not define it.)
    pub time: Option<f64>,
}

const fn claim(
    program: &'static str,
    processes: usize,
    policy: &'static str,
    messages: Option<f64>,
    time: Option<f64>,
) -> Claim {
    Claim { program, processes, policy, messages, time }
}

/// All savings in the text.
pub const CLAIMS: [Claim; 8] = [
    claim("mm", 16, "ainori2", None, Some(45.1)),
    claim("mm", 32, "ainori1", Some(71.9), Some(30.3)),
    claim("mm", 32, "ainori2", Some(71.9), Some(30.3)),
    claim("sor", 32, "ainori1", Some(0.0), Some(0.0)),
    claim("sor", 32, "ainori2", Some(14.4), Some(5.3)),
    claim("lu", 32, "ainori1", Some(40.0), Some(4.2)),
    claim("lu", 32, "ainori2", Some(54.5), Some(7.5)),
    claim("is", 4, "ainori2", Some(12.4), Some(4.8)),
];

/// The targets: program, processes, policy, and minimum of saved page messages in percent.
pub const ASKED: [(&str, usize, &str, f64); 8] = [
    ("mm", 32, "ainori2", 71.9),
    ("sor", 32, "ainori2", 14.4),
    ("lu", 32, "ainori2", 54.5),
    ("is", 4, "ainori2", 12.4),
    ("mm", 32, "auto", 85.0),
    ("sor", 32, "auto", 75.0),
    ("lu", 32, "auto", 70.0),
    ("is", 32, "auto", 50.0),
];
