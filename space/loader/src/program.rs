//! From a path to a program that can be mapped: permissions, `#!` lines, ELF headers and
//! the dynamic linker, all before any memory is touched.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::elf::Headers;
use crate::error::{LoadError, LoadErrorKind};

/// As many `#!` as Linux follows.
const INTERPRETERS_MAX: usize = 5;
/// Bytes of a file's head that Linux looks at for `#!` (BINPRM_BUF_SIZE).
const HEAD_SIZE: usize = 256;

/// An open executable and its headers.
#[derive(Debug)]
pub struct Executable {
    /// As it was named.
    pub path: PathBuf,
    /// Open for reading.
    pub file: File,
    /// Checked headers.
    pub headers: Headers,
}

/// A program that can become a task.
#[derive(Debug)]
pub struct Program {
    /// The executable: the program itself, or the interpreter of a script.
    pub executable: Executable,
    /// Its dynamic linker, if it has one.
    pub linker: Option<Executable>,
    /// The path of the caller, which becomes AT_EXECFN.
    pub name: CString,
    /// Arguments; those of a `#!` line precede the caller's.
    pub arguments: Vec<CString>,
    /// Absolute path of the executable, for `/proc/self/exe`.
    pub real_path: PathBuf,
}

impl Program {
    /// Opens `path` as execve(2) would, with `arguments` (`argv`, its first included). It must
    /// run wherever it is put.
    pub fn open(path: &Path, arguments: Vec<CString>) -> Result<Self, LoadError> {
        let program = Self::open_fixed(path, arguments)?;
        match program.executable.headers.is_fixed {
            false => Ok(program),
            true => Err(LoadError::new(program.executable.path, LoadErrorKind::NotPie)),
        }
    }

    /// As [`open`](Self::open), for a caller that can map the program at its fixed addresses.
    pub fn open_fixed(path: &Path, arguments: Vec<CString>) -> Result<Self, LoadError> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| LoadError::new(path, LoadErrorKind::System("open", Errno::INVAL)))?;
        let mut arguments = arguments;
        let mut path = path.to_path_buf();
        for _ in 0..INTERPRETERS_MAX {
            let (file, length) = open_executable(&path)?;
            let mut head = [0; HEAD_SIZE];
            let read = file.read_at(&mut head, 0);
            let read = read.map_err(|e| system(&path, "read", &e))?;
            let head = &head[..read];
            if let Some(rest) = head.strip_prefix(b"#!") {
                let (interpreter, argument) = parse_script(rest)
                    .ok_or_else(|| LoadError::new(&path, LoadErrorKind::NotElf))?;
                let script = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
                let tail = arguments.split_off(arguments.len().min(1));
                arguments = vec![interpreter.clone()];
                arguments.extend(argument);
                arguments.push(script);
                arguments.extend(tail);
                path = PathBuf::from(OsString::from_vec(interpreter.into_bytes()));
                continue;
            }
            let executable = read_elf(path, file, head, length)?;
            let linker = match &executable.headers.interpreter {
                None => None,
                Some(linker) => Some(open_linker(&executable.path, linker)?),
            };
            let link = format!("/proc/self/fd/{}", executable.file.as_raw_fd());
            let real_path = std::fs::read_link(link)
                .or_else(|_| std::fs::canonicalize(&executable.path))
                .map_err(|e| system(&executable.path, "resolve", &e))?;
            return Ok(Self { executable, linker, name, arguments, real_path });
        }
        Err(LoadError::new(path, LoadErrorKind::TooManyInterpreters))
    }
}

fn system(path: &Path, call: &'static str, error: &std::io::Error) -> LoadError {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    LoadError::new(path, LoadErrorKind::System(call, errno))
}

