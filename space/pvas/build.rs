//! Gives libpvas its soname, and the entry at which it starts as a program
//! (`src/keeper_program.rs`).

fn main() {
    // Not rustc-cdylib-link-arg, which cargo would pass on to libraries that use this crate.
    println!("cargo:rustc-link-arg=-Wl,-soname,libpvas.so.0");
    // An entry is only for the library, not for programs with this crate.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-e,pvas_keeper_start");
    println!("cargo:rerun-if-changed=build.rs");
}
