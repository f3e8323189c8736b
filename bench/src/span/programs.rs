//! Computing programs: two threads on two nodes with one processor each, beside the same program on
//! one processor. Some are Nagaya's, others are Debian's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::options::Options;
use crate::cores;
use crate::failure::Failure;
use crate::launch::{Nagaya, on_path, output_of};
use crate::programs::{compile, compile_with_openmp};
use crate::progress::progress;
use crate::spread::Spread;

/// A program.
pub struct Program {
    /// Its name in tables: the program and its variant.
    pub name: &'static str,
    /// The target: its minimum speed-up on two nodes.
    pub bound: f64,
    from: From,
    arguments: &'static [&'static str],
    /// Its arguments in a smoke test.
    small: &'static [&'static str],
    /// True if it compresses a file, whose name follows the arguments.
    packs: bool,
}

/// The source of a program.
enum From {
    /// Nagaya's, with POSIX threads.
    Threads,
    /// Nagaya's, with OpenMP.
    OpenMp,
    /// A package of Debian.
    Package(&'static str),
}

/// All programs. They use two threads, one for each processor.
pub const PROGRAMS: [Program; 7] = [
    Program {
        name: "montecarlo",
        bound: 1.9,
        from: From::Threads,
        arguments: &["2", "1600000000"],
        small: &["2", "1000000"],
        packs: false,
    },
    Program {
        name: "sysbench",
        bound: 1.9,
        from: From::Package("sysbench"),
        arguments: &["cpu", "--threads=2", "--time=0", "--events=8000", "run"],
        small: &["cpu", "--threads=2", "--time=0", "--events=100", "run"],
        packs: false,
    },
    // With the default, an event takes 0.2 ms, and both threads write the event counter.
    Program {
        name: "sysbench 6 ms",
        bound: 1.9,
        from: From::Package("sysbench"),
        arguments: &[
            "cpu",
            "--cpu-max-prime=100000",
            "--threads=2",
            "--time=0",
            "--events=600",
            "run",
        ],
        small: &["cpu", "--cpu-max-prime=100000", "--threads=2", "--time=0", "--events=10", "run"],
        packs: false,
    },
    Program {
        name: "xz",
        bound: 1.8,
        from: From::Package("xz-utils"),
        arguments: &["-T2", "-1", "-c"],
        small: &["-T2", "-0", "-c"],
        packs: true,
    },
    Program {
        name: "pbzip2",
        bound: 1.8,
        from: From::Package("pbzip2"),
        arguments: &["-p2", "-c", "-k"],
        small: &["-p2", "-c", "-k"],
        packs: true,
    },
    Program {
        name: "matrix",
        bound: 1.8,
        from: From::OpenMp,
        arguments: &["2000"],
        small: &["200"],
        packs: false,
    },
    Program {
        name: "pigz",
        bound: 1.6,
        from: From::Package("pigz"),
        arguments: &["-p2", "-n", "-T", "-c"],
        small: &["-p2", "-n", "-T", "-c"],
        packs: true,
    },
];

/// Bytes of the file to compress.
const FILE_BYTES: usize = 48 << 20;
const SMALL_FILE_BYTES: usize = 2 << 20;

const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Times of a program in seconds, one per round.
pub struct Times {
    /// The program.
    pub name: &'static str,
    /// The target.
    pub bound: f64,
    /// On one processor.
    pub one: Vec<f64>,
    /// On two nodes.
    pub two: Vec<f64>,
}

impl Times {
    /// Returns the speed-up on two nodes.
    pub fn speedup(&self) -> Spread {
        Spread::of_quotients(&self.one, &self.two)
    }
}

/// The results.
pub struct Programs(pub Vec<Times>);

impl Programs {
    /// Returns empty results.
    pub fn new() -> Self {
        Programs(Vec::new())
    }

