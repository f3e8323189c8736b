//! The nodes of a job: they meet, send, send heartbeats, and leave.

use std::time::Duration;

use fastrand::Rng;
use net::mesh::{Gone, Meeting, Mesh, Received};
use net::secret::Secret;
use net::simulation::{DETECTION, Network, Next, Plan, Wait};
use sync::clock;

use crate::{Outcome, STEPS_MAX, TIME_MAX};

/// Time limit of a node's silence.
const TIMEOUT: Duration = Duration::from_secs(8);
/// Time limit of the product for meeting, and what a turn may add.
const MEET_MAX: Duration = Duration::from_secs(31);
const ALIVE: u8 = 0;
const DATA: u8 = 1;
/// The sender has sent everything. No node leaves before all have.
const DONE: u8 = 2;

enum Stage {
    Meets(Meeting),
    Talks,
    Leaves,
    Over,
}

struct Node {
    mesh: Mesh,
    me: usize,
    stage: Stage,
    wait: Wait,
    actions: u64,
    sent: Vec<u64>,
    received: Vec<u64>,
    /// Number of others that have sent everything.
    done: usize,
    has_sent_all: bool,
    /// Why the node ends the job.
    failure: Option<String>,
}

impl Node {
    fn turn(&mut self, network: &Network, names: &[&str]) {
        match &mut self.stage {
            Stage::Meets(meeting) => {
                if let Some(result) = meeting.step(&mut self.mesh, names, || false) {
                    let early = std::mem::take(&mut meeting.early);
                    early.into_iter().for_each(|message| self.receive(message));
                    self.stage = Stage::Talks;
                    self.failure = result.err();
                } else {
                    assert!(!self.mesh.is_whole(), "a node waits, although all have connected");
                }
            }
            Stage::Talks | Stage::Leaves => self.talk(network),
            Stage::Over => {}
        }
        let sleeps = self.mesh.may_sleep().expect("the simulation can");
        let has_left = matches!(self.stage, Stage::Leaves) && self.mesh.remains() == [0; 3];
        if self.failure.is_some() || sleeps && has_left {
            self.stage = Stage::Over;
        }
        self.wait = match &self.stage {
            Stage::Over => Wait::Over,
            Stage::Talks if self.actions > 0 || !self.has_sent_all => Wait::Ready,
            _ if !sleeps => Wait::Ready,
            // As `Mesh::meet`.
            Stage::Meets(_) => Wait::Message(Some(clock::now() + Duration::from_millis(20))),
            _ => Wait::Message(self.mesh.deadline()),
        };
    }

    fn talk(&mut self, network: &Network) {
        match self.mesh.receive() {
            Some(Ok(message)) => self.receive(message),
            Some(Err(Gone::Left(node))) => network.note(&[8, node.into()]),
            Some(Err(Gone::Lost(node, why))) => {
                self.failure = Some(format!("{node} is lost: {why}"));
            }
            None if self.actions > 0 => self.act(network),
            None if !self.has_sent_all => {
                self.has_sent_all = true;
                self.mesh.send_all(&[DONE], &[]);
            }
            None if matches!(self.stage, Stage::Talks) && self.done + 1 == self.sent.len() => {
                self.mesh.leave();
                self.stage = Stage::Leaves;
            }
            None => {}
        }
        if let Some((node, time)) = self.mesh.beat(clock::now()) {
            self.failure = Some(format!("{node} is silent for {time:?}"));
        }
    }

    fn act(&mut self, network: &Network) {
        self.actions -= 1;
        let to = network.below(self.sent.len() as u64) as usize;
        let header = [&[DATA][..], &self.sent[to].to_le_bytes()].concat();
        let body = vec![self.sent[to] as u8; network.below(9_000) as usize];
        if to != self.me && self.mesh.send(to as u32, &header, body).is_ok() {
            self.sent[to] += 1;
        }
    }

