//! The proof: a small ping-pong, compiled with the MPI's mpicc and run by its launcher, as
//! ordinary processes and as tasks. After each size, the node server reports the number of bytes
//! that the tasks have copied in user space.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nagaya_server::{Failure, query};

use super::library::{Library, beside};
use super::scratch::Scratch;
use crate::progress::Progress;
use crate::ps::human;

const SOURCE: &str = include_str!("trial.c");
const SIZES: &[u64] =
    &[1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Messages each way of each size.
const ROUNDS: u64 = 40;
/// An MPI that hangs is ended after this.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The measurements of one size.
#[derive(Debug)]
struct Row {
    size: u64,
    /// One way, in microseconds, as ordinary processes and as tasks.
    plain_us: f64,
    tasks_us: f64,
    /// Bytes that the tasks copied in user space, of those that were sent.
    copied: f64,
}

/// The result.
#[derive(Debug)]
pub struct Trial(Vec<Row>);

impl Trial {
    /// The size from which on all messages were single copies, in bytes.
    pub fn threshold(&self) -> Option<u64> {
        let once = |row: &&Row| row.copied > 0.9;
        self.0.iter().rev().take_while(once).last().map(|row| row.size)
    }

    /// One line a size.
    pub fn lines(&self) -> Vec<String> {
        let line = |row: &Row| {
            format!(
                "{:>9}: {:>4.0} % copied in user space; one way {:.2} us, without nagaya {:.2} us",
                human(row.size),
                row.copied * 100.0,
                row.tasks_us,
                row.plain_us
            )
        };
        self.0.iter().map(line).collect()
    }
}

/// Compiles and runs the trial.
pub fn run(library: &Library) -> Result<Trial, Failure> {
    let scratch = Scratch::new()?;
    let program = scratch.compile(library, SOURCE, "trial")?;
    let progress = Progress::start("info", "ping-pong of two ranks, without nagaya");
    let plain = launch(library, &program, &scratch.path().join("plain"), false)?;
    progress.set("ping-pong of two ranks, as tasks");
    let tasks = launch(library, &program, &scratch.path().join("tasks"), true)?;
    let sent = |size: u64| (2 * ROUNDS * size) as f64;
    let rows = plain.iter().zip(&tasks).map(|(plain, tasks)| Row {
        size: plain.size,
        plain_us: plain.us,
        tasks_us: tasks.us,
        copied: tasks.copied as f64 / sent(tasks.size),
    });
    Ok(Trial(rows.collect()))
}

struct Step {
    size: u64,
    us: f64,
    copied: u64,
}

/// Runs the ping-pong to its end.
fn launch(
    library: &Library,
    program: &Path,
    step: &Path,
    as_tasks: bool,
) -> Result<Vec<Step>, Failure> {
    let launcher = library.launcher.display();
    let failed = |what: String| Failure::ours(format!("{launcher} -n 2: {what}"));
    let nagaya = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
    let mut command = beside(&library.launcher, Command::new(&library.launcher));
    command.args(["-n", "2"]);
    if as_tasks {
        command.arg(nagaya).args(["exec", "--transport", "copy"]);
    }
    command.arg(program).arg(step).arg(ROUNDS.to_string());
    command.args(SIZES.iter().map(u64::to_string));
    let errors = step.with_extension("err");
    let file = fs::File::create(&errors).map_err(|e| failed(e.to_string()))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;

    let (sender, lines) = std::sync::mpsc::channel();
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    std::thread::spawn(move || {
        output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let deadline = Instant::now() + TIME_LIMIT;
    let mut steps: Vec<Step> = Vec::new();
    let mut copied_before = 0;
    let left = || deadline.saturating_duration_since(Instant::now());
    while let Ok(line) = lines.recv_timeout(left()) {
        let mut words = line.split_whitespace();
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<f64>().ok());
        let (Some(size), Some(us)) = (number(words.next()), number(words.next())) else {
            continue; // of the launcher's
        };
        let copied = copied_of(step)?;
        let size = size as u64;
        steps.push(Step { size, us, copied: copied - copied_before });
        copied_before = copied;
        let next = format!("{}.{size}", step.display());
        fs::write(&next, "").map_err(|e| failed(format!("{next}: {e}")))?;
    }
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            _ if left().is_zero() => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!("did not end in {} s", TIME_LIMIT.as_secs())));
            }
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    if !status.success() || steps.len() != SIZES.len() {
        let errors = fs::read_to_string(&errors).unwrap_or_default();
        let says = errors.lines().find(|line| line.chars().any(char::is_alphanumeric));
        let says = says.map_or(String::new(), |line| format!(": {}", line.trim()));
        return Err(failed(format!("{status}{says}")));
    }
    Ok(steps)
}

/// The bytes that the tasks of the trial have copied in user space until now.
fn copied_of(step: &Path) -> Result<u64, Failure> {
    let step = step.to_string_lossy();
    let jobs = query::jobs()?.jobs;
    let tasks = jobs.iter().flat_map(|job| &job.status.tasks);
    let ours = tasks.filter(|task| task.arguments.iter().any(|argument| *argument == step));
    Ok(ours.map(|task| task.copied_bytes).sum())
}
