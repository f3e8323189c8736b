//! The control messages that start the nodes of a program, for [`launch::messages`]: an [`Order`]
//! to each node, its [`Ready`], and [`Everybody`] to all.

use launch::meeting::{Addressee, Job};
use launch::messages::Kind;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::place::Policy;

/// Both sides must have the same version. Its number rises with each change of these messages, of
/// `frame` and of `context`.
pub const KIND: Kind = Kind { name: "span", version: concat!(env!("CARGO_PKG_VERSION"), "-10") };

/// The first message to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its number.
    pub node: u32,
    /// The number of nodes.
    pub nodes: u32,
    /// The job's secret.
    pub secret: [u8; 32],
    /// Seconds after which a silent node is lost; 0: never.
    pub timeout: u32,
    /// The name by which the user gave the host.
    pub host: Option<String>,
    /// The number of processors that the user gave for the host.
    pub processors: Option<u32>,
    /// Environment variables with settings of the network, for variables that another host lacks.
    pub variables: Vec<(String, String)>,
    /// All nodes are on this host.
    pub all_are_here: bool,
    /// To the origin: the program.
    pub program: Option<Program>,
}

/// The program and how to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its path.
    pub path: Vec<u8>,
    /// Its arguments, with its name first.
    pub arguments: Vec<Vec<u8>>,
    /// The placement of its threads.
    pub place: Policy,
    /// The limit on the memory of a node's pages, in bytes.
    pub memory: Option<u64>,
    /// Its addresses are the same in every run.
    pub fixed_addresses: bool,
    /// The file for a report, if one is wanted.
    pub report: Option<Vec<u8>>,
}

/// From a node: it is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Its network address.
    pub address: Vec<u8>,
    /// The number of processors that it may use.
    pub processors: u32,
    /// The features of its processors, as in /proc/cpuinfo.
    pub features: Vec<String>,
    /// Its name in messages.
    pub name: String,
    /// Addresses that this process uses, so that no program can.
    pub ours: Vec<Range<u64>>,
    /// Equal and not empty on nodes that have the same clocks.
    pub clocks: String,
}

/// To each node: all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Everybody {
    /// The nodes in order.
    pub nodes: Vec<Ready>,
}

/// Returns the features of the origin's processors that another node lacks. A thread that uses them
/// could not run there.
pub fn lacking<'a>(origin: &'a Ready, other: &Ready) -> Vec<&'a str> {
    let has = |feature: &&String| other.features.contains(feature);
    origin.features.iter().filter(|feature| !has(feature)).map(String::as_str).collect()
}

impl Job for Program {
    const KIND: Kind = KIND;
    type Order = Order;
    type Ready = Ready;
    type Everybody = Everybody;

    fn order(&self, to: Addressee<'_>) -> Order {
        let variables = to.variables();
        let Addressee { node, nodes, host, secret, timeout, all_are_here, .. } = to;
        Order {
            node,
            nodes,
            secret,
            timeout,
            host: (!host.name.is_empty()).then(|| host.name.clone()),
            processors: host.processors,
            variables,
            all_are_here,
            program: (node == 0).then(|| self.clone()),
        }
    }

    fn everybody(&self, nodes: Vec<Ready>) -> Result<Everybody, String> {
        for other in &nodes[1..] {
            if let [feature, ..] = lacking(&nodes[0], other)[..] {
                return Err(format!("{} has processors without {feature}", other.name));
            }
        }
        Ok(Everybody { nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(features: &[&str]) -> Ready {
        let features = features.iter().map(|&feature| feature.to_owned()).collect();
        Ready {
            address: vec![1, 2],
            processors: 3,
            features,
            name: "a".into(),
            ours: Vec::new(),
            clocks: String::new(),
        }
    }

    #[test]
    fn features_that_lack_are_named() {
        assert_eq!(lacking(&ready(&["avx", "avx512f"]), &ready(&["avx", "sha"])), ["avx512f"]);
    }
}
