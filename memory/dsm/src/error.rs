//! Why a call of a task fails: one line that says what, where, and what to do.

use std::fmt;

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

impl From<pager::PagerError> for DsmError {
    fn from(error: pager::PagerError) -> Self {
        Self::System(error.to_string())
    }
}

impl From<fabric::error::FabricError> for DsmError {
    fn from(error: fabric::error::FabricError) -> Self {
        Self::System(error.to_string())
    }
}

impl From<fabric::wireup::WireupError> for DsmError {
    fn from(error: fabric::wireup::WireupError) -> Self {
        Self::System(error.to_string())
    }
}
