//! The keeper as a program of its own, for an owner whose program is linked to fixed addresses.
//!
//! A forked keeper has the owner's program at its addresses, so no task of its domain could run the
//! same program, as a Python interpreter that starts itself does. Such an owner executes libpvas
//! instead: the dynamic linker runs the library like a program, and jumps to its entry
//! (`pvas_keeper_start`, which `build.rs` sets). Nothing but the socket passes to the keeper. The
//! first message brings the files of the space's memory and of its control area.

use std::ffi::{CStr, OsString, c_int, c_void};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nagaya_layout::SpaceLayout;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::child;
use crate::connection::Connection;
use crate::error::Error;
use crate::keeper::{self, VERSION};
use crate::memory::Memory;
use crate::owner;

/// The first message. Descriptors: the memory's file, then the control area's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Open {
    window: u64,
    segment_size: u64,
    tasks_max: u32,
    /// Address of the memory's alias.
    alias: u64,
    /// IDs of the domain.
    ids: Range<u32>,
}

impl Open {
    /// The message for the keeper of a domain of these IDs.
    pub fn new(layout: &SpaceLayout, memory: &Memory, ids: &Range<u32>) -> Self {
        Self {
            window: layout.window(),
            segment_size: layout.segment_size(),
            tasks_max: layout.tasks_max(),
            alias: memory.alias(),
            ids: ids.clone(),
        }
    }
}

core::arch::global_asm!(
    ".globl pvas_keeper_start",
    ".hidden pvas_keeper_start",
    ".type pvas_keeper_start, @function",
    "pvas_keeper_start:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {main}",
    "ud2",
    main = sym main,
);

/// Returns true if keepers of this process must be programs of their own: its program is linked to
/// fixed addresses, and does not contain this code.
pub(crate) fn is_needed() -> bool {
    /// Looks at the program, which is the first object.
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker passes its own description of the program, whose headers stay
        // mapped, and `is_needed` a pointer to a truth value.
        unsafe {
            let headers = std::slice::from_raw_parts((*info).dlpi_phdr, (*info).dlpi_phnum.into());
            let code = main as *const () as u64;
            let is_inside = headers.iter().any(|header| {
                let addresses = header.p_vaddr..header.p_vaddr + header.p_memsz;
                header.p_type == libc::PT_LOAD && addresses.contains(&code)
            });
            *found.cast::<bool>() = (*info).dlpi_addr == 0 && !is_inside;
        }
        1
    }
    let mut is_needed = false;
    // SAFETY: `look` expects a pointer to a truth value, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut is_needed).cast()) };
    is_needed
}

/// Starts a keeper with this end of its connection. Returns its PID; the caller must reap it.
pub(crate) fn start(socket: OwnedFd) -> Result<u32, Error> {
    let failed = |error: io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Error::System("start of a domain's keeper", errno)
    };
    let mut command = Command::new(linker().map_err(failed)?);
    command.arg(own_library().map_err(failed)?);
    // Settings of the dynamic linker concern the owner's program.
    for (name, _) in std::env::vars_os() {
        if name.as_bytes().starts_with(b"LD_") {
            command.env_remove(name);
        }
    }
    command.arg0("pvas-domain").stdin(socket).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(|child| child.id()).map_err(failed)
}

/// Returns the path of the dynamic linker.
fn linker() -> io::Result<OsString> {
    // SAFETY: getauxval reads the auxiliary vector. All fields of the description may be zero.
    // dladdr(3) writes into it only, and returns the name of a loaded file.
    unsafe {
        let base = libc::getauxval(libc::AT_BASE) as *const c_void;
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(base, &mut info) == 0 || info.dli_fname.is_null() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(OsString::from_vec(CStr::from_ptr(info.dli_fname).to_bytes().to_vec()))
    }
}

/// Returns the path of the library with this code.
fn own_library() -> io::Result<PathBuf> {
    let code = main as *const () as u64;
    let own = proc::maps::own()?.into_iter().find(|it| it.addresses.contains(&code));
    let path = own.map(|it| PathBuf::from(it.path)).filter(|path| path.exists());
    // A file that was replaced has another name in the list.
    path.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The program.
extern "C" fn main() -> ! {
    // Signals to the owner's process group are not for the keeper.
    child::sigprocmask(libc::SIG_SETMASK, &u64::MAX);
    if run().is_none() {
        proc::error_line!("libpvas: this library is a program for libpvas itself only");
    }
    // SAFETY: `_exit` touches no memory.
    unsafe { libc::_exit(1) }
}

/// Serves the owner at standard input. Returns `None` if there is no owner, or if the memory cannot
/// be mapped where it is in the owner.
fn run() -> Option<std::convert::Infallible> {
    // SAFETY: no code of this program has used standard input before.
    let input = unsafe { OwnedFd::from_raw_fd(0) };
    let socket = rustix::io::fcntl_dupfd_cloexec(&input, 3).ok()?;
    let mut owner = Connection::new(socket, VERSION);
    let (open, fds) = owner.receive_with::<Open>().ok()??;
    let [memory, control] = <[OwnedFd; 2]>::try_from(fds).ok()?;
    let layout = SpaceLayout::new(open.window, open.segment_size, open.tasks_max).ok()?;
    let answer = owner::map_again(&layout, control.as_fd())
        .and_then(|control| Ok((control, Memory::of_owner(memory, &layout, open.alias)?)));
    match answer {
        Ok((control, memory)) => {
            drop(input);
            keeper::run(owner, control, &memory, &open.ids)
        }
        Err(error) => {
            let answer = keeper::Answer::Failed { pid: None, error: (&error).into() };
            let _ = owner.send(&answer, &[]);
            None
        }
    }
}

/// Returns a file of the control area that keepers can map, if they are programs of their own.
pub(crate) fn control_file() -> Result<Option<OwnedFd>, Error> {
    use rustix::fs::{MemfdFlags, memfd_create};
    is_needed()
        .then(|| memfd_create("pvas-control", MemfdFlags::CLOEXEC))
        .transpose()
        .map_err(|errno| Error::System("memfd_create", errno))
}

/// Sends the first message to a keeper.
pub(crate) fn open(
    keeper: &Connection,
    open: &Open,
    memory: &Memory,
    control: BorrowedFd<'_>,
) -> io::Result<()> {
    keeper.send(open, &[memory.file(), control])
}
