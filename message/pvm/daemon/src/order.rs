//! Total order: all hosts of the virtual machine apply the same changes in the same order, even
//! if some of them fail. A pure state machine: no clock, no system call. `tests/order_model.rs`
//! explores it.
//!
//! The oldest living host is the *sequencer*. The others propose changes to it; it numbers them
//! and sends them to all. Messages between two hosts arrive in the order sent, until one of the
//! two is lost. A loss is final and spreads: a host that loses another notifies all others, and
//! a host that learns of its own loss ends. There is no majority: of two hosts, each must be
//! able to continue without the other. After a partition both parts continue as separate
//! machines.
//!
//! If the sequencer is lost, the next oldest host *collects*: each living host reports the
//! number of its last applied entry, and the entries that some hosts may lack. The new sequencer
//! brings all hosts up to the most advanced one and starts a new *epoch*. Hosts propose again
//! each item that they have not seen ordered; each host numbers its proposals, which filters
//! duplicates.
//!
//! (The scheme is a fixed sequencer with view changes, as in Birman and Joseph, *Exploiting
//! virtual synchrony in distributed systems*, 1987, without uniform agreement. Changes that only
//! lost hosts have applied may be undone; no surviving host has seen them.)

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

/// A host's number. A host that joins again gets a new one.
pub type Host = u16;

/// The term of one sequencer. Later epochs compare greater.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch {
    count: u32,
    host: Host,
}

/// An item to be ordered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Item<C> {
    /// A change of the state.
    Change(C),
    /// A host joins; `C` is the change that adds it to the state.
    Join(Host, C),
    /// A host is lost or deleted.
    Leave(Host),
}

/// An ordered item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry<C> {
    /// Position in the order, from 1.
    pub at: u64,
    /// The host that proposed it.
    pub origin: Host,
    /// Its number among the proposals of that host, from 1.
    pub number: u64,
    /// The ordered item.
    pub item: Item<C>,
}

/// The state of the order that accompanies a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Head<C> {
    epoch: Epoch,
    applied: u64,
    /// The joining host may be the only survivor that has these entries.
    log: VecDeque<Entry<C>>,
    members: Vec<Host>,
    lost: BTreeSet<Host>,
    numbers: BTreeMap<Host, u64>,
}

/// Messages between hosts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message<C, S> {
    /// To the sequencer: order this item.
    Propose(u64, Item<C>),
    /// From the sequencer: the next entry, and the last position that all hosts have applied.
    Ordered(Epoch, Entry<C>, u64),
    /// To the sequencer: the last position that the sender has applied.
    Applied(u64),
    /// To all: this host is lost.
    Lost(Host),
    /// From the next sequencer: report your state. These hosts are lost.
    Collect(Epoch, BTreeSet<Host>),
    /// To the next sequencer: the last applied position (`None` if the sender waits for a
    /// snapshot), and the last entries.
    State(Epoch, Option<u64>, Vec<Entry<C>>),
    /// From the next sequencer: a new epoch begins after these entries.
    Begin(Epoch, Vec<Entry<C>>),
    /// To a joining host: the state.
    Snapshot(Head<C>, S),
}

/// An output; the caller executes outputs in the order returned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output<C, S> {
    /// Send this message.
    Send(Host, Message<C, S>),
    /// Apply this entry to the state.
    Apply(Entry<C>),
    /// Take a snapshot of the current state and send it ([`Message::Snapshot`]).
    Snapshot(Host, Head<C>),
    /// Replace the state by this one.
    Install(S),
    /// The other hosts continue without this one.
    Expelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase<C> {
    /// Waits for a snapshot.
    Joining,
    /// Follows the sequencer of `epoch`.
    Settled,
    /// Will become the sequencer, and collects the states of the others.
    Collecting(Epoch, BTreeMap<Host, Reported<C>>),
    /// No longer a member.
    Expelled,
}

/// A host's last applied position, and its last entries.
type Reported<C> = (Option<u64>, Vec<Entry<C>>);

/// One host's part of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Order<C, S> {
    me: Host,
    phase: Phase<C>,
    /// Epoch of the last sequencer that this host followed.
    epoch: Epoch,
    /// The greatest count of any epoch seen.
    count: u32,
    /// Hosts by age, according to the applied entries.
    members: Vec<Host>,
    lost: BTreeSet<Host>,
    applied: u64,
    /// Applied entries that some member may not have applied.
    log: VecDeque<Entry<C>>,
    /// Sequencer only: the last position that each other member has applied.
    acknowledged: BTreeMap<Host, u64>,
    /// Sequencer only: hosts that wait for a snapshot until all others have applied this
    /// position.
    joiners: BTreeMap<Host, u64>,
    /// Number of the last ordered proposal of each host.
    numbers: BTreeMap<Host, u64>,
    /// Number of our last proposal; `pending` holds those not ordered yet.
    proposed: u64,
    pending: VecDeque<(u64, Item<C>)>,
    outputs: Vec<Output<C, S>>,
}

