//! Compiles those files of the gate that read foreign bytes, for this host.

fn main() {
    for file in ["c/patch.c", "c/filter.c", "../space/gate/c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    // Without the flags of Rust's sanitizers and coverage, whose runtime may be another's.
    cc::Build::new()
        .files(["c/patch.c", "c/filter.c"])
        .inherit_rustflags(false)
        .flag("-std=gnu11")
        .flag("-fvisibility=hidden")
        .opt_level(1)
        .warnings(true)
        .extra_warnings(true)
        .compile("nagaya_fuzz_gate");
}
