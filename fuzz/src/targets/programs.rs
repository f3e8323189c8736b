//! Program files: ELF headers at the loader and at span, text that a node reads from its own
//! files, and machine code and seccomp filters at the gate.

use std::ffi::CString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use nagaya_layout::PAGE_SIZE;
use nagaya_loader::elf::Headers;
use nagaya_loader::{LoadError, Program};
use rustix::fs::{MemfdFlags, memfd_create};
use span::fuzz::TextCache;

use crate::gate::{bpf, text};
use crate::input::{Input, Output};
use crate::target::{Seeds, Target, is_one_line, numbered};

/// Bytes of a file's head that the loader reads first.
const HEAD_BYTES: usize = 256;

/// Returns a file with this content, and a path to it.
fn file(bytes: &[u8]) -> (PathBuf, File) {
    let file = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd");
    let mut file = File::from(file);
    file.write_all(bytes).expect("room");
    (PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())), file)
}

pub const ELF: Target = Target {
    name: "elf",
    reads: "program files: #! lines and ELF headers, at the loader and at span",
    run: elf,
    seeds: elf_seeds,
};

/// Checks the invariants of accepted headers.
fn check(headers: &Headers, length: u64) {
    assert!(!headers.loads.is_empty());
    assert!(headers.align.is_power_of_two() && headers.align >= PAGE_SIZE);
    let mut end = 0;
    for load in &headers.loads {
        assert!(load.address >= end && load.memory_size > 0, "{headers:x?}");
        assert!(load.file_size <= load.memory_size);
        assert!(load.offset.checked_add(load.file_size).is_some_and(|end| end <= length));
        assert_eq!(load.offset % PAGE_SIZE, load.address % PAGE_SIZE);
        end = load.address + load.memory_size;
        assert!(end <= 1 << 47);
    }
    assert!((end..end + PAGE_SIZE).contains(&(headers.start() + headers.span())));
}

fn refused(error: &LoadError) {
    is_one_line(&error.to_string().replace('\n', " "));
    assert!(error.errno().raw_os_error() > 0);
}

fn elf(bytes: &[u8]) {
    let (path, file) = file(bytes);
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    if let Ok(headers) = Headers::read(&path, &file, head, bytes.len() as u64) {
        check(&headers, bytes.len() as u64);
    }
    let arguments = vec![CString::new("program").expect("no zero")];
    match Program::open_fixed(&path, arguments) {
        Ok(program) => {
            check(&program.executable.headers, u64::MAX);
            let seed = bytes.last_chunk().map_or(0, |last| u64::from_le_bytes(*last));
            if let Err(line) = span::fuzz::load(&program, seed) {
                is_one_line(&line.replace('\n', " "));
            }
        }
        Err(error) => refused(&error),
    }
}

