//! The gate's decoder and its sites, beside iced-x86, on the machine code of real programs and on
//! random bytes.

use std::path::Path;

use fuzz::text::{check_sites, defect};

const PROGRAMS: &[&str] = &[
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/usr/bin/python3",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/bin/bash",
];
/// Bytes of code of each program that are decoded.
const BYTES_MAX: usize = 2 << 20;
/// Bytes around a system call that are given to the search for sites.
const AROUND: usize = 128;

/// Returns the executable part of a file.
fn code(path: &str) -> Vec<u8> {
    let bytes = std::fs::read(path).expect("read");
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let (headers, count) = (word(32) as usize, (word(56) & 0xffff) as usize);
    let headers = (0..count).map(|number| headers + number * 56);
    // PT_LOAD with PF_X.
    let executable = headers.filter(|&at| word(at) as u32 == 1 && word(at) >> 32 & 1 != 0);
    let part = |at: usize| {
        let (offset, length) = (word(at + 8) as usize, word(at + 32) as usize);
        bytes[offset..offset + length].to_vec()
    };
    executable.flat_map(part).take(BYTES_MAX).collect()
}

/// Returns the defects that the decoder has in these bytes, each once, by its description.
fn defects(code: &[u8]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for at in 0..code.len().saturating_sub(16) {
        if let Some(defect) = defect(&code[at..at + 16]) {
            let kind = |text: &str| text[text.find('(').unwrap_or(0)..].to_owned();
            if !found.iter().any(|other| kind(other) == kind(&defect)) {
                found.push(defect);
            }
        }
    }
    found
}

#[test]
fn real_code_is_decoded_as_iced_decodes_it_from_every_byte_on() {
    for path in PROGRAMS {
        if !Path::new(path).exists() {
            skip::machine_lacks(path);
            continue;
        }
        let code = code(path);
        assert!(code.len() > 10_000, "{path}");
        let found = defects(&code);
        assert!(found.is_empty(), "{path}: {found:#?}");
    }
}

#[test]
fn sites_of_real_code_are_sound() {
    let mut sites = 0;
    for path in PROGRAMS {
        if !Path::new(path).exists() {
            skip::machine_lacks(path);
            continue;
        }
        let code = code(path);
        let calls = code.windows(2).enumerate().filter(|(_, pair)| pair == &[0x0f, 0x05]);
        for (at, _) in calls {
            let end = code.len().min(at + AROUND);
            let text = &code[at.saturating_sub(AROUND)..end];
            sites += check_sites(text).unwrap_or_else(|why| panic!("{path}: {why}"));
        }
    }
    assert!(sites > 400, "{sites} sites");
}

#[test]
fn random_code_is_decoded_as_iced_decodes_it() {
    let seed = std::env::var("NAGAYA_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("NAGAYA_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let code: Vec<u8> = (0..1 << 20).map(|_| random.u8(..)).collect();
    let found = defects(&code);
    assert!(found.is_empty(), "NAGAYA_SEED={seed}: {found:#?}");
}
