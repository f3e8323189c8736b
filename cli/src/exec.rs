//! `nagaya exec`: a task of this job's space, under any launcher.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nagaya_server::Failure;
use nagaya_server::job::Job;
use nagaya_server::stub::{self, Exec, Outcome};

use crate::delegatee::Place;
use crate::program;

/// Run a program as a task of this job, under mpirun, srun or another launcher
///
/// All processes of one job on this machine that start so share one address space, and their
/// large messages are copied in user space. See nagaya-exec(1).
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The job to join (default: what the launcher says, else a job of its own)
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// The task's ID (default: the local rank, else the lowest free one)
    #[arg(long, value_name = "ID")]
    id: Option<u32>,
    /// Size of a segment, such as 32G; counts for the first task of a job
    #[arg(long, value_name = "SIZE", value_parser = program::segment_size)]
    segment_size: Option<u64>,
    /// A delegatee of the node server's: so many threads on these processors that do I/O for tasks
    /// (see pvas_delegate(3)), such as 3:1; counts for the first task of a job
    #[arg(long, value_name = "PLACE:THREADS")]
    delegatee: Option<Place>,
    /// Run the program as an ordinary process where it cannot be a task
    #[arg(long)]
    fallback: bool,
    /// Say which job and task this is
    #[arg(short, long)]
    verbose: bool,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Runs the program; returns the status to exit with.
pub fn exec(options: Options) -> Result<i32, Failure> {
    let sigmask = program::signal_mask();
    let variable = |key: &str| std::env::var(key).ok();
    let fallback = options.fallback || variable("NAGAYA_FALLBACK").is_some_and(|v| v == "1");
    program::check_name("exec", &options.program[0])?;
    let path = program::find(&options.program[0])?;
    let exec = Exec {
        job: Job::of_environment(options.job.as_deref(), &variable),
        path: path.clone(),
        arguments: options.program.clone(),
        id: options.id,
        segment_size: program::wanted_segment_size(options.segment_size)?,
        delegatee: options.delegatee.as_ref().map(|place| place.text().to_owned()),
        sigmask,
        verbose: options.verbose,
    };
    let refused = match stub::exec(&exec)? {
        Outcome::Ended(status) => return Ok(launch::status::end_as(status)),
        Outcome::Refused(failure) => failure,
    };
    if !fallback || refused.status == 127 {
        return Err(refused);
    }
    let _ = writeln!(std::io::stderr(), "nagaya: {refused}; running it as an ordinary process");
    let error = Command::new(&path).arg0(&options.program[0]).args(&options.program[1..]).exec();
    Err(Failure { message: format!("{}: {error}", path.display()), status: 126 })
}
