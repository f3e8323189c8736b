//! Each chapter of the specification except collective operations, with 1 to 8 PEs; the
//! type-generic interface of C11 and of C++; the profiling interface; programs at fixed addresses.

use nagaya_tests::{Cmd, program, tool};

use crate::{compiled, oshrun};

/// Runs a case of `chapters.c` with several numbers of PEs.
#[track_caller]
fn holds(case: &str) {
    let program = compiled("chapters.c", &[]);
    for n in [1, 2, 3, 8] {
        oshrun(n, &program).arg(case).run().ok();
    }
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            holds(stringify!($name));
        })*
    };
}
cases!(
    setup, memory, moves, sizes, statics, signals, atomics, waits, locks, contexts, threads,
    deprecated, unfinished,
);

#[test]
fn static_data_of_programs_at_fixed_addresses() {
    let program = compiled("chapters.c", &["-no-pie", "-fno-pie"]);
    for case in ["statics", "moves", "signals", "locks"] {
        oshrun(3, &program).arg(case).run().ok();
    }
}

#[test]
fn type_generic_macros_of_c11() {
    for standard in ["-std=c11", "-std=gnu17"] {
        let program = compiled("generic.c", &[standard, "-D_GNU_SOURCE"]);
        oshrun(3, &program).run().prints("all types\n");
    }
}

#[test]
fn overloads_of_cplusplus() {
    for standard in ["-std=c++11", "-std=c++20"] {
        let program = compiled("generic.cc", &[standard]);
        oshrun(3, &program).run().prints("all types\n");
    }
}

#[test]
fn a_profiling_library_sees_the_calls_of_the_program_only() {
    let library = compiled("profile.c", &["-shared", "-fPIC"]);
    let program = compiled("profiled.c", &[]);
    let output = oshrun(2, &program).env("LD_PRELOAD", library).run().ok();
    let mut lines: Vec<&str> = output.lines().filter(|line| line.starts_with("PE ")).collect();
    lines.sort_unstable();
    let counts = "1 init, 2 put, 1 barrier";
    assert_eq!(lines, [format!("PE 0: {counts}"), format!("PE 1: {counts}")], "{output}");
}

#[test]
fn headers_are_valid_before_c11_and_in_every_cplusplus() {
    let includes = "#include <shmem.h>\n#include <pshmem.h>\n#include <shmemx.h>\n\
                    #include <mpp/shmem.h>\nint main(void) { return shmem_n_pes(); }\n";
    let check = |compiler: &str, language: &str, standard: &str| {
        let include = format!("-I{}", program::include_dir().display());
        Cmd::new(tool(compiler))
            .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-x", language])
            .args([standard, &include, "-"])
            .stdin(includes)
            .run()
            .ok();
    };
    for standard in ["-std=c99", "-std=c11", "-std=gnu17", "-std=c2x"] {
        check("gcc", "c", standard);
    }
    for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
        check("g++", "c++", standard);
    }
}
