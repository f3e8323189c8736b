//! Compiles the functions with a variable number of arguments. Gives libjia its soname and exports
//! only its own symbols. The library is never unloaded, since its thread runs its code.

fn main() {
    cc::Build::new().file("src/c/error.c").warnings_into_errors(true).compile("jia_error");
    for argument in ["-soname,libjia.so.0", "--exclude-libs,ALL", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/c/error.c");
}
