//! The program in its segment, much as execve would lay it out: image, dynamic linker, vDSO, stack.
//! Written to the origin's memory before anybody runs; the other nodes fetch what they use.

use std::ffi::CString;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nagaya_gate::sites::Site;
use nagaya_layout::Seed;
use nagaya_loader::elf::Load;
use nagaya_loader::stack::{Auxiliary, Contents};
use nagaya_loader::{Executable, LoadError, LoadErrorKind, Program};
use rustix::io::Errno;

use crate::addresses::PAGE;
use crate::clocks;
use crate::mapped::Mapped;
use crate::report::{Area, What};
use crate::stubs;

/// Start of position-independent programs: below the kernel's place for them, which this process
/// uses, and at the place that sanitizers expect.
const START: u64 = 0x5500_0000_0000;
/// Most that such a program begins behind that, in bytes. The kernel's place for this process's
/// executable, which is random too, begins 340 GiB behind it.
const START_SHIFT_MAX: u64 = 256 << 30;
/// Most that the contents of the main thread's stack end below its end, in bytes; as Linux does.
const STACK_SHIFT_MAX: u64 = 2 * PAGE;
/// Addresses that are kept for the main thread's stack at least: as Linux has it, so that a program
/// may raise its limit.
const STACK_ROOM: u64 = 128 << 20;
/// Start of a stack that needs more room than that: the lowest address at which sanitizers expect
/// stacks and libraries.
const STACK_FAR: u64 = 0x7e80_0000_0000;
/// Bytes of arguments and environment that a program may always have, and those that it may have
/// if its stack is four times as large: as execve(2) has it.
const ARGUMENTS_BYTES: [u64; 2] = [128 << 10, 6 << 20];
/// Read at once.
const CHUNK: usize = 1 << 20;

/// A part of the segment, and its protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its first address.
    pub start: u64,
    /// Its length, whole pages.
    pub bytes: u64,
    /// As mprotect(2) has it.
    pub protection: u32,
}

/// A part of a file that stands in the segment, for reading: `bytes` of it, from `offset` on.
#[derive(Debug)]
pub struct Text {
    /// The file.
    pub path: PathBuf,
    /// Its start, at a page boundary.
    pub start: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// The mapping to be moved there, if the part has not been written.
    pub mapped: Option<Mapped>,
}

/// The layout of the loaded program.
#[derive(Debug)]
pub struct Image {
    /// All that is not closed.
    pub parts: Vec<Part>,
    /// The parts that equal a file, as long as they are not written.
    pub texts: Vec<Text>,
    /// The parts.
    pub areas: Vec<Area>,
    /// All below is taken.
    pub end: u64,
    /// The entry point of the program: in its dynamic linker.
    pub entry: u64,
    /// With this stack pointer.
    pub stack_pointer: u64,
    /// The room for the main thread's stack; addresses outside the parts are closed.
    pub stack: Range<u64>,
    /// The strings of its arguments.
    pub arguments: Range<u64>,
    /// Those of its environment, which follow.
    pub environment: Range<u64>,
}