/// Opens a file that the caller may execute and that runs with the caller's rights.
fn open_executable(path: &Path) -> Result<(File, u64), LoadError> {
    let fail = |call, errno| LoadError::new(path, LoadErrorKind::System(call, errno));
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)
        .map_err(|errno| fail("cannot execute", errno))?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        // Execute permission alone is enough for execve, but the loader must read the file.
        Errno::ACCESS => fail("no permission to read the program", errno),
        _ => fail("open", errno),
    })?;
    let file = File::from(file);
    let data = file.metadata().map_err(|e| system(path, "stat", &e))?;
    if !data.is_file() {
        return Err(LoadError::new(path, LoadErrorKind::NotAFile));
    }
    let mode = data.mode();
    let set_group = mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0;
    if mode & libc::S_ISUID != 0 || set_group {
        return Err(LoadError::new(path, LoadErrorKind::SetId));
    }
    let mut capabilities = [0u8; 64];
    let found = rustix::fs::fgetxattr(&file, c"security.capability", &mut capabilities);
    if found.is_ok_and(|size| size > 0) {
        return Err(LoadError::new(path, LoadErrorKind::Capabilities));
    }
    if data.len() == 0 {
        return Err(LoadError::new(path, LoadErrorKind::Empty));
    }
    Ok((file, data.len()))
}

fn read_elf(path: PathBuf, file: File, head: &[u8], length: u64) -> Result<Executable, LoadError> {
    if !head.starts_with(b"\x7fELF") {
        return Err(LoadError::new(path, LoadErrorKind::NotElf));
    }
    let headers = Headers::read(&path, &file, head, length)?;
    Ok(Executable { path, file, headers })
}

fn open_linker(program: &Path, linker: &Path) -> Result<Executable, LoadError> {
    let (file, length) = open_executable(linker).map_err(|error| match error.kind {
        LoadErrorKind::System(_, Errno::NOENT) => {
            LoadError::new(program, LoadErrorKind::NoInterpreter(linker.to_path_buf()))
        }
        _ => error,
    })?;
    let mut head = [0; HEAD_SIZE];
    let read = file.read_at(&mut head, 0).map_err(|e| system(linker, "read", &e))?;
    let linker = read_elf(linker.to_path_buf(), file, &head[..read], length)?;
    match linker.headers.is_fixed {
        false => Ok(linker),
        true => Err(LoadError::new(linker.path, LoadErrorKind::NotPie)),
    }
}

/// Interpreter and its one optional argument, of a `#!` line without its first two bytes.
fn parse_script(head: &[u8]) -> Option<(CString, Option<CString>)> {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let line = head.split(|&b| b == b'\n').next()?;
    let complete = line.len() < head.len();
    let line = OsStr::from_bytes(line);
    let bytes = line.as_bytes();
    let start = bytes.iter().position(|b| !blank(b))?;
    let name = &bytes[start..];
    let end = name.iter().position(blank);
    // A name that fills the buffer may have been cut.
    if end.is_none() && !complete && head.len() + 2 >= HEAD_SIZE {
        return None;
    }
    let (name, rest) = name.split_at(end.unwrap_or(name.len()));
    let argument = match rest.iter().position(|b| !blank(b)) {
        None => None,
        Some(at) => {
            let last = rest.iter().rposition(|b| !blank(b))?;
            Some(CString::new(&rest[at..=last]).ok()?)
        }
    };
    let name = CString::new(name).ok()?;
    (!name.is_empty()).then_some((name, argument))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(line: &[u8]) -> Option<(String, Option<String>)> {
        parse_script(line).map(|(name, argument)| {
            (name.into_string().unwrap(), argument.map(|a| a.into_string().unwrap()))
        })
    }

    #[test]
    fn script_lines_are_read_as_the_kernel_reads_them() {
        assert_eq!(script(b"/bin/sh\n"), Some(("/bin/sh".into(), None)));
        assert_eq!(
            script(b" \t/usr/bin/env  python3 -u \nrest"),
            Some(("/usr/bin/env".into(), Some("python3 -u".into())))
        );
        assert_eq!(script(b"/bin/sh"), Some(("/bin/sh".into(), None)));
        assert_eq!(script(b"   \n"), None);
        assert_eq!(script(&[b'x'; HEAD_SIZE - 2]), None);
    }
}
