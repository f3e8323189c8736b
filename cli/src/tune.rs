//! `nagaya tune`: measures which loop copies messages fastest on this processor, and stores the
//! result for spaces that are created later. With `--mpi` it compares the transports of an MPI
//! ([`transports`]).

mod transports;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nagaya_server::Failure;
use paths::launched::Launched;
use paths::measured;
use pvas::copy_plan::{self, CopyLoop, CopyPlan};
use pvas::{Space, SpaceOptions};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::mpi::library::Library;
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  nagaya tune --dry-run                  measure and print
  nagaya tune                            also store the result for this user
  nagaya tune --output /etc/nagaya/copy  store it for all users
  nagaya tune --mpi=mpirun               compare the transports of this MPI";

/// Measure which loop copies messages fastest on this processor
///
/// See nagaya-tune(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Print the measurements, and store nothing
    #[arg(long)]
    dry_run: bool,
    /// Store the result in this file (default: nagaya/copy, or with --mpi nagaya/mpi, in the user's
    /// configuration directory)
    ///
    /// /etc/nagaya/copy and /etc/nagaya/mpi serve all users.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compare the transports of the MPI with this launcher instead (default: mpirun)
    ///
    /// It measures messages between two ranks without nagaya, with copies in user space, and by
    /// Nagaya's libfabric provider. Later jobs of this MPI take the faster one (nagaya exec
    /// --transport auto). Needs the MPI's mpicc.
    #[arg(
        long,
        value_name = "LAUNCHER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "mpirun"
    )]
    mpi: Option<OsString>,
}

const LOOPS: [CopyLoop; 3] = [CopyLoop::String, CopyLoop::Vector, CopyLoop::Stream];
/// Sizes measured: powers of two from 1 KiB to 32 MiB.
const SIZE_BITS: std::ops::RangeInclusive<u32> = 10..=25;
/// Another loop must be this much faster than string instructions to be taken, twice.
const GAIN_MIN: f64 = 1.05;
/// Bytes copied by one loop at one size, if that is enough copies.
const BYTES_WANTED: usize = 32 << 20;

/// Measures, prints, and stores the result.
pub fn tune(options: &Options) -> Result<i32, Failure> {
    match &options.mpi {
        Some(launcher) => tune_transport(options, launcher),
        None => tune_copies(options),
    }
}

/// Compares the transports of an MPI, and stores the faster one.
fn tune_transport(options: &Options, launcher: &OsString) -> Result<i32, Failure> {
    let library = Library::of_launcher(launcher)?;
    let transport = transports::compare(&library)?;
    let job = Launched::two_ranks(library.kind(), &library.launcher);
    if let (false, Some((kind, directory))) = (options.dry_run, job.kind.zip(job.directory)) {
        let file = output(options, measured::files())?;
        store(&file, |before| measured::with(before, kind, &directory, transport))?;
        println!("kept in {}", file.display());
    }
    Ok(0)
}

/// Returns the file for the result: the given one, or the user's.
fn output(options: &Options, files: Vec<PathBuf>) -> Result<PathBuf, Failure> {
    let file = options.output.clone().or_else(|| files.into_iter().next());
    file.ok_or_else(|| Failure::ours("no home directory; name a file (--output)"))
}

/// Measures the loops, and stores the plan.
fn tune_copies(options: &Options) -> Result<i32, Failure> {
    let fail = |error: pvas::Error| Failure::ours(error.to_string());
    let processor = copy_plan::processor();
    if !copy_plan::is_available(CopyLoop::Vector) {
        println!("processor {processor} has string instructions only: nothing to choose");
        return Ok(0);
    }
    let space = Space::create(SpaceOptions { tasks_max: Some(1), ..SpaceOptions::default() });
    let space = space.map_err(fail)?;
    let cores = cores()?;
    match cores {
        [a, b] if a == b => println!("processor {processor}, core {a} alone"),
        [a, b] => println!("processor {processor}, from core {a} to core {b}"),
    }
    println!("GB/s of fresh data, copied and read; medians");
    println!("{:>10} {:>8} {:>8} {:>8}   taken", "bytes", "string", "vector", "stream");
    let progress = Progress::start("tune", measured(0));
    let plan = measure_all(&space, cores, &progress)?;
    drop(progress);
    space.destroy().map_err(fail)?;
    println!("plan: {plan}");
    if !options.dry_run {
        let file = output(options, copy_plan::files())?;
        store(&file, |before| plan.write_into(before, &processor))?;
        println!("kept in {}", file.display());
    }
    Ok(0)
}

/// Describes the progress.
fn measured(done: usize) -> String {
    let sizes = SIZE_BITS.count();
    format!("{done} of {sizes} sizes measured; faster on a quiet machine")
}

