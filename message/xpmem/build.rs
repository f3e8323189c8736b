//! Gives libxpmem the soname of the library that it stands for and only that library's
//! symbols (not those of libpvas, whose code is in it), and keeps it loaded: the segments
//! that a task has made must not vanish with a plug-in that made them.

fn main() {
    for argument in ["-soname,libxpmem.so.0", "--exclude-libs,ALL", "-z,nodelete"] {
        println!("cargo:rustc-link-arg=-Wl,{argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
