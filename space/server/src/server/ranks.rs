//! How many of a job's ranks on this node are in the space, and when the others are missed.

use std::time::{Duration, Instant};

/// What the server knows of the ranks of its job on this node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ranks {
    /// Tasks that stubs have started here.
    pub present: u32,
    /// Processes that the launcher starts on this node, as far as it tells.
    pub expected: Option<u32>,
    /// The user knows that others are apart, or has been told that some have not come.
    pub apart_is_known: bool,
    /// When the first came.
    pub first: Option<Instant>,
    /// Key of the connection of the stub of local rank 0, which tells the user.
    pub teller: Option<u64>,
}

/// Ranks that have not come after this time are missed.
const RANKS_LATE: Duration = Duration::from_secs(30);

impl Ranks {
    /// A stub has started a task.
    pub fn come(&mut self, stub: u64, local_rank: Option<u32>) {
        self.present += 1;
        self.first.get_or_insert_with(Instant::now);
        if local_rank == Some(0) {
            self.teller = Some(stub);
        }
    }

    /// When ranks will be missed, if that may come.
    pub fn deadline(&self) -> Option<Instant> {
        let is_whole = self.expected.is_none_or(|expected| self.present >= expected);
        let is_over = is_whole || self.apart_is_known || self.teller.is_none();
        if is_over { None } else { Some(self.first? + RANKS_LATE) }
    }
}
