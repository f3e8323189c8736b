//! Links between machines: the time at which a message arrives.
//!
//! Every machine has one or several nodes, and one full-duplex link. A message occupies the
//! sender's outgoing link for the time of its bytes, then the wire, then the receiver's incoming
//! link. With contention a link carries one message at a time in each direction. Messages between
//! nodes of one machine use neither link nor wire: they only cost processor time. Messages between
//! two nodes arrive in the order sent, also if some are delayed.

use std::collections::HashMap;

use coherence::message::NodeId;

use crate::cluster::{Network, duration_ns};

/// The links of all machines.
#[derive(Clone, Debug)]
pub struct Links {
    network: Network,
    contention: bool,
    /// The times at which the outgoing and the incoming direction of each link are free.
    outgoing: Vec<u64>,
    incoming: Vec<u64>,
    /// The arrival of the last message between two nodes, where nothing else keeps the order.
    last: HashMap<(NodeId, NodeId), u64>,
}

impl Links {
    /// Creates the links of this number of nodes. Without contention a link carries any number of
    /// messages at once.
    pub fn new(network: &Network, nodes: u32, contention: bool) -> Self {
        let free = vec![0; nodes.div_ceil(network.machine_nodes) as usize];
        let (outgoing, incoming) = (free.clone(), free);
        Self { network: network.clone(), contention, outgoing, incoming, last: HashMap::new() }
    }

    /// Returns the arrival time at node `to` of a message of `bytes` that leaves node `from` at the
    /// time `at`. The wire delays it by `delay_ns`.
    pub fn send(&mut self, at: u64, from: NodeId, to: NodeId, bytes: usize, delay_ns: u64) -> u64 {
        let machine = |node: NodeId| (node / self.network.machine_nodes) as usize;
        let (source, target) = (machine(from), machine(to));
        let (link_ns, wire_ns) = match source == target {
            true => (0, delay_ns),
            false => (
                duration_ns(bytes, self.network.bandwidth_mb_s),
                self.network.latency_ns + delay_ns,
            ),
        };
        if !self.contention || source == target {
            return self.in_order(from, to, at + wire_ns + link_ns);
        }
        let outgoing = &mut self.outgoing[source];
        let leaves = at.max(*outgoing);
        *outgoing = leaves + link_ns;
        if delay_ns > 0 {
            // Other messages overtake a delayed message. It overtakes none that was sent before.
            let arrives = (leaves + wire_ns + link_ns).max(self.incoming[target]);
            return self.in_order(from, to, arrives);
        }
        let incoming = &mut self.incoming[target];
        *incoming = (leaves + wire_ns).max(*incoming) + link_ns;
        let arrives = *incoming;
        match self.last.is_empty() {
            true => arrives,
            false => self.in_order(from, to, arrives),
        }
    }

    /// Returns the arrival time, not before that of the last message between the nodes.
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
        assert_eq!(links.send(0, 0, 2, 4000, 0), 5000, "time on the wire and time of the bytes");
        assert_eq!(links.send(0, 1, 2, 4000, 0), 9000, "the incoming link is busy");
        assert_eq!(links.send(0, 1, 0, 4000, 0), 9000, "the outgoing link is busy");
        let mut links = Links::new(&NETWORK, 3, false);
        assert_eq!([1, 1, 0].map(|from| links.send(0, from, 2, 4000, 0)), [5000; 3]);
    }

    #[test]
    fn nodes_of_a_machine_share_its_link_and_need_none_among_themselves() {
        let mut links = Links::new(&Network { machine_nodes: 2, ..NETWORK }, 4, true);
        assert_eq!(links.send(0, 0, 1, 4000, 0), 0, "no link, no wire");
        assert_eq!(links.send(0, 0, 2, 4000, 0), 5000, "the link was free");
        assert_eq!(links.send(0, 1, 3, 4000, 0), 9000, "both nodes share the link");
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
            assert!(links.send(3, 1, 0, 0, 0) < late, "the other direction is free");
        }
    }
}
