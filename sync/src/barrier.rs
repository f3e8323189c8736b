//! A memory fence in every process at once (membarrier, since Linux 4.16). The caller that needs it
//! rarely pays for those that would need a fence often.

use rustix::thread::{MembarrierCommand, membarrier};

/// Lets [`everywhere`] reach this process. Returns false if that is not possible.
pub fn register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// Makes a full fence in each thread of all registered processes on this machine. When it returns,
/// each thread sees the caller's earlier writes, and the caller sees the thread's earlier writes.
/// Returns false if that was not possible.
pub fn everywhere() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}
