//! Why a call of a task fails: one line that says what, where, and what to do.

use std::fmt;

use pager::PagerError;

/// Why a call fails. It has changed nothing then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DsmError {
    /// An argument that makes no sense, or a lock misused.
    Argument(String),
    /// Not now: before one has joined, after one has left, or twice.
    State(&'static str),
    /// The system cannot: userfaultfd, memory, network, launcher.
    System(String),
}

impl fmt::Display for DsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(why) | Self::System(why) => f.write_str(why),
            Self::State(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for DsmError {}

impl From<PagerError> for DsmError {
    fn from(error: PagerError) -> Self {
        let otherwise = match error {
            PagerError::Forbidden => {
                "; or set NAGAYA_DSM_CALLS=0, if no system call reads or writes shared memory \
                 (see jia(7))"
            }
            _ => "",
        };
        Self::System(format!("{error}{otherwise}"))
    }
}

impl From<net::error::FabricError> for DsmError {
    fn from(error: net::error::FabricError) -> Self {
        Self::System(error.to_string())
    }
}

impl From<net::wireup::WireupError> for DsmError {
    fn from(error: net::wireup::WireupError) -> Self {
        Self::System(error.to_string())
    }
}

/// Tells the user, in one piece: other nodes write to the same place at the same moment.
pub fn say(line: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(format!("nagaya: {line}\n").as_bytes());
}
