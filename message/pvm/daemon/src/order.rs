//! Total order: all hosts of the virtual machine apply the same changes in the same order,
//! whichever of them fail. Pure: no clock, no system call; `tests/order_model.rs` explores it.
//!
//! The oldest living host is the *sequencer*: others propose changes to it, it numbers them
//! and sends them to all. Between two hosts, letters arrive in the order sent, until one of
//! the two is lost. To be lost is final and contagious: who loses a host tells all others,
//! and who hears that it is lost itself ends. There is no majority: of two hosts either must
//! go on without the other, so hosts that are cut in two parts go on as two machines.
//!
//! When the sequencer is lost, the next oldest *collects*: each living host tells it what it
//! has applied, and the entries that not all are known to have. It brings itself and all the
//! others up to the furthest of them and begins a new *epoch*. Hosts propose again what they
//! have not seen ordered; numbers of each host's proposals keep them from counting twice.
//! (The scheme is that of a fixed sequencer with view changes, as in Birman and Joseph,
//! *Exploiting virtual synchrony in distributed systems*, 1987, without uniform agreement:
//! what only hosts that are lost have applied may be undone, and nobody is left to know.)

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

/// A host's index. A host that comes again gets another.
pub type Host = u16;

/// Which sequencer's rule: later ones are greater.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch {
    count: u32,
    host: Host,
}

/// What is ordered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Item<C> {
    /// A change of the state.
    Change(C),
    /// A host joins: `C` says what the state should know of it.
    Join(Host, C),
    /// A host is lost, or deleted.
    Leave(Host),
}

/// An ordered item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry<C> {
    /// Its place in the order, from 1.
    pub at: u64,
    /// Who proposed it.
    pub origin: Host,
    /// Its number among the proposals of that host, from 1.
    pub number: u64,
    /// What it is.
    pub item: Item<C>,
}

/// What a snapshot of the state needs beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Head<C> {
    epoch: Epoch,
    applied: u64,
    /// The host that joins may be the only one that has them, and lives.
    log: VecDeque<Entry<C>>,
    members: Vec<Host>,
    lost: BTreeSet<Host>,
    numbers: BTreeMap<Host, u64>,
}

/// What hosts say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Letter<C, S> {
    /// To the sequencer: order this.
    Propose(u64, Item<C>),
    /// From the sequencer: the next entry; and up to where all have applied them.
    Ordered(Epoch, Entry<C>, u64),
    /// To the sequencer: what is applied.
    Applied(u64),
    /// To all: this host is lost.
    Lost(Host),
    /// From the next sequencer: what have you? These are lost.
    Collect(Epoch, BTreeSet<Host>),
    /// To it: how far it has applied (nothing if it waits for a snapshot), and the last
    /// entries.
    State(Epoch, Option<u64>, Vec<Entry<C>>),
    /// From it: a new epoch begins, after these entries.
    Begin(Epoch, Vec<Entry<C>>),
    /// To a host that joins: the state.
    Snapshot(Head<C>, S),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output<C, S> {
    /// Send it.
    Send(Host, Letter<C, S>),
    /// Apply it to the state.
    Apply(Entry<C>),
    /// Take a snapshot of the state as it is now, and send it ([`Letter::Snapshot`]).
    Snapshot(Host, Head<C>),
    /// This is the state.
    Install(S),
    /// The others go on without us.
    Expelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase<C> {
    /// Waits for a snapshot.
    Joining,
    /// The sequencer of `epoch` rules.
    Settled,
    /// Is to become the sequencer, and collects what the others have.
    Collecting(Epoch, BTreeMap<Host, Reported<C>>),
    /// Is out.
    Expelled,
}

/// How far a host has applied, and its last entries.
type Reported<C> = (Option<u64>, Vec<Entry<C>>);

/// One host's part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Order<C, S> {
    me: Host,
    phase: Phase<C>,
    /// Of the last sequencer that was obeyed.
    epoch: Epoch,
    /// The greatest count of any epoch heard of.
    count: u32,
    /// Hosts by age, as of what is applied.
    members: Vec<Host>,
    lost: BTreeSet<Host>,
    applied: u64,
    /// Applied entries that not all are known to have.
    log: VecDeque<Entry<C>>,
    /// As the sequencer: what each other member has applied.
    acknowledged: BTreeMap<Host, u64>,
    /// As the sequencer: who waits for a snapshot until all others have applied up to there.
    joiners: BTreeMap<Host, u64>,
    /// The last proposal of each host that is ordered.
    numbers: BTreeMap<Host, u64>,
    /// Our last proposal, and those that are not ordered yet.
    proposed: u64,
    pending: VecDeque<(u64, Item<C>)>,
    outputs: Vec<Output<C, S>>,
}

