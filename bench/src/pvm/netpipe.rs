//! Debian's NPpvm, a ping-pong program that we did not write: two tasks that the user starts,
//! in a virtual machine that has no others.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::machine::Machine;
use crate::failure::Failure;
use crate::launch::{on_path, output_of, wait_until};
use crate::netpipe::parse;

/// Messages a trial, of which NetPIPE reports the fastest of seven.
const RANGES: [(usize, usize, u32); 2] = [(4, 65536, 500), (131_072, 1_048_576, 30)];

const PATIENCE: Duration = Duration::from_secs(60);
/// The first one must be there when the second comes.
const HEAD_START: Duration = Duration::from_millis(300);
/// Longest wait for it to end when the second has.
const END_MAX: Duration = Duration::from_secs(5);

/// Sizes and one-way times in µs.
pub fn run(machine: &Machine, file: &Path) -> Result<Vec<(usize, f64)>, Failure> {
    let program = on_path("NPpvm")
        .ok_or_else(|| Failure::new("NPpvm: not installed; apt-get install netpipe-pvm"))?;
    let mut measured = Vec::new();
    for (from, to, repeats) in RANGES {
        let _ = fs::remove_file(file); // what an earlier run left must not pass for this one's
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
        let ran = output_of(command().args(["-h", "it"]).arg("-o").arg(file), PATIENCE);
        let grace = if ran.is_ok() { END_MAX } else { Duration::ZERO };
        let _ = wait_until(&mut receiver, Instant::now() + grace);
        ran?;
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        let times = parse(&text).ok_or_else(|| {
            Failure::new(format!("{}: is not what NetPIPE writes", file.display()))
        })?;
        measured.extend(times);
    }
    let _ = fs::remove_file(file);
    Ok(measured)
}
