//! Adding and deleting hosts, and the loss of hosts.
//!
//! A host is added in these steps, and any may fail. The virtual machine learns our own fabric
//! address. Numbers for the new hosts are reserved. Daemons are started there, and answer with
//! their addresses. The join of each is ordered. Each gets the state of the virtual machine, and
//! reports that it is ready.

use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::Answer;

use crate::daemon::Daemon;
use crate::errand::Asker;
use crate::event::{Action, PeerMessage};
use crate::hosting::{HostRequest, HostSpec, STARTED, TICKS};
use crate::invitation::{Acceptance, Invitation, Place};
use crate::machine::{Change, Operation};
use crate::order::Item;
use crate::starting::{DaemonSpec, Fault, Started};

/// Ticks that a guest waits for its join after it has accepted.
const JOIN_TICKS: u32 = 4 * TICKS;

/// Bit in the number of a request that a resource manager has made.
const MANAGED: u32 = 1 << 31;

impl Daemon {
    /// Adds the hosts that the host file starts.
    pub(crate) fn begin_hosts(&mut self) {
        let own = self.machine.host(self.host).map(|info| info.name.clone()).unwrap_or_default();
        let others = self.hostfile.hosts.iter().filter(|host| host.starts);
        let lines: Vec<String> =
            others.map(|host| host.name.clone()).filter(|name| *name != own).collect();
        if !lines.is_empty() {
            self.add_hosts(self.host_file_asker(), &lines);
        }
    }

    /// Returns the asker of the requests that the host file causes.
    fn host_file_asker(&self) -> Asker {
        Asker { tid: Tid::daemon(self.host), id: 0 }
    }

    /// Executes pvm_config. The answer waits until the hosts of the host file have been added.
    pub(crate) fn config(&mut self, asker: Asker) {
        self.hosting.config_requests.push(asker);
        self.answer_config_requests();
    }

    fn answer_config_requests(&mut self) {
        if !self.hosting.requests.contains_key(&self.host_file_asker()) {
            for asker in std::mem::take(&mut self.hosting.config_requests) {
                let hosts = self.machine.hosts().to_vec();
                self.answer(asker, Ok(Answer::Hosts(hosts)));
            }
        }
    }

    /// Executes pvm_addhosts.
    pub(crate) fn add_hosts(&mut self, asker: Asker, lines: &[String]) {
        self.add(asker, None, lines);
    }

    /// Adds hosts for the resource manager.
    pub(crate) fn add_hosts_for(&mut self, manager: Tid, wait_id: i32, lines: &[String]) {
        self.hosting.last_managed = self.hosting.last_managed.wrapping_add(1);
        // No library uses these numbers for its requests. This host asks in the manager's name.
        let id = MANAGED | self.hosting.last_managed;
        let own = Tid::daemon(self.host);
        self.add(Asker { tid: own, id }, Some((manager, wait_id)), lines);
    }

    fn add(&mut self, asker: Asker, managed: Option<(Tid, i32)>, lines: &[String]) {
        let mut request = HostRequest { wanted: Vec::new(), slots: Vec::new(), managed };
        for (slot, line) in lines.iter().enumerate() {
            let wanted = self.hostfile.wanted(line).map(HostSpec::new);
            let known = |name: &str| self.machine.hosts().iter().any(|host| host.name == name);
            request.slots.push(match wanted {
                Ok(wanted) if known(&wanted.name) => Some(Error::DupHost.code()),
                Ok(wanted) => {
                    request.wanted.push((slot, wanted));
                    None
                }
                Err(why) => {
                    self.log(why);
                    Some(Error::BadParam.code())
                }
            });
        }
        let any = !request.wanted.is_empty();
        self.hosting.requests.insert(asker, request);
        if !any {
            self.settle_hosts(asker);
        } else if self.hosting.address.is_some() {
            self.reserve(asker);
        } else {
            self.hosting.waiting.push(asker);
            self.actions.push(Action::OpenFabric(self.host, self.secret));
        }
    }

