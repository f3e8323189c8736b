//! Requests that go to the resource manager instead of the daemon (pvm_reg_rm(3)). If the manager
//! ends, the daemon gets them.

use pvm::error::Error;
use pvm::parcel::Reader;
use pvm::tid::Tid;
use pvm::wire::{Answer, Request, Sink};

use super::intake::message_of;
use super::manager::{Manager, answer, message};
use super::{Enrolled, Task};

impl Task {
    /// Sends the request to the resource manager. Returns false if there is none that takes it.
    pub(super) fn ask_manager(&mut self, id: u32, request: &Request) -> Result<bool, Error> {
        let Some(manager) = self.enrolled()?.manager.tid else { return Ok(false) };
        let Some((tag, data)) = message(request) else { return Ok(false) };
        let sink = Sink { tid: manager.as_int(), context: 0, tag };
        let mut message = message_of(data.message(sink, id as i32), &mut self.buffers)?;
        if id != 0 {
            self.enrolled()?.manager.asked.insert(id, request.clone());
        }
        self.send_to_each(&mut message, &[manager])?;
        Ok(true)
    }

    /// Returns the resource manager's answer to request `id` once it has arrived.
    pub(super) fn managed_answer(&mut self, id: u32) -> Option<Result<Answer, Error>> {
        let Task { enrolled, buffers, .. } = self;
        let Enrolled { manager: Manager { tid, asked }, intake, .. } = enrolled.as_mut()?;
        let (source, tag) = (tid.as_ref()?.as_int(), message(asked.get(&id)?)?.0);
        let came = intake.arrived.iter().position(|&came| {
            buffers.message(came).is_ok_and(|message| {
                let header = &message.header;
                // As in libpvm, an answer without a wait ID counts, too.
                let ours =
                    header.wait_id == id as i32 || !asked.contains_key(&(header.wait_id as u32));
                (header.source, header.tag) == (source, tag) && ours
            })
        })?;
        let buffer = intake.arrived.remove(came)?;
        let request = asked.remove(&id)?;
        let whole = self.parcel(buffer);
        let _ = self.buffers.freebuf(buffer);
        Some(whole.and_then(|whole| answer(&request, &mut Reader::new(&whole)?)))
    }
}

impl Enrolled {
    /// Returns the requests that the resource manager `gone` has not answered: the daemon gets
    /// them instead.
    pub(super) fn manager_gone(&mut self, gone: Tid) -> Vec<(u32, Request)> {
        match self.manager.tid == Some(gone) {
            true => std::mem::take(&mut self.manager).asked.into_iter().collect(),
            false => Vec::new(),
        }
    }
}