impl<C: Clone + PartialEq, S> Order<C, S> {
    /// The first host of a virtual machine: sequencer and only member.
    pub fn first(me: Host) -> Self {
        let epoch = Epoch { count: 0, host: me };
        Self { phase: Phase::Settled, epoch, members: vec![me], ..Self::joining(me) }
    }

    /// A host that a member has started, and that waits for the state.
    pub fn joining(me: Host) -> Self {
        Self {
            me,
            phase: Phase::Joining,
            epoch: Epoch::default(),
            count: 0,
            members: Vec::new(),
            lost: BTreeSet::new(),
            applied: 0,
            log: VecDeque::new(),
            acknowledged: BTreeMap::new(),
            joiners: BTreeMap::new(),
            numbers: BTreeMap::new(),
            proposed: 0,
            pending: VecDeque::new(),
            outputs: Vec::new(),
        }
    }

    /// What is to be done since this was last asked.
    pub fn outputs(&mut self) -> Vec<Output<C, S>> {
        std::mem::take(&mut self.outputs)
    }

    /// The members by age, lost ones included until their leaving is ordered.
    pub fn members(&self) -> &[Host] {
        &self.members
    }

    /// Who orders, as far as this host knows.
    pub fn sequencer(&self) -> Option<Host> {
        self.living().next()
    }

    /// Whether it may be asked for changes at all.
    pub fn is_expelled(&self) -> bool {
        self.phase == Phase::Expelled
    }

    /// Whether own proposals wait to be ordered.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether `host` is known to be lost.
    pub fn is_lost(&self, host: Host) -> bool {
        self.lost.contains(&host)
    }

    /// Proposes an item. It is applied once, here and everywhere, unless this host is lost.
    pub fn propose(&mut self, item: Item<C>) {
        self.proposed += 1;
        self.pending.push_back((self.proposed, item.clone()));
        if self.phase == Phase::Settled {
            self.submit(self.proposed, item);
            self.look_after_the_lost();
        }
    }

    /// The connection to `host` is lost.
    pub fn lost(&mut self, host: Host) {
        if host == self.me || !self.lost.insert(host) {
            return;
        }
        if !self.members.contains(&host) {
            return; // it never was one, or has left
        }
        self.tell_of(host);
        self.look_after_the_lost();
    }

    /// Tells all that a host is lost; the host itself, too, if it should still listen.
    fn tell_of(&mut self, host: Host) {
        let others: Vec<Host> = self.living().filter(|&other| other != self.me).collect();
        for other in others.into_iter().chain([host]) {
            self.send(other, Letter::Lost(host));
        }
    }

    /// A letter has come.
    pub fn receive(&mut self, from: Host, letter: Letter<C, S>) {
        if self.phase == Phase::Expelled {
            return;
        }
        if matches!(letter, Letter::Lost(host) if host == self.me) {
            return self.expel();
        }
        if self.lost.contains(&from) {
            // It may not have been told: not by a host that joined since.
            if !matches!(letter, Letter::Lost(_)) {
                self.send(from, Letter::Lost(from));
            }
            return;
        }
        match letter {
            Letter::Propose(number, item) => {
                if self.rules() {
                    self.order(from, number, item);
                    self.look_after_the_lost();
                }
                // If we do not rule, it proposes again to who does.
            }
            Letter::Ordered(epoch, entry, stable) => {
                let next = entry.at == self.applied + 1;
                if self.phase == Phase::Settled && epoch == self.epoch && next {
                    self.apply(entry);
                    self.trim(stable);
                    self.send(from, Letter::Applied(self.applied));
                    self.look_after_the_lost();
                }
            }
            Letter::Applied(at) => {
                if self.rules() {
                    self.acknowledged.insert(from, at);
                    self.admit();
                    let stable = self.stable();
                    self.trim(stable);
                }
            }
            Letter::Lost(host) => self.lost(host),
            Letter::Collect(epoch, lost) => {
                if lost.contains(&self.me) {
                    return self.expel();
                }
                self.count = self.count.max(epoch.count);
                for host in lost {
                    self.lost(host);
                }
                if self.phase == Phase::Joining {
                    return self.send(from, Letter::State(epoch, None, Vec::new()));
                }
                // Whoever we think should rule, the older of two prevails by being alive.
                if self.sequencer() == Some(from) {
                    let log = self.log.iter().cloned().collect();
                    self.send(from, Letter::State(epoch, Some(self.applied), log));
                }
            }
            Letter::State(epoch, applied, log) => {
                if let Phase::Collecting(ours, states) = &mut self.phase
                    && *ours == epoch
                {
                    states.insert(from, (applied, log));
                    self.begin();
                }
            }
            Letter::Begin(epoch, entries) => {
                if self.phase == Phase::Settled && epoch > self.epoch {
                    self.epoch = epoch;
                    for entry in entries {
                        if entry.at == self.applied + 1 {
                            self.apply(entry);
                        }
                    }
                    self.send(from, Letter::Applied(self.applied));
                    self.submit_again();
                    self.look_after_the_lost();
                }
            }
            Letter::Snapshot(head, state) => {
                if self.phase == Phase::Joining {
                    self.install(head, state);
                    self.send(from, Letter::Applied(self.applied));
                    self.submit_again();
                    self.look_after_the_lost();
                }
            }
        }
    }