    /// Continues once the fabric is open, or fails the requests that wait for it.
    pub(crate) fn fabric(&mut self, address: Result<Vec<u8>, String>) {
        let waiting = std::mem::take(&mut self.hosting.waiting);
        match address {
            Ok(address) => {
                if self.hosting.address.is_none() {
                    let operation = Operation::Address(self.host, address.clone());
                    self.propose(Change { asker: None, operation });
                }
                self.hosting.address = Some(address);
                for asker in waiting {
                    self.reserve(asker);
                }
            }
            Err(why) => {
                self.log(format!("cannot open the fabric for other hosts: {why}"));
                for asker in waiting {
                    self.fail_hosts(asker);
                }
            }
        }
    }

    fn reserve(&mut self, asker: Asker) {
        let count = self.hosting.requests.get(&asker).map_or(0, |request| request.wanted.len());
        self.propose(Change { asker: Some(asker), operation: Operation::Reserve(count as u16) });
    }

    /// Starts the hosts that `asker` wants; the numbers from `first` are reserved for them.
    pub(crate) fn reserved(&mut self, asker: Asker, first: Option<u16>) {
        let Some(first) = first else { return self.fail_hosts(asker) };
        let Some(request) = self.hosting.requests.get_mut(&asker) else { return };
        let Some(info) = self.machine.host(self.host).cloned() else { return };
        let address = self.hosting.address.clone().unwrap_or_default();
        let mut starts: Vec<(DaemonSpec, Invitation)> = Vec::new();
        for (host, (slot, wanted)) in (first..).zip(request.wanted.drain(..)) {
            self.hosting.joining.insert(host, (asker, slot));
            let by = Place { info: info.clone(), address: address.clone() };
            let mut invitation = Invitation::new(by, self.secret, host, wanted.name);
            invitation.speed = wanted.speed;
            invitation.programs = wanted.programs;
            invitation.directory = wanted.directory;
            invitation.debugger = wanted.debugger;
            invitation.silence_ms = self.silence_ms;
            invitation.space = self.space;
            invitation.protocol = self.protocol as u8;
            starts.push((wanted.daemon, invitation));
        }
        match self.roles.hoster {
            Some(hoster) => {
                let wait_id = self.hosting.last_wait_id.checked_add(1).unwrap_or(1);
                self.hosting.last_wait_id = wait_id;
                let hosts = starts.iter().map(|(_, invitation)| (invitation.host, wait_id));
                self.hosting.hosted.extend(hosts);
                self.actions.push(Action::StartBy(hoster, wait_id, starts));
            }
            None => {
                let starts = starts.into_iter().map(|start| Action::Start(Box::new(start)));
                self.actions.extend(starts);
            }
        }
    }

    /// Fails the hosts that the hoster has not started; it has ended.
    pub(crate) fn lose_hoster(&mut self) {
        for host in std::mem::take(&mut self.hosting.hosted).into_keys() {
            self.refuse(host, Error::CantStart);
        }
    }

    /// Processes a hoster's answer: a line for each host, or an unreadable message. A daemon
    /// that calls becomes a host even if the hoster reports an error.
    pub(crate) fn hosted(&mut self, wait_id: i32, lines: Result<&[(u16, String)], Error>) {
        let asked = self.hosting.hosted.iter().filter(|(_, asked)| **asked == wait_id);
        let asked: Vec<u16> = asked.map(|(host, _)| *host).collect();
        for host in asked {
            let line = lines.map(|lines| lines.iter().find(|(named, _)| *named == host));
            let refused = match line {
                Ok(Some((_, line))) if line.starts_with(STARTED) => continue,
                Ok(Some((_, line))) => Error::named(line.trim()).unwrap_or(Error::CantStart),
                Ok(None) => Error::CantStart,
                Err(error) => error,
            };
            self.hosting.hosted.remove(&host);
            self.refuse(host, refused);
        }
    }

    fn refuse(&mut self, host: u16, error: Error) {
        self.hosting.refused.insert(host, error);
        self.actions.push(Action::GiveUp(host));
    }