    /// Runs the programs alternately. Returns failed runs and those with different output.
    pub fn measure(&mut self, options: &Options, nagaya: &Nagaya, out: &Path) -> Vec<Failure> {
        let mut failures = Vec::new();
        let begins = |name: &str| options.programs.iter().any(|it| name.starts_with(it.as_str()));
        for program in &PROGRAMS {
            if !options.programs.is_empty() && !begins(program.name) {
                continue;
            }
            match times(program, options, nagaya, out) {
                Ok(times) => self.0.push(times),
                Err(failure) => failures.push(failure),
            }
        }
        failures
    }
}

fn times(
    program: &Program,
    options: &Options,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<Times, Failure> {
    let Program { name, bound, .. } = *program;
    let path = match program.from {
        From::Threads => compile("montecarlo", out)?,
        From::OpenMp => compile_with_openmp("matrix", out)?,
        From::Package(package) => on_path(program_of(name)).ok_or_else(|| {
            Failure::new(format!(
                "{name}: not installed; apt-get install {package}, or scripts/deps bench"
            ))
        })?,
    };
    let file = if program.packs { Some(file(options.small, out)?) } else { None };
    let mut times = Times { name, bound, one: Vec::new(), two: Vec::new() };
    let cpu = cores::first_pair().map(|(first, _)| first);
    for round in 1..=options.rounds {
        progress(&format!("span, {name}, round {round} of {}", options.rounds));
        let run = |nodes: usize| {
            let mut command = match nodes {
                1 => cores::on(cpu, &path),
                _ => {
                    let mut command = Command::new(&nagaya.command);
                    command.args(["span", "--nodes", "2"]).arg(&path);
                    command
                }
            };
            command.args(if options.small { program.small } else { program.arguments });
            command.args(&file).env("OMP_NUM_THREADS", "2");
            let begin = Instant::now();
            let output = output_of(&mut command, TIME_LIMIT)?;
            Ok::<_, Failure>((begin.elapsed().as_secs_f64(), output))
        };
        // Each configuration goes first in every other round.
        let ((one, alone), (two, spanned)) = match round % 2 {
            1 => {
                let first = run(1)?;
                (first, run(2)?)
            }
            _ => {
                let second = run(2)?;
                (run(1)?, second)
            }
        };
        // sysbench prints times.
        if program_of(name) != "sysbench" && alone != spanned {
            return Err(Failure::new(format!("{name}: on two nodes it prints something else")));
        }
        times.one.push(one);
        times.two.push(two);
    }
    Ok(times)
}

fn program_of(name: &str) -> &str {
    name.split_once(' ').map_or(name, |(program, _)| program)
}

/// Makes a compressible file, the same one each time.
fn file(small: bool, out: &Path) -> Result<PathBuf, Failure> {
    let bytes = if small { SMALL_FILE_BYTES } else { FILE_BYTES };
    let path = out.join(format!("span-{}.txt", bytes >> 20));
    if fs::metadata(&path).is_ok_and(|file| file.len() == bytes as u64) {
        return Ok(path);
    }
    fs::write(&path, text(bytes))
        .map_err(|why| Failure::new(format!("{}: {why}", path.display())))?;
    Ok(path)
}

/// Generates words of a few letters, short ones more often. New words appear among repeated ones.
fn text(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut below = |most: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        if words.len() < 64 || below(8) == 0 {
            let length = 1 + below(4) + below(5);
            let word = (0..length).map(|_| b'a' + (below(26).min(below(26))) as u8).collect();
            match words.len() {
                0..4096 => words.push(word),
                many => words[below(many as u64) as usize] = word,
            }
        }
        let most = words.len() as u64;
        let at = below(most).min(below(most)) as usize;
        text.extend_from_slice(&words[at]);
        text.push(if below(12) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_same_each_time_and_no_two_parts_of_it_are() {
        let long = text(300_000);
        assert_eq!(long.len(), 300_000);
        assert_eq!(text(1000), long[..1000]);
        let parts: std::collections::HashSet<&[u8]> = long.chunks(1000).collect();
        assert_eq!(parts.len(), 300);
    }

    #[test]
    fn a_speedup_is_of_pairs() {
        let times = Times { name: "", bound: 1.0, one: vec![2.0, 9.0], two: vec![1.0, 9.0] };
        assert_eq!(times.speedup(), Spread { median: 1.5, min: 1.0, max: 2.0 });
    }
}
