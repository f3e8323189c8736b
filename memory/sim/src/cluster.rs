//! The times of a cluster, which the simulator adds up. A TOML file defines them. The command
//! `nagaya sim --calibrate` measures its machine and writes such a file.

use serde::{Deserialize, Serialize};

/// A cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The name in tables and figures.
    pub name: String,
    /// The source of the numbers.
    pub about: String,
    /// Number of processors of a node. If tasks use all of them, they lose the time that the
    /// protocol needs for other nodes.
    pub cores: u32,
    /// The network.
    pub network: Network,
    /// The cost of pages and calls.
    pub memory: Memory,
    /// The time to wake the protocol's thread; 0 by default.
    #[serde(default)]
    pub waking: Waking,
    /// The cost of the programs' inner loops.
    pub compute: Compute,
}

/// The network, and the cost of messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The time of a message without bytes, from one node's memory to another's.
    pub latency_ns: u64,
    /// The bandwidth of a machine's link, in each direction.
    pub bandwidth_mb_s: f64,
    /// Processor time of the sender per message.
    pub send_ns: u64,
    /// Processor time of the receiver per message.
    pub receive_ns: u64,
    /// Processor time of sender and receiver per KiB of a message: copies, checksums.
    pub kib_ns: u64,
    /// Number of nodes per machine. They share its link, and need no link among themselves.
    #[serde(default = "one")]
    pub machine_nodes: u32,
}

fn one() -> u32 {
    1
}

/// The cost of pages and calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The time from a task's access until the protocol knows of the fault.
    pub fault_ns: u64,
    /// The time to change the access to a page.
    pub map_ns: u64,
    /// The time from the end of a wait until the task resumes, if another thread ends the wait.
    pub wake_ns: u64,
    /// The time from a task's call until the protocol's thread knows of it.
    pub call_ns: u64,
    /// The rate of filling a page, making a twin and applying a diff.
    pub copy_mb_s: f64,
    /// The rate of comparing a page with its twin.
    pub diff_mb_s: f64,
}

/// The time to wake the thread that runs a node's protocol. If tasks use all processors of the
/// node, waiting tasks run the protocol. While they compute or are stopped at a page, a sleeping
/// thread must be woken. On other nodes a dedicated thread spins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waking {
    /// Time while the node's tasks wait. The thread spins for [`SPIN_NS`] before it sleeps.
    pub waiting_ns: u64,
    /// Time while they compute: the thread must get a processor.
    pub computing_ns: u64,
}

/// Time that the protocol's thread spins before it sleeps, while the node's tasks wait. Production
/// measures how long that pays (`sync::wait`).
pub const SPIN_NS: u64 = 100_000;

/// The times of the programs' inner loops on one processor, per iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// MM: a multiplication and an addition.
    pub mm_ns: f64,
    /// SOR: a point.
    pub sor_ns: f64,
    /// LU: a multiplication and a subtraction within a block.
    pub lu_ns: f64,
    /// IS: a key, counted and ranked.
    pub is_ns: f64,
    /// EP: a pair of random numbers.
    pub ep_ns: f64,
    /// TSP: a visited city.
    pub tsp_ns: f64,
    /// Water: a pair of molecules.
    pub water_ns: f64,
}

impl Compute {
    /// Returns all times multiplied by `factor`.
    pub fn times(&self, factor: f64) -> Self {
        let Self { mm_ns, sor_ns, lu_ns, is_ns, ep_ns, tsp_ns, water_ns } = *self;
        Self {
            mm_ns: mm_ns * factor,
            sor_ns: sor_ns * factor,
            lu_ns: lu_ns * factor,
            is_ns: is_ns * factor,
            ep_ns: ep_ns * factor,
            tsp_ns: tsp_ns * factor,
            water_ns: water_ns * factor,
        }
    }
}

/// The built-in clusters.
const KNOWN: [(&str, &str); 2] = [
    ("paper", include_str!("../clusters/paper.toml")),
    ("current", include_str!("../clusters/current.toml")),
];

impl Cluster {
    /// Returns the built-in cluster with this name.
    pub fn known(name: &str) -> Option<Self> {
        let (_, text) = KNOWN.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(text).expect("a valid file"))
    }

    /// Returns the names of the built-in clusters.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// A line that describes the error and its place.
    pub fn parse(text: &str) -> Result<Self, String> {
        let cluster: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            format!("line {line}: {}", error.message())
        })?;
        let Self { network, memory, .. } = &cluster;
        let rates = [
            ("network.bandwidth_mb_s", network.bandwidth_mb_s),
            ("memory.copy_mb_s", memory.copy_mb_s),
            ("memory.diff_mb_s", memory.diff_mb_s),
        ];
        if network.machine_nodes == 0 {
            return Err("network.machine_nodes is 0, but must be greater than 0".into());
        }
        for (name, rate) in rates {
            if !(rate > 0.0 && rate.is_finite()) {
                return Err(format!("{name} is {rate}, but must be greater than 0"));
            }
        }
        let Compute { mm_ns, sor_ns, lu_ns, is_ns, ep_ns, tsp_ns, water_ns } = cluster.compute;
        for time in [mm_ns, sor_ns, lu_ns, is_ns, ep_ns, tsp_ns, water_ns] {
            if !(time >= 0.0 && time.is_finite()) {
                return Err(format!("a time of [compute] is {time}, but must not be negative"));
            }
        }
        Ok(cluster)
    }

    /// Returns the text of a file.
    pub fn text(&self) -> String {
        toml::to_string(self).expect("numbers and strings")
    }
}

/// Returns the time of this number of bytes at a rate. 1 MB/s is 1 byte per microsecond.
pub(crate) fn duration_ns(bytes: usize, mb_s: f64) -> u64 {
    (bytes as f64 * 1000.0 / mb_s) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_read_as_it_was_written() {
        for name in Cluster::names() {
            let cluster = Cluster::known(name).expect("a built-in cluster");
            assert_eq!(Cluster::parse(&cluster.text()), Ok(cluster));
        }
    }

    #[test]
    fn errors_in_a_file_are_reported() {
        let text = Cluster::known("paper").expect("a built-in cluster").text();
        let wrong = |from: &str, to: &str| {
            Cluster::parse(&text.replace(from, to)).expect_err("an invalid file")
        };
        assert!(wrong("latency_ns", "latency").contains("latency"), "the key is named");
        assert!(wrong("cores = 2", "cores = two").starts_with("line 3"), "the line is named");
        assert!(wrong("bandwidth_mb_s = ", "bandwidth_mb_s = -").contains("greater than 0"));
        assert!(wrong("machine_nodes = 1", "machine_nodes = 0").contains("greater than 0"));
    }
}
