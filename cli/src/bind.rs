//! `--bind`: assigns processors to the nodes on this machine.

use launch::processors;
use nagaya_server::Failure;
use rustix::thread::CpuSet;

/// The processors of nodes on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bind {
    /// A share for each node.
    Node,
    /// All processors for all nodes.
    None,
}

/// A share of processors for each node, if each is to have one: by default, where there are as
/// many as nodes.
pub fn shares(nodes: usize, bind: Option<Bind>) -> Result<Option<Vec<CpuSet>>, Failure> {
    if bind == Some(Bind::None) {
        return Ok(None);
    }
    let why = match processors::ours() {
        Ok(ours) if ours.len() >= nodes => return Ok(Some(processors::shares(&ours, nodes))),
        Ok(ours) => format!("there are {nodes} nodes, and we may use {} processors", ours.len()),
        Err(error) => format!("cannot read the allowed processors: {error}"),
    };
    match bind {
        Some(_) => Err(Failure::ours(format!("--bind node: {why}"))),
        None => Ok(None),
    }
}
