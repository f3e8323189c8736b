//! Why a program cannot be loaded, in words and as an errno.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A program that cannot be a task, and the reason. `Display` is one line: the file, the failure,
/// and the remedy.
#[derive(Debug)]
pub struct LoadError {
    /// The file that is at fault: the program, its interpreter or its dynamic linker.
    pub path: PathBuf,
    /// The kind of failure.
    pub kind: LoadErrorKind,
}

/// The failures of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadErrorKind {
    /// A system call on the file failed.
    System(&'static str, Errno),
    /// Not a regular file.
    NotAFile,
    /// Set-user-ID or set-group-ID bit.
    SetId,
    /// File capabilities.
    Capabilities,
    /// Neither ELF nor `#!`.
    NotElf,
    /// The file is empty.
    Empty,
    /// 32-bit ELF.
    Class32,
    /// ELF for another machine (`e_machine`).
    Machine(u16),
    /// ET_EXEC: linked to fixed addresses.
    NotPie,
    /// ET_EXEC, and its addresses are taken.
    Taken(u64),
    /// Relocatable object or core file (`e_type`).
    NotExecutable(u16),
    /// A shared library: no interpreter, no entry point.
    Library,
    /// The headers or segments reach beyond the end of the file.
    Truncated,
    /// Headers that contradict each other or the ELF specification.
    Malformed(&'static str),
    /// The dynamic linker that the program asks for does not exist.
    NoInterpreter(PathBuf),
    /// Interpreters of interpreters, too deep.
    TooManyInterpreters,
    /// The image needs more than the segment gives.
    SegmentTooSmall {
        /// Bytes of the program and its dynamic linker.
        needed: u64,
        /// Bytes of the segment.
        segment: u64,
    },
    /// Arguments and environment are too long.
    ArgumentsTooLong,
    /// mmap and the like failed while loading.
    Memory(Errno),
}

impl LoadError {
    /// Of the file at this path.
    pub fn new(path: impl Into<PathBuf>, kind: LoadErrorKind) -> Self {
        Self { path: path.into(), kind }
    }

    /// The errno that a C caller sees.
    pub fn errno(&self) -> Errno {
        use LoadErrorKind::*;
        match &self.kind {
            System(_, errno) | Memory(errno) => *errno,
            NotAFile => Errno::ACCESS,
            SetId | Capabilities => Errno::PERM,
            NotElf | Empty | Class32 | Machine(_) | NotPie | Taken(_) | NotExecutable(_)
            | Library | Truncated | Malformed(_) => Errno::NOEXEC,
            NoInterpreter(_) => Errno::NOENT,
            TooManyInterpreters => Errno::LOOP,
            SegmentTooSmall { .. } => Errno::NOMEM,
            ArgumentsTooLong => Errno::TOOBIG,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use LoadErrorKind::*;
        write!(f, "{}: ", printable(&self.path))?;
        match &self.kind {
            System(call, errno) => write!(f, "{call}: {}", describe(*errno)),
            NotAFile => write!(f, "not a regular file"),
            SetId => write!(
                f,
                "set-user-ID or set-group-ID program; tasks share memory, so it cannot run with \
                 other rights (run it as an ordinary process)"
            ),
            Capabilities => write!(
                f,
                "has file capabilities; tasks share memory, so it cannot run with other rights \
                 (remove them with setcap -r, or run it as an ordinary process)"
            ),
            NotElf => write!(f, "not a program (neither ELF nor #!)"),
            Empty => write!(f, "not a program (empty file)"),
            Class32 => write!(f, "32-bit program; a task must be x86-64"),
            Machine(machine) => {
                write!(f, "program for another machine (ELF machine {machine}; need 62, x86-64)")
            }
            Taken(address) => write!(
                f,
                "linked to fixed addresses, of which {address:#x} is taken: a domain holds one \
                 such program"
            ),
            NotPie => write!(
                f,
                "linked to fixed addresses, so it cannot share page tables, and the space was made \
                 for programs that do (start the job with PVAS_SHARED=1 in the environment, or \
                 rebuild the program with -fPIE -pie or -static-pie)"
            ),
            NotExecutable(kind) => write!(f, "not an executable (ELF type {kind})"),
            Library => write!(f, "a shared library, not a program"),
            Truncated => write!(f, "truncated: its segments reach beyond the end of the file"),
            Malformed(what) => write!(f, "malformed ELF file: {what}"),
            NoInterpreter(path) => write!(
                f,
                "its dynamic linker {} does not exist (install it, or rebuild the program)",
                printable(path)
            ),
            TooManyInterpreters => write!(f, "#! interpreters nested too deep"),
            SegmentTooSmall { needed, segment } => write!(
                f,
                "needs {} MiB of image, too much for a segment of {} MiB (raise the segment size)",
                needed.div_ceil(1 << 20),
                segment >> 20
            ),
            ArgumentsTooLong => write!(f, "arguments and environment are too long"),
            Memory(Errno::NOMEM) => write!(f, "no memory to load it{}", map_count_hint()),
            Memory(errno) => write!(f, "cannot map it: {}", describe(*errno)),
        }
    }
}

impl std::error::Error for LoadError {}

/// A path for a message of one line: it may come from a hostile file.
fn printable(path: &Path) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    path.to_string_lossy().chars().map(escape).collect()
}

/// strerror's words for an errno.
pub fn describe(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(errno.raw_os_error()).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

/// ENOMEM of mmap mostly means that the one mm of a space has too many mappings.
pub fn map_count_hint() -> String {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let limit = limit.ok().and_then(|text| text.trim().parse::<usize>().ok());
    let maps = proc::maps::count();
    match (limit, maps) {
        (Some(limit), Ok(maps)) if maps + maps / 10 + 64 >= limit => format!(
            ": the space has {maps} mappings of vm.max_map_count = {limit} (raise it with sysctl)"
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by `a_mutated_program_is_sound_or_refused`: PT_INTERP led to text with newlines.
    #[test]
    fn names_from_a_file_do_not_break_the_line() {
        let linker = LoadErrorKind::NoInterpreter("a\nb\x1b".into());
        let text = LoadError::new("p\n", linker).to_string();
        assert!(text.starts_with("p\\n: its dynamic linker a\\nb\\u{1b} does"), "{text}");
    }
}