impl<C: Clone + PartialEq, S> Order<C, S> {
    /// Returns the first host of a virtual machine: sequencer and only member.
    pub fn first(me: Host) -> Self {
        let epoch = Epoch { count: 0, host: me };
        Self { phase: Phase::Settled, epoch, members: vec![me], ..Self::joining(me) }
    }

    /// Returns a host that a member has started, and that waits for the state.
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

    /// Returns the outputs since the last call.
    pub fn outputs(&mut self) -> Vec<Output<C, S>> {
        std::mem::take(&mut self.outputs)
    }

    /// Returns the members by age. A lost host stays a member until its leave is ordered.
    pub fn members(&self) -> &[Host] {
        &self.members
    }

    /// Returns the sequencer, as far as this host knows.
    pub fn sequencer(&self) -> Option<Host> {
        self.living().next()
    }

    /// Returns true if the others continue without this host. Proposals have no effect then.
    pub fn is_expelled(&self) -> bool {
        self.phase == Phase::Expelled
    }

    /// Returns true if own proposals are not ordered yet.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns true if `host` is known to be lost.
    pub fn is_lost(&self, host: Host) -> bool {
        self.lost.contains(&host)
    }

    /// Proposes an item. It is applied exactly once on every host, unless this host is lost.
    pub fn propose(&mut self, item: Item<C>) {
        self.proposed += 1;
        self.pending.push_back((self.proposed, item.clone()));
        if self.phase == Phase::Settled {
            self.submit(self.proposed, item);
            self.handle_losses();
        }
    }

    /// Records that the connection to `host` is lost.
    pub fn lost(&mut self, host: Host) {
        if host == self.me || !self.lost.insert(host) {
            return;
        }
        if !self.members.contains(&host) {
            return; // it was never a member, or has left
        }
        self.announce_loss(host);
        self.handle_losses();
    }

    /// Notifies all living hosts that `host` is lost, and `host` itself in case it still
    /// receives.
    fn announce_loss(&mut self, host: Host) {
        let others: Vec<Host> = self.living().filter(|&other| other != self.me).collect();
        for other in others.into_iter().chain([host]) {
            self.send(other, Message::Lost(host));
        }
    }

    /// Processes a message from another host.
    pub fn receive(&mut self, from: Host, message: Message<C, S>) {
        if self.phase == Phase::Expelled {
            return;
        }
        if matches!(message, Message::Lost(host) if host == self.me) {
            return self.expel();
        }
        if self.lost.contains(&from) {
            // A host that joined since the loss has not notified it.
            if !matches!(message, Message::Lost(_)) {
                self.send(from, Message::Lost(from));
            }
            return;
        }
        match message {
            Message::Propose(number, item) => {
                if self.is_sequencer() {
                    self.order(from, number, item);
                    self.handle_losses();
                }
                // Otherwise `from` will propose the item again to the new sequencer.
            }
            Message::Ordered(epoch, entry, stable) => {
                let next = entry.at == self.applied + 1;
                if self.phase == Phase::Settled && epoch == self.epoch && next {
                    self.apply(entry);
                    self.trim(stable);
                    self.send(from, Message::Applied(self.applied));
                    self.handle_losses();
                }
            }
            Message::Applied(at) => {
                if self.is_sequencer() {
                    self.acknowledged.insert(from, at);
                    self.admit();
                    let stable = self.stable();
                    self.trim(stable);
                }
            }
            Message::Lost(host) => self.lost(host),
            Message::Collect(epoch, lost) => self.report_state(from, epoch, lost),
            Message::State(epoch, applied, log) => {
                if let Phase::Collecting(ours, states) = &mut self.phase
                    && *ours == epoch
                {
                    states.insert(from, (applied, log));
                    self.begin();
                }
            }
            Message::Begin(epoch, entries) => self.follow(from, epoch, entries),
            Message::Snapshot(head, state) => {
                if self.phase == Phase::Joining {
                    self.install(head, state);
                    self.send(from, Message::Applied(self.applied));
                    self.submit_again();
                    self.handle_losses();
                }
            }
        }
    }

    /// Answers the next sequencer, which collects states.
    fn report_state(&mut self, from: Host, epoch: Epoch, lost: BTreeSet<Host>) {
        if lost.contains(&self.me) {
            return self.expel();
        }
        self.count = self.count.max(epoch.count);
        for host in lost {
            self.lost(host);
        }
        if self.phase == Phase::Joining {
            return self.send(from, Message::State(epoch, None, Vec::new()));
        }
        // Answer only the host that we consider the oldest living one.
        if self.sequencer() == Some(from) {
            let log = self.log.iter().cloned().collect();
            self.send(from, Message::State(epoch, Some(self.applied), log));
        }
    }

    /// Follows the sequencer of a new epoch, which begins after these entries.
    fn follow(&mut self, from: Host, epoch: Epoch, entries: Vec<Entry<C>>) {
        if self.phase != Phase::Settled || epoch <= self.epoch {
            return;
        }
        self.epoch = epoch;
        for entry in entries {
            if entry.at == self.applied + 1 {
                self.apply(entry);
            }
        }
        self.send(from, Message::Applied(self.applied));
        self.submit_again();
        self.handle_losses();
    }

