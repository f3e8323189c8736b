//! Gives the library its soname and only its own symbols (not those of libpvas, whose code is in
//! it), and keeps it loaded: others know where its seats are.

fn main() {
    for argument in ["-soname,libnagaya-coll.so", "--exclude-libs,ALL", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