    /// Proposes the join of a daemon that has been started, or reports the failure.
    pub(crate) fn started(&mut self, Started { host, acceptance }: Started) {
        self.hosting.hosted.remove(&host);
        let refused = self.hosting.refused.remove(&host);
        match acceptance {
            Ok(place) if place.info.tid == Tid::of_host(host) => {
                let change = Change { asker: None, operation: Operation::Joined(place) };
                self.order.propose(Item::Join(host, change));
                self.follow_order();
            }
            acceptance => {
                let another = |_| String::from("another host answers").into();
                let Fault { error, why } = acceptance.map_or_else(|fault| fault, another);
                self.log(format!("cannot start a daemon as host {host}: {why}"));
                self.fill(host, refused.unwrap_or(error).code());
            }
        }
    }

    /// Adds the hosts whose daemons a launcher has started.
    pub(crate) fn launched(&mut self, acceptances: Vec<Acceptance>) {
        self.actions.push(Action::OpenFabric(self.host, self.secret));
        let count = acceptances.len() as u16;
        self.propose(Change { asker: None, operation: Operation::Reserve(count) });
        for (host, acceptance) in (self.host + 1..).zip(acceptances) {
            let acceptance = acceptance.map_err(Fault::from);
            self.started(Started { host, acceptance });
        }
    }

    /// Connects to a host that has joined.
    pub(crate) fn joined(&mut self, place: &Place) {
        let host = place.info.tid.host();
        if host != self.host {
            self.actions.push(Action::Connect(host, place.address.clone()));
        }
    }

    /// Reports a host as added; it has joined and has the state of the virtual machine.
    pub(crate) fn ready(&mut self, host: u16) {
        self.fill(host, Tid::of_host(host).as_int());
    }

    /// Connects to all hosts, once this host has the state of the virtual machine.
    pub(crate) fn installed(&mut self) {
        for (host, address) in self.machine.addresses() {
            if *host != self.host {
                self.actions.push(Action::Connect(*host, address.clone()));
                self.actions.push(Action::Send(*host, Box::new(PeerMessage::Ready)));
            }
        }
        for (host, message) in std::mem::take(&mut self.hosting.early) {
            self.peer(host, message);
        }
    }

    /// Keeps a message until the state of the virtual machine arrives.
    pub(crate) fn keep_early(&mut self, host: u16, message: PeerMessage) {
        self.hosting.early.push((host, message));
    }

    /// Processes a tick. The sequencer and each other host exchange heartbeats.
    pub(crate) fn tick(&mut self) {
        self.end_if_idle();
        let members = self.order.members().iter().copied();
        let living = members.filter(|&host| host != self.host && !self.order.is_lost(host));
        let sequencer = self.order.sequencer();
        let watched: Vec<u16> = living
            .filter(|&host| sequencer == Some(self.host) || sequencer == Some(host))
            .collect();
        self.hosting.silent.retain(|host, _| watched.contains(host));
        for host in watched {
            let silent = self.hosting.silent.entry(host).or_default();
            *silent += 1;
            if *silent > TICKS {
                self.log(format!("host {host} is lost: it is silent"));
                self.host_lost(host);
            } else {
                self.actions.push(Action::Send(host, Box::new(PeerMessage::Alive)));
            }
        }
    }

    /// Ends a guest that has lost all other hosts and has no tasks, since nobody would halt it.
    /// Also ends a guest that is never admitted; the host that started it may have given up.
    fn end_if_idle(&mut self) {
        if self.is_guest && self.order.members().is_empty() {
            self.hosting.idle += 1;
            if self.hosting.idle > JOIN_TICKS {
                self.log("the virtual machine did not admit this host in time".into());
                self.halt(None);
            }
            return;
        }
        let alone = self.is_guest && self.order.members() == [self.host];
        match alone && self.tasks.iter().next().is_none() {
            true => self.hosting.idle += 1,
            false => self.hosting.idle = 0,
        }
        if self.hosting.idle > TICKS {
            self.log("all other hosts are lost, and this host has no tasks".into());
            self.halt(None);
        }
    }

