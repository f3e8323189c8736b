//! Gives the provider its soname and only libfabric's one symbol (not those of libpvas, whose
//! code is in it), and keeps it loaded: others know where its endpoints are.

fn main() {
    for argument in ["-soname,libnagaya-fi.so", "--exclude-libs,ALL", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
