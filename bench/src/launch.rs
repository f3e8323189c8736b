//! Runs programs as ordinary processes or under the command `nagaya`.

use std::env;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;

/// Time limit for a program to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// Poll interval for the end of a program; short against the run time of all programs.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of bytes of a failed program's output in a message. It has the beginning and the
/// end: a library that aborts first prints the cause, then the location.
const OUTPUT_BYTES_MAX: usize = 600;

/// The two sides of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// An ordinary process, the peer.
    Plain,
    /// A task of Nagaya.
    Nagaya,
}

impl Side {
    /// Both sides, in the order of a round.
    pub const BOTH: [Side; 2] = [Side::Plain, Side::Nagaya];

    /// Returns its name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Side::Plain => "plain",
            Side::Nagaya => "nagaya",
        }
    }
}

/// The installed or built Nagaya that is measured.
pub struct Nagaya {
    /// The command.
    pub command: PathBuf,
    /// The directory of `libpvas.so`, if known.
    library: Option<PathBuf>,
}

impl Nagaya {
    /// Finds the command: the given one, else `$NAGAYA`, else the one beside this program, else the
    /// one on PATH.
    pub fn find(command: Option<&Path>, library: Option<&Path>) -> Result<Self, Failure> {
        let beside = || Some(env::current_exe().ok()?.parent()?.join("nagaya"));
        let named =
            command.map(Path::to_path_buf).or_else(|| env::var_os("NAGAYA").map(PathBuf::from));
        let found = match named {
            Some(path) => Some(path).filter(|path| path.is_file()),
            None => beside().filter(|path| path.is_file()).or_else(|| on_path("nagaya")),
        };
        let command = found.and_then(|path| path.canonicalize().ok()).ok_or_else(|| {
            Failure::new(
                "nagaya: no such command; build it with `cargo build --release`, \
                 or say where it is with --nagaya PATH or $NAGAYA",
            )
        })?;
        let library = library
            .map(Path::to_path_buf)
            .or_else(|| env::var_os("NAGAYA_LIB").map(PathBuf::from))
            .or_else(|| {
                let bin = command.parent()?;
                let places = [bin.to_path_buf(), bin.parent()?.join("lib")];
                places.into_iter().find(|place| place.join("libpvas.so").is_file())
            })
            .map(|place| place.canonicalize().unwrap_or(place));
        Ok(Nagaya { command, library })
    }

    /// Returns the directory of `libpvas.so`.
    pub fn library(&self) -> Result<&Path, Failure> {
        self.library.as_deref().ok_or_else(|| {
            Failure::new(format!(
                "libpvas.so: neither beside {} nor in ../lib; build it with `cargo build \
                 --release`, or say where it is with --lib DIR or $NAGAYA_LIB",
                self.command.display()
            ))
        })
    }
}

impl Nagaya {
    /// Returns the directory of the libfabric provider, in the build or installed.
    pub fn provider(&self) -> Result<PathBuf, Failure> {
        let found = self.extension("libnagaya_fi.so", "nagaya/libfabric/libnagaya-fi.so")?;
        Ok(found.parent().expect("a file's directory").to_path_buf())
    }

    /// Returns the library of MPI's collective operations, in the build or installed.
    pub fn collectives(&self) -> Result<PathBuf, Failure> {
        self.extension("libnagaya_coll.so", "nagaya/mpi/libnagaya-coll.so")
    }

    fn extension(&self, built: &str, installed: &str) -> Result<PathBuf, Failure> {
        let places = [built, installed].map(|name| self.library().map(|place| place.join(name)));
        for place in places {
            let place = place?;
            if place.is_file() {
                return Ok(place);
            }
        }
        Err(Failure::new(format!("{installed}: missing; build it with `cargo build --release`")))
    }
}

/// Searches PATH for `program`.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|place| place.join(program)).find(|file| file.is_file())
}