/// Lays the program out from [`start`] on, with a stack of `stack_bytes`; `write` writes to the
/// segment.
pub fn load(
    program: &Program,
    environment: &[CString],
    seed: Seed,
    stack_bytes: u64,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), LoadErrorKind>,
) -> Result<Image, LoadError> {
    let path = &program.executable.path;
    let read_write = (libc::PROT_READ | libc::PROT_WRITE) as u32;
    let executes = program.executable.headers.executable_stack;
    let stack_protection = read_write | if executes { libc::PROT_EXEC as u32 } else { 0 };
    let (mut parts, mut texts) = (Vec::new(), Vec::new());
    let at = place(&program.executable, start(program, seed));
    let mut end = map(&program.executable, at, &mut parts, &mut texts, &mut write)?;
    let mut areas = vec![area(&program.executable, at, end)];
    let bias = at.wrapping_sub(program.executable.headers.start());
    let own_entry = bias.wrapping_add(program.executable.headers.entry);
    let (mut entry, mut linker_base) = (own_entry, 0);
    if let Some(linker) = &program.linker {
        let at = place(linker, end + PAGE);
        end = map(linker, at, &mut parts, &mut texts, &mut write)?;
        areas.push(area(linker, at, end));
        linker_base = at.wrapping_sub(linker.headers.start());
        entry = linker_base.wrapping_add(linker.headers.entry);
    }
    let vdso = end.next_multiple_of(PAGE);
    write(vdso, clocks::VDSO).map_err(|kind| LoadError::new(path, kind))?;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as u32;
    parts.push(Part { start: vdso, bytes: PAGE, protection: executable });
    end = vdso + PAGE;
    // A page between the stack and the part below stays unmapped.
    let room = stack_bytes.max(STACK_ROOM);
    let stack = match room {
        STACK_ROOM => end + PAGE..end + PAGE + room,
        _ => STACK_FAR + PAGE..STACK_FAR + PAGE + room,
    };
    let top = stack.end - seed.stack % (STACK_SHIFT_MAX / 16) * 16;
    let contents = Contents {
        arguments: &program.arguments,
        environment,
        name: &program.name,
        auxiliary: Auxiliary {
            headers: bias.wrapping_add(program.executable.headers.headers_address),
            headers_count: program.executable.headers.headers_count,
            linker_base,
            entry: own_entry,
            task: None,
            // The kernel's is elsewhere on other nodes.
            vdso: Some(vdso),
        },
    };
    let memory = |errno| LoadError::new(path, LoadErrorKind::Memory(errno));
    let bytes = contents.build(top).map_err(memory)?;
    let [least, most] = ARGUMENTS_BYTES;
    if bytes.len() as u64 > (stack_bytes / 4).clamp(least, most) {
        return Err(LoadError::new(path, LoadErrorKind::ArgumentsTooLong));
    }
    let stack_pointer = top - bytes.len() as u64;
    let opened = stack_bytes.max((stack.end - stack_pointer).next_multiple_of(PAGE));
    let protection = stack_protection;
    parts.push(Part { start: stack.end - opened, bytes: opened, protection });
    areas.push(Area { start: stack.end - opened, end: stack.end, what: What::Stack });
    write(stack_pointer, &bytes).map_err(|kind| LoadError::new(path, kind))?;
    let length = |strings: &[CString]| -> u64 {
        strings.iter().map(|string| string.as_bytes_with_nul().len() as u64).sum()
    };
    // The first argument's address follows their number.
    let first = bytes[8..16].try_into().map_or(stack_pointer, u64::from_le_bytes);
    let arguments = first..first + length(&program.arguments);
    let environment = arguments.end..arguments.end + length(environment);
    let end = if room == STACK_ROOM { stack.end + PAGE } else { end };
    Ok(Image { parts, texts, areas, end, entry, stack_pointer, stack, arguments, environment })
}

fn area(executable: &Executable, start: u64, end: u64) -> Area {
    let path = executable.path.display().to_string();
    let address = executable.headers.start();
    Area { start, end, what: What::File { path, address } }
}

/// Returns the start of the segment of a program. A program that is linked to fixed addresses is
/// the first part.
pub fn start(program: &Program, seed: Seed) -> u64 {
    let headers = &program.executable.headers;
    let shift = seed.image % (START_SHIFT_MAX / PAGE) * PAGE;
    if headers.is_fixed { headers.start() } else { START + shift }
}

/// Returns the address of the first page of an image that must not begin below `lowest`.
fn place(executable: &Executable, lowest: u64) -> u64 {
    if executable.headers.is_fixed {
        return executable.headers.start();
    }
    let align = executable.headers.align;
    lowest.next_multiple_of(align) + executable.headers.start() % align
}

/// Code of an executable: it stands in the segment, or is to be moved there.
struct Code {
    start: u64,
    offset: u64,
    bytes: u64,
    /// The index of its text, if that is mapped.
    mapped: Option<usize>,
}

