//! The program that `run`, `exec` and `span` start: its file and its common options.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nagaya_server::Failure;
use pvas::Protection;
use rustix::fs::{Access, AtFlags, CWD};

/// Finds a program as execvp(3) does. Errors: status 127 (not found) or 126.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    if name.is_empty() {
        return Err(Failure { message: "the program's name is empty".into(), status: 127 });
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or("/usr/bin:/bin".into());
    let mut denied = false;
    for directory in std::env::split_paths(&path) {
        let candidate = match directory.as_os_str().is_empty() {
            true => Path::new(".").join(name),
            false => directory.join(name),
        };
        if !candidate.is_file() {
            continue;
        }
        if rustix::fs::accessat(CWD, &candidate, Access::EXEC_OK, AtFlags::EACCESS).is_ok() {
            return Ok(candidate);
        }
        denied = true;
    }
    let name = name.display();
    Err(match denied {
        true => Failure { message: format!("{name}: permission denied"), status: 126 },
        false => Failure { message: format!("{name}: not found in PATH"), status: 127 },
    })
}

/// The command's failure for nodes that cannot be started.
pub fn unstarted(error: launch::Error) -> Failure {
    Failure { message: error.line, status: error.status }
}

/// The calling process's signal mask, bit n-1 for signal n.
pub fn signal_mask() -> u64 {
    let mut mask = 0u64;
    // SAFETY: asks for the mask, eight bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, 0, &raw mut mask, 8);
    }
    mask
}

/// Refuses a misspelt option of `nagaya COMMAND` that was taken for the program's name.
pub fn check_name(command: &str, name: &OsStr) -> Result<(), Failure> {
    if name.as_bytes().starts_with(b"-") {
        let name = name.display();
        return Err(Failure::ours(format!("unknown option {name} (see nagaya {command} --help)")));
    }
    Ok(())
}

/// The size of segments: as asked for, else by the environment, else `None`.
pub fn wanted_segment_size(option: Option<u64>) -> Result<Option<u64>, Failure> {
    match (option, std::env::var("PVAS_SEGMENT_SIZE")) {
        (None, Ok(text)) => segment_size(&text)
            .map(Some)
            .map_err(|e| Failure::ours(format!("PVAS_SEGMENT_SIZE={text}: {e}"))),
        (option, _) => Ok(option),
    }
}

/// The protection of tasks from each other: as asked for, else by NAGAYA_PROTECT.
pub fn wanted_protection(option: Option<Protection>) -> Result<Option<Protection>, Failure> {
    match (option, std::env::var_os("NAGAYA_PROTECT")) {
        (None, Some(text)) if !text.is_empty() && text != "0" => {
            let text = text.to_string_lossy();
            let protection = protection(&text);
            protection.map(Some).map_err(|e| Failure::ours(format!("NAGAYA_PROTECT={text}: {e}")))
        }
        (option, _) => Ok(option),
    }
}

/// Reads the kind of protection given on the command line.
pub fn protection(text: &str) -> Result<Protection, String> {
    Protection::parse(text).ok_or("must be writes or all".to_owned())
}

/// Refuses a delegatee of the node server in a protected job.
pub fn check_protection(protection: Option<Protection>, delegatee: bool) -> Result<(), Failure> {
    if protection.is_some() && delegatee {
        return Err(Failure::ours(
            "--delegatee does not work with --protect: a delegatee writes to the memory of other \
             tasks",
        ));
    }
    Ok(())
}

/// Reads how much memory pages may take: enough for a program to begin.
pub fn memory_size(text: &str) -> Result<u64, String> {
    let size = pvas::parse_size(text).ok_or("not a size (such as 4G)")?;
    if size < 1 << 20 { Err("must be 1M or more".to_owned()) } else { Ok(size) }
}

/// Reads a size given on the command line.
pub fn segment_size(text: &str) -> Result<u64, String> {
    let size = pvas::parse_size(text).ok_or("not a size (such as 32G)")?;
    nagaya_layout::SpaceLayout::window_size(size, 1)
        .map_err(|_| "must be a power of two from 64M to 16T")?;
    Ok(size)
}
