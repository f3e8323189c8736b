//! The tasks and nodes of a job. Tasks that share an address space form a node. Every task
//! contributes its [`Card`]; each computes the same nodes from all cards.

use coherence::message::NodeId;
use net::secret::Secret;
use proc::host::boot_id;
use serde::{Deserialize, Serialize};

use crate::error::DsmError;
use crate::neighbours;
use crate::settings::{Agreed, START, START_IN_SHARED_SPACES};

/// The data that a task sends to all others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Card {
    /// Identifies its page tables: equal for tasks that share them.
    pub space: [u8; 16],
    /// It lives in a space whose segments are shared memory.
    pub in_shared_space: bool,
    /// Identifies its machine: equal for tasks that share one kernel.
    pub machine: String,
    /// The name of the machine, for messages.
    pub host: String,
    /// The ID of its process.
    pub pid: u32,
    /// A secret. The job uses that of the first task.
    pub secret: [u8; Secret::BYTES],
    /// The settings that must be equal in all tasks. The job uses those of the first task.
    pub agreed: Agreed,
}

/// A task of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its node.
    pub node: NodeId,
    /// Its index in the node.
    pub local: u32,
    /// The name of its machine, for messages.
    pub host: String,
    /// The ID of its process.
    pub pid: u32,
}

/// The tasks and nodes of a job, for one of its tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// The rank of this task.
    pub rank: u32,
    /// All tasks, by rank.
    pub members: Vec<Member>,
    /// The ranks of each node's tasks. The process of the first runs the agent.
    pub nodes: Vec<Vec<u32>>,
    /// The numbers of tasks and nodes on this machine.
    pub on_machine: (usize, usize),
}

impl Card {
    /// Returns the card of this process.
    pub fn new(agreed: Agreed) -> Self {
        let uname = rustix::system::uname();
        let host = uname.nodename().to_string_lossy().into_owned();
        Self {
            space: neighbours::space(),
            in_shared_space: control::this_task().is_some_and(|task| task.control.is_shared()),
            machine: boot_id().map_or_else(|| host.clone(), |id| format!("{id:032x}")),
            host,
            pid: std::process::id(),
            secret: *Secret::random().bytes(),
            agreed,
        }
    }

    /// Returns the settings of the job that these tasks form.
    pub fn agree(cards: &[Card]) -> Agreed {
        let mut agreed = cards[0].agreed.clone();
        if agreed.start == START && cards.iter().any(|card| card.in_shared_space) {
            agreed.start = START_IN_SHARED_SPACES;
        }
        agreed
    }

    /// Returns the card's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("into memory")
    }

    /// Parses the card of another task.
    pub fn parse(bytes: &[u8]) -> Result<Self, DsmError> {
        postcard::from_bytes(bytes).map_err(|_| {
            DsmError::System(
                "another task of this job has another version of libjia; install the same on all \
                 hosts"
                    .into(),
            )
        })
    }
}

impl World {
    /// Computes the nodes from the cards of all tasks.
    pub fn new(rank: u32, cards: &[Card]) -> Self {
        let mut spaces: Vec<([u8; 16], &str)> = Vec::new();
        let mut nodes: Vec<Vec<u32>> = Vec::new();
        let mut members = Vec::new();
        for (number, card) in cards.iter().enumerate() {
            let space = (card.space, &*card.machine);
            let node = spaces.iter().position(|it| *it == space).unwrap_or_else(|| {
                spaces.push(space);
                nodes.push(Vec::new());
                spaces.len() - 1
            });
            members.push(Member {
                node: node as NodeId,
                local: nodes[node].len() as u32,
                host: card.host.clone(),
                pid: card.pid,
            });
            nodes[node].push(number as u32);
        }
        let machine = &cards[rank as usize].machine;
        let here = |task: u32| cards[task as usize].machine == *machine;
        let on_machine = (
            (0..cards.len() as u32).filter(|&task| here(task)).count(),
            nodes.iter().filter(|tasks| here(tasks[0])).count(),
        );
        Self { rank, members, nodes, on_machine }
    }

    /// Returns this task.
    pub fn own(&self) -> &Member {
        &self.members[self.rank as usize]
    }

    /// Returns the ranks of the tasks of this task's node.
    pub fn neighbours(&self) -> &[u32] {
        &self.nodes[self.own().node as usize]
    }

    /// Returns the name of a node for messages: its number, tasks, host and process.
    pub fn name(&self, node: NodeId) -> String {
        let tasks = &self.nodes[node as usize];
        let first = &self.members[tasks[0] as usize];
        let tasks = match tasks[..] {
            [one] => format!("task {one}"),
            _ => format!("tasks {tasks:?}"),
        };
        format!("node {node} ({tasks}, host {}, PID {})", first.host, first.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn tasks_of_one_space_are_a_node() {
        let agreed = Settings::of(|_| None).expect("defaults").agreed;
        let cards = [(7u8, "a"), (9, "a"), (7, "a"), (7, "b")].map(|(space, machine)| Card {
            space: [space; 16],
            machine: machine.into(),
            pid: u32::from(space),
            ..Card::new(agreed.clone())
        });
        let cards = cards.map(|card| Card::parse(&card.bytes()).expect("ours"));
        let world = World::new(2, &cards);
        assert_eq!(world.nodes, [vec![0, 2], vec![1], vec![3]]);
        assert_eq!((world.own().node, world.own().local), (0, 1));
        assert_eq!(world.on_machine, (3, 2));
        assert!(world.name(0).contains("tasks [0, 2]") && world.name(0).contains("PID 7"));
        assert!(world.name(2).starts_with("node 2 (task 3, host "));
        assert!(Card::parse(&[1, 2, 3]).is_err());
    }

    #[test]
    fn shared_memory_begins_elsewhere_if_a_task_lives_in_a_shared_space() {
        let start = |setting: Option<&str>, in_shared_space: [bool; 2]| {
            let get = |name: &str| (name == "START").then(|| setting.map(Into::into)).flatten();
            let agreed = Settings::of(get).expect("an address").agreed;
            let card = |in_shared_space| Card { in_shared_space, ..Card::new(agreed.clone()) };
            Card::agree(&in_shared_space.map(card)).start
        };
        assert_eq!(start(None, [false, false]), START);
        assert_eq!(start(None, [false, true]), START_IN_SHARED_SPACES);
        assert_eq!(start(Some("0x5a0000000000"), [true, true]), 0x5a00_0000_0000);
    }
}
