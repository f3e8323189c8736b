//! Gives libpvas its soname.

fn main() {
    // Not rustc-cdylib-link-arg, which cargo would pass on to libraries that use this crate.
    println!("cargo:rustc-link-arg=-Wl,-soname,libpvas.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
