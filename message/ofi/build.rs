//! Sets the soname of the library, and exports only the symbol that libfabric calls. Keeps the
//! library loaded for ever, because other tasks know addresses of its ports.

fn main() {
    for argument in ["-soname,libnagaya-fi.so", "--exclude-libs,ALL", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
