//! Debian's NPpvm, a ping-pong program of another project: two tasks that the user starts, in a
//! virtual machine without others.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::machine::Machine;
use crate::failure::Failure;
use crate::launch::{on_path, output_of, wait_until};
use crate::netpipe::parse;

/// Ranges of sizes with the number of messages per trial. NetPIPE reports the fastest of seven
/// trials.
const RANGES: [(usize, usize, u32); 2] = [(4, 65536, 500), (131_072, 1_048_576, 30)];

const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Delay before the second task starts, since the first one must be enrolled by then.
const HEAD_START: Duration = Duration::from_millis(300);
/// Time limit for the first task to end after the second one.
const END_MAX: Duration = Duration::from_secs(5);

/// Runs NPpvm. Returns sizes and one-way times in µs.
pub fn run(machine: &Machine, file: &Path) -> Result<Vec<(usize, f64)>, Failure> {
    let program = on_path("NPpvm")
        .ok_or_else(|| Failure::new("NPpvm: not installed; apt-get install netpipe-pvm"))?;
    let mut measured = Vec::new();
    for (from, to, repeats) in RANGES {
        let _ = fs::remove_file(file); // so that an old file is never read as a new one
        let command = || {
            let mut command = machine.command(&program);
            command.args(["-p", "0", "-n", &repeats.to_string()]);
            command.args(["-l", &from.to_string(), "-u", &to.to_string()]);
            command
        };
        let mut receiver = command()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Failure::new(format!("NPpvm: {error}")))?;
        thread::sleep(HEAD_START);
        let ran = output_of(command().args(["-h", "it"]).arg("-o").arg(file), TIME_LIMIT);
        let grace = if ran.is_ok() { END_MAX } else { Duration::ZERO };
        let _ = wait_until(&mut receiver, Instant::now() + grace);
        ran?;
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        let times = parse(&text).ok_or_else(|| {
            Failure::new(format!("{}: not an output file of NetPIPE", file.display()))
        })?;
        measured.extend(times);
    }
    let _ = fs::remove_file(file);
    Ok(measured)
}
