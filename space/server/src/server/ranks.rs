//! Counts the ranks of a job that are in the space of this node, and decides when ranks are
//! missing.

use std::time::{Duration, Instant};

/// The ranks of a job on this node, as far as its server knows them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ranks {
    /// Tasks that stubs have started in this space.
    pub present: u32,
    /// Processes that the launcher starts on this node, if it reports that.
    pub expected: Option<u32>,
    /// The user knows that other ranks are in other spaces, or was told that ranks are missing.
    pub apart_is_known: bool,
    /// Start time of the first rank.
    pub first: Option<Instant>,
    /// Key of the connection of local rank 0's stub, which prints messages for the user.
    pub teller: Option<u64>,
}

/// Ranks that have not started after this time count as missing.
const RANKS_LATE: Duration = Duration::from_secs(30);

impl Ranks {
    /// Counts a task that a stub has started.
    pub fn come(&mut self, stub: u64, local_rank: Option<u32>) {
        self.present += 1;
        self.first.get_or_insert_with(Instant::now);
        if local_rank == Some(0) {
            self.teller = Some(stub);
        }
    }

    /// Returns the time at which ranks count as missing, if that can still happen.
    pub fn deadline(&self) -> Option<Instant> {
        let is_whole = self.expected.is_none_or(|expected| self.present >= expected);
        let is_over = is_whole || self.apart_is_known || self.teller.is_none();
        if is_over { None } else { Some(self.first? + RANKS_LATE) }
    }
}
