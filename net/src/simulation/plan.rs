//! The faults of a simulated network: their kinds, probabilities and counts.

use std::fmt;

use fastrand::Rng;

use crate::fabric::ANSWER_MAX;

/// A fault that the simulation injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Fault {
    /// A send stays with the carrier for a while.
    Pending,
    /// A send waits, since the receiver has not taken earlier messages.
    Full,
    /// A payload is announced; the receiver fetches it.
    Announced,
    /// The carrier holds a payload until the receiver takes it.
    Held,
    /// A part of a payload arrives, the rest later.
    Partial,
    /// Another peer's message is delivered before one that arrived earlier.
    Reordered,
    /// A message passes an earlier one of the same connection whose payload is under way.
    Overtook,
    /// A connection fails at once (EMFILE).
    ConnectFailed,
    /// A connection fails after some time.
    ConnectRefused,
    /// A connection is made, and nothing on it arrives.
    ConnectSilent,
    /// A send fails at once (ECONNRESET).
    SendFailed,
    /// A connection breaks.
    Broken,
    /// The receiver has no memory for a payload (ENOMEM).
    NoMemory,
    /// A process ends without a word.
    Died,
    /// A host fails: its peers learn it late.
    HostDied,
    /// A process is stopped and continued.
    Stopped,
    /// A process takes long for a turn.
    Slow,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 17] = [
        Self::Pending,
        Self::Full,
        Self::Announced,
        Self::Held,
        Self::Partial,
        Self::Reordered,
        Self::Overtook,
        Self::ConnectFailed,
        Self::ConnectRefused,
        Self::ConnectSilent,
        Self::SendFailed,
        Self::Broken,
        Self::NoMemory,
        Self::Died,
        Self::HostDied,
        Self::Stopped,
        Self::Slow,
    ];
}

/// How often each fault has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; Fault::ALL.len()]);

impl Counts {
    /// Returns how often a fault has happened.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Counts a fault.
    pub fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(all, one)| *all += one);
    }

    /// Returns the faults that have never happened.
    pub fn never(&self) -> Vec<Fault> {
        Fault::ALL.into_iter().filter(|&fault| self.of(fault) == 0).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in Fault::ALL {
            write!(f, "{fault:?} {} ", self.of(fault))?;
        }
        Ok(())
    }
}

/// The end of a process at a step of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// Number of steps before it.
    pub step: u64,
    /// The process, by its place in the network.
    pub node: usize,
    /// The host fails, too: its kernel does not reset the connections.
    pub with_host: bool,
}

/// Time limit of a handshake: that of the fabric.
const HANDSHAKE_NS: u64 = ANSWER_MAX.as_nanos() as u64;
/// Length that the messages of a handshake do not reach. A carrier delivers these whole.
pub(super) const HANDSHAKE_BYTES: usize = 100;

/// The faults of a run. A number n stands for the probability 1/n, and 0 for never.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Maximum time of a message on its way.
    pub latency_ns: u64,
    /// Bytes of a connection that are under way before sends wait.
    pub window_bytes: usize,
    /// Minimum length of a payload that is announced, and of one that the carrier holds.
    pub announced_bytes: usize,
    /// Later messages pass those whose payload is under way, and each side has a connection of its
    /// own, as with UCX. Otherwise a connection is a stream for both sides, as with TCP.
    ///
    /// UCX reports the end of a connection between two live processes to the side that sends next,
    /// if at all. So in such a plan no connection breaks, and no stop exceeds a handshake.
    pub overtakes: bool,
    /// [`Fault::Pending`].
    pub pending: u32,
    /// [`Fault::Held`].
    pub held: u32,
    /// [`Fault::ConnectFailed`], [`Fault::ConnectRefused`] and [`Fault::ConnectSilent`].
    pub connect: u32,
    /// [`Fault::SendFailed`].
    pub send: u32,
    /// [`Fault::Broken`], at each message.
    pub breaks: u32,
    /// [`Fault::NoMemory`], at each announced payload.
    pub no_memory: u32,
    /// [`Fault::Stopped`], at each step.
    pub stops: u32,
    /// Maximum time of a stop.
    pub stop_ns: u64,
    /// The process that is slow, and the maximum time of its turn.
    pub slow: Option<(usize, u64)>,
    /// The processes that die.
    pub deaths: Vec<Death>,
}

impl Plan {
    /// Returns a plan without faults, whose messages take time.
    pub fn calm() -> Self {
        Self {
            latency_ns: 20_000,
            window_bytes: usize::MAX,
            announced_bytes: usize::MAX,
            overtakes: false,
            pending: 0,
            held: 0,
            connect: 0,
            send: 0,
            breaks: 0,
            no_memory: 0,
            stops: 0,
            stop_ns: 0,
            slow: None,
            deaths: Vec::new(),
        }
    }

    /// Returns a plan in which every message arrives, late, in pieces and behind others, and in
    /// which processes are slow and stopped for at most `stop_ns`.
    pub fn troubled(random: &mut Rng, nodes: usize, stop_ns: u64) -> Self {
        let overtakes = random.bool();
        Self {
            latency_ns: 1 << random.u32(10..26),
            window_bytes: 1 << random.u32(6..18),
            announced_bytes: HANDSHAKE_BYTES << random.u32(0..8),
            overtakes,
            pending: random.u32(0..4),
            held: random.u32(0..4),
            stops: if random.u32(0..3) == 0 { random.u32(20..500) } else { 0 },
            stop_ns: if overtakes { stop_ns.min(HANDSHAKE_NS / 100) } else { stop_ns },
            slow: (random.u32(0..3) == 0)
                .then(|| (random.usize(0..nodes), 1 << random.u32(16..28))),
            ..Self::calm()
        }
    }

    /// The same, with connections that fail or break, failed allocations, and processes that die
    /// within `steps`.
    pub fn deadly(random: &mut Rng, nodes: usize, stop_ns: u64, steps: u64) -> Self {
        let often = |random: &mut Rng, least: u32| match random.u32(0..3) {
            0 => random.u32(least..least * 30),
            _ => 0,
        };
        let deaths = (0..random.usize(0..nodes)).map(|_| Death {
            step: random.u64(0..steps),
            node: random.usize(0..nodes),
            with_host: random.u32(0..3) == 0,
        });
        let deaths = deaths.collect();
        let plan =
            Self { deaths, connect: often(random, 3), ..Self::troubled(random, nodes, stop_ns) };
        if plan.overtakes {
            return Self { slow: None, ..plan };
        }
        Self {
            send: often(random, 20),
            breaks: often(random, 20),
            no_memory: often(random, 5),
            ..plan
        }
    }
}
