//! The processes of one job, also those that it leaves behind.

use std::path::PathBuf;

use crate::{TIME_LIMIT, WorkDir, is_alive, wait_until};

/// The variable by which processes that a job leaves behind are known.
pub const MARK: &str = "NAGAYA_TESTS_MARK";

/// Finds the processes of one job, by its own mark in their environment. The mark is a directory:
/// if it is the job's runtime directory, node servers and their tasks have it in their command
/// line.
pub struct Remains(WorkDir);

impl Default for Remains {
    fn default() -> Self {
        Self::new()
    }
}

impl Remains {
    /// A mark that no other job has.
    pub fn new() -> Self {
        Self(WorkDir::short())
    }

    /// The value of [`MARK`].
    pub fn mark(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    /// Living processes with the mark: PIDs and command lines.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let mark = self.mark().display().to_string();
        let variable = format!("{MARK}={mark}");
        processes_of(|environment, command| {
            has_variable(environment, &variable) || command.contains(&mark)
        })
    }

    /// Asserts that none is left, soon.
    #[track_caller]
    pub fn none(&self, what: &str) {
        self.none_of(what, |_| true);
    }

    /// Asserts that none is left, soon, of programs with such paths.
    #[track_caller]
    pub fn none_of(&self, what: &str, is_one: impl Fn(&str) -> bool) {
        let program = |command: &str| command.split(' ').next().map(&is_one).unwrap_or_default();
        wait_until(&format!("after {what} all processes are gone"), TIME_LIMIT, || {
            !self.processes().iter().any(|(_, command)| program(command))
        });
    }
}

/// Living processes with this variable, `NAME=value`, in their environment: PIDs and command lines.
pub fn processes_with(variable: &str) -> Vec<(i32, String)> {
    processes_of(|environment, _| has_variable(environment, variable))
}

fn has_variable(environment: &[u8], variable: &str) -> bool {
    environment.split(|&b| b == 0).any(|it| it == variable.as_bytes())
}

/// Living processes with such an environment and command line.
fn processes_of(is_one: impl Fn(&[u8], &str) -> bool) -> Vec<(i32, String)> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let of = |file: &str| std::fs::read(format!("/proc/{pid}/{file}"));
        let environment = of("environ").ok()?;
        let command = String::from_utf8_lossy(&of("cmdline").unwrap_or_default()).into_owned();
        (is_one(&environment, &command) && is_alive(pid)).then(|| (pid, command.replace('\0', " ")))
    })
    .collect()
}
