//! Gives libfcp its soname and only its own symbols, and keeps it loaded: what it registers
//! for forks must not lose its code.

fn main() {
    for argument in ["-soname,libfcp.so.0", "--exclude-libs,ALL", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