    fn receive(&mut self, message: Received) {
        if message.header == [ALIVE] {
            return;
        }
        if message.header == [DONE] {
            return self.done += 1;
        }
        let expected = &mut self.received[message.from as usize];
        let number = message.header[1..].try_into().map(u64::from_le_bytes).expect("a number");
        assert_eq!((message.header[0], number), (DATA, *expected), "messages come in order");
        assert!(message.body.iter().all(|&byte| byte == number as u8), "the body is whole");
        *expected += 1;
    }
}

/// Runs a job.
pub fn job(seed: u64, with_losses: bool) -> Outcome {
    let mut random = Rng::with_seed(seed);
    let nodes = random.usize(2..7);
    let actions = random.u64(0..40);
    let plan = match with_losses {
        true => Plan::deadly(&mut random, nodes, 20_000_000_000, 30 * nodes as u64 + actions * 10),
        false => Plan::troubled(&mut random, nodes, 1_000_000_000),
    };
    let bound = MEET_MAX + DETECTION + 2 * TIMEOUT + 20 * Duration::from_nanos(plan.stop_ns);
    let mut network = Network::new(seed, plan);
    let secret = Secret::new([7; 32]);
    let mut all: Vec<Option<Node>> = (0..nodes)
        .map(|me| {
            let mesh = network.mesh(me as u32, &secret, Some(TIMEOUT), vec![ALIVE]);
            let (sent, received) = (vec![0; nodes], vec![0; nodes]);
            let (stage, wait) = (Stage::Meets(Meeting::begin()), Wait::Ready);
            let (mesh, failure) = (mesh.expect("a mesh"), None);
            let (done, has_sent_all) = (0, false);
            Some(Node {
                mesh,
                me,
                stage,
                wait,
                actions,
                sent,
                received,
                done,
                has_sent_all,
                failure,
            })
        })
        .collect();
    let address = |node: &Option<Node>| node.as_ref().expect("it lives").mesh.address().to_vec();
    let addresses: Vec<Vec<u8>> = all.iter().map(address).collect();
    let addresses: Vec<&[u8]> = addresses.iter().map(Vec::as_slice).collect();
    let names = ["a", "b", "c", "d", "e", "f"];
    for node in all.iter_mut().flatten() {
        node.mesh.connect(&addresses).expect("addresses of fabrics");
    }
    let mut died = None;
    let (mut lost, mut received) = (0, 0);
    loop {
        let waits: Vec<Wait> =
            all.iter().map(|node| node.as_ref().map_or(Wait::Over, |node| node.wait)).collect();
        let is_late = network.now() >= TIME_MAX || network.steps() >= STEPS_MAX;
        assert!(!is_late, "the job goes on for ever: {waits:?}");
        match network.next(&waits) {
            Next::Turn(at) => {
                let node = all[at].as_mut().expect("it lives");
                node.turn(&network, &names);
                if let Some(why) = &node.failure {
                    assert!(with_losses, "{at} fails without a fault: {why}");
                    died.get_or_insert(network.now());
                    lost += 1;
                    all[at] = None; // its process ends
                }
            }
            Next::Death(at) => {
                died.get_or_insert(network.now());
                all[at] = None;
            }
            Next::End => break,
        }
    }
    if let Some(died) = died {
        assert!(network.now() - died < bound, "{:?} after the first end", network.now() - died);
    }
    for node in all.iter().flatten() {
        assert!(matches!(node.stage, Stage::Over), "{} waits for ever", node.me);
        received += node.received.iter().sum::<u64>();
        for (from, count) in node.received.iter().enumerate().filter(|_| !with_losses) {
            let sender = all[from].as_ref().expect("nobody dies");
            assert_eq!(*count, sender.sent[node.me], "all that was sent arrives");
        }
    }
    all.clear();
    assert_eq!(network.remains(), [0; 3], "the network holds something");
    Outcome { hash: network.hash(), counts: network.counts(), lost, received }
}
