//! The nodes of the job. All PEs exchange facts by their launcher, and then the agents' addresses.

use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use net::fabric::Fabric;
use net::secret::Secret;
use net::wireup::Wireup;
use rustix::event::{EventfdFlags, eventfd};
use shmem_wire::card::{Card, Nodes, VERSION};

use crate::remote::far::{Far, Marks, PES};
use crate::remote::link::Link;
use crate::symmetric::{Program, Range};

/// The nodes of the job, before their agents are known.
pub struct Meeting {
    wireup: Wireup,
    cards: Vec<Card>,
    nodes: Nodes,
    me: usize,
}

impl Meeting {
    /// Exchanges the facts of all PEs. The space is a number that identifies it.
    pub fn new(mut wireup: Wireup, space: u64, heap: Range) -> Result<Self, String> {
        let program = Program::this();
        let uname = rustix::system::uname();
        let card = Card {
            version: VERSION,
            space,
            host: CStr::to_string_lossy(uname.nodename()).into_owned(),
            pid: std::process::id(),
            secret: *Secret::random().bytes(),
            heap_bytes: heap.bytes as u64,
            data_bytes: program.data.bytes as u64,
            program: program.number,
        };
        let all = exchange(&mut wireup, &card.bytes())?;
        let cards = Card::parse_all(all.iter().map(Vec::as_slice))?;
        let me = wireup.rank() as usize;
        let nodes = Nodes::new(&cards);
        Ok(Self { wireup, cards, nodes, me })
    }

    /// Returns true if the PE is on another node.
    pub fn is_far(&self, pe: usize) -> bool {
        self.nodes.of_pe[pe] != self.nodes.of_pe[self.me]
    }

    /// Returns true if the PE runs the same program as this one.
    pub fn has_same_program(&self, pe: usize) -> bool {
        let facts = |pe: usize| (self.cards[pe].program, self.cards[pe].data_bytes);
        facts(pe) == facts(self.me)
    }

    /// Makes the fabrics and exchanges the addresses of the agents. All PEs of this node have found
    /// each other. None if there is one node.
    pub fn finish(mut self) -> Result<Option<Box<Far>>, String> {
        if self.nodes.n() == 1 {
            self.wireup.leave();
            return Ok(None);
        }
        let node = self.nodes.of_pe[self.me];
        let secret = Secret::new(self.cards[0].secret);
        let is_first = self.nodes.first(node) == self.me;
        let fabric = |id| Fabric::one_sided(id, &secret).map_err(|error| error.to_string());
        let agent = is_first.then(|| fabric(node as u64)).transpose()?;
        let address = agent.as_ref().map_or(&[][..], Fabric::address);
        let all = exchange(&mut self.wireup, address)?;
        let firsts = (0..self.nodes.n()).map(|node| self.nodes.first(node));
        let addresses: Vec<_> = firsts.map(|pe| all[pe].clone()).collect();
        let names: Vec<_> = (0..self.nodes.n()).map(|node| self.name(node)).collect();
        let link = Link::new(fabric(PES + self.me as u64)?, &addresses, &names);
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let wakes_agent = eventfd(0, flags).map_err(|errno| format!("an eventfd: {errno}"))?;
        Ok(Some(Box::new(Far {
            node,
            names,
            addresses,
            link: link.map_err(|error| error.to_string())?,
            marks: Marks::new(self.nodes.n()),
            nodes: self.nodes,
            secret,
            agent: Mutex::new(agent),
            ending: AtomicU32::new(0),
            wakes_agent,
            wireup: Mutex::new(Some(self.wireup)),
        })))
    }

    /// Returns the name of a node for messages.
    fn name(&self, node: usize) -> String {
        let first = &self.cards[self.nodes.first(node)];
        format!("node {node} (host {}, PID {})", first.host, first.pid)
    }
}

/// Contributes bytes, and returns those of all PEs.
fn exchange(wireup: &mut Wireup, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    wireup.exchange(bytes, None).map_err(|error| error.to_string())
}
