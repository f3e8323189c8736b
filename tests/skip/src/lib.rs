//! Reports tests that did not run, for the tests of all crates.
//!
//! With `NAGAYA_TESTS_NO_SKIP=1` a test fails if this kernel or this user lacks a permission; only
//! a missing device or program is accepted. With `NAGAYA_TESTS_NO_SKIP=all` those fail, too.

use std::io::Write as _;

const VARIABLE: &str = "NAGAYA_TESTS_NO_SKIP";

/// Reports that a test did not run since the kernel or the user may not do what it needs. The
/// caller returns.
///
/// # Panics
/// If `NAGAYA_TESTS_NO_SKIP` is set.
#[track_caller]
pub fn because(reason: &str) {
    assert!(std::env::var_os(VARIABLE).is_none(), "would skip: {reason}");
    report(reason);
}

/// Reports that a test did not run since this machine lacks a device or a program. The caller has
/// looked for it, and returns.
///
/// # Panics
/// If `NAGAYA_TESTS_NO_SKIP` is `all`.
#[track_caller]
pub fn machine_lacks(thing: &str) {
    let refuses = std::env::var_os(VARIABLE).is_some_and(|value| value == "all");
    assert!(!refuses, "would skip: this machine lacks {thing}");
    report(&format!("this machine lacks {thing}"));
}

fn report(reason: &str) {
    // Not `println!`, which the test runner keeps to itself when the test passes.
    let _ = writeln!(std::io::stdout(), "SKIPPED: {reason}");
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    /// Runs one of the cases below in a separate process, with this value of the variable.
    fn case(name: &str, value: Option<&str>) -> Output {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--ignored", "--exact", &format!("tests::{name}")]);
        match value {
            Some(value) => command.env(super::VARIABLE, value),
            None => command.env_remove(super::VARIABLE),
        };
        command.output().expect("this test again")
    }

    #[test]
    #[ignore = "a case of the tests below"]
    fn not_permitted() {
        super::because("not permitted");
    }

    #[test]
    #[ignore = "a case of the tests below"]
    fn no_device() {
        super::machine_lacks("a device");
    }

    fn skips(name: &str, value: Option<&str>) -> bool {
        let output = case(name, value);
        let printed = String::from_utf8_lossy(&output.stdout).contains("SKIPPED: ");
        assert_eq!(printed, output.status.success(), "{output:?}");
        printed
    }

    #[test]
    fn skips_are_reported_and_pass_unless_they_are_forbidden() {
        assert!(skips("not_permitted", None) && skips("no_device", None));
        assert!(!skips("not_permitted", Some("1")) && skips("no_device", Some("1")));
        assert!(!skips("not_permitted", Some("all")) && !skips("no_device", Some("all")));
    }
}
