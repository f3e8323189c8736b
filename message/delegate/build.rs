//! Gives libpvas_delegate its soname and only its own symbols (not those of libpvas, whose
//! code is in it), and keeps it loaded: others know where its queue is.

fn main() {
    for argument in ["-soname,libpvas_delegate.so.0", "--exclude-libs,ALL", "-z,nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
