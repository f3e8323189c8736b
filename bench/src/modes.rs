//! Verification of the modes of message transfer. strace counts the copying system calls
//! (process_vm_readv, process_vm_writev), and `nagaya ps` shows the copies in user space.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::launch::{Nagaya, on_path, output_of};
use crate::mode::Mode;
use crate::mpi::Mpi;
use crate::programs;
use crate::progress::progress;
use crate::table::{Table, write_lines};

/// The selection of MPIs and modes.
#[derive(Parser)]
pub struct Options {
    /// MPI implementations to use
    #[arg(long, value_delimiter = ',', default_value = Mpi::ALL)]
    mpi: Vec<Mpi>,
    /// Modes of message transfer
    #[arg(long, value_delimiter = ',', default_value = "eager,rendezvous,cma,space")]
    mode: Vec<Mode>,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["modes"])
    }
}

/// Bytes of a message, above the threshold of every library.
const BYTES: &str = "65536";
const REPETITIONS: &str = "1";
const MILLISECONDS: &str = "5";
/// Milliseconds of a repetition: long enough that `nagaya ps` sees the tasks several times. A
/// repetition of fast messages ends early.
const REPETITIONS_OF_SPACE: &str = "60";
const MILLISECONDS_OF_SPACE: &str = "20";
const LOOK: Duration = Duration::from_millis(40);
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Number of process_vm_* calls that libraries make as a test at start.
const PROBES_MAX: u64 = 32;

/// The counts of a ping-pong.
struct Counted {
    messages: u64,
    /// System calls; `None` if strace cannot trace, as for tasks, which are not its children.
    by_kernel: Option<u64>,
    in_space: u64,
}

impl Counted {
    /// Returns true if the counts agree with the mode. A few more copies than messages are normal,
    /// since the program warms up and sends its results.
    fn is(&self, mode: Mode) -> bool {
        match mode {
            Mode::Eager | Mode::Rendezvous => self.by_kernel.is_some_and(|n| n <= PROBES_MAX),
            Mode::Cma => self.by_kernel.is_some_and(|n| n >= self.messages),
            // The last output of ps may be older than the last message.
            Mode::Space | Mode::Protected | Mode::Exec => {
                self.in_space >= self.messages / 4 && self.in_space > PROBES_MAX
            }
            // The MPI may use only this provider.
            Mode::Limit | Mode::Provider | Mode::ProtectedAll => true,
        }
    }
}

/// Counts, prints a table, writes `modes.csv`. Fails if a mode works differently.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    on_path("strace")
        .ok_or_else(|| Failure::new("strace: not installed; apt-get install strace"))?;
    let mut table = Table::new(["", "mode", "messages", "by the kernel", "in the space", ""]);
    let mut lines = vec!["mpi,mode,messages,process_vm_calls,copies_in_space,as_named".to_string()];
    let mut failures = Vec::new();
    for &mpi in &options.mpi {
        for &mode in &options.mode {
            progress(&format!("modes: {}, {}", mpi.name(), mode.words()));
            let counted = match count(mpi, mode, nagaya, out) {
                Ok(Some(counted)) => counted,
                Ok(None) => continue,
                Err(failure) => {
                    failures.push(failure);
                    continue;
                }
            };
            let Counted { messages, by_kernel, in_space } = counted;
            let as_named = counted.is(mode);
            if !as_named {
                failures.push(Failure::new(format!(
                    "{}: {} does something else: of {messages} messages {} were copied by the \
                     kernel, {in_space} in the space",
                    mpi.name(),
                    mode.words(),
                    by_kernel.unwrap_or(0)
                )));
            }
            let calls = by_kernel.map(|n| n.to_string()).unwrap_or_default();
            lines.push(format!(
                "{},{},{messages},{calls},{in_space},{as_named}",
                mpi.key(),
                mode.key()
            ));
            table.row([
                mpi.name().to_string(),
                mode.words().to_string(),
                messages.to_string(),
                calls,
                in_space.to_string(),
                if as_named { "as named" } else { "SOMETHING ELSE" }.to_string(),
            ]);
        }
    }
    progress("");
    table.print("messages of 64 KB, and how often the kernel and the space copied");
    write_lines(&out.join("modes.csv"), &lines)?;
    Failure::of_all(failures)
}

fn count(mpi: Mpi, mode: Mode, nagaya: &Nagaya, out: &Path) -> Result<Option<Counted>, Failure> {
    let program = programs::compile_with_mpi("pingpong", mpi, out)?;
    match mode {
        Mode::Space | Mode::Protected | Mode::Exec => count_in_space(mpi, mode, nagaya, &program),
        Mode::Provider | Mode::ProtectedAll => Ok(None),
        _ => count_by_kernel(mpi, mode, nagaya, &program, out),
    }
}