    fn living(&self) -> impl Iterator<Item = Host> {
        self.members.iter().copied().filter(|host| !self.lost.contains(host))
    }

    /// Returns true if this host is the sequencer and has finished collecting.
    fn is_sequencer(&self) -> bool {
        self.phase == Phase::Settled && self.epoch.host == self.me
    }

    fn send(&mut self, to: Host, message: Message<C, S>) {
        self.outputs.push(Output::Send(to, message));
    }

    fn expel(&mut self) {
        self.phase = Phase::Expelled;
        self.outputs.push(Output::Expelled);
    }

    fn submit(&mut self, number: u64, item: Item<C>) {
        if self.is_sequencer() {
            self.order(self.me, number, item);
        } else if let Some(sequencer) = self.sequencer()
            && sequencer != self.me
        {
            self.send(sequencer, Message::Propose(number, item));
        }
    }

    fn submit_again(&mut self) {
        for (number, item) in self.pending.clone() {
            self.submit(number, item);
        }
    }

    /// Sequencer only: gives the item its position, and sends it to all.
    fn order(&mut self, origin: Host, number: u64, item: Item<C>) {
        assert!(self.is_sequencer(), "only the sequencer numbers entries");
        if number <= self.numbers.get(&origin).copied().unwrap_or(0) {
            return;
        }
        let entry = Entry { at: self.applied + 1, origin, number, item };
        let stable = self.stable();
        let others: Vec<Host> = self.living().filter(|&host| host != self.me).collect();
        for host in others {
            self.send(host, Message::Ordered(self.epoch, entry.clone(), stable));
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

    /// Sequencer only: sends the state to joining hosts once all others have applied their join.
    /// Earlier, a new sequencer might not know that it must collect from them.
    fn admit(&mut self) {
        if !self.is_sequencer() {
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
        // The sender of the snapshot may be lost before it notifies the others of these losses.
        let lost: Vec<Host> =
            self.members.iter().copied().filter(|host| self.lost.contains(host)).collect();
        for host in lost {
            self.announce_loss(host);
        }
    }

    fn apply(&mut self, entry: Entry<C>) {
        assert_eq!(entry.at, self.applied + 1, "entries are applied in order, without gaps");
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
                // The host that lost it may have ended before it could notify it.
                if host != self.me && self.lost.insert(host) {
                    self.send(host, Message::Lost(host));
                }
            }
            _ => {}
        }
        if let Item::Join(host, _) = entry.item
            && self.lost.contains(&host)
        {
            self.announce_loss(host); // no host was notified before
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

    /// Sequencer only: returns the last position that all members have applied. Hosts that wait
    /// for a snapshot do not count, since they need no entries.
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

    /// Handles known losses: continues collecting, orders the leaves, or becomes sequencer.
    fn handle_losses(&mut self) {
        if matches!(self.phase, Phase::Joining | Phase::Expelled) {
            return;
        }
        if self.sequencer() != Some(self.me) {
            return;
        }
        match &self.phase {
            Phase::Collecting(..) => self.begin(),
            _ if self.is_sequencer() => {
                self.order_leaves();
                self.admit();
            }
            _ => self.collect(),
        }
    }

    /// Sequencer only: orders the leave of each lost member.
    fn order_leaves(&mut self) {
        let lost: Vec<Host> =
            self.members.iter().copied().filter(|host| self.lost.contains(host)).collect();
        for host in lost {
            self.proposed += 1;
            self.pending.push_back((self.proposed, Item::Leave(host)));
            self.order(self.me, self.proposed, Item::Leave(host));
        }
    }

    /// Starts to collect the states of the others, to become the sequencer.
    fn collect(&mut self) {
        self.count += 1;
        let epoch = Epoch { count: self.count, host: self.me };
        self.phase = Phase::Collecting(epoch, BTreeMap::new());
        self.begin();
    }

    /// Asks members that were not asked yet. Starts the epoch when all have answered.
    fn begin(&mut self) {
        loop {
            let Phase::Collecting(epoch, states) = &mut self.phase else { return };
            let epoch = *epoch;
            // The value `ASKED` marks hosts that were asked and have not answered.
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
                self.send(host, Message::Collect(epoch, self.lost.clone()));
            }
            if open {
                return;
            }
            // Apply entries that another host has and we lack. One may add a member that was not
            // asked.
            match next {
                Some(entry) => self.apply(entry),
                None => return self.start_epoch(epoch),
            }
        }
    }

    /// Starts the epoch as its sequencer.
    fn start_epoch(&mut self, epoch: Epoch) {
        assert!(epoch > self.epoch && epoch.host == self.me, "the epoch is new, and ours");
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
                    self.send(host, Message::Begin(epoch, missing));
                }
                None => {
                    self.joiners.insert(host, self.applied);
                }
            }
        }
        self.submit_again();
        self.order_leaves();
        self.admit();
    }
}

/// Value of "applied" for a host that was asked and has not answered.
const ASKED: u64 = u64::MAX;
