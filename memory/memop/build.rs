//! Gives libmemop its soname.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmemop.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
