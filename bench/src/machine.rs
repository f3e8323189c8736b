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
        ("kind", kind()),
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
    let kind = kind().map(|kind| format!(" ({kind})")).unwrap_or_default();
    format!("{processor}{kind}, {cores} cores, {}, {date}", kernel())
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

/// Returns the kind of processor. Figures of two kinds differ more than those of two machines of
/// one kind, and virtual machines often hide the name of the model.
fn kind() -> Option<String> {
    let value =
        |name: &str| Some(line_of("/proc/cpuinfo", name)?.split_once(':')?.1.trim().to_string());
    let numbers =
        ["cpu family", "model\t"].map(|name| value(name).and_then(|text| text.parse().ok()));
    let [Some(family), Some(model)] = numbers else { return None };
    Some(kind_of(&value("vendor_id")?, family, model))
}

/// Names vendor, family and model, and the design if it is known.
fn kind_of(vendor: &str, family: u32, model: u32) -> String {
    let (vendor, design) = match (vendor, family, model) {
        ("AuthenticAMD", 23, 0x00..=0x2f) => ("AMD", "Zen"),
        ("AuthenticAMD", 23, _) => ("AMD", "Zen 2"),
        ("AuthenticAMD", 25, 0x10..=0x1f | 0x60..=0xaf) => ("AMD", "Zen 4"),
        ("AuthenticAMD", 25, _) => ("AMD", "Zen 3"),
        ("AuthenticAMD", 26, _) => ("AMD", "Zen 5"),
        ("AuthenticAMD", ..) => ("AMD", ""),
        ("GenuineIntel", 6, 0x55) => ("Intel", "Skylake or Cascade Lake"),
        ("GenuineIntel", 6, 0x6a | 0x6c) => ("Intel", "Ice Lake"),
        ("GenuineIntel", 6, 0x8f) => ("Intel", "Sapphire Rapids"),
        ("GenuineIntel", 6, 0xcf) => ("Intel", "Emerald Rapids"),
        ("GenuineIntel", 6, 0xad) => ("Intel", "Granite Rapids"),
        ("GenuineIntel", ..) => ("Intel", ""),
        (other, ..) => (other, ""),
    };
    let design = if design.is_empty() { String::new() } else { format!(", {design}") };
    format!("{vendor} family {family} model {model}{design}")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_vendor_and_family_and_a_design_if_known() {
        let milan = kind_of("AuthenticAMD", 25, 1);
        assert_eq!(milan, "AMD family 25 model 1, Zen 3");
        assert_eq!(kind_of("GenuineIntel", 6, 143), "Intel family 6 model 143, Sapphire Rapids");
        assert_eq!(kind_of("GenuineIntel", 19, 1), "Intel family 19 model 1");
        assert_eq!(kind_of("Other", 1, 2), "Other family 1 model 2");
    }
}