/// Maps or writes the loadable parts so that the first page is at `at`; the end of the last.
fn map(
    executable: &Executable,
    at: u64,
    parts: &mut Vec<Part>,
    texts: &mut Vec<Text>,
    write: &mut impl FnMut(u64, &[u8]) -> Result<(), LoadErrorKind>,
) -> Result<u64, LoadError> {
    let (path, file) = (&executable.path, &executable.file);
    let bias = at.wrapping_sub(executable.headers.start());
    let (mut end, mut codes) = (at, Vec::new());
    let loads = &executable.headers.loads;
    let end_page = |load: &Load| (load.address + load.memory_size).div_ceil(PAGE);
    let are_apart = loads.windows(2).all(|two| end_page(&two[0]) <= two[1].address / PAGE);
    for load in loads {
        let in_page = load.address % PAGE;
        let start = bias.wrapping_add(load.address - in_page);
        let (offset, bytes) = (load.offset - in_page, in_page + load.file_size);
        let [writes, executes] = [libc::PROT_WRITE, libc::PROT_EXEC]
            .map(|protection| load.protection & protection as u32 != 0);
        let mut mapped = None;
        if !writes && are_apart && load.memory_size == load.file_size {
            mapped = Mapped::new(file, offset, bytes, load.protection);
            mapped = if executes { mapped.and_then(Mapped::writable) } else { mapped };
        }
        if mapped.is_none() {
            // The file's bytes before the part show in its first page, as with mmap.
            copy(path, file, start, offset, bytes, write)?;
        }
        let room = (in_page + load.memory_size).next_multiple_of(PAGE);
        parts.push(Part { start, bytes: room, protection: load.protection });
        end = end.max(start + room);
        if executes {
            let mapped = mapped.is_some().then_some(texts.len());
            codes.push((Code { start, offset, bytes, mapped }, load.protection));
        }
        if !writes {
            texts.push(Text { path: path.clone(), start, offset, bytes, mapped });
        }
    }
    for (code, protection) in codes {
        let Code { start, offset, bytes, mapped } = code;
        if let Some(mapped) = mapped.and_then(|at| texts[at].mapped.as_mut()) {
            (end, _) = patch(path, start, mapped.bytes_mut(), end, parts, write)?;
            mapped
                .protect(protection)
                .map_err(|errno| LoadError::new(path, LoadErrorKind::System("mprotect", errno)))?;
            continue;
        }
        let mut text = vec![0; bytes as usize];
        let mut take = |to: u64, bytes: &[u8]| {
            text[(to - start) as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        copy(path, file, start, offset, bytes, &mut take)?;
        let (behind, is_changed) = patch(path, start, &mut text, end, parts, write)?;
        if is_changed {
            write(start, &text).map_err(|kind| LoadError::new(path, kind))?;
        }
        end = behind;
    }
    Ok(end)
}

/// Patches the system-call sites of code that will run at `start`; its stubs begin at `end`.
/// Returns the end of the stubs, and true if the code has been changed.
fn patch(
    path: &Path,
    start: u64,
    text: &mut [u8],
    end: u64,
    parts: &mut Vec<Part>,
    write: &mut impl FnMut(u64, &[u8]) -> Result<(), LoadErrorKind>,
) -> Result<(u64, bool), LoadError> {
    let mut sites = vec![Site::default(); stubs::sites(text, &mut [])];
    stubs::sites(text, &mut sites);
    let (at, bytes) = (end, stubs::room(sites.len()));
    if sites.is_empty() || !stubs::is_near(start, text.len(), at, bytes) {
        return Ok((end, false));
    }
    let mut into = vec![0; bytes as usize];
    stubs::patch(text, start, &sites, &mut into, at);
    write(at, &into).map_err(|kind| LoadError::new(path, kind))?;
    let protection = (libc::PROT_READ | libc::PROT_EXEC) as u32;
    parts.push(Part { start: at, bytes, protection });
    Ok((at + bytes, true))
}

/// Copies this many bytes of a file, or fewer if it ends.
fn copy(
    path: &Path,
    file: &File,
    mut to: u64,
    mut offset: u64,
    bytes: u64,
    write: &mut impl FnMut(u64, &[u8]) -> Result<(), LoadErrorKind>,
) -> Result<(), LoadError> {
    let mut buffer = vec![0; CHUNK.min(bytes as usize)];
    let end = offset + bytes;
    while offset < end {
        let room = buffer.len().min((end - offset) as usize);
        let count = file.read_at(&mut buffer[..room], offset).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            LoadError::new(path, LoadErrorKind::System("read", errno))
        })?;
        if count == 0 {
            break;
        }
        write(to, &buffer[..count]).map_err(|kind| LoadError::new(path, kind))?;
        (to, offset) = (to + count as u64, offset + count as u64);
    }
    Ok(())
}
