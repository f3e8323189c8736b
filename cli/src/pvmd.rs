//! `nagaya pvmd`: PVM's daemon, in the foreground. Stock PVM's names for it, `pvmd` and
//! `pvmd3`, work, too, with its options.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use ::pvmd::hostfile::HostFile;
use ::pvmd::socket::Refused;
use nagaya_server::Failure;
use rustix::fs::{FileType, fstat};
use rustix::stdio::{dup2_stderr, dup2_stdout};

const EXAMPLES: &str = "\
Examples:
  nagaya pvmd hosts                             start with the hosts of a file
  nagaya pvmd --space                           tasks share an address space
  mpirun --map-by node -n 4 nagaya pvmd         one daemon on each host";

/// Run PVM's daemon on this host
///
/// The daemon runs in the foreground until the virtual machine is halted. See nagaya-pvmd(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Name of this host in the virtual machine (default: as hostname(1) prints it)
    #[arg(short = 'n', value_name = "NAME")]
    name: Option<String>,
    /// Ignored: stock PVM's bit mask of the topics to log
    #[arg(short = 'd', value_name = "MASK", hide = true)]
    mask: Option<String>,
    /// Run the tasks of each host in one address space if possible
    ///
    /// Large messages are then copied directly from the sender's memory.
    #[arg(long)]
    space: bool,
    /// Join the virtual machine that the daemon at standard input names
    #[arg(long, hide = true)]
    join: bool,
    /// Join the virtual machine of the daemon at this address, for a hoster
    #[arg(long, value_name = "NUMBER", hide = true)]
    call: Option<String>,
    /// File with the hosts of the virtual machine and their options
    hostfile: Option<PathBuf>,
}

/// Runs until the virtual machine is halted.
pub fn pvmd(options: &Options) -> Result<i32, Failure> {
    let Options { name, join, space, call, hostfile, .. } = options;
    let options = ::pvmd::options::Options {
        vmid: std::env::var("PVM_VMID").ok(),
        name: name.clone(),
        hostfile: hostfile.as_deref().map(read).transpose()?.unwrap_or_default(),
        signals: true,
        space: *space,
        segment_size: crate::program::wanted_segment_size(None)?,
        ..Default::default()
    };
    crate::limits::raise_open_files();
    if *join {
        ::pvmd::join::join(&options)?;
    } else if let Some(number) = call {
        ::pvmd::join::call(&options, number)?;
    } else if let Some(wireup) = ::pvmd::launched::wireup()? {
        ::pvmd::launched::run(&options, wireup, ready).map_err(Refused::failure)?;
    } else {
        ::pvmd::run::run(&options, ready).map_err(Refused::failure)?;
    }
    Ok(0)
}

fn read(path: &Path) -> Result<HostFile, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::ours(format!("{}: {error}", path.display())))?;
    HostFile::parse(&text).map_err(|fault| Failure::ours(format!("{}:{fault}", path.display())))
}

/// Prints the address to which tasks connect. The process that started this daemon may read it
/// from a pipe to its end, so the pipe is closed. Later messages go to the log only.
fn ready(path: &Path) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{}", path.display()).and_then(|()| out.flush());
    let pipe = fstat(&out).is_ok_and(|stat| {
        matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket)
    });
    if pipe && let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = dup2_stdout(null.as_fd());
        let _ = dup2_stderr(null.as_fd());
    }
}
