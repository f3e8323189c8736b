//! Gives the library its soname and only its own symbols, and keeps it loaded: peers know the
//! addresses of its control block. Its functions call each other, not those of the same name that
//! stand before it. Lays out links to the library, the headers and the commands, as an installation
//! has them.

use std::io::Result;
use std::os::unix::fs::symlink;
use std::path::Path;

fn main() {
    for argument in [
        "-soname,libnagaya-shmem.so.0",
        "--exclude-libs,ALL",
        "-z,nodelete",
        "-Bsymbolic-functions",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    // PROFILE/build/CRATE/out
    let Some(profile) = Path::new(&out).ancestors().nth(3) else { return };
    // For runs out of the build tree only, so a failure is a warning.
    if let Err(error) = make_links(&profile.join("shmem")) {
        println!("cargo:warning={}: {error}", profile.join("shmem").display());
    }
}

/// Makes `shmem/{lib,bin,include}` beside the built library.
fn make_links(directory: &Path) -> Result<()> {
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include").canonicalize()?;
    let link = |target: &Path, name: &str| {
        let link = directory.join(name);
        let _ = std::fs::remove_file(&link);
        symlink(target, link)
    };
    for part in ["lib", "bin", "include"] {
        std::fs::create_dir_all(directory.join(part))?;
    }
    for name in ["libnagaya-shmem.so", "libnagaya-shmem.so.0"] {
        link(Path::new("../../libnagaya_shmem.so"), &format!("lib/{name}"))?;
    }
    for name in ["oshcc", "oshc++", "oshrun"] {
        link(Path::new("../../nagaya"), &format!("bin/{name}"))?;
    }
    for name in ["shmem.h", "shmemx.h", "pshmem.h", "mpp"]
        .iter()
        .chain(&["nagaya_shmem_generic.h", "nagaya_shmem_overloads.h"])
    {
        link(&headers.join(name), &format!("include/{name}"))?;
    }
    Ok(())
}
