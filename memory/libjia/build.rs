//! Compiles what has a variable number of arguments, gives libjia its soname and only its own
//! symbols, and keeps it loaded: its thread must not lose its code.

fn main() {
    cc::Build::new().file("src/c/error.c").warnings_into_errors(true).compile("jia_error");
    for argument in ["-soname,libjia.so.0", "--exclude-libs,ALL", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/c/error.c");
}
