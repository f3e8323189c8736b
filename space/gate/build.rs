//! Builds the gate: C and assembly to one flat image without relocations (`gate.ld`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: &[&str] = &[
    "c/entry.S",
    "c/dispatch.c",
    "c/memory.c",
    "c/shared.c",
    "c/returns.c",
    "c/outside.c",
    "c/filter.c",
    "c/rights.c",
    "c/stack.c",
    "c/lock.c",
    "c/maps.c",
    "c/machines.c",
    "c/private.c",
    "c/region.c",
    "c/copy.c",
    "c/loops.S",
    "c/mask.c",
    "c/probe.c",
    "c/far.c",
    "c/protect.c",
    "c/fault.c",
    "c/family.c",
    "c/exe.c",
    "c/patch.c",
    "c/sites.c",
];

fn main() {
    for file in SOURCES.iter().chain(&["c/abi.h", "c/gate.h", "c/sites.h", "gate.ld", "build.rs"]) {
        println!("cargo:rerun-if-changed={file}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // No SSE, no thread area, no libc: a site may have live vector registers, and the
    // gate runs before the task's libc exists. No jump tables: they would need
    // relocations.
    let objects = cc::Build::new()
        .files(SOURCES)
        .opt_level(2)
        .debug(false)
        .pic(true)
        .flag("-std=gnu11")
        .flag("-ffreestanding")
        .flag("-fvisibility=hidden")
        .flag("-mgeneral-regs-only")
        .flag("-fno-stack-protector")
        .flag("-fcf-protection=none")
        .flag("-fno-asynchronous-unwind-tables")
        .flag("-fno-jump-tables")
        .flag("-fno-tree-loop-distribute-patterns")
        // Nor the runtime of a sanitizer or of coverage, which the rest of a fuzz target has.
        .inherit_rustflags(false)
        .flag("-fno-sanitize=all")
        .warnings(true)
        .warnings_into_errors(true)
        .compile_intermediates();
    let elf = out.join("gate.elf");
    let mut link = Command::new("ld");
    link.args(["-static", "-z", "noexecstack", "--no-warn-rwx-segments", "-T", "gate.ld", "-o"]);
    link.arg(&elf).args(objects);
    if !run(&mut link) {
        // Older binutils do not know the last flag, nor warn.
        let objects: Vec<_> = link.get_args().skip(8).map(PathBuf::from).collect();
        let mut link = Command::new("ld");
        link.args(["-static", "-z", "noexecstack", "-T", "gate.ld", "-o"]).arg(&elf).args(objects);
        assert!(run(&mut link), "ld could not link the gate (binutils missing?)");
    }
    let image = out.join("gate.bin");
    assert!(
        run(Command::new("objcopy").args(["-O", "binary"]).arg(&elf).arg(&image)),
        "objcopy could not write the gate's image (binutils missing?)"
    );
    check_registers(&elf);
    build_sites();
}

/// Builds `sites.c` for this library as well (`src/sites.rs`).
fn build_sites() {
    cc::Build::new()
        .file("c/sites.c")
        .opt_level(2)
        .flag("-std=gnu11")
        .inherit_rustflags(false)
        .warnings(true)
        .warnings_into_errors(true)
        .compile("nagaya_sites");
}

fn run(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

/// The contract of `entry.S`, checked on the code itself.
fn check_registers(elf: &Path) {
    let Ok(listing) = Command::new("objdump").arg("-d").arg(elf).output() else { return };
    let listing = String::from_utf8_lossy(&listing.stdout);
    let mut symbol = "";
    for line in listing.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|l| l.split('<').nth(1)) {
            symbol = name;
        }
        // The vector loops restore the registers that they use. The rest of this section is data.
        if ["copy_vector", "vector_", "copy_stream", "stream_", "copy_faults"]
            .iter()
            .any(|s| symbol.starts_with(s))
        {
            continue;
        }
        for forbidden in ["%xmm", "%ymm", "%zmm", "%mm", "%fs:", "%gs:"] {
            assert!(!line.contains(forbidden), "the gate uses {forbidden} in {symbol}");
        }
    }
}
