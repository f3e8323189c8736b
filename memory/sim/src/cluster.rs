//! What a cluster's nodes and network can do: times that the simulator adds up, in a file of
//! TOML. `nagaya sim --calibrate` writes one of the machine that it runs on.

use serde::{Deserialize, Serialize};

/// Times of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// What it is called in tables and figures.
    pub name: String,
    /// On what the numbers rest.
    pub about: String,
    /// Processors of a node. Where tasks use all of them, what the protocol does for other
    /// nodes is time that they lose.
    pub cores: u32,
    /// The network.
    pub network: Network,
    /// Pages and the calls that change them.
    pub memory: Memory,
    /// How the protocol's thread is woken; at once, if nothing is said.
    #[serde(default)]
    pub waking: Waking,
    /// The programs' own work.
    pub compute: Compute,
}

/// The network and what its use costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// From one node's memory to another's, of a message without bytes.
    pub latency_ns: u64,
    /// Of a node's link, each way.
    pub bandwidth_mb_s: f64,
    /// The sender's processor, a message.
    pub send_ns: u64,
    /// The receiver's processor, a message.
    pub receive_ns: u64,
    /// Both processors, for each KiB of a message: copies, checksums.
    pub kib_ns: u64,
    /// Nodes of a machine: they share its link, and what one sends to another takes no wire.
    #[serde(default = "one")]
    pub machine_nodes: u32,
}

fn one() -> u32 {
    1
}

/// Pages and the calls that change them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// From a task's access until the protocol knows.
    pub fault_ns: u64,
    /// To change what tasks may do with a page.
    pub map_ns: u64,
    /// From the end of a wait until the task goes on, where another thread ends it.
    pub wake_ns: u64,
    /// From a task's call until the protocol's thread knows.
    pub call_ns: u64,
    /// To fill a page, make a twin, change a page.
    pub copy_mb_s: f64,
    /// To compare a page with its twin.
    pub diff_mb_s: f64,
}

/// How long who does a node's part of the protocol takes to be awake: where tasks use all
/// processors of the node that is the task that waits, and a thread that sleeps while they
/// compute or are stopped at a page; else a thread that looks for what comes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waking {
    /// While the node's tasks wait. (For [`LOOKS_NS`] it then looks first.)
    pub waiting_ns: u64,
    /// While they compute: it has to be given a processor.
    pub computing_ns: u64,
}

/// Time that the protocol's thread spins before it sleeps, where the node's tasks wait; as in
/// production (`sync::wait`).
pub const LOOKS_NS: u64 = 100_000;

/// What the inner loops of programs take on one processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// MM: a multiplication and an addition.
    pub mm_ns: f64,
    /// SOR: a point.
    pub sor_ns: f64,
    /// LU: a multiplication and a subtraction inside of a block.
    pub lu_ns: f64,
    /// IS: a key, counted and ranked.
    pub is_ns: f64,
    /// EP: a pair of random numbers.
    pub ep_ns: f64,
    /// TSP: a city looked at.
    pub tsp_ns: f64,
    /// Water: two molecules.
    pub water_ns: f64,
}

impl Compute {
    /// All of them, so many times as long.
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

/// The clusters that need no file.
const KNOWN: [(&str, &str); 2] = [
    ("paper", include_str!("../clusters/paper.toml")),
    ("current", include_str!("../clusters/current.toml")),
];

impl Cluster {
    /// The cluster of that name, if it needs no file.
    pub fn known(name: &str) -> Option<Self> {
        let (_, text) = KNOWN.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(text).expect("ours"))
    }

    /// The names that [`known`](Self::known) knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// Of a file's text.
    ///
    /// # Errors
    /// A line that says what is wrong with it, and where.
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
            return Err("network.machine_nodes is 0, and must be greater than 0".into());
        }
        for (name, rate) in rates {
            if !(rate > 0.0 && rate.is_finite()) {
                return Err(format!("{name} is {rate}, and must be greater than 0"));
            }
        }
        let Compute { mm_ns, sor_ns, lu_ns, is_ns, ep_ns, tsp_ns, water_ns } = cluster.compute;
        for time in [mm_ns, sor_ns, lu_ns, is_ns, ep_ns, tsp_ns, water_ns] {
            if !(time >= 0.0 && time.is_finite()) {
                return Err(format!("a time of [compute] is {time}, and must not be below 0"));
            }
        }
        Ok(cluster)
    }

    /// As a file's text.
    pub fn text(&self) -> String {
        toml::to_string(self).expect("numbers and words")
    }
}

/// How long `bytes` take at a rate. (A MB/s is a byte in a microsecond.)
pub(crate) fn duration(bytes: usize, mb_s: f64) -> u64 {
    (bytes as f64 * 1000.0 / mb_s) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_read_as_it_was_written() {
        for name in Cluster::names() {
            let cluster = Cluster::known(name).expect("it is known");
            assert_eq!(Cluster::parse(&cluster.text()), Ok(cluster));
        }
    }

    #[test]
    fn errors_in_a_file_are_reported() {
        let text = Cluster::known("paper").expect("it is").text();
        let wrong = |from: &str, to: &str| {
            Cluster::parse(&text.replace(from, to)).expect_err("it is wrong")
        };
        assert!(wrong("latency_ns", "latency").contains("latency"), "the key is named");
        assert!(wrong("cores = 2", "cores = two").starts_with("line 3"), "the line is named");
        assert!(wrong("bandwidth_mb_s = ", "bandwidth_mb_s = -").contains("greater than 0"));
        assert!(wrong("machine_nodes = 1", "machine_nodes = 0").contains("greater than 0"));
    }
}
