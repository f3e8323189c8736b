//! Gives libpvas its soname.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpvas.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
