//! All fuzz targets in one binary, since linking takes longer than compiling it. The variable
//! NAGAYA_FUZZ_TARGET names the target.

#![no_main]

use std::sync::LazyLock;

use fuzz::target::Target;
use fuzz::targets::named;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("NAGAYA_FUZZ_TARGET").unwrap_or_default();
    named(&name).unwrap_or_else(|| {
        eprintln!("NAGAYA_FUZZ_TARGET={name} names no target; nagaya-fuzz list prints all");
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| (TARGET.run)(input));
