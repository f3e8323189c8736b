//! How the nodes of a program are started: what is said to each, in the terms of
//! [`launch::messages`]. First an [`Order`], then [`Ready`] and [`Everybody`].

use launch::conversation::{Addressee, Job};
use launch::messages::Kind;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::place::Policy;

/// Both sides must be of one kind: the number rises with every change here, of frames and of
/// contexts.
pub const KIND: Kind = Kind { name: "span", version: concat!(env!("CARGO_PKG_VERSION"), "-9") };

/// To a node, at first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which it is.
    pub node: u32,
    /// How many there are.
    pub nodes: u32,
    /// The job's.
    pub secret: [u8; 32],
    /// Seconds after which a silent node is lost; 0: never.
    pub timeout: u32,
    /// The host's name, if it was named.
    pub host: Option<String>,
    /// How many of its processors are used, if that was said.
    pub processors: Option<u32>,
    /// For another host's environment, where it has not its own: the network's settings.
    pub variables: Vec<(String, String)>,
    /// To the origin: what is to run.
    pub program: Option<Program>,
}

/// What is to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its path.
    pub path: Vec<u8>,
    /// Its arguments, the first of which is its name.
    pub arguments: Vec<Vec<u8>>,
    /// Where its threads go.
    pub place: Policy,
    /// Bytes of memory that a node's pages may take.
    pub memory: Option<u64>,
    /// A file for what is counted, if that is wanted.
    pub report: Option<Vec<u8>>,
}

/// From a node: it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Where others find it.
    pub address: Vec<u8>,
    /// The processors that it may use.
    pub processors: u32,
    /// What its processors can do, as programs see it.
    pub features: Vec<String>,
    /// What it is called.
    pub name: String,
    /// Addresses that no program can have: this process has things of its own there.
    pub ours: Vec<Range<u64>>,
    /// Nodes for which this is the same, and not empty, have the same clocks.
    pub clocks: String,
}

/// To each node: where all are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Everybody {
    /// In order.
    pub nodes: Vec<Ready>,
}

/// Which features of the origin's processors another node's lack: there the program could not
/// go on.
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
        let Addressee { node, nodes, host, secret, timeout, .. } = to;
        Order {
            node,
            nodes,
            secret,
            timeout,
            host: (!host.name.is_empty()).then(|| host.name.clone()),
            processors: host.processors,
            variables,
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
