//! Programs that the daemon starts: search for the file, arguments, environment, standard
//! streams.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use pvm::constants::PvmTaskDebug;
use pvm::error::{Error, text};
use pvm::parcel::Data;
use pvm::tid::Tid;

use crate::child::inherit_nothing;
use crate::errand::Start;
use crate::libraries;

/// This host's architecture, in PVM's naming.
pub const ARCHITECTURE: &str = "LINUX64";
/// The value of `PVMTMASK` that traces nothing.
const NO_TRACE: &str = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@";

/// Options of the host file that apply to all programs of this host, with variables expanded.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Directories searched for programs (ep=); default: those of stock PVM.
    pub path: Option<String>,
    /// Working directory of programs (wd=); default: `PVM_WD`, or the home directory.
    pub directory: Option<String>,
    /// The program that runs tasks under a debugger (bx=).
    pub debugger: Option<String>,
}

/// Returns `text` with each `$NAME` replaced by its value in `variable`, or by nothing.
pub fn expand(text: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let mut pieces = text.split('$');
    let mut expanded = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = piece.split_at(end.unwrap_or(piece.len()));
        expanded.push_str(&variable(name).unwrap_or_default());
        expanded.push_str(rest);
    }
    expanded
}

/// Returns a variable of the environment, with the defaults of stock PVM's scripts.
pub fn variable(name: &str) -> Option<String> {
    let set = std::env::var(name).ok();
    match name {
        "PVM_ARCH" => set.or_else(|| Some(ARCHITECTURE.into())),
        "PVM_ROOT" => set.or_else(|| Some("/usr/lib/pvm3".into())),
        _ => set,
    }
}

impl Settings {
    /// Returns the directories searched for programs.
    fn path(&self) -> String {
        let set = self.path.clone().or_else(|| variable("PVM_PATH"));
        let stock = "$HOME/pvm3/bin/$PVM_ARCH:$PVM_ROOT/bin/$PVM_ARCH";
        expand(&set.unwrap_or_else(|| stock.into()), variable)
    }

    /// Returns the working directory of programs.
    fn directory(&self) -> PathBuf {
        let set = self.directory.clone().or_else(|| variable("PVM_WD"));
        let set = set.map(|directory| expand(&directory, variable));
        PathBuf::from(set.or_else(|| variable("HOME")).unwrap_or_else(|| "/".into()))
    }

    /// Returns the program that runs tasks under a debugger.
    fn debugger(&self) -> String {
        let set = self.debugger.clone().or_else(|| variable("PVM_DEBUGGER"));
        expand(&set.unwrap_or_else(|| "$PVM_ROOT/lib/debugger".into()), variable)
    }

    /// Returns the program's file. A name without a slash is searched on the path, as in stock
    /// PVM. A relative name with a slash is searched in `directory` first, unless that is empty.
    ///
    /// Errors: NoFile, with the directories searched.
    pub fn find(&self, file: &str, directory: &str) -> Result<PathBuf, NotStarted> {
        let is_program = |path: &PathBuf| {
            let data = std::fs::metadata(path);
            data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        };
        if file.starts_with('/') {
            let found = Some(PathBuf::from(file)).filter(is_program);
            let why = || format!("{file} is not an executable file");
            return found.ok_or_else(|| NotStarted { error: Error::NoFile, why: why() });
        }
        let path = self.path();
        let own = if file.contains('/') { directory } else { "" };
        let searched: Vec<&str> = [own]
            .into_iter()
            .chain(path.split(':'))
            .filter(|element| !element.is_empty())
            .collect();
        // Collecting the components removes the `.` of `./worker`.
        let candidate = |element: &&str| Path::new(element).join(file).components().collect();
        searched.iter().map(candidate).find(is_program).ok_or_else(|| {
            let why = format!("no executable file {file} in {}", searched.join(", "));
            NotStarted { error: Error::NoFile, why }
        })
    }
}

