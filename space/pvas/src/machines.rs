//! A space over several machines, as seen by its owner on one of them. The IDs of another machine
//! are a domain here, whose pages live on that machine. An [`Agent`] transfers pages between the
//! machines. The page protocol itself is in `memory/cluster`.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::agent::{self, Agent};
use crate::domain::Domains;
use crate::error::Error;
use crate::owner;
use crate::space::Space;
use crate::views::ALL_RIGHTS;

/// The memory that an agent manages.
#[derive(Debug)]
pub struct Shared {
    /// The file with the memory of all segments. Its offset is the address minus the space's base.
    pub file: OwnedFd,
    /// Address ranges at which the segments of other machines are mapped.
    pub views: Vec<Range<usize>>,
}

impl Space {
    /// Divides the space among machines: this one is number `me`, and machine `n` gets `ids[n]`. No
    /// ID may have been taken, and no domain created. No thread may touch memory of other machines
    /// before [`Space::set_agent`].
    pub fn divide(&self, me: u32, ids: &[Range<u32>]) -> Result<Shared, Error> {
        self.check_owner()?;
        let (control, layout) = (self.control(), self.layout());
        if ids.iter().any(|ids| ids.is_empty() || ids.end > layout.tasks_max()) {
            return Err(Error::Invalid("IDs of machines"));
        }
        for (number, ids) in (0..).zip(ids).filter(|(number, _)| *number != me) {
            // This machine's own domain is 0, as in any space.
            let number = if number == 0 { me } else { number };
            owner::give_to_domain(control, ids.clone(), number).map_err(Error::IdTaken)?;
        }
        control.space().machine.store(me, Ordering::Release);
        let others = (0..).zip(ids).filter(|(number, _)| *number != me).map(|(_, ids)| ids);
        self.with_domains(|domains| domains.map_far(&layout, others.cloned()))
    }

    /// Installs the agent, once in a process. Tasks send their requests to the thread `tid` of this
    /// process ([`control::Control::asks`]). That thread must have SIGURG blocked and read it from
    /// a signalfd.
    pub fn set_agent(&self, tid: u32, agent: Arc<dyn Agent>) -> Result<(), Error> {
        agent::install(&self.control(), tid, agent)
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
            views.push(crate::views::map_view(layout, memory, ids, ALL_RIGHTS)?);
        }
        let file = rustix::io::fcntl_dupfd_cloexec(memory.file(), 0);
        let file = file.map_err(|errno| Error::System("dup", errno))?;
        Ok(Shared { file, views })
    }
}
