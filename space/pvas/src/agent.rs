//! The agent of a space over several machines: a trait through which the owner reports the life of
//! this machine's tasks. The agent itself is in `memory/cluster`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use control::Control;

use crate::error::Error;

/// Transfers pages between machines, and learns of the life of this machine's tasks. Each call
/// returns when the other machines have acted on the notification.
pub trait Agent: Send + Sync {
    /// The task has ended. From now on no task on another machine finds it.
    fn ended(&self, id: u32);
    /// The task's memory reads as zeros, and no other machine keeps a copy of it. Only the export
    /// area is still mapped in its segment.
    fn cleared(&self, id: u32);
    /// Memory has been mapped in the segment of a task that is about to start.
    fn loaded(&self, id: u32);
}

static AGENT: OnceLock<Arc<dyn Agent>> = OnceLock::new();

/// Returns the agent of the space, if it has one.
pub(crate) fn agent(control: &Control) -> Option<&'static dyn Agent> {
    match control.space().agent_tid.load(Ordering::Acquire) {
        0 => None,
        _ => AGENT.get().map(|agent| &**agent),
    }
}

/// Installs the agent, once in a process. Tasks send their requests to the thread `tid`.
pub(crate) fn install(control: &Control, tid: u32, agent: Arc<dyn Agent>) -> Result<(), Error> {
    AGENT.set(agent).map_err(|_| Error::Invalid("agent (there is one)"))?;
    control.space().agent_tid.store(tid, Ordering::Release);
    Ok(())
}