/// A small program: the file header, and program headers of type, flags, offset, address, sizes and
/// alignment. Its code follows them.
fn program(kind: u16, entry: u64, headers: &[[u64; 7]]) -> Vec<u8> {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    bytes.resize(16, 0);
    bytes.extend(kind.to_le_bytes());
    bytes.extend(62u16.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend([entry, 64, 0].map(u64::to_le_bytes).concat());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend([64, 56, headers.len() as u16, 0, 0, 0].map(u16::to_le_bytes).concat());
    for &[kind, flags, offset, address, file_size, memory_size, align] in headers {
        bytes.extend([kind as u32, flags as u32].map(u32::to_le_bytes).concat());
        let words = [offset, address, address, file_size, memory_size, align];
        bytes.extend(words.map(u64::to_le_bytes).concat());
    }
    bytes
}

fn elf_seeds() -> Seeds {
    let text = [1, 5, 0, 0, 256, 256, 4096];
    let data = [1, 6, 256, 0x2100, 100, 5000, 4096];
    let mut pie = program(3, 0x80, &[text, data, [0x6474_e551, 7, 0, 0, 0, 0, 16]]);
    pie.resize(400, 0x90);
    let mut fixed = program(2, 0x40_0080, &[[1, 5, 0, 0x40_0000, 200, 200, 4096]]);
    fixed.resize(300, 0);
    let linker = b"/lib64/ld-linux-x86-64.so.2\0";
    let name = [3, 4, 0x130, 0x130, linker.len() as u64, linker.len() as u64, 1];
    let mut dynamic = program(3, 0, &[name, [6, 4, 64, 64, 168, 168, 8], text]);
    dynamic.resize(0x130, 0);
    dynamic.extend_from_slice(linker);
    dynamic.resize(600, 0);
    let script = b"#! /bin/true -x y\n".to_vec();
    numbered([pie, fixed, dynamic, script])
}

pub const SPAN_TEXT: Target = Target {
    name: "span_text",
    reads: "text that span's origin announces, and the build-id of a node's own file",
    run: span_text,
    seeds: span_text_seeds,
};

fn span_text(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut script = Input(input.bytes());
    let (path, file) = file(input.rest());
    let mut cache = TextCache::default();
    while !script.is_empty() {
        let what = script.byte();
        let first = script.any();
        let Some(end) = first.checked_add(script.byte().into()) else { continue };
        // The agent refuses pages beyond the segment's.
        if end > 1 << 35 {
            continue;
        }
        match what % 4 {
            0 | 1 => {
                let offset = script.any();
                // Offsets of pages, and any other.
                let offset = if what & 8 == 0 { offset.wrapping_mul(PAGE_SIZE) } else { offset };
                cache.announce((&path, &file), first..end, offset, script.any());
            }
            2 => cache.read(first),
            _ => cache.remove(first..end),
        }
    }
}

fn span_text_seeds() -> Seeds {
    let note = [4u32.to_le_bytes(), 20u32.to_le_bytes(), 3u32.to_le_bytes(), *b"GNU\0"].concat();
    let mut own = program(3, 0, &[[4, 4, 0x78, 0x78, 36, 36, 4]]);
    own.extend([&note[..], &[9; 20]].concat());
    own.resize(3 * 4096, 1);
    let script = |script: Output| Output::default().bytes(&script.0).raw(&own[..600]).0;
    let reads = Output::default().raw(&[0]).any(10).raw(&[3]).any(0).any(9000);
    let reads = reads.raw(&[2]).any(10).raw(&[0, 3]).any(11).raw(&[1, 2]).any(12).raw(&[0]);
    let far = Output::default().raw(&[8]).any(7).raw(&[4]).any(i64::MAX as u64).any(5000);
    let far = far.raw(&[2]).any(9).raw(&[0]);
    numbered([script(reads), script(far)])
}

pub const GATE_DECODER: Target = Target {
    name: "gate_decoder",
    reads: "machine code: the gate's instruction decoder beside iced-x86",
    run: |bytes| {
        for at in 0..bytes.len() {
            if let Some(defect) = text::defect(&bytes[at..]) {
                panic!("{defect}");
            }
        }
    },
    seeds: || {
        let codes: [&[u8]; 6] = [
            b"\x48\x89\xe5\x48\x83\xec\x08\x55\x41\x57",
            b"\xbf\x01\0\0\0\x41\xb8\x02\0\0\0\x49\xbf\x01\x02\x03\x04\x05\x06\x07\x08",
            b"\x48\x8b\x0d\x10\x20\0\0\x48\x8d\x35\xff\xff\xff\x7f",
            b"\x66\x0f\x6f\x44\x24\x20\x0f\x29\x45\xf0\x0f\xb6\xd2\x48\x63\xf6",
            b"\xc7\x44\x24\x08\x01\0\0\0\x81\xe2\xff\x0f\0\0\x83\xfe\x05\x66\x90",
            b"\x41\x5f\x5d\x31\xd2\x85\xc0\x84\xc9\x0f\x1f\x44\0\0",
        ];
        numbered(codes.map(<[u8]>::to_vec))
    },
};

pub const GATE_SITES: Target = Target {
    name: "gate_sites",
    reads: "machine code with system calls: the sites and stubs of the gate beside iced-x86",
    run: |bytes| {
        if let Err(defect) = text::check_sites(bytes) {
            panic!("{defect}");
        }
    },
    seeds: || {
        let codes: [&[u8]; 5] = [
            b"\xb8\x09\0\0\0\x0f\x05\xc3",
            b"\x4c\x8b\x4c\x24\x08\x0f\x05\xc3",
            b"\xb8\x0b\0\0\0\x48\x8b\x3d\x10\0\0\0\x31\xd2\x0f\x05",
            b"\x48\xc7\xc0\x0c\0\0\0\x49\x89\xca\x0f\x05\xc3\xb8\x01\0\0\0\x0f\x05",
            b"\x31\xc0\x48\x89\xfe\x41\x50\xbf\0\0\0\0\x0f\x05",
        ];
        numbered(codes.map(<[u8]>::to_vec))
    },
};

pub const GATE_FILTER: Target = Target {
    name: "gate_filter",
    reads: "seccomp filters: the gate's evaluation beside the kernel's rules",
    run: gate_filter,
    seeds: gate_filter_seeds,
};

fn gate_filter(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut call = [0; 16];
    let fields = input.byte();
    call.iter_mut().take(usize::from(fields % 17)).for_each(|word| *word = input.any() as u32);
    let mut program = Vec::new();
    while !input.is_empty() && program.len() < 4096 {
        let code = input.number(2) as u16;
        let (if_true, if_false, k) = (input.byte(), input.byte(), input.number(4) as u32);
        program.push(bpf::Instruction { code, if_true, if_false, k });
    }
    let value = bpf::evaluate(&program, &call);
    if bpf::is_valid(&program) {
        assert_eq!(value, bpf::reference(&program, &call), "{program:x?} of {call:x?}");
    }
}

fn gate_filter_seeds() -> Seeds {
    let start = || Output::default().raw(&[2]).any(9).any(0xc000_003e);
    let code = |script: Output, (code, if_true, if_false, k): (u16, u8, u8, u32)| {
        script.raw(&code.to_le_bytes()).raw(&[if_true, if_false]).raw(&k.to_le_bytes())
    };
    let programs: [&[(u16, u8, u8, u32)]; 4] = [
        &[(0x20, 0, 0, 0), (0x15, 0, 1, 9), (0x06, 0, 0, 0x7fff_0000), (0x06, 0, 0, 0)],
        &[(0x00, 0, 0, 7), (0x02, 0, 0, 3), (0x61, 0, 0, 3), (0x3c, 0, 0, 0), (0x16, 0, 0, 0)],
        &[
            (0x20, 0, 0, 16),
            (0x54, 0, 0, 0xff),
            (0x35, 1, 0, 4),
            (0x05, 0, 0, 1),
            (0x74, 0, 0, 3),
            (0x07, 0, 0, 0),
            (0x87, 0, 0, 0),
            (0x84, 0, 0, 0),
            (0x16, 0, 0, 0),
        ],
        &[(0x81, 0, 0, 0), (0x1c, 0, 0, 0), (0x45, 0, 1, 1), (0xac, 0, 0, 0), (0x16, 0, 0, 0)],
    ];
    numbered(programs.map(|program| program.iter().fold(start(), |to, &it| code(to, it)).0))
}
