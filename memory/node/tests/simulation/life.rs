//! The life of a simulated node: it meets the others, runs its tasks, serves the others until they
//! have ended theirs, and leaves.

use coherence::message::NodeId;
use net::mesh::{Gone, Meeting, Mesh, Received};
use net::simulation::{Network, Wait};
use node::driver::Driver;
use sync::clock;

use crate::memory::Pages;

/// The header of a heartbeat.
pub const ALIVE: [u8; 1] = [200];
/// The tasks of the sender have ended.
const DONE: [u8; 1] = [201];
/// Interval of the checks of a node that meets the others.
const MEET_CHECK: std::time::Duration = std::time::Duration::from_millis(20);

/// The stage of a node.
pub enum Stage {
    Meets(Meeting),
    Runs,
    Leaves,
    Over,
}

/// The part of a node's state that does not depend on the protocol.
pub struct Life {
    pub stage: Stage,
    pub nodes: usize,
    done: usize,
    has_sent_done: bool,
    /// Why the node fails.
    pub failure: Option<String>,
}

impl Life {
    pub fn new(nodes: usize) -> Self {
        let stage = Stage::Meets(Meeting::begin());
        Self { stage, nodes, done: 0, has_sent_done: false, failure: None }
    }

    pub fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }

    /// Handles a message that does not belong to the protocol. Returns true if it was one.
    pub fn receive(&mut self, header: &[u8]) -> bool {
        self.done += usize::from(header == DONE);
        header == DONE || header == ALIVE
    }
}

/// A node with tasks.
pub trait Player: Driver<Memory = Pages> {
    fn life(&mut self) -> &mut Life;

    /// Lets the tasks run that can.
    fn run_tasks(&mut self, network: &Network);

    /// Returns true if a task can go on.
    fn can_run(&self) -> bool;

    /// Returns true if the tasks have ended, and no request of theirs is in flight.
    fn have_tasks_ended(&self) -> bool;

    /// The time of the next timer, of the engine's clock.
    fn timer_ns(&self) -> Option<u64>;

    /// Resumes the tasks that were stopped at these pages.
    fn resume(&mut self, pages: &[u64]);
}

fn mesh<P: Player>(player: &mut P) -> &mut Mesh {
    player.engine_mut().mesh.as_mut().expect("there are several nodes")
}

fn meet<P: Player>(player: &mut P, names: &[&str]) {
    let Stage::Meets(mut meeting) = std::mem::replace(&mut player.life().stage, Stage::Runs) else {
        unreachable!("a node that meets")
    };
    match meeting.step(mesh(player), names, || false) {
        None => player.life().stage = Stage::Meets(meeting),
        Some(Err(why)) => player.life().fail(why),
        Some(Ok(())) => {
            let early: Vec<Received> = meeting.early;
            early.into_iter().for_each(|message| player.received(message));
        }
    }
}

/// Gives a node a turn. Returns the next event that it needs.
pub fn turn<P: Player>(player: &mut P, network: &Network, names: &[&str]) -> Wait {
    if matches!(player.life().stage, Stage::Meets(_)) {
        meet(player, names);
    } else {
        player.run_tasks(network);
        player.turn();
        let pages = player.engine_mut().memory.take_resumed();
        player.resume(&pages);
        let all = player.life().nodes;
        let works = player.life().failure.is_none();
        if player.have_tasks_ended() && !player.life().has_sent_done {
            player.life().has_sent_done = true;
            mesh(player).send_all(&DONE, &[]);
        }
        let life = player.life();
        if works && life.has_sent_done && life.done + 1 == all && matches!(life.stage, Stage::Runs)
        {
            mesh(player).leave();
            player.life().stage = Stage::Leaves;
        }
    }
    let sleeps = player.engine_mut().arm().expect("the simulation can");
    let has_left = matches!(player.life().stage, Stage::Leaves) && mesh(player).remains() == [0; 3];
    if player.life().failure.is_some() || sleeps && has_left {
        player.life().stage = Stage::Over;
    }
    let timer = player.timer_ns().map(|until| player.engine().instant(until));
    let (network, can_run) = (mesh(player).deadline(), player.can_run());
    match player.life().stage {
        Stage::Over => Wait::Over,
        Stage::Meets(_) if sleeps => Wait::Message(Some(clock::now() + MEET_CHECK)),
        _ if !sleeps || can_run => Wait::Ready,
        _ => Wait::Message(timer.into_iter().chain(network).min()),
    }
}

/// Handles the end of a connection. A node that leaves has ended its tasks.
pub fn disconnected<P: Player>(player: &mut P, gone: Gone) {
    if let Gone::Lost(node, why) = gone {
        player.node_lost(node, &why);
    }
}

/// Handles the loss of a node: the job ends.
pub fn lost(life: &mut Life, node: NodeId, why: &str) {
    // A node that has ended its work may leave before this one.
    if !matches!(life.stage, Stage::Leaves) {
        life.fail(format!("node {node} is lost: {why}"));
    }
}
