//! Fabric addresses of tasks. Tasks of different hosts send to each other directly. A task opens
//! the fabric at the first request for its address, and publishes the address. Until it is
//! known, the requester sends through the daemons.

use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::{Answer, Control, Notice};

use crate::daemon::{Continuation, Daemon};
use crate::errand::{Asker, Errand, Principal};

impl Daemon {
    /// Requests the fabric address of a task for `asker`.
    pub(crate) fn find_address(&mut self, asker: Asker, tid: Tid) {
        if tid.is_task() {
            self.send_on(tid.host(), Errand::Address(tid), Continuation::Answer(asker));
        } else {
            self.answer(asker, Err(Error::BadParam.code()));
        }
    }

    /// Replies to an errand with the fabric address of a task of this host, now or once it is
    /// known.
    pub(crate) fn give_address(&mut self, principal: Principal, tid: Tid) {
        let Some(task) = self.tasks.get(tid) else {
            return self.reply(principal, Err(Error::NoTask.code()));
        };
        if let Some(address) = self.addresses.known.get(&tid) {
            return self.reply(principal, Ok(Answer::Address(address.clone())));
        }
        let enrolled = task.link.is_some();
        let wanted = self.addresses.wanted.entry(tid).or_default();
        wanted.push(principal);
        if wanted.len() == 1 && enrolled {
            self.ask_to_open(tid);
        }
    }

    fn ask_to_open(&mut self, tid: Tid) {
        self.write(tid, &Control::Notice(Notice::Open));
    }

    /// Asks a task that has just enrolled to open the fabric, if its address was requested
    /// before.
    pub(crate) fn open_if_wanted(&mut self, tid: Tid) {
        if self.addresses.wanted.contains_key(&tid) {
            self.ask_to_open(tid);
        }
    }

    /// Records the address that a task publishes. It is empty if the task cannot be reached.
    pub(crate) fn publish(&mut self, tid: Tid, address: Vec<u8>) {
        let reply = match address.is_empty() {
            true => Err(Error::NotImpl.code()),
            false => Ok(Answer::Address(address.clone())),
        };
        for principal in self.addresses.wanted.remove(&tid).unwrap_or_default() {
            self.reply(principal, reply.clone());
        }
        if !address.is_empty() {
            self.addresses.known.insert(tid, address);
        }
    }

    /// Forgets the address of a task that has ended, and fails the errands that wait for it.
    pub(crate) fn forget_address(&mut self, tid: Tid) {
        self.addresses.known.remove(&tid);
        for principal in self.addresses.wanted.remove(&tid).unwrap_or_default() {
            self.reply(principal, Err(Error::NoTask.code()));
        }
    }
}
