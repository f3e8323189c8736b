//! `nagaya info`: version and build, the features of this system, and the active mechanisms.

mod env;
mod rights;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use control::{Protection, this_task};
use nagaya_layout::{REGION_END, REGION_START, SpaceLayout};
use nagaya_server::{Failure, apart, job, kernel_version, query, server};
use pager::Stops;
use sync::wait::policy::Mode;
use sync::wait::{quota, settings, wake};

use crate::kernel_copy::{copy_within, kernels_copy};
use crate::ps::human;
use crate::{fcp, mpi};

const EXAMPLES: &str = "\
Examples:
  nagaya info                            what this system allows
  nagaya info --env                      all environment variables
  nagaya info --mpi                      the MPI whose launcher is mpirun
  nagaya info --mpi=mpiexec --try ./app  also run a ping-pong, and check ./app";

/// Show version, build, the features that this system allows, and the active mechanism
///
/// With --mpi, report whether the messages of an MPI go through the space, and the reason if not.
/// See nagaya-info(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Print lines of the form key=value, for programs
    #[arg(long)]
    parsable: bool,
    /// Print the cost of a message by each of FCP's protocols: words, loads and stores
    #[arg(long, conflicts_with = "mpi")]
    fcp: bool,
    /// List all environment variables of Nagaya: value, default, unit and meaning
    #[arg(long, conflicts_with_all = ["mpi", "fcp"])]
    env: bool,
    /// Print JSON, for programs
    #[arg(long, conflicts_with_all = ["parsable", "fcp", "mpi"])]
    json: bool,
    /// Check whether messages of the MPI with this launcher go through the space (default: mpirun)
    #[arg(
        long,
        value_name = "LAUNCHER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "mpirun"
    )]
    mpi: Option<OsString>,
    /// Compile and run a ping-pong with and without nagaya (needs --mpi)
    #[arg(long = "try", requires = "mpi")]
    run_trial: bool,
    /// Also check this program; it is not run (needs --mpi)
    #[arg(requires = "mpi")]
    program: Option<PathBuf>,
}

/// Linux 5.11; not in libc's declarations.
const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;

/// One line: a key for programs, words for people, the value.
struct Fact {
    key: &'static str,
    title: &'static str,
    value: String,
}

/// Prints the facts.
pub fn info(options: &Options) -> Result<i32, Failure> {
    let Options { parsable, run_trial, program, .. } = options;
    if let Some(launcher) = &options.mpi {
        return mpi::report(launcher, program.as_ref(), *run_trial, *parsable);
    }
    if options.fcp {
        fcp::report(*parsable);
        return Ok(0);
    }
    if options.env {
        env::report(options.json);
        return Ok(0);
    }
    let facts = facts();
    if options.json {
        println!("{}", json(&facts));
        return Ok(0);
    }
    for Fact { key, title, value } in &facts {
        if options.parsable {
            println!("{key}={value}");
        } else {
            println!("{title:<28} {value}");
        }
    }
    let denied = denied(&facts);
    if !options.parsable && !denied.is_empty() {
        println!("\nto ask an administrator for, if you need it:");
        denied.iter().for_each(|Fact { title, value, .. }| println!("  {title}: {value}"));
    }
    Ok(0)
}

/// Returns the facts that deny this user something.
fn denied(facts: &[Fact]) -> Vec<&Fact> {
    let is_denial = |value: &str| value.starts_with("no: ") || value.starts_with("only ");
    facts.iter().filter(|fact| is_denial(&fact.value)).collect()
}

/// Returns the facts as JSON: `{"facts": {KEY: VALUE, ...}, "denied": [KEY, ...]}`.
fn json(facts: &[Fact]) -> String {
    let all: serde_json::Map<String, serde_json::Value> =
        facts.iter().map(|fact| (fact.key.to_owned(), fact.value.clone().into())).collect();
    let denied: Vec<&str> = denied(facts).iter().map(|fact| fact.key).collect();
    let all = serde_json::json!({ "format": 1, "facts": all, "denied": denied });
    serde_json::to_string_pretty(&all).expect("text only")
}

