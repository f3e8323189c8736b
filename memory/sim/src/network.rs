//! Links between machines: when a message that leaves now arrives.
//!
//! Every machine, of one node or several, has one link with two ways. A message takes the sender's
//! way out for as long as its bytes do, then the wire, then the receiver's way in, from its first
//! byte to its last. With contention a way carries one message at a time. What goes
//! between nodes of a machine takes neither link nor wire: it costs what sender's and receiver's
//! processors do. Between two nodes messages arrive in the order sent, whatever else happens to
//! them.

use std::collections::HashMap;

use coherence::message::NodeId;

use crate::cluster::{Network, duration};

/// The links of all machines.
#[derive(Clone, Debug)]
pub struct Links {
    network: Network,
    contention: bool,
    /// When each way is free.
    out: Vec<u64>,
    into: Vec<u64>,
    /// When the last message between two nodes arrived, where nothing else keeps order.
    last: HashMap<(NodeId, NodeId), u64>,
}

impl Links {
    /// Of so many nodes; without contention a link carries any number of messages at once.
    pub fn new(network: &Network, nodes: u32, contention: bool) -> Self {
        let free = vec![0; nodes.div_ceil(network.machine_nodes) as usize];
        let into = free.clone();
        Self { network: network.clone(), contention, out: free, into, last: HashMap::new() }
    }

    /// When a message of `bytes` that leaves `from` at the time `at` has arrived at `to`, if it
    /// is held up on the wire for `delay`.
    pub fn send(&mut self, at: u64, from: NodeId, to: NodeId, bytes: usize, delay: u64) -> u64 {
        let machine = |node: NodeId| (node / self.network.machine_nodes) as usize;
        let (source, target) = (machine(from), machine(to));
        let (takes, wire) = match source == target {
            true => (0, delay),
            false => {
                (duration(bytes, self.network.bandwidth_mb_s), self.network.latency_ns + delay)
            }
        };
        if !self.contention || source == target {
            return self.in_order(from, to, at + wire + takes);
        }
        let out = &mut self.out[source];
        let leaves = at.max(*out);
        *out = leaves + takes;
        if delay > 0 {
            // Held up on the way: others pass it. It passes none that was sent before.
            let arrives = (leaves + wire + takes).max(self.into[target]);
            return self.in_order(from, to, arrives);
        }
        let into = &mut self.into[target];
        *into = (leaves + wire).max(*into) + takes;
        let arrives = *into;
        match self.last.is_empty() {
            true => arrives,
            false => self.in_order(from, to, arrives),
        }
    }

    fn in_order(&mut self, from: NodeId, to: NodeId, arrives: u64) -> u64 {
        let last = self.last.entry((from, to)).or_default();
        *last = arrives.max(*last);
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Network = Network {
        latency_ns: 1000,
        bandwidth_mb_s: 1000.0,
        send_ns: 0,
        receive_ns: 0,
        kib_ns: 0,
        machine_nodes: 1,
    };

    #[test]
    fn a_link_carries_one_message_at_a_time() {
        let mut links = Links::new(&NETWORK, 3, true);
        assert_eq!(links.send(0, 0, 2, 4000, 0), 5000, "wire and bytes");
        assert_eq!(links.send(0, 1, 2, 4000, 0), 9000, "the way in is taken");
        assert_eq!(links.send(0, 1, 0, 4000, 0), 9000, "so is the way out");
        let mut links = Links::new(&NETWORK, 3, false);
        assert_eq!([1, 1, 0].map(|from| links.send(0, from, 2, 4000, 0)), [5000; 3]);
    }

    #[test]
    fn nodes_of_a_machine_share_its_link_and_need_none_among_themselves() {
        let mut links = Links::new(&Network { machine_nodes: 2, ..NETWORK }, 4, true);
        assert_eq!(links.send(0, 0, 1, 4000, 0), 0, "no link, no wire");
        assert_eq!(links.send(0, 0, 2, 4000, 0), 5000, "which leaves the link free");
        assert_eq!(links.send(0, 1, 3, 4000, 0), 9000, "the other node's is the same");
    }

    #[test]
    fn a_message_that_is_held_up_does_not_pass_one_that_is_not() {
        let mut links = Links::new(&NETWORK, 3, true);
        links.send(0, 1, 2, 100_000, 0);
        let first = links.send(0, 0, 2, 0, 0);
        assert!(links.send(1, 0, 2, 0, 10) >= first);
    }

    #[test]
    fn messages_between_two_nodes_stay_in_order() {
        for contention in [false, true] {
            let mut links = Links::new(&NETWORK, 2, contention);
            let large = links.send(0, 0, 1, 100_000, 0);
            assert!(links.send(1, 0, 1, 0, 0) >= large);
            let late = links.send(2, 0, 1, 0, 1_000_000);
            assert!(links.send(3, 0, 1, 0, 0) >= late);
            assert!(links.send(3, 1, 0, 0, 0) < late, "the other way is another");
        }
    }
}
