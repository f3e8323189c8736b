//! CPython as a task, with threads, sub-processes, forks and numpy.

use nagaya_tests::program::source_dir;
use nagaya_tests::python::{interpreter, packages, python_task};
use nagaya_tests::{same_as_plain, task, tasks};

#[test]
fn python_runs_threads_subprocesses_forks_and_signals() {
    let (python, script) = (interpreter(), source_dir().join("python_work.py"));
    let argv = [python.to_str().expect("UTF-8"), script.to_str().expect("UTF-8")];
    let text = same_as_plain(&argv).ok();
    assert!(text.contains("deep 9000"), "the script ran to its end:\n{text}");
}

#[test]
fn numpy_from_pypi_calculates_rightly() {
    let script = source_dir().join("numpy_work.py");
    python_task().arg(script).run().prints("numpy is right\n");
}

#[test]
fn two_tasks_calculate_with_numpy_at_once() {
    tasks(2, interpreter())
        .env("PYTHONPATH", packages())
        .arg(source_dir().join("numpy_work.py"))
        .run()
        .prints("numpy is right\nnumpy is right\n");
}

#[test]
fn a_python_script_with_a_shebang_line_is_a_task() {
    let dir = nagaya_tests::WorkDir::new();
    let line = format!("#!{}\nimport sys\nprint(sys.argv[1:])\n", interpreter().display());
    let script = dir.write_executable("script.py", line);
    task(script).args(["a", "b c"]).run().prints("['a', 'b c']\n");
}

#[test]
fn an_uncaught_exception_is_status_1_with_its_traceback() {
    let output = task(interpreter()).args(["-c", "raise ValueError('sorry')"]).run().ends_with(1);
    assert!(output.stderr.contains("ValueError: sorry"), "{output}");
}

#[test]
fn python_reads_its_standard_input() {
    let plain = "import sys; print(sum(int(line) for line in sys.stdin))";
    task(interpreter()).args(["-c", plain]).stdin("1\n2\n39\n").run().prints("42\n");
}
