//! A network and a clock that exist in one thread, for tests: one seed drives several processes.
//!
//! A [`Network`] makes fabrics and meshes whose carrier moves messages within this process, and it
//! is the scheduler of the processes. A test gives each process its turn when [`Network::next`]
//! names it, and reports what the process waits for. The seed decides which process has the next
//! turn, when each message arrives, and which faults happen ([`Plan`]). The same seed gives the
//! same run ([`Network::hash`]).
//!
//! The time is that of [`sync::clock`]. It advances when no process can run. A simulated process
//! must therefore never sleep: it uses [`Fabric::arm`](crate::fabric::Fabric::arm) and the
//! deadline as a thread does that sleeps in poll(2), and so a missed wake-up is a hang.
//!
//! `world` is the state of the network, which consists of the parts in `link`. `carrier` is the
//! carrier, and `plan` has the faults.

mod carrier;
mod link;
mod plan;
mod world;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

pub use plan::{Counts, Death, Fault, Plan};

use crate::carrier::Carrier;
use crate::carriers::Carriers;
use crate::error::FabricError;
use crate::fabric::Fabric;
use crate::mesh::{Mesh, NodeId};
use crate::secret::Secret;
use crate::wire::CarrierKind;
use carrier::{Shared, Simulated, lock};
use world::World;

/// Time after which the peers of a dead process or host know of it, unless they are stopped.
pub const DETECTION: Duration = Duration::from_nanos(world::HOST_NS);

/// Maximum time of a turn of a process that is not slow.
const TURN_NS: u64 = 2_000;

/// The event that a process needs before its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It can go on at once.
    Ready,
    /// A message, or this time.
    Message(Option<Instant>),
    /// Nothing: it has ended.
    Over,
}

/// The next step of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The process has a turn.
    Turn(usize),
    /// The process is dead. The test drops it.
    Death(usize),
    /// No process will ever have a turn.
    End,
}

/// A network of simulated processes, and their scheduler.
pub struct Network {
    world: Shared,
    /// When each process may have its next turn: it is stopped, or slow.
    resumes: Vec<u64>,
    steps: u64,
}

impl Network {
    /// A network without processes. The thread has a simulated clock until it is dropped.
    pub fn new(seed: u64, plan: Plan) -> Self {
        let world = Arc::new(Mutex::new(World::new(seed, plan)));
        Self { world, resumes: Vec::new(), steps: 0 }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// Makes the fabric of a new process. The place of the process is the number of those before.
    pub fn fabric(&mut self, id: u64, secret: &Secret) -> Result<Fabric, FabricError> {
        let node = self.world().add_node(id);
        self.resumes.push(0);
        let failed = |errno| FabricError::System { doing: "make a descriptor", errno };
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed)?;
        let world = self.world.clone();
        let carrier: Box<dyn Carrier> = Box::new(Simulated { world, node, descriptor });
        Fabric::over(id, secret, Carriers::of(vec![(CarrierKind::Local, carrier)])?)
    }

    /// Makes the mesh of a new process.
    pub fn mesh(
        &mut self,
        me: NodeId,
        secret: &Secret,
        timeout: Option<Duration>,
        alive: Vec<u8>,
    ) -> Result<Mesh, FabricError> {
        Ok(Mesh::with_fabric(self.fabric(me.into(), secret)?, timeout, alive))
    }

    /// Selects the next turn, given what each process waits for. Advances the time if no process
    /// can run now.
    pub fn next(&mut self, waits: &[Wait]) -> Next {
        self.select(waits).unwrap_or(Next::End)
    }

    fn select(&mut self, waits: &[Wait]) -> Option<Next> {
        loop {
            self.steps += 1;
            if let Some(node) = self.death(waits) {
                return Some(Next::Death(node));
            }
            let due = self.due(waits)?;
            let mut world = lock(&self.world);
            let node = due[world.random.usize(0..due.len())];
            let (stops, stop_ns) = (world.plan.stops, world.plan.stop_ns);
            if world.chance(Fault::Stopped, stops) {
                let shift = world.random.u32(0..14);
                self.resumes[node] = world.now() + (world.random.u64(0..stop_ns) >> shift);
                continue;
            }
            let turn_ns = match world.plan.slow.filter(|(slow, _)| *slow == node) {
                Some((_, most)) => {
                    world.counts.add(Fault::Slow);
                    most
                }
                None => TURN_NS,
            };
            self.resumes[node] = world.now() + world.random.u64(0..turn_ns);
            let (id, now) = (world.nodes[node].id, world.now());
            world.note(&[5, id, now]);
            return Some(Next::Turn(node));
        }
    }

    /// Returns the processes that can run now. Advances the time if there is none. Returns `None`
    /// if no process will ever run.
    fn due(&self, waits: &[Wait]) -> Option<Vec<usize>> {
        let world = self.world();
        let now = world.now();
        let time = |node: usize| {
            let at = match waits[node] {
                _ if world.nodes[node].is_dead => return None,
                Wait::Over => return None,
                Wait::Ready => now,
                Wait::Message(until) => {
                    let until = until.map(|until| world.time(until));
                    world.next_work(node).into_iter().chain(until).min()?
                }
            };
            Some((node, at.max(self.resumes[node])))
        };
        let times: Vec<(usize, u64)> = (0..waits.len()).filter_map(time).collect();
        let first = times.iter().map(|(_, at)| *at).min()?.max(now);
        world.set_now(first);
        Some(times.iter().filter(|(_, at)| *at <= first).map(|(node, _)| *node).collect())
    }

    /// Returns the process that dies now, if one does.
    fn death(&mut self, waits: &[Wait]) -> Option<usize> {
        let mut world = lock(&self.world);
        let steps = self.steps;
        let at = world.plan.deaths.iter().position(|death| death.step <= steps)?;
        let death = world.plan.deaths.swap_remove(at);
        let is_gone = world.nodes[death.node].is_dead || waits[death.node] == Wait::Over;
        drop(world);
        (!is_gone).then(|| self.kill(death.node, death.with_host))
    }

    /// Kills a process, or fails its host. Returns its place.
    pub fn kill(&mut self, node: usize, with_host: bool) -> usize {
        self.world().kill(node, with_host);
        node
    }

    /// Returns true if a process is dead, or has ended.
    pub fn is_dead(&self, node: usize) -> bool {
        self.world().nodes[node].is_dead
    }

    /// Returns the time until which a process is stopped, if it is.
    pub fn resumes(&self, node: usize) -> Instant {
        self.world().instant(self.resumes[node])
    }

    /// Returns the time since the network was made.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.world().now())
    }

    /// Advances the time, for a test that gives the turns itself.
    pub fn advance(&self, time: Duration) {
        let world = self.world();
        world.set_now(world.now() + time.as_nanos() as u64);
    }

    /// Returns the number of turns, stops and deaths so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns how often each fault has happened.
    pub fn counts(&self) -> Counts {
        self.world().counts
    }

    /// Returns a hash of all turns and deliveries, with their times.
    pub fn hash(&self) -> u64 {
        self.world().hash
    }

    /// Adds something that the test has seen to the hash.
    pub fn note(&self, parts: &[u64]) {
        self.world().note(parts);
    }

    /// Returns a random number below `end`, which is above 0.
    pub fn below(&self, end: u64) -> u64 {
        self.world().random.u64(0..end)
    }

    /// Returns the number of connections, payloads under way, and payloads that are kept.
    pub fn remains(&self) -> [usize; 3] {
        self.world().remains()
    }
}
