//! The error of starting nodes.

/// The reason why nodes cannot be started, and the exit status of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// One line: the failure, its object, and a remedy. Empty if the reason was already printed.
    pub line: String,
    /// The exit status of the command: 125 for a failure of the launcher itself, 126 for a
    /// program that cannot be executed.
    pub status: i32,
}

impl Error {
    /// Returns a failure of the launcher itself, with status 125.
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), status: 125 }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Error {}
