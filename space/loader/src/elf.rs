//! Reads untrusted ELF headers: the segments that a program asks the loader to map.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nagaya_layout::PAGE_SIZE;
use object::elf::{
    ELFCLASS32, ELFCLASS64, ELFDATA2LSB, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PF_R, PF_W,
    PF_X, PT_GNU_STACK, PT_INTERP, PT_LOAD, PT_PHDR, ProgramHeader64,
};
use object::{LittleEndian as LE, pod};

use crate::error::{LoadError, LoadErrorKind};

/// Maximum number of program headers; the kernel's limit is 64 KiB of them.
const HEADERS_MAX: usize = 65536 / size_of::<ProgramHeader64<LE>>();

/// One PT_LOAD: which part of the file goes where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Address in the image, before the bias.
    pub address: u64,
    /// Bytes from the file.
    pub file_size: u64,
    /// Bytes in memory; zero behind `file_size`.
    pub memory_size: u64,
    /// Offset in the file.
    pub offset: u64,
    /// PROT_READ and so on.
    pub protection: u32,
}

/// The content of an executable's headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers {
    /// Loadable parts in ascending order.
    pub loads: Vec<Load>,
    /// Entry point, before the bias.
    pub entry: u64,
    /// Address of the program headers in memory, before the bias.
    pub headers_address: u64,
    /// Number of program headers.
    pub headers_count: u64,
    /// Dynamic linker.
    pub interpreter: Option<PathBuf>,
    /// Largest alignment that a part asks for.
    pub align: u64,
    /// The program asks for an executable stack.
    pub executable_stack: bool,
    /// It is linked to its addresses, and runs nowhere else.
    pub is_fixed: bool,
}

impl Headers {
    /// Reads and checks the headers of `file`, whose first bytes are `head`.
    pub fn read(path: &Path, file: &File, head: &[u8], length: u64) -> Result<Self, LoadError> {
        let fail = |kind| LoadError::new(path, kind);
        let malformed = |what| LoadError::new(path, LoadErrorKind::Malformed(what));
        // The identification comes first, so that a 32-bit program is not called malformed.
        match head.get(4) {
            Some(&ELFCLASS32) => return Err(fail(LoadErrorKind::Class32)),
            Some(&ELFCLASS64) => {}
            _ => return Err(fail(LoadErrorKind::Truncated)),
        }
        let (header, _) = pod::from_bytes::<FileHeader64<LE>>(head)
            .map_err(|()| fail(LoadErrorKind::Truncated))?;
        let machine = header.e_machine.get(LE);
        if header.e_ident.data != ELFDATA2LSB || machine != EM_X86_64 {
            return Err(fail(LoadErrorKind::Machine(machine)));
        }
        let is_fixed = match header.e_type.get(LE) {
            ET_DYN => false,
            ET_EXEC => true,
            other => return Err(fail(LoadErrorKind::NotExecutable(other))),
        };
        let count = usize::from(header.e_phnum.get(LE));
        if count == 0 || count > HEADERS_MAX {
            return Err(malformed("number of program headers"));
        }
        if usize::from(header.e_phentsize.get(LE)) != size_of::<ProgramHeader64<LE>>() {
            return Err(malformed("size of a program header"));
        }
        let offset = header.e_phoff.get(LE);
        let bytes = count * size_of::<ProgramHeader64<LE>>();
        if offset.checked_add(bytes as u64).is_none_or(|end| end > length) {
            return Err(fail(LoadErrorKind::Truncated));
        }
        let mut table = vec![0; bytes];
        file.read_exact_at(&mut table, offset).map_err(|_| fail(LoadErrorKind::Truncated))?;
        let (table, _) = pod::slice_from_bytes::<ProgramHeader64<LE>>(&table, count)
            .map_err(|()| malformed("program headers"))?;

        let mut headers = Self {
            loads: Vec::new(),
            entry: header.e_entry.get(LE),
            headers_address: 0,
            headers_count: count as u64,
            interpreter: None,
            align: PAGE_SIZE,
            executable_stack: false,
            is_fixed,
        };
        let mut phdr = None;
        for entry in table {
            match entry.p_type.get(LE) {
                PT_LOAD => headers.add_load(entry, length).map_err(fail)?,
                PT_PHDR => phdr = Some(entry.p_vaddr.get(LE)),
                PT_GNU_STACK => headers.executable_stack = entry.p_flags.get(LE) & PF_X != 0,
                PT_INTERP if headers.interpreter.is_none() => {
                    headers.interpreter = Some(read_interpreter(file, entry).map_err(fail)?);
                }
                _ => {}
            }
        }
        let Some(first) = headers.loads.first() else {
            return Err(malformed("nothing to load"));
        };
        headers.headers_address = match phdr {
            Some(address) => address,
            None => (first.address + offset)
                .checked_sub(first.offset)
                .ok_or_else(|| malformed("program headers are not in the first segment"))?,
        };
        if headers.interpreter.is_none() && headers.entry == 0 {
            return Err(fail(LoadErrorKind::Library));
        }
        let entry = headers.entry;
        let runs = |l: &Load| l.address <= entry && entry < l.address + l.memory_size;
        if !headers.loads.iter().any(runs) {
            return Err(malformed("entry point outside of its segments"));
        }
        Ok(headers)
    }