/// A program to be started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The tid of its task.
    pub tid: Tid,
    /// The value of its `PVMEPID`.
    pub cookie: u32,
    /// The tasker that starts it; `None` for the daemon.
    pub tasker: Option<Tid>,
    /// The request.
    pub start: Start,
}

/// The failure to start a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStarted {
    /// The error code that pvm_spawn returns.
    pub error: Error,
    /// The reason in one line, for the log and the console.
    pub why: String,
}

impl From<Error> for NotStarted {
    fn from(error: Error) -> NotStarted {
        NotStarted { error, why: text(error.code()).to_string() }
    }
}

/// The parameters of a program that is to be started.
#[derive(Debug)]
pub(crate) struct ProgramSpec {
    /// The tid of its task.
    pub tid: Tid,
    /// Its file, or the debugger's if it runs under one.
    pub file: PathBuf,
    /// True if it runs under a debugger.
    pub debugged: bool,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// Variables that override the daemon's own.
    pub environment: BTreeMap<String, String>,
    /// Working directory; `None` for the daemon's.
    pub directory: Option<PathBuf>,
}

impl ProgramSpec {
    /// Resolves `program` on this host. Errors: NoFile.
    pub fn new(
        settings: &Settings,
        socket: &Path,
        program: &Program,
    ) -> Result<ProgramSpec, NotStarted> {
        let spawn = &program.start.spawn;
        let mut file = settings.find(&spawn.file, &spawn.directory)?;
        let mut arguments: Vec<OsString> = spawn.arguments.iter().map(OsString::from).collect();
        let debugged = spawn.flags & PvmTaskDebug != 0;
        if debugged {
            arguments.insert(0, file.into());
            file = settings.find(&settings.debugger(), "")?;
        }
        let mut environment = environment(socket, program);
        // As in stock PVM, a missing directory is no error.
        let own = settings.directory();
        let wanted = own.join(&program.start.directory);
        let directory = [wanted, own].into_iter().find(|path| path.is_dir());
        if let Some(directory) = &directory {
            environment.insert("PWD".into(), directory.to_string_lossy().into_owned());
        }
        Ok(ProgramSpec { tid: program.tid, file, debugged, arguments, environment, directory })
    }

    /// Starts the program as a process. Returns the child and the pipe from which to read its
    /// output.
    ///
    /// Errors: NoFile; OutOfRes, if there are too many processes or open descriptors; NoMem.
    pub fn start(&self) -> Result<(Child, OwnedFd), Error> {
        let mut command = Command::new(&self.file);
        command.args(&self.arguments).envs(&self.environment);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let Streams { input, output, writer, too } = Streams::new().map_err(code)?;
        command.stdin(input).stdout(writer).stderr(too);
        inherit_nothing(&mut command);
        let child = command.spawn().map_err(code)?;
        Ok((child, output))
    }
}

/// A program's standard streams.
pub(crate) struct Streams {
    /// Standard input: `/dev/null`.
    pub input: OwnedFd,
    /// The read end of the pipe for output and errors.
    pub output: OwnedFd,
    /// Standard output.
    pub writer: OwnedFd,
    /// Standard error: a duplicate of `writer`.
    pub too: OwnedFd,
}

impl Streams {
    /// Creates the streams.
    pub fn new() -> io::Result<Streams> {
        let (output, writer) = io::pipe()?;
        let too = writer.try_clone()?;
        let input = File::open("/dev/null")?;
        let (output, writer) = (output.into(), writer.into());
        Ok(Streams { input: input.into(), output, writer, too: too.into() })
    }
}

/// Returns the data of a message that tells a tasker to start a program.
///
/// Errors: NoFile.
pub(crate) fn describe(
    settings: &Settings,
    socket: &Path,
    program: &Program,
) -> Result<Data, NotStarted> {
    let spawn = &program.start.spawn;
    let file = settings.find(&spawn.file, &spawn.directory)?;
    let file = file.to_string_lossy();
    let data = Data::default().int(program.tid.as_int()).int(spawn.flags).string(&file);
    let data = data.int(spawn.arguments.len() as i32 + 1).string(&file);
    let data = spawn.arguments.iter().fold(data, |data, word| data.string(word));
    let environment = environment(socket, program);
    let data = data.int(environment.len() as i32);
    let pair =
        |data: Data, (name, value): (&String, &String)| data.string(&format!("{name}={value}"));
    Ok(environment.iter().fold(data, pair))
}

