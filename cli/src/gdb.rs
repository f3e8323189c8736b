//! `nagaya gdb`: gdb attached to a task, with the symbols of every image in its segment.
//!
//! By itself gdb reads the program from /proc/PID/exe, which is the space's owner, and the list of
//! libraries from the owner's dynamic linker. So this command passes each image to gdb by file and
//! load address.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nagaya_server::Failure;
use nagaya_server::query;

const EXAMPLES: &str = "\
Examples:
  nagaya gdb run:4711.2                  attach to task 2 of the job run:4711
  nagaya gdb 4713 -batch -ex bt          print a backtrace of task 4713";

/// Attach gdb to a task, with the symbols of all its images
///
/// See nagaya-gdb(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// PID of a task (or of its stub), or JOB.ID
    task: String,
    /// Options for gdb
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    gdb: Vec<OsString>,
}

/// Executes gdb in this process.
pub fn gdb(options: &Options) -> Result<i32, Failure> {
    let selection = query::select(&options.task)?;
    if !selection.job.same_pids {
        let task = &options.task;
        return Err(Failure::ours(format!(
            "{task}: in another PID namespace (run nagaya gdb in the container of that job)"
        )));
    }
    let id = match (selection.id, selection.job.status.tasks.as_slice()) {
        (Some(id), _) => id,
        (None, [only]) => only.id,
        _ => {
            return Err(Failure::ours(format!(
                "{}: this job has several tasks; name one as {}.ID",
                options.task, options.task
            )));
        }
    };
    let task = selection.job.status.tasks.iter().find(|t| t.id == id);
    let pid = task.map(|t| t.pid).ok_or_else(|| Failure::ours("the task has ended"))?;

    // An image's lowest mapping at offset 0 is where it is loaded.
    let mut images: BTreeMap<u64, String> = BTreeMap::new();
    let mappings = selection.job.maps()?;
    let of_task = || mappings.iter().filter(|m| m.id == id && m.file.starts_with('/'));
    for mapping in of_task().filter(|m| m.offset == 0) {
        let runs = |m: &&nagaya_server::maps::Mapping| {
            m.file == mapping.file && m.permissions.contains('x')
        };
        if of_task().any(|m| runs(&m)) && !images.values().any(|file| *file == mapping.file) {
            images.insert(mapping.start, mapping.file.clone());
        }
    }
    let mut script = format!(
        "set confirm off\nset auto-solib-add off\nset breakpoint pending on\n\
         attach {pid}\nnosharedlibrary\nsymbol-file\n"
    );
    for (address, file) in &images {
        script += &format!("add-symbol-file \"{file}\" -o {address:#x}\n");
    }
    script += "set confirm on\n";
    let fail = |e: std::io::Error| Failure::ours(format!("gdb's commands: {e}"));
    let file = rustix::fs::memfd_create("nagaya-gdb", rustix::fs::MemfdFlags::empty())
        .map_err(|e| fail(e.into()))?;
    let mut file = std::fs::File::from(file);
    file.write_all(script.as_bytes()).map_err(fail)?;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let error = Command::new("gdb")
        .args(["-q", "-iex", "set debuginfod enabled off", "-x", &path])
        .args(&options.gdb)
        .exec();
    Err(Failure { message: format!("gdb: {error} (install gdb)"), status: 127 })
}
