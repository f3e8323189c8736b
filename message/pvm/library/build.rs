//! Compiles what has a variable number of arguments, gives the library the soname of the one
//! that it stands for, and keeps it loaded: its thread and what it registers for forks must
//! not lose their code. Lays out links to this library and `libgpvm3` under the names that
//! programs load, as an installation has them.

use std::os::unix::fs::symlink;
use std::path::Path;

fn main() {
    cc::Build::new().file("src/c/shim.c").warnings_into_errors(true).compile("pvm_shim");
    // Not rustc-link-arg, which programs that use this crate would get, too.
    for argument in ["-soname,libpvm3.so.3", "--exclude-libs,ALL", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    make_links();
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/c/shim.c");
}

/// Makes `pvm/lib` beside the built libraries. It is for runs out of the build tree only, so a
/// failure is a warning.
fn make_links() {
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    // PROFILE/build/CRATE/out
    let Some(profile) = Path::new(&out).ancestors().nth(3) else { return };
    let directory = profile.join("pvm/lib");
    let made = std::fs::create_dir_all(&directory).and_then(|()| {
        for name in ["libpvm3.so", "libgpvm3.so"] {
            for link in [name.to_string(), format!("{name}.3")] {
                let link = directory.join(link);
                let _ = std::fs::remove_file(&link);
                symlink(Path::new("../..").join(name), link)?;
            }
        }
        Ok(())
    });
    if let Err(error) = made {
        println!("cargo:warning={}: {error}", directory.display());
    }
}
