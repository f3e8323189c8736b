//! Gives the library the soname of the one that it stands for.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgpvm3.so.3");
    println!("cargo:rerun-if-changed=build.rs");
}