/// Runs each rank under a separate strace with a separate output file.
fn count_by_kernel(
    mpi: Mpi,
    mode: Mode,
    nagaya: &Nagaya,
    program: &Path,
    out: &Path,
) -> Result<Option<Counted>, Failure> {
    let counts = out.join("modes-counts");
    let _ = fs::remove_dir_all(&counts);
    fs::create_dir_all(&counts)
        .map_err(|error| Failure::new(format!("{}: {error}", counts.display())))?;
    let Some(mut command) = mpi.ranks(2, mode, nagaya, Path::new("/bin/sh"))? else {
        return Ok(None);
    };
    let script = "exec strace --seccomp-bpf -f -c -e trace=process_vm_readv,process_vm_writev \
                  -o \"$0/$$\" \"$@\"";
    command.args(["-c", script]).arg(&counts).arg(program);
    let output =
        output_of(command.args(["unchanged", REPETITIONS, MILLISECONDS, BYTES]), TIME_LIMIT)?;
    let files = fs::read_dir(&counts).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let by_kernel = texts.map(|text| calls(&text)).sum();
    let _ = fs::remove_dir_all(&counts);
    Ok(Some(Counted { messages: messages(&output)?, by_kernel: Some(by_kernel), in_space: 0 }))
}

/// Polls `nagaya ps`, which shows the copies of each living task.
fn count_in_space(
    mpi: Mpi,
    mode: Mode,
    nagaya: &Nagaya,
    program: &Path,
) -> Result<Option<Counted>, Failure> {
    let Some(mut command) = mpi.ranks(2, mode, nagaya, program)? else { return Ok(None) };
    let ended = &AtomicBool::new(false);
    let (output, in_space) = thread::scope(|scope| {
        let looker = scope.spawn(move || {
            let mut most = 0;
            while !ended.load(Ordering::Relaxed) {
                let mut ps = Command::new(&nagaya.command);
                let list = output_of(ps.args(["ps", "--parsable"]), TIME_LIMIT).unwrap_or_default();
                most = most.max(copies(&list, program));
                thread::sleep(LOOK);
            }
            most
        });
        let arguments = ["unchanged", REPETITIONS_OF_SPACE, MILLISECONDS_OF_SPACE, BYTES];
        let output = output_of(command.args(arguments), TIME_LIMIT);
        ended.store(true, Ordering::Relaxed);
        (output, looker.join().unwrap_or(0))
    });
    Ok(Some(Counted { messages: messages(&output?)?, by_kernel: None, in_space }))
}

/// Returns the number of messages: two per iteration of `programs/pingpong.c`.
fn messages(output: &str) -> Result<u64, Failure> {
    let iterations = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    let iterations: Option<Vec<u64>> = output.lines().map(iterations).collect();
    let messages = iterations.map(|all| 2 * all.iter().sum::<u64>()).filter(|n| *n > 0);
    messages.ok_or_else(|| Failure::new(format!("modes: unexpected output: {output}")))
}

/// Parses the table of `strace -c`: the numbers of both calls, in the fourth column.
fn calls(table: &str) -> u64 {
    let of_call = table.lines().filter(|line| line.contains(" process_vm_"));
    of_call.filter_map(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok()).sum()
}

/// Parses `nagaya ps --parsable`: the copies of all tasks of the program.
fn copies(list: &str, program: &Path) -> u64 {
    let program = program.display().to_string();
    let of_program = list.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let copies = of_program.filter_map(|fields| {
        let runs_it = fields.get(7)?.starts_with(&program);
        fields.get(5)?.parse::<u64>().ok().filter(|_| runs_it)
    });
    copies.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_straces_table() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     99.00    0.000080           0        83         1 process_vm_readv\n\
                      1.00    0.000001           0         4           process_vm_writev\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    0.000080           0        87           total\n";
        assert_eq!(calls(table), 87);
    }

    #[test]
    fn copies_are_those_of_our_program() {
        let list = "j\t0\t1\tR\t9\t40\t99\t/x/pingpong fresh\nj\t1\t2\tR\t9\t2\t9\t/y/other\n";
        assert_eq!(copies(list, Path::new("/x/pingpong")), 40);
    }

    #[test]
    fn a_mode_is_recognised_by_the_copying_side() {
        let counted = |by_kernel, in_space| Counted { messages: 200, by_kernel, in_space };
        assert!(counted(Some(4), 0).is(Mode::Eager));
        assert!(!counted(Some(240), 0).is(Mode::Rendezvous));
        assert!(counted(Some(240), 0).is(Mode::Cma));
        assert!(!counted(Some(4), 0).is(Mode::Cma));
        assert!(counted(None, 190).is(Mode::Space));
        assert!(!counted(None, 0).is(Mode::Space));
    }
}
