//! A fence in every process at once (membarrier, since Linux 4.16): who needs it rarely
//! pays, so that others, who would need one often, need none.

use rustix::thread::{MembarrierCommand, membarrier};

/// Lets [`everywhere`] reach this process. Whether it can.
pub fn register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// A full fence in each thread, on this machine, of the processes that have registered:
/// when this returns, each has seen what we wrote before, and we see what it wrote before.
/// Whether that was possible.
pub fn everywhere() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}
