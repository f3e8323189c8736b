//! Compiles what has a variable number of arguments, gives the library the soname of the one
//! that it stands for, and keeps it loaded: its thread and what it registers for forks must
//! not lose their code.

fn main() {
    cc::Build::new().file("src/c/shim.c").warnings_into_errors(true).compile("pvm_shim");
    // Not rustc-link-arg, which programs that use this crate would get, too.
    for argument in ["-soname,libpvm3.so.3", "--exclude-libs,ALL", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/c/shim.c");
}