    /// Records a sign of life from a host.
    pub(crate) fn note_alive(&mut self, host: u16) {
        if let Some(silent) = self.hosting.silent.get_mut(&host) {
            *silent = 0;
        }
    }

    /// Halts the virtual machine at the request of `asker`. Each host notifies all others, so
    /// that none counts as lost.
    pub(crate) fn halt_all(&mut self, asker: Option<Tid>) {
        for host in self.order.members().to_vec() {
            if host != self.host && !self.order.is_lost(host) {
                self.actions.push(Action::Send(host, Box::new(PeerMessage::Halt)));
            }
        }
        self.halt(asker);
    }

    /// Ends this host's daemon.
    pub(crate) fn halt(&mut self, asker: Option<Tid>) {
        self.halted = true;
        self.actions.push(Action::Halt(asker));
    }

    /// Handles the loss of the connection to a host.
    pub(crate) fn host_lost(&mut self, host: u16) {
        if self.order.members().is_empty() {
            self.log(format!("host {host} was lost before we had joined"));
            return self.halt(None);
        }
        self.order.lost(host);
        self.follow_order();
        self.fail_errands(host);
    }

    /// Executes pvm_delhosts. A host is given by its name or its tid.
    pub(crate) fn delete_hosts(&mut self, asker: Asker, names: &[String]) {
        let mut request = HostRequest { wanted: Vec::new(), slots: Vec::new(), managed: None };
        let mut leave = Vec::new();
        for (slot, name) in names.iter().enumerate() {
            let host = self.machine.named(name, self.host).map(|info| info.tid.host());
            request.slots.push(match host {
                None => Some(Error::NoHost.code()),
                // A host does not delete itself; `halt` ends it.
                Some(host) if host == self.host => Some(Error::BadParam.code()),
                Some(host) if self.hosting.leaving.contains_key(&host) => {
                    Some(Error::Already.code())
                }
                Some(host) => {
                    self.hosting.leaving.insert(host, (asker, slot));
                    leave.push(host);
                    None
                }
            });
        }
        self.hosting.requests.insert(asker, request);
        for host in leave {
            self.order.propose(Item::Leave(host));
        }
        self.follow_order();
        self.settle_hosts(asker);
    }

    /// Completes the deletion of a host, or records its loss.
    pub(crate) fn left(&mut self, host: u16) {
        self.actions.push(Action::Disconnect(host));
        if let Some((asker, slot)) = self.hosting.leaving.remove(&host) {
            self.put(asker, slot, 0);
        }
        // The host may have been lost before it received the state of the virtual machine.
        self.fill(host, Error::HostFail.code());
    }

    /// Stores the result for a host that was to join.
    fn fill(&mut self, host: u16, code: i32) {
        if let Some((asker, slot)) = self.hosting.joining.remove(&host) {
            self.put(asker, slot, code);
        }
    }

    fn put(&mut self, asker: Asker, slot: usize, code: i32) {
        let slots = self.hosting.requests.get_mut(&asker).map(|request| &mut request.slots);
        if let Some(place) = slots.and_then(|slots| slots.get_mut(slot)) {
            *place = Some(code);
        }
        self.settle_hosts(asker);
    }

    /// Fails all hosts of a request.
    fn fail_hosts(&mut self, asker: Asker) {
        let Some(request) = self.hosting.requests.get_mut(&asker) else { return };
        for slot in &mut request.slots {
            slot.get_or_insert(Error::CantStart.code());
        }
        self.settle_hosts(asker);
    }

    /// Answers the request once the results of all hosts are known.
    fn settle_hosts(&mut self, asker: Asker) {
        let Some(request) = self.hosting.requests.get(&asker) else { return };
        let slots: Option<Vec<i32>> = request.slots.iter().copied().collect();
        if let Some(slots) = slots {
            let managed = self.hosting.requests.remove(&asker).and_then(|request| request.managed);
            match managed {
                Some((manager, wait_id)) => {
                    self.report_added_hosts_to_manager(manager, wait_id, &slots);
                }
                None => self.answer(asker, Ok(Answer::Each(slots))),
            }
            self.answer_config_requests();
        }
    }
}
