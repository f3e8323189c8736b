//! Where tasks are on the fabric: those of different hosts that send to each other do so
//! directly. A task opens the fabric when first another one asks for it, and publishes where
//! it is; who asked waits for that, and sends through the daemons meanwhile.

use std::collections::BTreeMap;

use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::{Answer, Letter, News};

use crate::daemon::{Daemon, Then};
use crate::errand::{Errand, Principal};
use crate::machine::Asker;

/// What is known of this host's tasks.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    known: BTreeMap<Tid, Vec<u8>>,
    /// Who waits for an address.
    wanted: BTreeMap<Tid, Vec<Principal>>,
}

impl Daemon {
    /// A task wants to know where another one is.
    pub(crate) fn find_address(&mut self, asker: Asker, tid: Tid) {
        if tid.is_task() {
            self.send_on(tid.host(), Errand::Address(tid), Then::Answer(asker));
        } else {
            self.answer(asker, Err(Error::BadParam.code()));
        }
    }

    /// Somebody wants to know where a task of this host is.
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
        self.write(tid, &Letter::News(News::Open));
    }

    /// A task has enrolled; somebody may have asked for it before.
    pub(crate) fn open_if_wanted(&mut self, tid: Tid) {
        if self.addresses.wanted.contains_key(&tid) {
            self.ask_to_open(tid);
        }
    }

    /// A task says where it is; nowhere, if it cannot be reached.
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

    /// A task of this host has ended.
    pub(crate) fn forget_address(&mut self, tid: Tid) {
        self.addresses.known.remove(&tid);
        for principal in self.addresses.wanted.remove(&tid).unwrap_or_default() {
            self.reply(principal, Err(Error::NoTask.code()));
        }
    }
}
