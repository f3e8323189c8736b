//! The state of a simulated network: processes, connections, and what is on its way.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use fastrand::Rng;
use sync::clock;

use super::link::{
    Arrival, Body, End, EndState, Item, Link, Node, Pipe, Queued, Transfer, copy_part,
};
use super::plan::{Counts, Fault, HANDSHAKE_BYTES, Plan};
use crate::carrier::{Data, Happened, Landing, Reason, There, Way};
use crate::payload::Payload;

pub(super) const BROKEN: &str = "the connection broke: its process has ended";
/// Time until the peers of a dead process see the end of their connections.
const RESET_NS: u64 = 1_000_000;
/// Time until the peers of a dead host see it.
pub(super) const HOST_NS: u64 = 7_000_000_000;
/// A length for which there is no memory.
const ABSURD_BYTES: usize = 1 << 62;
/// Mark of the side of a connection that was called, in the name of an endpoint.
const CALLED: u64 = 1;

/// The network.
pub(super) struct World {
    pub random: Rng,
    pub plan: Plan,
    pub counts: Counts,
    pub nodes: Vec<Node>,
    pub hash: u64,
    base: Instant,
    links: BTreeMap<u64, Link>,
    transfers: BTreeMap<u64, Transfer>,
    held: BTreeMap<u64, Vec<u8>>,
    last: u64,
}

