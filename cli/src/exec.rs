//! `nagaya exec`: runs a program as a task of its job's space, under any launcher.

mod report;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nagaya_server::Failure;
use nagaya_server::job::Job;
use nagaya_server::stub::{self, Exec, Outcome};
use paths::choice::{self, Collectives, Machine, Transport};
use paths::launched::Launched;
use pvas::Protection;

use crate::delegatee::Place;
use crate::program;
use report::Wanted;

const EXAMPLES: &str = "\
Examples:
  mpirun -n 4 nagaya exec ./app           the four ranks share one address space
  srun -n 4 nagaya exec ./app             the same under Slurm
  mpirun -n 4 nagaya exec -v ./app        print job and task of each rank
  mpirun -n 4 nagaya exec --fallback ./app";

const JOB: &str = "Job and task";
const MPI: &str = "Messages of an MPI";

/// Run a program as a task of this job, under mpirun, srun or another launcher
///
/// The processes of one job on this machine share one address space. Their large messages are
/// copied in user space, and MPI's collective operations are done in place. See nagaya-exec(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Job to join (default: the launcher's, or a new one)
    #[arg(long, value_name = "NAME", help_heading = JOB)]
    job: Option<String>,
    /// ID of the task (default: the local rank, or the lowest free ID)
    #[arg(long, value_name = "ID", help_heading = JOB)]
    id: Option<u32>,
    /// Size of a segment, such as 32G; only the first task of a job sets it
    #[arg(long, value_name = "SIZE", value_parser = program::segment_size, help_heading = JOB)]
    segment_size: Option<u64>,
    /// Start THREADS threads of the node server on the CPUs of PLACE, for the tasks' I/O
    ///
    /// For example 3:1. Only the first task of a job sets it. See pvas_delegate(3).
    #[arg(long, value_name = "PLACE:THREADS", help_heading = JOB)]
    delegatee: Option<Place>,
    /// Give the job the same addresses in every run; only the first task of a job sets it
    #[arg(long, help_heading = JOB)]
    fixed_addresses: bool,
    /// Protect the memory of each task from the others: writes (the default), or all accesses
    ///
    /// All tasks of a job need the same setting. NAGAYA_PROTECT has the same effect. See
    /// nagaya-run(1).
    #[arg(long, value_name = "writes|all", num_args = 0..=1, require_equals = true,
          default_missing_value = "writes", value_parser = program::protection,
          hide_possible_values = true, help_heading = JOB)]
    protect: Option<Protection>,
    /// Send messages by the MPI's own shared memory with copies in user space (copy), or by
    /// Nagaya's libfabric provider (default: auto)
    ///
    /// auto takes the provider if a measurement (nagaya tune --mpi) has shown that it is not slower
    /// at any size. NAGAYA_TRANSPORT has the same effect.
    #[arg(long, value_name = "auto|copy|provider", value_parser = transport, help_heading = MPI)]
    transport: Option<Transport>,
    /// Do collective operations in place, or by the MPI (default: auto)
    ///
    /// auto does them in place if each rank has a processor. NAGAYA_COLLECTIVES has the same
    /// effect.
    #[arg(long, value_name = "auto|inplace|mpi", value_parser = collectives, help_heading = MPI)]
    collectives: Option<Collectives>,
    /// Count the messages of an MPI's ranks, and write them into FILE at the end
    ///
    /// Their number, bytes and receivers by size, the time in MPI's functions, and the copies in
    /// user space, for each rank and in sum. If FILE ends in .json, it is JSON (nagaya-exec(1)).
    #[arg(long, value_name = "FILE", help_heading = MPI)]
    report: Option<PathBuf>,
    /// Run the program as an ordinary process if it cannot be a task
    #[arg(long)]
    fallback: bool,
    /// Print the job and the task
    #[arg(short, long)]
    verbose: bool,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

fn transport(text: &str) -> Result<Transport, String> {
    Transport::parse(text).ok_or("must be auto, copy or provider".to_owned())
}

fn collectives(text: &str) -> Result<Collectives, String> {
    Collectives::parse(text).ok_or("must be auto, inplace or mpi".to_owned())
}

/// Runs the program and returns its exit status.
pub fn exec(options: Options) -> Result<i32, Failure> {
    let sigmask = program::signal_mask();
    let variable = |key: &str| std::env::var(key).ok();
    let fallback = options.fallback || variable("NAGAYA_FALLBACK").is_some_and(|v| v == "1");
    program::check_name("exec", &options.program[0])?;
    let path = program::find(&options.program[0])?;
    let protection = program::wanted_protection(options.protect)?;
    program::check_protection(protection, options.delegatee.is_some())?;
    let job = Job::of_environment(options.job.as_deref(), &variable);
    let launched = Launched::of_environment(&job, &variable);
    let wanted = choice::wanted(options.transport, options.collectives, &variable)?;
    let machine = Machine::this(&launched, protection.is_some());
    let mut path_of_data = choice::choose(wanted, &launched, &machine, &variable)?;
    show_path(options.verbose, &job, &path_of_data);
    let report = options.report.as_deref();
    let report = report.map(|file| Wanted::new(file, &job, &launched, &mut path_of_data));
    let report = report.transpose()?.flatten();
    let exec = Exec {
        job,
        path: path.clone(),
        arguments: options.program.clone(),
        id: options.id,
        segment_size: program::wanted_segment_size(options.segment_size)?,
        fixed_addresses: options.fixed_addresses,
        protection,
        delegatee: options.delegatee.as_ref().map(|place| place.text().to_owned()),
        sigmask,
        settings: path_of_data.settings,
        verbose: options.verbose,
    };
    let refused = match stub::exec(&exec)? {
        Outcome::Ended(status) => {
            if let Some(report) = report {
                report.write();
            }
            return Ok(launch::status::end_as(status));
        }
        Outcome::Refused(failure) => failure,
    };
    if let Some(report) = report {
        report.discard();
    }
    if !fallback || refused.status == 127 {
        return Err(refused);
    }
    proc::error_line!("nagaya: {refused}; running it as an ordinary process");
    let error = Command::new(&path).arg0(&options.program[0]).args(&options.program[1..]).exec();
    Err(Failure { message: format!("{}: {error}", path.display()), status: 126 })
}

/// Prints the path of the job's messages, if the user wants it.
fn show_path(verbose: bool, job: &Job, path: &choice::Path) {
    let choice::Path { transport, collectives, .. } = path;
    if verbose && job.local_rank.unwrap_or(0) == 0 {
        proc::error_line!("nagaya: transport: {transport}; collective operations: {collectives}");
    }
    proc::log_line!(Info, "exec", "job {}: transport: {transport}", job.name);
    proc::log_line!(Info, "exec", "job {}: collective operations: {collectives}", job.name);
}
