//! A task finds its own executable: `$ORIGIN`, `/proc/self/exe`, its name.

use std::fs;

use nagaya_tests::{Cmd, WorkDir, program, same_as_plain, task, tasks};

/// A directory with `origin` and, below it, its library.
fn origin() -> WorkDir {
    let dir = WorkDir::new();
    let library = program::build("gcc", "liborigin.c", &["-shared", "-fPIC"]);
    let built = dir.join("liborigin.so");
    fs::copy(&library, &built).expect("copy the library");
    let linked = dir.path().to_str().expect("UTF-8");
    let search = format!("-L{linked}");
    let program =
        program::c_with("origin.c", &[&search, "-lorigin", "-Wl,-rpath,$ORIGIN/lib", "-ldl"]);
    fs::create_dir(dir.join("lib")).expect("make a directory");
    fs::rename(built, dir.join("lib/liborigin.so")).expect("move the library");
    nagaya_tests::copy_program(&program, &dir.join("origin"));
    dir
}

#[test]
fn a_library_is_found_beside_the_program_and_proc_self_exe_is_the_program() {
    let dir = origin();
    let path = dir.join("origin");
    Cmd::new(&path).arg(&path).run().prints("again\nagain\n");
    tasks(2, &path).arg(&path).run().prints(&"again\n".repeat(4));
}

#[test]
fn a_program_started_by_a_relative_path_or_a_link_sees_its_executable() {
    let dir = origin();
    let path = dir.join("origin");
    task("./origin").arg(&path).dir(dir.path()).run().prints("again\nagain\n");
    std::os::unix::fs::symlink(&path, dir.join("link")).expect("symlink");
    let bin = dir.join("bin");
    fs::create_dir(&bin).expect("make a directory");
    std::os::unix::fs::symlink("../origin", bin.join("origin")).expect("symlink");
    let link = bin.join("origin");
    Cmd::new(&link).arg(&path).run().prints("again\nagain\n");
    task(&link).arg(&path).run().prints("again\nagain\n");
}

#[test]
fn ordinary_tools_see_their_own_executable() {
    same_as_plain(&["readlink", "/proc/self/exe"]);
    same_as_plain(&["perl", "-e", "print readlink('/proc/self/exe'), qq(\\n), $0, qq(\\n)"]);
}

#[test]
fn the_task_bears_its_programs_name() {
    // The output of ps, top and pgrep.
    same_as_plain(&["cat", "/proc/self/comm"]);
}
