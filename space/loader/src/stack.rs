//! The initial stack of a program: argument and environment strings, their pointers, and
//! the auxiliary vector (System V ABI, AMD64 supplement, §3.4.1).

use std::ffi::CString;

use nagaya_gate::abi::AT_NAGAYA_TASK;
use rustix::io::Errno;

/// Entries that depend on the program.
#[derive(Debug)]
pub struct Auxiliary {
    /// Address of the program headers.
    pub headers: u64,
    /// Their number.
    pub headers_count: u64,
    /// Load bias of the dynamic linker, or 0.
    pub linker_base: u64,
    /// Entry point of the program itself.
    pub entry: u64,
    /// Control block, if it is a task of a space.
    pub task: Option<u64>,
    /// Its vDSO, if it has one.
    pub vdso: Option<u64>,
}

/// All that goes onto the stack.
#[derive(Debug)]
pub struct Contents<'a> {
    /// `argv`.
    pub arguments: &'a [CString],
    /// `environ`.
    pub environment: &'a [CString],
    /// AT_EXECFN.
    pub name: &'a CString,
    /// Program-dependent entries.
    pub auxiliary: Auxiliary,
}

/// Entries that are the same in every process of this mm's owner.
const INHERITED: &[u64] = &[
    libc::AT_HWCAP,
    libc::AT_HWCAP2,
    libc::AT_CLKTCK,
    libc::AT_MINSIGSTKSZ,
    27, // AT_RSEQ_FEATURE_SIZE, Linux 6.3
    28, // AT_RSEQ_ALIGN
];

/// Returns an entry of this process's auxiliary vector.
pub fn own(kind: u64) -> Option<u64> {
    // SAFETY: getauxval reads a table; 0 means that there is no such entry.
    let value = unsafe { libc::getauxval(kind) };
    (value != 0).then_some(value)
}

impl Contents<'_> {
    /// The bytes that end at `top` (16-byte aligned); the stack pointer is `top` minus
    /// their number. Error: getrandom's.
    pub fn build(&self, top: u64) -> Result<Vec<u8>, Errno> {
        let mut random = [0u8; 16];
        rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;

        // Strings, from the top down in the end: arguments, environment, name.
        let mut strings = Vec::new();
        let mut place = |bytes: &[u8]| {
            let at = strings.len() as u64;
            strings.extend_from_slice(bytes);
            at
        };
        let arguments: Vec<u64> =
            self.arguments.iter().map(|s| place(s.as_bytes_with_nul())).collect();
        let environment: Vec<u64> =
            self.environment.iter().map(|s| place(s.as_bytes_with_nul())).collect();
        let name = place(self.name.as_bytes_with_nul());
        let platform = place(b"x86_64\0");
        let random = place(&random);
        strings.resize(strings.len().next_multiple_of(16), 0);
        let strings_at = top - strings.len() as u64;

        let a = &self.auxiliary;
        let mut auxiliary = vec![
            (libc::AT_PHDR, a.headers),
            (libc::AT_PHENT, 56),
            (libc::AT_PHNUM, a.headers_count),
            (libc::AT_BASE, a.linker_base),
            (libc::AT_ENTRY, a.entry),
            (libc::AT_PAGESZ, nagaya_layout::PAGE_SIZE),
            (libc::AT_FLAGS, 0),
            (libc::AT_UID, u64::from(rustix::process::getuid().as_raw())),
            (libc::AT_EUID, u64::from(rustix::process::geteuid().as_raw())),
            (libc::AT_GID, u64::from(rustix::process::getgid().as_raw())),
            (libc::AT_EGID, u64::from(rustix::process::getegid().as_raw())),
            (libc::AT_SECURE, 0),
            (libc::AT_RANDOM, strings_at + random),
            (libc::AT_EXECFN, strings_at + name),
            (libc::AT_PLATFORM, strings_at + platform),
        ];
        auxiliary.extend(a.task.map(|task| (AT_NAGAYA_TASK, task)));
        auxiliary.extend(a.vdso.map(|vdso| (libc::AT_SYSINFO_EHDR, vdso)));
        for &kind in INHERITED {
            if let Some(value) = own(kind) {
                auxiliary.push((kind, value));
            }
        }
        auxiliary.push((libc::AT_NULL, 0));

        let mut words = vec![arguments.len() as u64];
        words.extend(arguments.iter().map(|at| strings_at + at));
        words.push(0);
        words.extend(environment.iter().map(|at| strings_at + at));
        words.push(0);
        words.extend(auxiliary.iter().flat_map(|&(kind, value)| [kind, value]));
        // The stack pointer is a multiple of 16: pad between the words and the strings.
        if words.len() % 2 == 1 {
            words.push(0);
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(&strings);
        Ok(bytes)
    }
}
