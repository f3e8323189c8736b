//! Runs a program as a task that its launcher has started as a process.
//!
//! `mpirun -n 4 ./app` starts four processes, whose memories are apart. So before the program's
//! `main`, this library executes the program once more by `nagaya exec`. It does so only in
//! programs that are linked with it, and only below a launcher.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use net::launcher::Started;

/// Set in the environment of a program that has been executed again.
const AGAIN: &str = "NAGAYA_SHMEM_EXEC";
/// The library's file name.
const LIBRARY: &str = "libnagaya-shmem.so";

/// Called by the dynamic linker before the program's `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char) = start;

extern "C" fn start(count: c_int, arguments: *const *const c_char) {
    // A library for another process may be loaded by it, for its symbols only.
    if count < 1 || arguments.is_null() || control::this_task().is_some() {
        return;
    }
    let is_launched = Started::of_environment() != Started::Alone;
    if !is_launched || std::env::var_os(AGAIN).is_some() || !is_needed() {
        return;
    }
    // SAFETY: glibc passes the arguments of the program, which end with a null pointer.
    let arguments: Vec<&CStr> = (0..count as usize)
        .map_while(|n| unsafe {
            let argument = *arguments.add(n);
            (!argument.is_null()).then(|| CStr::from_ptr(argument))
        })
        .collect();
    let (Some(nagaya), Ok(program)) = (find_nagaya(), std::fs::read_link("/proc/self/exe")) else {
        return;
    };
    execute(&nagaya, &program, &arguments);
}

/// Executes the program by `nagaya exec`. Returns only if that fails; `shmem_init` reports it.
fn execute(nagaya: &Path, program: &Path, arguments: &[&CStr]) {
    // SAFETY: the process has one thread, before its `main`.
    unsafe { std::env::set_var(AGAIN, "1") };
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).ok();
    let (Some(nagaya), Some(program)) = (text(nagaya), text(program)) else { return };
    let mut words: Vec<*const c_char> =
        vec![c"nagaya".as_ptr(), c"exec".as_ptr(), c"--".as_ptr(), program.as_ptr()];
    words.extend(arguments.iter().skip(1).map(|argument| argument.as_ptr()));
    words.push(ptr::null());
    // SAFETY: the path and all arguments are strings, and the list ends with a null pointer.
    unsafe { libc::execv(nagaya.as_ptr(), words.as_ptr()) };
}

/// Returns the command `nagaya`: that beside this library, or that of the search path.
fn find_nagaya() -> Option<PathBuf> {
    // An installation has the library in lib/nagaya/shmem/lib, and a build tree beside the command.
    let places = ["../../../../bin/nagaya", "nagaya"];
    let beside =
        own_directory().into_iter().flat_map(|directory| places.map(|place| directory.join(place)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<_> = std::env::split_paths(&path).map(|it| it.join("nagaya")).collect();
    beside.chain(in_path).find(|file| {
        rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
    })
}

/// Returns the directory of this library.
fn own_directory() -> Option<PathBuf> {
    // SAFETY: `dladdr` fills in the structure for an address of this library.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(START as *const () as *const _, &mut info) == 0 || info.dli_fname.is_null()
        {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    Some(path.canonicalize().ok()?.parent()?.to_path_buf())
}

/// Returns true if the program itself needs this library (DT_NEEDED). A library that a running
/// program loads must not execute that program again.
fn is_needed() -> bool {
    let mut is_needed = false;
    // SAFETY: the callback gets the pointer that is passed here.
    unsafe { libc::dl_iterate_phdr(Some(first_object), (&raw mut is_needed).cast()) };
    is_needed
}

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// Reads the dynamic section of the program, which is the first object.
unsafe extern "C" fn first_object(
    info: *mut libc::dl_phdr_info,
    _: usize,
    is_needed: *mut std::ffi::c_void,
) -> c_int {
    // SAFETY: `dl_iterate_phdr` passes the description of a loaded object. Its dynamic section is
    // mapped, ends with DT_NULL, and glibc has relocated its DT_STRTAB.
    unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let Some(dynamic) = headers.iter().find(|it| it.p_type == libc::PT_DYNAMIC) else {
            return 1;
        };
        let at = info.dlpi_addr.wrapping_add(dynamic.p_vaddr) as usize;
        let mut entry = ptr::with_exposed_provenance::<[u64; 2]>(at);
        let (mut names, mut offsets) = (0, Vec::new());
        while (*entry)[0] != DT_NULL {
            match *entry {
                [DT_NEEDED, offset] => offsets.push(offset),
                [DT_STRTAB, address] => names = address,
                _ => {}
            }
            entry = entry.add(1);
        }
        let is_ours = |offset: u64| {
            let name = ptr::with_exposed_provenance::<c_char>((names + offset) as usize);
            CStr::from_ptr(name).to_bytes().starts_with(LIBRARY.as_bytes())
        };
        *is_needed.cast::<bool>() = names != 0 && offsets.into_iter().any(is_ours);
    }
    1
}
