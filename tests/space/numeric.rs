//! Number crunchers as tasks: OpenMP in C++ with exceptions and plug-ins, Fortran with COMMON
//! blocks.

use nagaya_tests::program::build;
use nagaya_tests::{same_as_plain, tasks};

#[test]
fn openmp_threads_throw_exceptions_and_open_plugins() {
    let program = build("g++", "openmp.cc", &["-fopenmp", "-ldl"]);
    let plugin = build("g++", "plugin.cc", &["-shared", "-fPIC"]);
    let (program, plugin) = (program.to_str().expect("UTF-8"), plugin.to_str().expect("UTF-8"));
    let text = same_as_plain(&[program, plugin]).ok();
    assert_eq!(text, "carried 3\n100000 right\n");
}

#[test]
fn openmp_programs_run_side_by_side() {
    let program = build("g++", "openmp.cc", &["-fopenmp", "-ldl"]);
    let plugin = build("g++", "plugin.cc", &["-shared", "-fPIC"]);
    tasks(3, program).arg(plugin).run().prints(&"carried 3\n100000 right\n".repeat(3));
}

#[test]
fn fortran_common_blocks_belong_to_their_task() {
    let program = build("gfortran", "common.f90", &[]);
    let text = same_as_plain(&[program.to_str().expect("UTF-8")]).ok();
    let once = text.clone();
    tasks(4, program).run().prints(&once.repeat(4));
    assert!(text.starts_with("    42    0.333333 formatted\n"), "{text}");
}

#[test]
fn fortran_with_openmp_works() {
    let program = build("gfortran", "common.f90", &["-fopenmp"]);
    same_as_plain(&[program.to_str().expect("UTF-8")]).ends_with(0);
}
