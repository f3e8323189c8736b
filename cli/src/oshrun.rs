//! `nagaya oshrun`: starts the PEs of an OpenSHMEM program. On this machine `nagaya run` does that,
//! on several machines a launcher: srun in an allocation of Slurm, else mpirun or mpiexec.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nagaya_server::Failure;

use crate::program;

const EXAMPLES: &str = "\
Examples:
  nagaya oshrun -n 4 ./app               four PEs on this machine
  nagaya oshrun -n 8 -H hosta,hostb ./app
  nagaya oshrun --launcher srun -n 8 ./app
  oshrun -n 4 ./app                      by the name in lib/nagaya/shmem/bin";

/// Start the PEs of an OpenSHMEM program
///
/// On this machine the PEs are tasks of nagaya run. On several machines srun, mpirun or mpiexec
/// starts them. Their options are passed on. See nagaya-oshrun(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Program that starts the PEs, or "nagaya" (default: by the options and the allocation)
    #[arg(long, value_name = "LAUNCHER")]
    launcher: Option<OsString>,
    /// Print the launcher's command line, and do not run it
    #[arg(long)]
    show: bool,
    /// Options of the launcher (-n N, -H HOSTS), the program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "-n N PROGRAM"
    )]
    command: Vec<OsString>,
}

/// A command that starts PEs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Launcher {
    /// `nagaya run`.
    Run,
    /// A launcher of others.
    Other(OsString),
}

/// Replaces this process by the launcher. Returns only if it prints, or if that fails.
pub fn oshrun(options: &Options) -> Result<i32, Failure> {
    let variable = |key: &str| std::env::var(key).ok().filter(|value| !value.is_empty());
    let find = |name: &str| program::find(OsStr::new(name)).is_ok();
    let launcher = choose(options.launcher.as_deref(), &options.command, &variable, &find)?;
    let (path, arguments) = match &launcher {
        Launcher::Run => {
            let own = std::env::current_exe()
                .map_err(|error| Failure::ours(format!("own path: {error}")))?;
            // A PE that fails ends the job.
            (own, [words(&["run", "--kill-on-bad-exit"]), numbered(&options.command)].concat())
        }
        Launcher::Other(name) => (PathBuf::from(name), options.command.clone()),
    };
    if options.show {
        let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
        println!("{} {}", path.display(), words.join(" "));
        return Ok(0);
    }
    let error = Command::new(&path).args(&arguments).exec();
    let status = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    Err(Failure { message: format!("{}: {error}", path.display()), status })
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Options for the hosts of the launchers that take them.
const HOSTS: &[&str] = &[
    "-H",
    "-host",
    "--host",
    "-hosts",
    "--hosts",
    "-hostfile",
    "--hostfile",
    "-machinefile",
    "--machinefile",
    "-f",
    "-w",
    "--nodelist",
    "-N",
    "--nodes",
    "-ppn",
    "--ppn",
    "--map-by",
    "--rankfile",
    "-rf",
];
/// Options of `nagaya run` and of launchers that have a value in the next word.
const WITH_VALUE: &[&str] = &[
    "-n",
    "-np",
    "--np",
    "-x",
    "-C",
    "--chdir",
    "--stdin",
    "--job",
    "--segment-size",
    "--delegatee",
    "-wd",
    "--wdir",
    "--bind-to",
    "-genv",
];
/// Launchers that can start programs on other hosts, the preferred one first.
const LAUNCHERS: &[&str] = &["mpirun", "prterun", "mpiexec", "mpiexec.hydra"];
/// Variables of resource managers whose allocations these launchers know.
const ALLOCATIONS: &[&str] = &["PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE"];

/// Returns the launcher for this command line.
fn choose(
    wanted: Option<&OsStr>,
    command: &[OsString],
    variable: &dyn Fn(&str) -> Option<String>,
    find: &dyn Fn(&str) -> bool,
) -> Result<Launcher, Failure> {
    match wanted {
        Some(name) if name == "nagaya" => return Ok(Launcher::Run),
        Some(name) => return Ok(Launcher::Other(name.to_owned())),
        None => {}
    }
    let other = |reason: &str| {
        let found = LAUNCHERS.iter().find(|name| find(name)).map(|name| name.into());
        found.map(Launcher::Other).ok_or_else(|| {
            Failure::ours(format!("{reason}: no launcher ({}) in PATH", LAUNCHERS.join(", ")))
        })
    };
    let host_option = own_options(command).iter().find(|word| {
        let name = word.to_str().unwrap_or_default();
        HOSTS.contains(&name.split_once('=').map_or(name, |(name, _)| name))
    });
    // In a step srun has started this process already.
    if variable("SLURM_JOB_ID").is_some() && variable("SLURM_STEP_ID").is_none() && find("srun") {
        return Ok(Launcher::Other("srun".into()));
    }
    if let Some(option) = host_option {
        return other(&option.to_string_lossy());
    }
    match ALLOCATIONS.iter().find(|name| variable(name).is_some()) {
        Some(name) => other(name),
        None => Ok(Launcher::Run),
    }
}

/// The words before the program.
fn own_options(command: &[OsString]) -> &[OsString] {
    let mut is_value = false;
    let end = command.iter().position(|word| {
        let is_program = !is_value && !word.as_bytes().starts_with(b"-");
        let takes_word = |name: &&str| word == name;
        is_value = !is_value && HOSTS.iter().chain(WITH_VALUE).any(takes_word);
        is_program || word == "--"
    });
    &command[..end.unwrap_or(command.len())]
}

/// Replaces the names of the option -n that `nagaya run` does not have.
fn numbered(command: &[OsString]) -> Vec<OsString> {
    let options = own_options(command).len();
    let mut command = command.to_vec();
    for word in &mut command[..options] {
        if *word == "-np" || *word == "--np" {
            *word = "-n".into();
        }
    }
    command
}