fn facts() -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |key, title, value: String| facts.push(Fact { key, title, value });
    let (major, minor) = kernel_version();
    add("version", "nagaya", env!("CARGO_PKG_VERSION").into());
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    add("build", "build", format!("{build}, {}", std::env::consts::ARCH));
    add(
        "kernel",
        "kernel",
        format!("{} ({})", read("/proc/sys/kernel/osrelease"), kernel(major, minor)),
    );
    add("spaces", "spaces", spaces(None, false));
    add("domains", "domains, non-PIE programs", spaces(None, true));
    add("protect", "protected jobs", spaces(Some(Protection::Writes), true));
    add("jia", "jia, nagaya_dsm", shared_memory());
    add("span", "span, domains of @HOST", span());
    add("provider", "libfabric provider", rights::provider());
    add("collectives", "collectives in place", rights::collectives());
    let wanted = crate::program::wanted_segment_size(None).ok().flatten();
    let size = wanted.unwrap_or_else(|| server::segment_size_for(None));
    let tasks = SpaceLayout::tasks_within(size, (REGION_END - REGION_START) / 2);
    add("segment_size", "segment size", format!("{size} ({}, {tasks} IDs)", human(size)));
    add("addresses", "addresses of spaces", addresses());
    add("mechanism", "single copy", mechanism());
    add("copy", "copies by", copies());
    add("wait", "waits", waits());
    add("job", "this process", this_process());
    add("container", "container", rights::container());
    add("running", "running jobs", running_jobs());
    for (key, title, value) in kernels_copy() {
        add(key, title, value);
    }
    add("userfaultfd", "userfaultfd", rights::userfaultfd());
    add("memfd", "memfd_create", rights::memfd());
    add("ptrace", "ptrace of own processes", rights::ptrace());
    add("locked_memory", "locked memory", rights::locked_memory());
    add("open_files", "open files", rights::open_files());
    add("processes", "processes of this user", rights::processes());
    add("address_space", "address space", rights::address_space());
    add("max_map_count", "vm.max_map_count", max_map_count());
    add("overcommit", "vm.overcommit_memory", read("/proc/sys/vm/overcommit_memory"));
    add("core", "core files", cores(major, minor));
    add(
        "sockets",
        "sockets",
        match job::directory() {
            Ok(path) => path.display().to_string(),
            Err(failure) => format!("none: {failure}"),
        },
    );
    add("gdb", "gdb", in_path("gdb"));
    add("mpirun", "mpirun", in_path("mpirun"));
    facts
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().into())
}

fn kernel(major: u32, minor: u32) -> &'static str {
    match (major, minor) {
        (5, 15..) | (6.., _) => "supported",
        _ => "older than 5.15: not supported",
    }
}

/// Creates a space to test whether that is possible here. `with_domain` adds a domain, as for
/// programs that are linked to fixed addresses and for protected tasks.
fn spaces(protection: Option<Protection>, with_domain: bool) -> String {
    if this_task().is_some() {
        return "this process is a task".into();
    }
    let options = pvas::SpaceOptions {
        tasks_max: Some(2),
        shared: with_domain,
        protection,
        ..Default::default()
    };
    let made = pvas::Space::create(options).and_then(|space| {
        let made = if with_domain { space.add_domain(1..2, Vec::new()).map(drop) } else { Ok(()) };
        let _ = space.destroy();
        made
    });
    match made {
        Ok(()) => "yes".into(),
        Err(error) => format!("no: {error}"),
    }
}

/// Reports whether a space that is created now gets random addresses.
fn addresses() -> String {
    match pvas::window::wants_fixed_addresses() {
        Ok(false) => "random".into(),
        Ok(true) => {
            "fixed (NAGAYA_FIXED_ADDRESSES, setarch -R or kernel.randomize_va_space)".into()
        }
        Err(error) => format!("none: {error}"),
    }
}

