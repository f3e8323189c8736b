//! Builds the vDSO of programs (`vdso/`): one ELF image, which is a part of this library.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    for file in ["vdso/vdso.S", "vdso/vdso.ld", "build.rs"] {
        println!("cargo:rerun-if-changed={file}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let objects = cc::Build::new().file("vdso/vdso.S").debug(false).compile_intermediates();
    let mut link = Command::new("ld");
    link.args(["-shared", "-soname", "linux-vdso.so.1", "--hash-style=both", "--eh-frame-hdr"]);
    link.args(["--build-id=none", "--strip-all", "-z", "noexecstack", "-T", "vdso/vdso.ld", "-o"]);
    link.arg(out.join("vdso.so")).args(objects);
    let linked = link.status().is_ok_and(|status| status.success());
    assert!(linked, "ld could not link the vDSO (binutils missing?)");
}