/// Returns the variables of a program that override the daemon's own.
fn environment(socket: &Path, program: &Program) -> BTreeMap<String, String> {
    let spawn = &program.start.spawn;
    let given = spawn.environment.iter().filter_map(|pair| pair.split_once('='));
    let mut variables: BTreeMap<String, String> =
        given.map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let inherited = &spawn.inheritance;
    let mask = if inherited.trace_mask.is_empty() { NO_TRACE } else { &inherited.trace_mask };
    let own = [
        ("PVM_ARCH", variable("PVM_ARCH").unwrap_or_default()),
        ("PVM_ROOT", variable("PVM_ROOT").unwrap_or_default()),
        ("PVMSOCK", socket.display().to_string()),
        ("PVMEPID", program.cookie.to_string()),
        ("PVMTMASK", mask.to_string()),
        ("PVMTRCBUF", inherited.trace_buffer.to_string()),
        ("PVMTRCOPT", inherited.trace_options.to_string()),
        ("PVMCTX", format!("{:#x}", inherited.context)),
    ];
    variables.extend(own.map(|(name, value)| (name.to_string(), value)));
    if let Some(directory) = libraries::directory() {
        let name = libraries::SEARCH_PATH;
        let others = variables.get(name).cloned().or_else(|| variable(name));
        variables.insert(name.into(), libraries::in_front(&directory, others.as_deref()));
    }
    variables
}

/// Converts an error of the system into PVM's error code.
fn code(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EMFILE | libc::ENFILE) => Error::OutOfRes,
        Some(libc::ENOMEM) => Error::NoMem,
        _ => Error::NoFile,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_and_unknown_ones_are_nothing() {
        let variable = |name: &str| (name == "PVM_ARCH").then(|| "LINUX64".to_string());
        assert_eq!(expand("a/$PVM_ARCH:b$PVM_ARCH/", variable), "a/LINUX64:bLINUX64/");
        assert_eq!(expand("$NOTHING/x$", variable), "/x");
        assert_eq!(expand("plain", variable), "plain");
    }

    #[test]
    fn a_program_is_an_executable_file_on_the_path() {
        let settings = Settings { path: Some("/nowhere::/bin".into()), ..Settings::default() };
        assert_eq!(settings.find("sh", ""), Ok("/bin/sh".into()));
        assert_eq!(settings.find("/bin/sh", "/etc"), Ok("/bin/sh".into()));
        let elsewhere = "no executable file nosuchprogram in /nowhere, /bin";
        for (none, why) in [
            ("nosuchprogram", elsewhere),
            ("/etc/passwd", "/etc/passwd is not an executable file"),
            ("/tmp", "/tmp is not an executable file"),
        ] {
            let error = Err(NotStarted { error: Error::NoFile, why: why.into() });
            assert_eq!(settings.find(none, "/tmp"), error);
        }
    }

    #[test]
    fn a_relative_name_with_a_slash_is_looked_for_in_the_spawners_directory_first() {
        let settings = Settings { path: Some("/usr".into()), ..Settings::default() };
        assert_eq!(settings.find("./sh", "/bin"), Ok("/bin/sh".into()));
        assert_eq!(settings.find("bin/sh", "/"), Ok("/bin/sh".into()));
        // As in stock PVM. With an unknown spawner's directory only the path is searched.
        for directory in ["/bin", ""] {
            assert_eq!(settings.find("bin/env", directory), Ok("/usr/bin/env".into()));
        }
        // A name without a slash is not searched in the spawner's directory.
        assert!(settings.find("sh", "/bin").is_err());
        let why = settings.find("./no", "/bin").expect_err("there is none").why;
        assert_eq!(why, "no executable file ./no in /bin, /usr");
    }
}
