//! The bindings for Python (`python/`) and C++ (`include/pvas.hpp`): their tests, and the examples
//! in both languages.

use std::path::{Path, PathBuf};

use nagaya_tests::mpi::OPEN_MPI_4;
use nagaya_tests::program::{build, libraries, library_flags};
use nagaya_tests::python::{interpreter, packages};
use nagaya_tests::{Cmd, WorkDir, machine_lacks, nagaya, nagaya_path};

/// Debian's own interpreter, which is linked to fixed addresses.
const PYTHON: &str = "/usr/bin/python3";

/// A directory of this repository.
fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// Gives a command the Python package of this repository and the built libraries.
fn with_package(command: Cmd) -> Cmd {
    let path = std::env::join_paths([directory("python"), packages()]).expect("a search path");
    command
        .env("PYTHONPATH", path)
        .env("PVAS_LIBRARY", libraries().join("libpvas.so.0"))
        .env("NAGAYA", nagaya_path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Otherwise a line of output is written in two parts.
        .env_remove("PYTHONUNBUFFERED")
}

/// Runs the package's own tests.
#[track_caller]
fn unittests(python: impl AsRef<Path>) {
    let tests = Cmd::new(python.as_ref()).args(["-m", "unittest", "discover", "tests"]);
    let output = with_package(tests.dir(directory("python"))).run().ends_with(0);
    assert!(output.stderr.contains("\nOK"), "{output}");
    assert!(!output.stderr.contains("Ran 0 tests"), "{output}");
}

#[test]
fn the_python_package_passes_its_tests_in_a_position_independent_interpreter() {
    unittests(interpreter());
}

#[test]
fn the_python_package_passes_its_tests_in_debians_interpreter() {
    unittests(PYTHON);
}

/// The lines of tasks, in order.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn examples_in_python_sum_arrays_of_others_in_place() {
    let script = directory("examples/peersum.py");
    for python in [interpreter(), PYTHON.into()] {
        let run = nagaya("run").args(["-K", "-n", "3"]).arg(python).arg(&script).arg("5000");
        let text = with_package(run).run().ok();
        let line = |task| {
            format!("task {task}: the arrays of 3 tasks, 5000 doubles each, add up as expected")
        };
        assert_eq!(sorted(&text), [line(0), line(1), line(2)]);
    }
    let exec = nagaya("exec").arg(PYTHON).arg(&script).arg("5000");
    let text = with_package(OPEN_MPI_4.launch(2).command(exec)).run().ok();
    assert_eq!(text.matches("the arrays of 2 tasks, 5000 doubles each").count(), 2, "{text}");
}

#[test]
fn the_example_in_python_spawns_tasks_and_uses_their_memory() {
    for python in [interpreter(), PYTHON.into()] {
        let command = Cmd::new(python).arg(directory("examples/spawn.py"));
        let wanted = "sums: 0 1000 2000\nstatuses: {0: 0, 1: 0, 2: 0}\n";
        with_package(command).run().prints(wanted);
    }
}

#[test]
fn the_example_in_python_delegates_its_mpi_calls() {
    let run = nagaya("run").args(["-K", "-n", "3", PYTHON]);
    let run = run.arg(directory("examples/delegated_mpi.py"));
    let text = with_package(OPEN_MPI_4.launch(2).command(run)).run().ok();
    let line = |task, sum| format!("task {task}: the last element of the sum is {sum}");
    let (one, two) = (line(1, 199_998), line(2, 399_996));
    assert_eq!(sorted(&text), [one.as_str(), &one, &two, &two]);
}

#[test]
fn the_python_package_has_the_version_of_the_libraries() {
    let read =
        |path: &str| std::fs::read_to_string(directory(path)).expect("a file of the package");
    let version = env!("CARGO_PKG_VERSION");
    let project = format!("\nversion = \"{version}\"\n");
    assert!(read("python/pyproject.toml").contains(&project), "{project}");
    let module = format!("\n__version__ = \"{version}\"\n");
    assert!(read("python/nagaya/__init__.py").contains(&module), "{module}");
}

/// Writes the programs that `docs/bindings.md` shows into a directory.
fn programs_of_the_page() -> WorkDir {
    let text = std::fs::read_to_string(directory("docs/bindings.md")).expect("the page");
    let dir = WorkDir::new();
    for part in text.split("<!-- file: ").skip(1) {
        let (name, rest) = part.split_once(" -->\n```").expect("a block follows");
        let code = rest.split_once('\n').expect("a fence").1;
        dir.write(name, code.split_once("```\n").expect("a closing fence").0);
    }
    dir
}

#[test]
fn the_programs_in_the_documentation_run() {
    let dir = programs_of_the_page();
    let tasks = |script| {
        let run = nagaya("run").args(["-K", "-n", "2", PYTHON, script]);
        with_package(run.dir(dir.path())).run().ok()
    };
    assert_eq!(sorted(&tasks("sum.py")), ["task 0: 500500", "task 1: 499500"]);
    assert_eq!(tasks("double.py"), "2000.0\n");
    for python in [interpreter(), PYTHON.into()] {
        let owner = Cmd::new(python).arg("owner.py").dir(dir.path());
        with_package(owner).run().prints("0\n");
    }
    let compile = Cmd::new("g++").args(["-std=c++17", "-c", "sum.cc"]).args(WARNINGS);
    compile.args(library_flags(&["pvas"])).dir(dir.path()).run().ok();
}

/// The strictest usual warnings.
const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fPIE", "-pie"];

/// Compiles a C++ program in each supported standard, and returns the executables.
fn compiled(compiler: &str, source: &str) -> Vec<PathBuf> {
    let libraries = library_flags(&["pvas"]);
    let with = |standard| {
        let mut flags = vec![standard, "-pthread"];
        flags.extend(WARNINGS);
        flags.extend(libraries.iter().map(String::as_str));
        build(compiler, source, &flags)
    };
    ["-std=c++17", "-std=c++20"].map(with).into()
}

#[test]
fn the_cpp_header_does_what_it_says() {
    for program in compiled("g++", "pvas_hpp.cc") {
        Cmd::new(program).run().prints("right\n");
    }
}

#[test]
fn the_cpp_header_compiles_with_clang() {
    if Cmd::new("sh").args(["-c", "command -v clang++"]).run().code() != 0 {
        return machine_lacks("clang++");
    }
    for program in compiled("clang++", "pvas_hpp.cc") {
        Cmd::new(program).run().prints("right\n");
    }
}

#[test]
fn the_example_in_cpp_sums_vectors_of_others_in_place() {
    let wanted = "3 tasks: each added up 3 vectors of 5000 doubles in place\n";
    for program in compiled("g++", "../../examples/peersum.cc") {
        Cmd::new(program).args(["3", "5000"]).run().prints(wanted);
    }
}

/// The C++ layer is meant to be read in one go.
#[test]
fn the_cpp_header_is_short() {
    let text = std::fs::read_to_string(directory("include/pvas.hpp")).expect("the header");
    assert!(text.lines().count() < 500);
}