    fn living(&self) -> impl Iterator<Item = Host> {
        self.members.iter().copied().filter(|host| !self.lost.contains(host))
    }

    /// Whether this host is the sequencer, and at work.
    fn rules(&self) -> bool {
        self.phase == Phase::Settled && self.epoch.host == self.me
    }

    fn send(&mut self, to: Host, letter: Letter<C, S>) {
        self.outputs.push(Output::Send(to, letter));
    }

    fn expel(&mut self) {
        self.phase = Phase::Expelled;
        self.outputs.push(Output::Expelled);
    }

    fn submit(&mut self, number: u64, item: Item<C>) {
        if self.rules() {
            self.order(self.me, number, item);
        } else if let Some(sequencer) = self.sequencer()
            && sequencer != self.me
        {
            self.send(sequencer, Letter::Propose(number, item));
        }
    }

    fn submit_again(&mut self) {
        for (number, item) in self.pending.clone() {
            self.submit(number, item);
        }
    }

    /// As the sequencer: gives the item its place.
    fn order(&mut self, origin: Host, number: u64, item: Item<C>) {
        if number <= self.numbers.get(&origin).copied().unwrap_or(0) {
            return;
        }
        let entry = Entry { at: self.applied + 1, origin, number, item };
        let stable = self.stable();
        let others: Vec<Host> = self.living().filter(|&host| host != self.me).collect();
        for host in others {
            self.send(host, Letter::Ordered(self.epoch, entry.clone(), stable));
        }
        let joined = match entry.item {
            Item::Join(host, _) if !self.members.contains(&host) => Some(host),
            _ => None,
        };
        self.apply(entry);
        if let Some(host) = joined {
            self.joiners.insert(host, self.applied);
        }
        self.admit();
    }

    /// As the sequencer: gives the state to hosts whose joining all others know of. Before
    /// that, a new sequencer might not know whom it must ask.
    fn admit(&mut self) {
        if !self.rules() {
            return;
        }
        let stable = self.stable();
        let ready: Vec<Host> =
            self.joiners.iter().filter(|(_, at)| **at <= stable).map(|(&host, _)| host).collect();
        for host in ready {
            self.joiners.remove(&host);
            if self.living().any(|living| living == host) {
                self.acknowledged.insert(host, self.applied);
                self.outputs.push(Output::Snapshot(host, self.head()));
            }
        }
    }

    fn head(&self) -> Head<C> {
        Head {
            epoch: self.epoch,
            applied: self.applied,
            log: self.log.clone(),
            members: self.members.clone(),
            lost: self.lost.clone(),
            numbers: self.numbers.clone(),
        }
    }

    fn install(&mut self, head: Head<C>, state: S) {
        self.epoch = head.epoch;
        self.count = self.count.max(head.epoch.count);
        self.applied = head.applied;
        self.log = head.log;
        self.members = head.members;
        self.lost.extend(head.lost);
        self.numbers = head.numbers;
        self.phase = Phase::Settled;
        self.outputs.push(Output::Install(state));
        // Whoever sent this may be lost itself before the others heard of these.
        let lost: Vec<Host> =
            self.members.iter().copied().filter(|host| self.lost.contains(host)).collect();
        for host in lost {
            self.tell_of(host);
        }
    }

