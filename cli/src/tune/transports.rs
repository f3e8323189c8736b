//! `nagaya tune --mpi`: compares the transports of an MPI between two ranks, and stores the faster
//! one for jobs that are started later.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nagaya_server::Failure;
use paths::choice::Transport;
use paths::launched::Launched;
use paths::measured::{self, Times};

use crate::mpi::library::{Library, beside};
use crate::mpi::scratch::Scratch;
use crate::progress::Progress;
use crate::ps::human;

const SOURCE: &str = include_str!("transports.c");
const SIZES: [u64; 9] = [8, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Each transport is measured that often, in turns. The best of the medians counts, since other
/// programs only add time.
const TURNS: usize = 3;
/// An MPI that hangs is ended after this.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The ways to start the ranks: without nagaya, and with each transport.
const WAYS: [(&str, &[&str]); 3] = [
    ("alone", &[]),
    ("copy", &["exec", "--transport", "copy", "--collectives", "mpi"]),
    ("provider", &["exec", "--transport", "provider", "--collectives", "mpi"]),
];

/// Measures, prints, and returns the faster transport.
pub fn compare(library: &Library) -> Result<Transport, Failure> {
    let scratch = Scratch::new()?;
    let program = scratch.compile(library, SOURCE, "transports")?;
    let job = Launched::two_ranks(library.kind(), &library.launcher);
    let directory = job.directory.unwrap_or_default();
    println!("{library}, launcher in {}, 2 ranks", directory.display());
    let mut best: [Times; 3] = Default::default();
    let progress = Progress::start("tune", "comparison of transports");
    for turn in 0..TURNS {
        for (times, (name, options)) in best.iter_mut().zip(WAYS) {
            progress.set(format!("turn {} of {TURNS}, {name}", turn + 1));
            // Not all builds of an MPI can use libfabric.
            match measure(library, &program, name, options) {
                Ok(found) => measured::merge(times, &found),
                Err(failure) if name == "provider" => {
                    println!("the provider does not work here: {}", failure.message);
                    return Ok(Transport::Copy);
                }
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(print(&best))
}

/// Prints the times and returns the transport that is the fastest or as fast, for each size.
fn print(best: &[Times; 3]) -> Transport {
    println!("us for a message to and fro (one way), and in a stream of 64");
    println!("{:>9} {:^29} {:^29}", "bytes", "to and fro", "stream");
    let head = WAYS.map(|(name, _)| format!("{name:>9}")).concat();
    println!("{:>9} {head}   {head}", "");
    for &size in best[0].keys() {
        let cells = |which: usize| {
            let shown = best.each_ref().map(|times| format!("{:>9.2}", times[&size][which]));
            shown.concat()
        };
        println!("{:>9} {}   {}", human(size), cells(0), cells(1));
    }
    let [alone, copy, provider] = best;
    let slower = measured::slower(alone, copy, provider).into_iter().map(human);
    let slower: Vec<String> = slower.collect();
    if slower.is_empty() {
        println!("transport: provider");
        return Transport::Provider;
    }
    println!("transport: copy (the provider is slower at {})", slower.join(", "));
    Transport::Copy
}

/// Runs the program once.
fn measure(
    library: &Library,
    program: &Path,
    way: &str,
    options: &[&str],
) -> Result<Times, Failure> {
    let launcher = library.launcher.display();
    let failed = |what: String| Failure::ours(format!("{launcher} -n 2: {what}"));
    let mut command = beside(&library.launcher, Command::new(&library.launcher));
    command.args(["-n", "2"]);
    if !options.is_empty() {
        let nagaya = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
        command.arg(nagaya).args(options);
    }
    command.arg(program).arg(way).args(SIZES.map(|size| OsString::from(size.to_string())));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
    let (sender, lines) = channel();
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let output = BufReader::new(output.expect("a pipe"));
    std::thread::spawn(move || {
        output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let errors = BufReader::new(errors.expect("a pipe"));
    let first_error = std::thread::spawn(move || {
        let mut lines = errors.lines().map_while(Result::ok);
        let first = lines.find(|line| line.chars().any(char::is_alphanumeric));
        lines.for_each(drop);
        first
    });
    let deadline = Instant::now() + TIME_LIMIT;
    let mut times = Times::new();
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [size, way, stream] = words[..]
            && let (Ok(size), Ok(way), Ok(stream)) = (size.parse(), way.parse(), stream.parse())
        {
            times.insert(size, [way, stream]);
        }
    }
    if Instant::now() >= deadline {
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(format!("did not end in {} s", TIME_LIMIT.as_secs())));
    }
    let status = child.wait().map_err(|e| failed(e.to_string()))?;
    if !status.success() || times.len() != SIZES.len() {
        let line = first_error.join().ok().flatten().unwrap_or_else(|| "no message".into());
        return Err(failed(format!("{status}: {line}")));
    }
    Ok(times)
}
