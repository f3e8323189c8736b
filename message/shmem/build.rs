//! Gives the library its soname and only its own symbols, and keeps it loaded: peers know the
//! addresses of its control block. Its functions call each other, not those of the same name that
//! stand before it.

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
}