/// Runs a program and returns its standard output. Fails if the program fails or takes longer than
/// `time_limit`. The program stays in the caller's process group, so that Ctrl-C reaches it.
pub fn output_of(command: &mut Command, time_limit: Duration) -> Result<String, Failure> {
    let shown = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::new(format!("{shown}: cannot be started: {error}")))?;
    let output = reader(child.stdout.take());
    let errors = reader(child.stderr.take());
    let status = wait_until(&mut child, Instant::now() + time_limit)
        .map_err(|error| Failure::new(format!("{shown}: {error}")))?;
    let Some(status) = status else {
        return Err(Failure::new(format!("{shown}: still ran after {time_limit:?}, was ended")));
    };
    let output = output.join().unwrap_or_default();
    if status.success() {
        return Ok(output);
    }
    let errors = errors.join().unwrap_or_default();
    let shown_output = if errors.trim().is_empty() { output } else { errors };
    Err(Failure::new(format!("{shown}: {status}: {}", ends(&shown_output))))
}

/// Waits for the child until the deadline. Then ends it and returns `None`.
pub fn wait_until(
    child: &mut Child,
    deadline: Instant,
) -> Result<Option<std::process::ExitStatus>, std::io::Error> {
    let mut asked_to_end = false;
    let mut deadline = deadline;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!asked_to_end).then_some(status));
        }
        if Instant::now() >= deadline && !asked_to_end {
            // A launcher can end its ranks on SIGTERM, but not on SIGKILL.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            asked_to_end = true;
            deadline += GRACE;
        } else if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Reads a pipe to its end in a separate thread, so that the child never blocks on it.
fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Formats the command line as for a shell.
fn shown(command: &Command) -> String {
    let mut words = vec![name_only(command.get_program())];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Returns the last component of a path.
fn name_only(path: &OsStr) -> String {
    let path = Path::new(path);
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the two ends of a long text, and all of a short one.
fn ends(text: &str) -> String {
    let text = text.trim();
    if text.len() <= OUTPUT_BYTES_MAX {
        return text.to_string();
    }
    let half = OUTPUT_BYTES_MAX / 2;
    let boundary = |from: usize| (from..=text.len()).find(|&at| text.is_char_boundary(at));
    let (first, last) = (boundary(half), boundary(text.len() - half));
    format!("{} … {}", &text[..first.unwrap_or(0)], &text[last.unwrap_or(0)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME_LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn output_comes_back() {
        let output = output_of(Command::new("echo").arg("a b"), TIME_LIMIT);
        assert_eq!(output.unwrap(), "a b\n");
    }

    #[test]
    fn a_failing_program_is_quoted_in_one_line() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one >&2; echo two >&2; exit 3"]);
        let failure = output_of(&mut command, TIME_LIMIT).unwrap_err().to_string();
        assert!(failure.ends_with("exit status: 3: one | two"), "{failure}");
    }

    #[test]
    fn a_long_message_is_shown_by_its_beginning_and_end() {
        let script = "echo why >&2; seq 1000 >&2; echo where >&2; exit 3";
        let failure = output_of(Command::new("sh").args(["-c", script]), TIME_LIMIT).unwrap_err();
        let failure = failure.to_string();
        assert!(failure.contains("why | 1 |") && failure.ends_with("1000 | where"), "{failure}");
        assert!(failure.len() < 2 * OUTPUT_BYTES_MAX, "{failure}");
    }

    #[test]
    fn a_program_without_end_is_ended() {
        let begin = Instant::now();
        let failure = output_of(Command::new("sleep").arg("60"), Duration::from_millis(50));
        assert!(failure.unwrap_err().to_string().contains("still ran"));
        assert!(begin.elapsed() < GRACE);
    }

    #[test]
    fn a_missing_nagaya_says_what_to_do() {
        let failure = Nagaya::find(Some(Path::new("/nowhere/nagaya")), None).err().unwrap();
        assert!(failure.to_string().contains("--nagaya"));
    }
}
