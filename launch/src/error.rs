//! Why nodes cannot be started.

/// Why nodes cannot be started, and the exit status that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// One line: what failed, on what, what to do. Empty: nothing is left to say.
    pub line: String,
    /// The exit status of the command: 125 for a failure of the launcher itself, 126 for a
    /// program that cannot be executed.
    pub status: i32,
}

impl Error {
    /// A failure of the launcher itself.
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