    fn add_load(&mut self, entry: &ProgramHeader64<LE>, length: u64) -> Result<(), LoadErrorKind> {
        use LoadErrorKind::{Malformed, Truncated};
        let flags = entry.p_flags.get(LE);
        let prot = |flag, bit| if flags & flag != 0 { bit } else { 0 };
        let load = Load {
            address: entry.p_vaddr.get(LE),
            file_size: entry.p_filesz.get(LE),
            memory_size: entry.p_memsz.get(LE),
            offset: entry.p_offset.get(LE),
            protection: (prot(PF_R, libc::PROT_READ)
                | prot(PF_W, libc::PROT_WRITE)
                | prot(PF_X, libc::PROT_EXEC)) as u32,
        };
        if load.memory_size == 0 {
            return Ok(());
        }
        if load.file_size > load.memory_size {
            return Err(Malformed("a segment larger in the file than in memory"));
        }
        if load.offset.checked_add(load.file_size).is_none_or(|end| end > length) {
            return Err(Truncated);
        }
        if load.address % PAGE_SIZE != load.offset % PAGE_SIZE {
            return Err(Malformed("a segment's address and offset disagree"));
        }
        // One page below the end, so that rounding up cannot overflow.
        let end = load.address.checked_add(load.memory_size);
        if end.is_none_or(|end| end > (1 << 47)) {
            return Err(Malformed("a segment beyond the address space"));
        }
        let align = entry.p_align.get(LE);
        if align > 1 {
            if !align.is_power_of_two() {
                return Err(Malformed("a segment's alignment is not a power of two"));
            }
            self.align = self.align.max(align.min(1 << 30));
        }
        if let Some(last) = self.loads.last()
            && load.address < last.address + last.memory_size
        {
            return Err(Malformed("segments overlap or are not in order"));
        }
        self.loads.push(load);
        Ok(())
    }

    /// First address of the image, rounded to a page.
    pub fn start(&self) -> u64 {
        self.loads.first().map_or(0, |l| l.address & !(PAGE_SIZE - 1))
    }

    /// Bytes from the first page to the last.
    pub fn span(&self) -> u64 {
        let end = self.loads.last().map_or(0, |l| l.address + l.memory_size);
        end.next_multiple_of(PAGE_SIZE) - self.start()
    }
}

fn read_interpreter(file: &File, entry: &ProgramHeader64<LE>) -> Result<PathBuf, LoadErrorKind> {
    let size = entry.p_filesz.get(LE);
    if !(2..=4096).contains(&size) {
        return Err(LoadErrorKind::Malformed("length of the interpreter's name"));
    }
    let mut name = vec![0; size as usize];
    file.read_exact_at(&mut name, entry.p_offset.get(LE)).map_err(|_| LoadErrorKind::Truncated)?;
    match name.iter().position(|&b| b == 0) {
        Some(end) if end > 0 => Ok(PathBuf::from(OsStr::from_bytes(&name[..end]))),
        _ => Err(LoadErrorKind::Malformed("interpreter's name")),
    }
}
