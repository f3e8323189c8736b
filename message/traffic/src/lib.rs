//! The messages of an MPI job: a record of what each rank has counted.
//!
//! `libnagaya-traffic.so` counts in a rank and writes its record into a directory
//! ([`DIRECTORY`]). The command `nagaya` reads the records of all ranks and sums them.
//!
//! Sizes are counted in classes: class 0 has empty messages, and class `n` has those of 2^(n-1) to
//! 2^n - 1 bytes.

mod class;
mod record;

pub use class::{CLASSES, class, range};
pub use record::{Call, Message, Record, Tally};

/// The variable that names the directory for the records of a job's ranks.
pub const DIRECTORY: &str = "NAGAYA_TRAFFIC_DIR";

/// Returns the name of the file with the record of a rank.
pub fn file_name(rank: u32) -> String {
    format!("rank-{rank}")
}