/// Measures each size and prints a line for each; the plan.
fn measure_all(space: &Space, cores: [usize; 2], progress: &Progress) -> Result<CopyPlan, Failure> {
    let mut plan = CopyPlan::uniform(CopyLoop::String);
    measure(space, cores, 1 << 20)?; // for the processors' clocks to rise
    for (done, bit) in SIZE_BITS.enumerate() {
        progress.set(measured(done));
        let size = 1usize << bit;
        let runs = [measure(space, cores, size)?, measure(space, cores, size)?];
        let gain = |n: usize| (runs[0][n] / runs[0][0]).min(runs[1][n] / runs[1][0]);
        let best = (0..LOOPS.len()).max_by(|&a, &b| gain(a).total_cmp(&gain(b))).unwrap_or(0);
        let taken = if gain(best) > GAIN_MIN { LOOPS[best] } else { CopyLoop::String };
        plan.set_from(size as u64, taken);
        let [string, vector, stream] = [0, 1, 2].map(|n| (runs[0][n] + runs[1][n]) / 2.0);
        let name = copy_plan::name(taken);
        println!("{size:>10} {string:>8.1} {vector:>8.1} {stream:>8.1}   {name}");
    }
    Ok(plan)
}

/// Returns the first and the last allowed core, for the sender and the receiver.
fn cores() -> Result<[usize; 2], Failure> {
    let set = sched_getaffinity(None)
        .map_err(|e| Failure::ours(format!("cannot read the allowed processors: {e}")))?;
    let mut ours = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    let first = ours.next().unwrap_or(0);
    Ok([first, ours.next_back().unwrap_or(first)])
}

fn stay_on(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    // Not permitted, then noisier.
    let _ = sched_setaffinity(None, &set);
}

/// GB/s of each loop at one size, all in turns: one core writes the data, the other copies
/// it and reads the copy, as the receiver of a message does.
fn measure(space: &Space, cores: [usize; 2], size: usize) -> Result<[f64; 3], Failure> {
    let copies = (BYTES_WANTED / size).clamp(7, 400);
    let (mut from, mut to) = (vec![0u64; size / 8], vec![0u64; size / 8]);
    // Odd: the writer's turn is over; even: the copier's is.
    let turn = AtomicU64::new(0);
    let wait_for = |value: u64| {
        let mut spins = 0u32;
        while turn.load(Ordering::Acquire) < value {
            spins += 1;
            if spins.is_multiple_of(1000) {
                thread::yield_now();
            }
        }
    };
    let turns = (copies * LOOPS.len()) as u64;
    let mut times: [Vec<Duration>; 3] = Default::default();
    let source = from.as_mut_ptr() as usize;
    let (turn, wait_for, target, measured) = (&turn, &wait_for, &mut to, &mut times);
    thread::scope(|scope| {
        let fail = |e| Failure::ours(format!("cannot start a thread: {e}"));
        let write = move || {
            stay_on(cores[0]);
            for round in 0..turns {
                wait_for(2 * round);
                // SAFETY: `from` outlives the scope; the turns keep the copier out of it.
                unsafe { std::ptr::write_bytes(source as *mut u8, round as u8, size) };
                turn.store(2 * round + 1, Ordering::Release);
            }
        };
        thread::Builder::new().spawn_scoped(scope, write).map_err(fail)?;
        let copier = thread::Builder::new()
            .spawn_scoped(scope, move || {
                stay_on(cores[1]);
                for round in 0..turns {
                    wait_for(2 * round + 1);
                    let which = round as usize % LOOPS.len();
                    let begin = Instant::now();
                    // SAFETY: two buffers of `size` bytes, and the writer waits.
                    unsafe {
                        space.gate().copy(
                            LOOPS[which],
                            target.as_mut_ptr().cast(),
                            source as *const u8,
                            size,
                        );
                    }
                    let sum = target.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
                    std::hint::black_box(sum);
                    measured[which].push(begin.elapsed());
                    turn.store(2 * round + 2, Ordering::Release);
                }
            })
            .map_err(fail)?;
        let _ = copier.join();
        Ok::<(), Failure>(())
    })?;
    Ok(times.map(|mut times| {
        times.sort_unstable();
        let median = times.get(times.len() / 2).map_or(f64::INFINITY, Duration::as_secs_f64);
        size as f64 / median / 1e9
    }))
}

/// Stores a text that is made from the file's present one. Readers see the old or the new text.
fn store(file: &Path, text: impl FnOnce(&str) -> String) -> Result<(), Failure> {
    let fail = |e: std::io::Error| Failure::ours(format!("{}: {e}", file.display()));
    if let Some(directory) = file.parent().filter(|d| !d.as_os_str().is_empty()) {
        fs::create_dir_all(directory).map_err(fail)?;
    }
    let before = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(fail(error)),
    };
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    fs::write(&new, text(&before)).map_err(fail)?;
    fs::rename(&new, file).map_err(|error| {
        let _ = fs::remove_file(&new);
        fail(error)
    })
}
