//! A reason why messages of an MPI are not single copies in the space.

/// A reason and a remedy: one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The reason.
    pub why: String,
    /// The remedy.
    pub hint: String,
}

impl Obstacle {
    /// An obstacle and its remedy.
    pub fn new(why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { why: why.into(), hint: hint.into() }
    }
}
