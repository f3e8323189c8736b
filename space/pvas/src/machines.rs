//! A space over several machines, as its owner on one of them sees it: the IDs of the others are
//! domains whose tasks have their pages elsewhere, and an *agent* brings and takes those, page by
//! page, of their memory and of ours. Here is what the agent must be told, and when; how pages
//! travel it knows itself (`memory/cluster`).

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use control::Control;

use crate::domain::Domains;
use crate::error::Error;
use crate::owner;
use crate::space::Space;

/// Who brings pages, as it is told what becomes of tasks of this machine. Each call returns when
/// the other machines have done what it takes.
pub trait Agent: Send + Sync {
    /// Nobody on other machines finds the task any more.
    fn ended(&self, id: u32);
    /// Its memory reads as zeros, and no other machine has anything of it. Nothing is mapped in
    /// its segment but the export area.
    fn cleared(&self, id: u32);
    /// Memory has been mapped in a segment whose task is about to begin.
    fn loaded(&self, id: u32);
}

static AGENT: OnceLock<Arc<dyn Agent>> = OnceLock::new();

/// The agent of the space, if it has one.
pub(crate) fn agent(control: &Control) -> Option<&'static dyn Agent> {
    match control.space().agent_tid.load(Ordering::Acquire) {
        0 => None,
        _ => AGENT.get().map(|agent| &**agent),
    }
}

/// What an agent works on.
#[derive(Debug)]
pub struct Shared {
    /// The memory of all segments: its offset is the address less the space's base.
    pub file: OwnedFd,
    /// Where segments of other machines are mapped.
    pub views: Vec<Range<usize>>,
}

impl Space {
    /// Makes this the machine `me` of a space whose IDs are divided so among machines. Nobody has
    /// had any of them yet, and no domain was made. Until there is an [agent](Self::set_agent)
    /// nobody may use memory of the others.
    pub fn divide(&self, me: u32, ids: &[Range<u32>]) -> Result<Shared, Error> {
        self.check_owner()?;
        let (control, layout) = (self.control(), self.layout());
        if ids.iter().any(|ids| ids.is_empty() || ids.end > layout.tasks_max()) {
            return Err(Error::Invalid("IDs of machines"));
        }
        for (number, ids) in (0..).zip(ids).filter(|(number, _)| *number != me) {
            // Ours is 0 here, as in any space.
            let number = if number == 0 { me } else { number };
            owner::give_to_domain(control, ids.clone(), number).map_err(Error::IdTaken)?;
        }
        control.space().machine.store(me, Ordering::Release);
        let others = (0..).zip(ids).filter(|(number, _)| *number != me).map(|(_, ids)| ids);
        self.with_domains(|domains| domains.map_far(&layout, others.cloned()))
    }

    /// From now on the thread `tid` of this process, which has SIGURG blocked and reads it from a
    /// signalfd, is asked by tasks ([`Control::asks`]), and `agent` is told of their ends. Once a
    /// process.
    pub fn set_agent(&self, tid: u32, agent: Arc<dyn Agent>) -> Result<(), Error> {
        AGENT.set(agent).map_err(|_| Error::Invalid("agent (there is one)"))?;
        self.control().space().agent_tid.store(tid, Ordering::Release);
        Ok(())
    }
}

impl Domains {
    fn map_far(
        &mut self,
        layout: &nagaya_layout::SpaceLayout,
        ids: impl Iterator<Item = Range<u32>>,
    ) -> Result<Shared, Error> {
        let memory = self.memory();
        let mut views = Vec::new();
        for ids in ids {
            views.push(crate::domain::map_view(layout, memory, ids)?);
        }
        let file = rustix::io::fcntl_dupfd_cloexec(memory.file(), 0);
        let file = file.map_err(|errno| Error::System("dup", errno))?;
        Ok(Shared { file, views })
    }
}