    fn apply(&mut self, entry: Entry<C>) {
        self.applied = entry.at;
        self.numbers.insert(entry.origin, entry.number);
        if entry.origin == self.me {
            self.pending.retain(|(number, _)| *number > entry.number);
        }
        match entry.item {
            Item::Join(host, _) if !self.members.contains(&host) => self.members.push(host),
            Item::Leave(host) => {
                self.members.retain(|&member| member != host);
                self.acknowledged.remove(&host);
                self.joiners.remove(&host);
                // Who lost it may have ended before it could tell it.
                if host != self.me && self.lost.insert(host) {
                    self.send(host, Letter::Lost(host));
                }
            }
            _ => {}
        }
        if let Item::Join(host, _) = entry.item
            && self.lost.contains(&host)
        {
            self.tell_of(host); // nobody was told before
        }
        let left = entry.item == Item::Leave(self.me);
        self.log.push_back(entry.clone());
        self.outputs.push(Output::Apply(entry));
        if left {
            self.expel();
        } else if self.members == [self.me] {
            self.log.clear();
        }
    }

    /// Up to where all members have applied, as the sequencer knows; who waits for a snapshot
    /// needs no entries.
    fn stable(&self) -> u64 {
        let known = |host: Host| self.acknowledged.get(&host).copied().unwrap_or(0);
        let others = self
            .living()
            .filter(|host| *host != self.me && !self.joiners.contains_key(host))
            .map(known);
        others.min().unwrap_or(self.applied)
    }

    fn trim(&mut self, stable: u64) {
        while self.log.front().is_some_and(|entry| entry.at <= stable) {
            self.log.pop_front();
        }
    }

    /// Does what losses ask of this host.
    fn look_after_the_lost(&mut self) {
        if matches!(self.phase, Phase::Joining | Phase::Expelled) {
            return;
        }
        if self.sequencer() != Some(self.me) {
            return;
        }
        match &self.phase {
            Phase::Collecting(..) => self.begin(),
            _ if self.rules() => {
                self.bury();
                self.admit();
            }
            _ => self.collect(),
        }
    }

    /// As the sequencer: has the lost leave.
    fn bury(&mut self) {
        let lost: Vec<Host> =
            self.members.iter().copied().filter(|host| self.lost.contains(host)).collect();
        for host in lost {
            self.proposed += 1;
            self.pending.push_back((self.proposed, Item::Leave(host)));
            self.order(self.me, self.proposed, Item::Leave(host));
        }
    }

    /// Becomes the sequencer: asks what the others have.
    fn collect(&mut self) {
        self.count += 1;
        let epoch = Epoch { count: self.count, host: self.me };
        self.phase = Phase::Collecting(epoch, BTreeMap::new());
        self.begin();
    }

    /// Asks those that were not asked yet; begins to rule when all have answered.
    fn begin(&mut self) {
        loop {
            let Phase::Collecting(epoch, states) = &mut self.phase else { return };
            let epoch = *epoch;
            // An empty answer that was put here says that it was asked.
            let mut ask = Vec::new();
            let living = self.members.iter().filter(|host| !self.lost.contains(host));
            for &host in living.filter(|&&host| host != self.me) {
                states.entry(host).or_insert_with(|| {
                    ask.push(host);
                    (Some(ASKED), Vec::new())
                });
            }
            states.retain(|host, _| !self.lost.contains(host));
            let open = states.values().any(|(applied, _)| *applied == Some(ASKED));
            let next = states
                .values()
                .flat_map(|(_, log)| log)
                .find(|entry| entry.at == self.applied + 1)
                .cloned();
            for host in ask {
                self.send(host, Letter::Collect(epoch, self.lost.clone()));
            }
            if open {
                return;
            }
            // What somebody has and we have not; it may bring a host that was not asked.
            match next {
                Some(entry) => self.apply(entry),
                None => return self.rule(epoch),
            }
        }
    }

    /// Begins the epoch.
    fn rule(&mut self, epoch: Epoch) {
        let phase = std::mem::replace(&mut self.phase, Phase::Settled);
        let Phase::Collecting(_, states) = phase else { unreachable!("begin has looked") };
        self.epoch = epoch;
        self.acknowledged.clear();
        self.joiners.clear();
        for (host, (applied, _)) in states {
            if !self.members.contains(&host) {
                continue;
            }
            match applied {
                Some(applied) => {
                    let missing = self.log.iter().filter(|entry| entry.at > applied).cloned();
                    self.acknowledged.insert(host, applied);
                    let missing = missing.collect();
                    self.send(host, Letter::Begin(epoch, missing));
                }
                None => {
                    self.joiners.insert(host, self.applied);
                }
            }
        }
        self.submit_again();
        self.bury();
        self.admit();
    }
}

/// Stands for "applied" of a host that was asked and has not answered.
const ASKED: u64 = u64::MAX;