/// Reports whether this user may share memory between nodes (jia(7)), or the missing permission.
fn shared_memory() -> String {
    match (pager::check(Stops::All), pager::check(Stops::Programs)) {
        (Ok(()), _) => "yes".into(),
        (Err(error), Ok(())) => {
            format!("only with NAGAYA_DSM_CALLS=0 (no system call may use shared memory): {error}")
        }
        (Err(error), Err(_)) => format!("no: {error}"),
    }
}

/// Reports whether this user may run a program on several nodes (nagaya-span(1)), or the missing
/// permission.
fn span() -> String {
    if this_task().is_some() {
        return "this process is a task".into();
    }
    if let Err(error) = pager::check(Stops::All) {
        return format!("no: {error}");
    }
    // SAFETY: switches syscall user dispatch off, as it is; it takes no memory.
    match unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) } {
        0 => "yes".into(),
        _ => "no: this kernel has no syscall user dispatch; run Linux 5.11 or newer for x86-64, \
              with CONFIG_GENERIC_ENTRY"
            .into(),
    }
}

/// In a task, copies as an MPI does. The task's counter then shows whether the gate copied.
fn mechanism() -> String {
    let Some(task) = this_task() else {
        return "kernel: not in a space (start the program with nagaya run or nagaya exec)".into();
    };
    let before = task.copies();
    let copied = copy_within(std::process::id() as i32);
    match (copied, task.copies() > before) {
        (Ok(()), true) => match task.control.protection() {
            None => "user space: process_vm_readv/writev between tasks is a plain copy".into(),
            Some(Protection::Writes) => {
                "user space: process_vm_readv between tasks is a plain copy; kernel: \
                 process_vm_writev (--protect=writes)"
                    .into()
            }
            Some(Protection::All) => "kernel: tasks cannot reach each other (--protect=all)".into(),
        },
        (Ok(()), false) => "kernel: the gate does not reach process_vm_readv of this libc".into(),
        (Err(error), _) => format!("none: process_vm_readv: {error}"),
    }
}

fn copies() -> String {
    match pvas::copy_plan::current() {
        Ok((plan, source)) => format!("{plan} ({source})"),
        Err(error) => format!("none: {error}"),
    }
}

fn waits() -> String {
    let mode = match wake::mode(Instant::now()) {
        Mode::Auto => "auto",
        Mode::Spin => "spin",
        Mode::Sleep => "sleep",
    };
    let limit = quota::processors().map(|limit| format!(", limited to {limit} processors"));
    let wake = wake::wake_time().as_secs_f64() * 1e6;
    let unreadable = settings::unreadable().into_iter().map(|line| format!("; {line}"));
    let unreadable: String = unreadable.collect();
    format!("{mode}, a wake-up takes {wake:.1} us{}{unreadable}", limit.unwrap_or_default())
}

fn this_process() -> String {
    match this_task() {
        Some(task) => {
            let protection = task.control.protection();
            let protected =
                protection.map_or(String::new(), |it| format!(", protected: {}", it.name()));
            format!(
                "task {} of a space with {} tasks{protected}",
                task.id,
                task.control.tasks_alive()
            )
        }
        None => "an ordinary process".into(),
    }
}

/// Describes the spaces of the running jobs that launchers have started here.
fn running_jobs() -> String {
    let jobs = apart::describe(&query::jobs().unwrap_or_default().jobs);
    if jobs.is_empty() { "none".into() } else { jobs.join("; ") }
}

fn max_map_count() -> String {
    let text = read("/proc/sys/vm/max_map_count");
    match text.parse::<u64>() {
        // A task with MPI has about 300 mappings.
        Ok(count) => format!("{count} (the limit of one space: about {} MPI tasks)", count / 300),
        Err(_) => text,
    }
}

fn cores(major: u32, minor: u32) -> String {
    if (major, minor) < (5, 16) {
        return "off in spaces: before Linux 5.16 a task that dumps kills all others".into();
    }
    format!("core_pattern {}", read("/proc/sys/kernel/core_pattern"))
}

fn in_path(name: &str) -> String {
    crate::program::find(name.as_ref()).map_or("not found".into(), |p| p.display().to_string())
}