fn side_of(endpoint: u64) -> (u64, usize) {
    (endpoint >> 1, (endpoint & CALLED) as usize)
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> Self {
        let base = Instant::now();
        clock::simulate(Some(base));
        Self {
            random: Rng::with_seed(seed),
            plan,
            counts: Counts::default(),
            nodes: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
            base,
            links: BTreeMap::new(),
            transfers: BTreeMap::new(),
            held: BTreeMap::new(),
            last: 0,
        }
    }

    pub fn now(&self) -> u64 {
        clock::elapsed(self.base).as_nanos() as u64
    }

    pub fn set_now(&self, now_ns: u64) {
        clock::simulate(Some(self.instant(now_ns)));
    }

    pub fn instant(&self, now_ns: u64) -> Instant {
        self.base + Duration::from_nanos(now_ns)
    }

    /// Returns the time of an instant that is not before the start.
    pub fn time(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.base).as_nanos() as u64
    }

    /// Adds an occurrence to the trace.
    pub fn note(&mut self, parts: &[u64]) {
        for part in parts {
            self.hash = (self.hash ^ part).wrapping_mul(0x0000_0100_0000_01b3);
            self.hash ^= self.hash >> 29;
        }
    }

    pub fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.random.u32(0..n) == 0
    }

    /// Decides whether a fault happens, and counts it.
    pub fn chance(&mut self, fault: Fault, n: u32) -> bool {
        let happens = self.one_in(n);
        if happens {
            self.counts.add(fault);
        }
        happens
    }

    pub fn add_node(&mut self, id: u64) -> usize {
        self.nodes.push(Node {
            id,
            is_dead: false,
            dies_with_host: false,
            listens: true,
            happened: VecDeque::new(),
            due: VecDeque::new(),
        });
        self.nodes.len() - 1
    }

    fn latency(&mut self) -> u64 {
        let shift = self.random.u32(0..8);
        1 + (self.random.u64(0..self.plan.latency_ns) >> shift)
    }

    pub fn connect(&mut self, node: usize, to: usize, tag: u64) -> Result<u64, Reason> {
        if self.chance(Fault::ConnectFailed, self.plan.connect) {
            return Err("cannot connect to it: Too many open files (os error 24)".into());
        }
        self.last += 1;
        let name = self.last;
        let end = |node, tag| End { node, tag, state: EndState::Open };
        let ends = [end(node, Some(tag)), end(to, None)];
        let mut link = Link { ends, pipes: Default::default() };
        let target = &self.nodes[to];
        let is_refused = (target.is_dead || !target.listens) && !target.dies_with_host;
        let mut is_silent = target.is_dead && target.dies_with_host;
        if is_silent {
            link.ends[1].state = EndState::Gone;
        }
        if is_refused || self.chance(Fault::ConnectRefused, self.plan.connect) {
            link.ends[1].state = EndState::Gone;
            let at = self.now() + self.latency();
            let arrival = Arrival::End("cannot connect to it: connection refused".into());
            link.pipes[1].flight.push_back(Item { at, arrival });
        } else {
            is_silent |= self.chance(Fault::ConnectSilent, self.plan.connect);
        }
        link.pipes.iter_mut().for_each(|pipe| pipe.is_silent = is_silent);
        self.links.insert(name, link);
        Ok(name << 1)
    }

    pub fn answer(&mut self, node: usize, way: Way, tag: u64) -> Result<u64, Reason> {
        let (name, side) = side_of(way.0);
        let caller = self.links.get(&name).map(|link| link.ends[1 - side].node).ok_or(BROKEN)?;
        if self.plan.overtakes {
            return self.connect(node, caller, tag);
        }
        let end = &mut self.links.get_mut(&name).expect("found above").ends[side];
        if end.tag.is_some() || end.state != EndState::Open {
            return Err(BROKEN.into());
        }
        end.tag = Some(tag);
        Ok(way.0)
    }

    /// Takes a message. Returns true if it has left.
    pub fn send(
        &mut self,
        endpoint: u64,
        header: Vec<u8>,
        payload: Payload,
        tag: u64,
    ) -> Result<bool, Reason> {
        let (name, side) = side_of(endpoint);
        let is_open =
            |link: &&Link| link.ends[side].state == EndState::Open && link.ends[side].tag.is_some();
        if self.links.get(&name).filter(is_open).is_none() {
            return Err(BROKEN.into());
        }
        if self.chance(Fault::SendFailed, self.plan.send) {
            self.break_link(name, Fault::SendFailed);
            return Err("Connection reset by peer (os error 104)".into());
        }
        if self.chance(Fault::Broken, self.plan.breaks) {
            self.break_link(name, Fault::Broken);
        }
        let waits = self.chance(Fault::Pending, self.plan.pending);
        let leaves_at = self.now() + if waits { self.latency() } else { 0 };
        let pipe = &mut self.links.get_mut(&name).expect("it is open").pipes[side];
        pipe.queue.push_back(Queued { header, payload, tag, leaves_at });
        self.leave(name, side);
        let pipe = &self.links[&name].pipes[side];
        let is_queued = pipe.queue.iter().any(|message| message.tag == tag);
        let is_fetched =
            self.transfers.values().any(|it| (it.tag, it.link, it.side) == (tag, name, side));
        let happened = &mut self.nodes[self.links[&name].ends[side].node].happened;
        let own = |event: &Happened| matches!(event, Happened::Sent(sent, _) if *sent == tag);
        let left = happened.iter().position(own);
        left.map(|at| happened.remove(at));
        assert_eq!(left.is_none(), is_queued || is_fetched, "a send is under way, or has left");
        Ok(left.is_some())
    }

    /// Lets messages of a pipe leave as far as its window takes them.
    fn leave(&mut self, name: u64, side: usize) -> bool {
        let (mut any, now) = (false, self.now());
        loop {
            let pipe = &self.links[&name].pipes[side];
            let Some(first) = pipe.queue.front().filter(|it| it.leaves_at <= now) else {
                return any;
            };
            let is_announced = first.payload.extent().1 >= self.plan.announced_bytes;
            if !self.fits(pipe, first) {
                self.counts.add(Fault::Full);
                return any;
            }
            any = true;
            let pipe = &mut self.links.get_mut(&name).expect("an existing link").pipes[side];
            let message = pipe.queue.pop_front().expect("the first");
            let body = self.body(name, side, message.payload, message.tag, is_announced);
            let latency = self.latency();
            let link = self.links.get_mut(&name).expect("an existing link");
            let pipe = &mut link.pipes[side];
            pipe.last_at = pipe.last_at.max(now + latency);
            let (at, node) = (pipe.last_at, link.ends[side].node);
            if !pipe.is_silent {
                pipe.flight_bytes += body.bytes() + message.header.len();
                pipe.flight.push_back(Item { at, arrival: Arrival::Message(message.header, body) });
            }
            if !is_announced {
                self.nodes[node].happened.push_back(Happened::Sent(message.tag, Ok(())));
            }
        }
    }

    /// Returns true if the window of a pipe has room for a message.
    fn fits(&self, pipe: &Pipe, message: &Queued) -> bool {
        let payload_bytes = message.payload.extent().1;
        let is_announced = payload_bytes >= self.plan.announced_bytes;
        let bytes = message.header.len() + if is_announced { 0 } else { payload_bytes };
        pipe.flight.is_empty() || pipe.flight_bytes + bytes <= self.plan.window_bytes
    }

    /// Returns the body of a message that leaves.
    fn body(
        &mut self,
        link: u64,
        side: usize,
        payload: Payload,
        tag: u64,
        is_announced: bool,
    ) -> Body {
        let bytes = payload.extent().1;
        if is_announced {
            self.counts.add(Fault::Announced);
            self.last += 1;
            let payload = Some(payload);
            let (landing, filled, next_at) = (None, 0, 0);
            let transfer = Transfer { link, side, tag, payload, landing, filled, next_at };
            self.transfers.insert(self.last, transfer);
            let name = self.last;
            let is_absurd = self.chance(Fault::NoMemory, self.plan.no_memory);
            return Body::Announced(name, if is_absurd { ABSURD_BYTES } else { bytes });
        }
        let mut copy = vec![0; bytes];
        copy_part(&payload, 0, copy.as_mut_ptr(), bytes);
        let may_be_held = bytes >= HANDSHAKE_BYTES && self.plan.overtakes;
        match may_be_held && self.chance(Fault::Held, self.plan.held) {
            true => Body::Held(copy),
            false => Body::Here(copy),
        }
    }

    /// Delivers and moves everything of a process that is due. Returns true if there was anything.
    pub fn pump(&mut self, node: usize) -> bool {
        let now = self.now();
        let mut any = false;
        while self.nodes[node].due.front().is_some_and(|(at, _)| *at <= now) {
            let (_, event) = self.nodes[node].due.pop_front().expect("the first");
            self.nodes[node].happened.push_back(event);
            any = true;
        }
        let mut sides: Vec<(u64, usize)> = Vec::new();
        for (&name, link) in &self.links {
            sides.extend((0..2).filter(|&at| link.ends[at].node == node).map(|at| (name, at)));
        }
        self.random.shuffle(&mut sides);
        for &(name, side) in &sides {
            if !self.links.contains_key(&name) {
                continue;
            }
            any |= self.leave(name, side);
            any |= self.deliver(name, side, &sides);
        }
        any |= self.fetch(node);
        any
    }

    /// Returns true if the sender of the payload for which a pipe is paused has given up. In a
    /// stream nothing but the end can follow.
    fn breaks_off(&self, pipe: &Pipe) -> bool {
        let transfer = pipe.paused.and_then(|name| self.transfers.get(&name));
        transfer.is_some_and(|transfer| transfer.payload.is_none())
    }

    /// Delivers the next message to one side of a connection.
    fn deliver(&mut self, name: u64, side: usize, all: &[(u64, usize)]) -> bool {
        let now = self.now();
        let breaks_off = self.breaks_off(&self.links[&name].pipes[1 - side]);
        let link = self.links.get_mut(&name).expect("an existing link");
        let pipe = &mut link.pipes[1 - side];
        if breaks_off {
            pipe.paused = None;
            pipe.flight.retain(|item| matches!(item.arrival, Arrival::End(_)));
            pipe.flight_bytes = 0;
        }
        let is_due = pipe.flight.front().is_some_and(|item| item.at <= now);
        if link.ends[side].state != EndState::Open || pipe.paused.is_some() || !is_due {
            return false;
        }
        let item = pipe.flight.pop_front().expect("it is due");
        let node = link.ends[side].node;
        match item.arrival {
            Arrival::End(why) => self.fail(name, side, why),
            Arrival::Message(header, body) => {
                let bytes = body.bytes();
                pipe.flight_bytes -= header.len() + bytes;
                if let (Body::Announced(transfer, _), false) = (&body, self.plan.overtakes) {
                    pipe.paused = Some(*transfer);
                }
                let way = Way(name << 1 | side as u64);
                self.note(&[1, node as u64, way.0, item.at, (header.len() + bytes) as u64]);
                self.count_order(name, side, item.at, all);
                let data = self.data(body);
                self.nodes[node].happened.push_back(Happened::Came { header, data, way });
            }
        }
        true
    }

    fn data(&mut self, body: Body) -> Data {
        match body {
            Body::Here(bytes) => Data::Here(bytes),
            Body::Held(bytes) => {
                self.last += 1;
                let there = There { name: self.last, bytes: bytes.len(), announced: false };
                self.held.insert(self.last, bytes);
                Data::There(there)
            }
            Body::Announced(name, bytes) => Data::There(There { name, bytes, announced: true }),
        }
    }

    /// Counts a message that is delivered before others that came earlier.
    fn count_order(&mut self, name: u64, side: usize, at: u64, all: &[(u64, usize)]) {
        let waits = |&(other, side): &(u64, usize)| {
            let first = self.links.get(&other).and_then(|it| it.pipes[1 - side].flight.front());
            other != name && first.is_some_and(|first| first.at < at)
        };
        if all.iter().any(waits) {
            self.counts.add(Fault::Reordered);
        }
        let is_passed = |it: &Transfer| it.link == name && it.side != side && it.landing.is_some();
        if self.transfers.values().any(is_passed) {
            self.counts.add(Fault::Overtook);
        }
    }

    /// Accepts a payload. Returns the landing if the payload was held here.
    pub fn receive(
        &mut self,
        node: usize,
        there: &There,
        mut landing: Landing,
        tag: u64,
    ) -> Option<Landing> {
        let now = self.now();
        if let Some(bytes) = self.held.remove(&there.name) {
            let (start, length) = landing.extent();
            assert_eq!(length, bytes.len(), "the place has the length of the data");
            copy_part(&Payload::Bytes(bytes), 0, start, length);
            return Some(landing);
        }
        let next_at = now + self.latency();
        match self.transfers.get_mut(&there.name) {
            Some(transfer) => {
                assert!(transfer.landing.is_none(), "data are accepted once");
                (transfer.landing, transfer.next_at) = (Some((landing, tag)), next_at);
            }
            None => self.nodes[node].happened.push_back(Happened::Received(tag, None)),
        }
        None
    }

    pub fn refuse(&mut self, there: &There) {
        self.held.remove(&there.name);
        if let Some(transfer) = self.transfers.remove(&there.name) {
            self.end_transfer(there.name, &transfer, Ok(()));
        }
    }

    /// Completes the send of a transfer, and lets later messages pass.
    fn end_transfer(&mut self, name: u64, transfer: &Transfer, result: Result<(), Reason>) {
        let at = self.now() + self.latency();
        let Some(link) = self.links.get_mut(&transfer.link) else { return };
        let pipe = &mut link.pipes[transfer.side];
        pipe.paused = pipe.paused.filter(|&paused| paused != name);
        let sender = link.ends[transfer.side];
        if transfer.payload.is_some() && sender.state == EndState::Open {
            let due = &mut self.nodes[sender.node].due;
            let at = due.back().map_or(at, |(last, _)| at.max(*last));
            due.push_back((at, Happened::Sent(transfer.tag, result)));
        }
    }

    /// Fetches parts of the payloads that a process has accepted.
    fn fetch(&mut self, node: usize) -> bool {
        let now = self.now();
        let is_due = |(_, it): &(&u64, &Transfer)| {
            let link = &self.links[&it.link];
            it.landing.is_some() && it.next_at <= now && link.ends[1 - it.side].node == node
        };
        let due: Vec<u64> = self.transfers.iter().filter(is_due).map(|(&name, _)| name).collect();
        let any = !due.is_empty();
        for name in due {
            let latency = self.latency();
            let transfer = self.transfers.get_mut(&name).expect("found above");
            let Some(payload) = &transfer.payload else {
                transfer.next_at = u64::MAX; // until the end of the connection arrives
                continue;
            };
            let (landing, _) = transfer.landing.as_mut().expect("it is due");
            let (start, bytes) = landing.extent();
            assert_eq!(payload.extent().1, bytes, "the place has the announced length");
            let left = bytes - transfer.filled;
            let part = if self.random.bool() { left } else { self.random.usize(1..=left) };
            // SAFETY: `filled` is below `bytes`, the length of the landing.
            copy_part(payload, transfer.filled, unsafe { start.add(transfer.filled) }, part);
            transfer.filled += part;
            transfer.next_at = now + latency;
            if transfer.filled < bytes {
                self.counts.add(Fault::Partial);
                continue;
            }
            let mut transfer = self.transfers.remove(&name).expect("found above");
            let (landing, tag) = transfer.landing.take().expect("it was filled");
            self.note(&[2, node as u64, transfer.link, bytes as u64]);
            self.nodes[node].happened.push_back(Happened::Received(tag, Some(landing)));
            self.end_transfer(name, &transfer, Ok(()));
        }
        any
    }

    /// One side of a connection sees its end.
    fn fail(&mut self, name: u64, side: usize, why: Reason) {
        let node = self.links[&name].ends[side].node;
        self.note(&[3, node as u64, name, side as u64]);
        self.abort(name, side, &why);
        let link = self.links.get_mut(&name).expect("an existing link");
        match link.ends[side].tag {
            Some(tag) => {
                link.ends[side].state = EndState::Failed;
                self.nodes[node].happened.push_back(Happened::Failed(tag, why));
            }
            None => {
                link.ends[side].state = EndState::Gone;
                self.bury(name);
            }
        }
    }

    /// All operations of one side end.
    fn abort(&mut self, name: u64, side: usize, why: &Reason) {
        let link = self.links.get_mut(&name).expect("an existing link");
        let node = link.ends[side].node;
        let mut events = Vec::new();
        for message in std::mem::take(&mut link.pipes[side].queue) {
            events.push(Happened::Sent(message.tag, Err(why.clone())));
        }
        // Data that were fetched, and whose completion is on its way.
        let due = std::mem::take(&mut self.nodes[node].due);
        let transfers = self.transfers.iter_mut().filter(|(_, it)| it.link == name);
        let mut over = Vec::new();
        for (&number, transfer) in transfers {
            if transfer.side == side && transfer.payload.take().is_some() {
                events.push(Happened::Sent(transfer.tag, Err(why.clone())));
            }
            if transfer.side != side {
                if let Some((_, tag)) = transfer.landing.take() {
                    events.push(Happened::Received(tag, None));
                }
                over.push(number);
            }
        }
        self.nodes[node].happened.extend(due.into_iter().map(|(_, event)| event));
        self.nodes[node].happened.extend(events);
        // The sender of these learns of their end by that of the connection.
        for number in over {
            let transfer = self.transfers.remove(&number).expect("found above");
            if let Some(payload) = transfer.payload {
                let message =
                    Queued { header: Vec::new(), payload, tag: transfer.tag, leaves_at: u64::MAX };
                let link = self.links.get_mut(&name).expect("an existing link");
                link.pipes[transfer.side].queue.push_back(message);
            }
        }
        let link = self.links.get_mut(&name).expect("an existing link");
        link.pipes[1 - side].flight.clear();
        (link.pipes[1 - side].flight_bytes, link.pipes[1 - side].paused) = (0, None);
    }

    /// The other side of a pipe will see its end.
    fn end_pipe(&mut self, name: u64, side: usize, at: u64, why: Reason) {
        let pipe = &mut self.links.get_mut(&name).expect("an existing link").pipes[side];
        pipe.last_at = pipe.last_at.max(at);
        pipe.flight.push_back(Item { at: pipe.last_at, arrival: Arrival::End(why) });
    }

    /// A connection breaks for both sides. Arrival is on its way may be lost.
    fn break_link(&mut self, name: u64, cause: Fault) {
        for side in 0..2 {
            self.truncate(name, side);
            let at = self.now() + self.latency();
            if self.links[&name].ends[1 - side].state == EndState::Open {
                let why = format!("the connection broke: {cause:?}");
                self.end_pipe(name, side, at, why.into());
            }
        }
    }

    /// Loses the last messages of a pipe.
    fn truncate(&mut self, name: u64, side: usize) {
        let length = self.links[&name].pipes[side].flight.len();
        let kept = self.random.usize(0..=length);
        let pipe = &mut self.links.get_mut(&name).expect("an existing link").pipes[side];
        for item in pipe.flight.split_off(kept) {
            match item.arrival {
                Arrival::Message(header, body) => pipe.flight_bytes -= header.len() + body.bytes(),
                Arrival::End(_) => pipe.flight.push_back(item),
            }
        }
    }

    pub fn close(&mut self, endpoint: u64) {
        let (name, side) = side_of(endpoint);
        let Some(link) = self.links.get_mut(&name) else { return };
        let Some(tag) = link.ends[side].tag.take() else { return };
        let node = link.ends[side].node;
        link.ends[side].state = EndState::Gone;
        self.abort(name, side, &BROKEN.into());
        self.nodes[node].happened.push_back(Happened::Closed(tag));
        if self.links[&name].ends[1 - side].state == EndState::Open {
            let at = self.now() + self.latency();
            self.end_pipe(name, side, at, BROKEN.into());
        }
        self.bury(name);
    }

    /// Forgets a connection that both sides have left.
    fn bury(&mut self, name: u64) {
        if self.links[&name].ends.iter().all(|end| end.state == EndState::Gone) {
            self.links.remove(&name);
            self.transfers.retain(|_, it| it.link != name);
        }
    }

    /// A process gives away what it has sent, before it ends.
    pub fn settle(&mut self, node: usize) {
        let own = |(_, link): &(&u64, &Link), side: usize| link.ends[side].node == node;
        for side in 0..2 {
            let names: Vec<u64> =
                self.links.iter().filter(|it| own(it, side)).map(|(&name, _)| name).collect();
            for name in names {
                let queue = &mut self.links.get_mut(&name).expect("found above").pipes[side].queue;
                queue.iter_mut().filter(|it| it.leaves_at != u64::MAX).for_each(|message| {
                    message.leaves_at = 0;
                });
                self.leave(name, side);
            }
        }
    }

    /// A process exits: its remaining connections end.
    pub fn exit(&mut self, node: usize) {
        let names: Vec<u64> = self.links.keys().copied().collect();
        for (name, side) in names.into_iter().flat_map(|name| [(name, 0), (name, 1)]) {
            let Some(link) = self.links.get_mut(&name) else { continue };
            if link.ends[side].node == node && link.ends[side].state != EndState::Gone {
                link.ends[side].tag.get_or_insert(0);
                self.close(name << 1 | side as u64);
            }
        }
        self.nodes[node].is_dead = true;
        self.nodes[node].happened.clear();
        self.nodes[node].due.clear();
    }

    /// A process ends without a word.
    pub fn kill(&mut self, node: usize, with_host: bool) {
        self.counts.add(if with_host { Fault::HostDied } else { Fault::Died });
        self.note(&[4, node as u64]);
        let now = self.now();
        self.nodes[node].is_dead = true;
        self.nodes[node].dies_with_host = with_host;
        let names: Vec<u64> = self.links.keys().copied().collect();
        for (name, side) in names.into_iter().flat_map(|name| [(name, 0), (name, 1)]) {
            let Some(link) = self.links.get_mut(&name) else { continue };
            if link.ends[side].node != node || link.ends[side].state == EndState::Gone {
                continue;
            }
            (link.ends[side].state, link.ends[side].tag) = (EndState::Gone, None);
            self.truncate(name, side);
            self.abort(name, side, &BROKEN.into());
            let late = self.random.u64(0..if with_host { HOST_NS } else { RESET_NS });
            if self.links[&name].ends[1 - side].state == EndState::Open {
                self.end_pipe(name, side, now + late, BROKEN.into());
            }
            self.bury(name);
        }
        (self.nodes[node].happened, self.nodes[node].due) = (VecDeque::new(), VecDeque::new());
    }

    /// Returns the time at which a process has work, if it ever has.
    pub fn next_work(&self, node: usize) -> Option<u64> {
        if !self.nodes[node].happened.is_empty() {
            return Some(self.now());
        }
        let due = self.nodes[node].due.front().map(|(at, _)| *at);
        let mut next = due.unwrap_or(u64::MAX);
        for link in self.links.values() {
            for side in (0..2).filter(|&side| link.ends[side].node == node) {
                let (out, into) = (&link.pipes[side], &link.pipes[1 - side]);
                if let Some(first) = out.queue.front().filter(|it| self.fits(out, it)) {
                    next = next.min(first.leaves_at);
                }
                if let Some(first) = into.flight.front()
                    && link.ends[side].state == EndState::Open
                    && (into.paused.is_none() || self.breaks_off(into))
                {
                    next = next.min(first.at);
                }
            }
        }
        for it in self.transfers.values().filter(|it| it.landing.is_some()) {
            if self.links[&it.link].ends[1 - it.side].node == node {
                next = next.min(it.next_at);
            }
        }
        (next != u64::MAX).then_some(next)
    }

    /// Returns the number of connections, transfers and payloads that are still known.
    pub fn remains(&self) -> [usize; 3] {
        [self.links.len(), self.transfers.len(), self.held.len()]
    }
}

impl Drop for World {
    fn drop(&mut self) {
        clock::simulate(None);
    }
}
