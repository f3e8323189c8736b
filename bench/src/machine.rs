//! A description of the machine, printed first and saved beside the figures.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::ValueEnum;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mpi::Mpi;

/// Prints the description of the machine and writes it to `machine.txt`.
pub fn print_facts(nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let unknown = || "unknown".to_string();
    let version = |mpi: Mpi| {
        format!("{} {}", mpi.name(), mpi.version().unwrap_or_else(|| "not installed".to_string()))
    };
    let versions: Vec<String> = Mpi::value_variants().iter().map(|&mpi| version(mpi)).collect();
    let facts = [
        ("date", output_line(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))),
        ("processor", processor()),
        ("cores", available_parallelism().ok().map(|cores| format!("{cores} usable"))),
        ("core to core", crate::cores::distance_ns().map(|ns| format!("{ns:.0} ns"))),
        (
            "memory",
            memory_available_mib().map(|mib| format!("{:.1} GiB available", mib as f64 / 1024.0)),
        ),
        ("kernel", Some(kernel())),
        ("ptrace_scope", Some(ptrace_scope())),
        (
            "load",
            first_line("/proc/loadavg")
                .map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" ")),
        ),
        ("MPIs", Some(versions.join(", "))),
        ("Nagaya", output_line(Command::new(&nagaya.command).arg("--version"))),
    ];
    let lines: Vec<String> = facts
        .into_iter()
        .map(|(name, fact)| format!("{name:<14}{}", fact.unwrap_or_else(unknown)))
        .collect();
    println!("{}", lines.join("\n"));
    crate::table::write_lines(&out.join("machine.txt"), &lines)
}

/// Returns a description in one line, for captions of figures.
pub fn caption() -> String {
    let cores = available_parallelism().map_or(1, |cores| cores.get());
    let date = output_line(Command::new("date").args(["-u", "+%Y-%m-%d"])).unwrap_or_default();
    let processor = processor().unwrap_or_else(|| "unknown processor".to_string());
    format!("{processor}, {cores} cores, {}, {date}", kernel())
}

/// Returns the available memory in MiB.
pub fn memory_available_mib() -> Option<u64> {
    let line = line_of("/proc/meminfo", "MemAvailable:")?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

/// Returns Yama's setting, which decides if a plain MPI may use process_vm_readv.
fn ptrace_scope() -> String {
    first_line("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_else(|| "no Yama".to_string())
}

fn processor() -> Option<String> {
    Some(line_of("/proc/cpuinfo", "model name")?.split_once(':')?.1.trim().to_string())
}

fn kernel() -> String {
    let names = rustix::system::uname();
    let word = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
    format!("{} {} {}", word(names.sysname()), word(names.release()), word(names.machine()))
}

/// Returns the first line of a program's output.
fn output_line(command: &mut Command) -> Option<String> {
    let output = output_of(command, Duration::from_secs(10)).ok()?;
    Some(output.lines().next()?.trim().to_string())
}

fn first_line(file: &str) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.lines().next()?.to_string())
}

fn line_of(file: &str, start: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.lines().find(|line| line.starts_with(start))?.to_string())
}
