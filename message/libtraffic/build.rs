//! Gives the library its soname and only its own symbols, and keeps it loaded. Its functions call
//! each other, not those of the same name that stand before it; its symbol table is apart from its
//! code, since it is written at load.

fn main() {
    for argument in [
        "-soname,libnagaya-traffic.so",
        "--exclude-libs,ALL",
        "-z,nodelete",
        "-z,separate-code",
        "-Bsymbolic-functions",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
