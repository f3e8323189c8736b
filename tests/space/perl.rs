//! Perl as a task.

use nagaya_tests::program::source_dir;
use nagaya_tests::{same_as_plain, task};

#[test]
fn perl_runs_forks_pipes_evals_and_threads() {
    let script = source_dir().join("perl_work.pl");
    let text = same_as_plain(&["perl", script.to_str().expect("UTF-8")]).ok();
    assert!(text.ends_with("the end\n"), "{text}");
}

#[test]
fn perl_ends_with_its_own_status() {
    task("perl").args(["-e", "exit 19"]).run().ends_with(19);
    task("perl").args(["-e", "kill 'ABRT', $$"]).run().ends_with(128 + 6);
    task("perl").args(["-e", "exec 'echo', 'replaced'"]).run().prints("replaced\n");
}
