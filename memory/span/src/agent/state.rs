//! The data of a node's agent.

use std::fs::File;
use std::iter;
use std::os::fd::OwnedFd;

use coherence::message::NodeId;
use coherence::sequential::{Event, Node, Options};
use net::mesh::Mesh;
use node::driver::Engine;
use node::sequential::Sequential;
use pager::Region;

use super::callers::Callers;
use super::counts::Counts;
use super::drives::Driving;
use super::orders::Orders;
use super::origin::Origin;
use super::packer::Packer;
use super::returning::Return;
use super::seen::Seen;
use super::waits::Waits;
use crate::leases::{Copies, Leases};
use crate::ranges::Ranges;
use crate::report::Area;
use crate::request_table::RequestTable;
use crate::texts::Texts;

/// The file of the report, and the data known before the program ends.
pub struct ReportFile {
    /// The open file.
    pub file: File,
    /// Named parts of the segment.
    pub areas: Vec<Area>,
}

/// The parts of which an agent is made.
pub struct Parts {
    /// The program's memory, not open yet.
    pub region: Region,
    /// Options of the coherence protocol.
    pub options: Options,
    /// At the origin: the socket of `nagaya span --move`.
    pub orders: Option<Orders>,
    /// The connections to other nodes, if there are any.
    pub mesh: Option<Mesh>,
    /// The slots of the threads.
    pub table: &'static RequestTable,
    /// The eventfd by which threads wake the agent: a copy in the agent's descriptor table.
    pub doorbell: OwnedFd,
    /// At the origin: its data.
    pub origin: Option<Origin>,
    /// The names of the nodes in messages.
    pub names: Vec<String>,
    /// At the origin: the file of the report, if one is wanted.
    pub wanted: Option<ReportFile>,
}

/// A node's agent.
pub struct Agent {
    pub(super) engine: Engine<Region>,
    pub(super) pages: Sequential,
    pub(super) table: &'static RequestTable,
    pub(super) doorbell: OwnedFd,
    pub(super) origin: Option<Origin>,
    pub(super) orders: Option<Orders>,
    pub(super) counts: Counts,
    pub(super) names: Vec<String>,
    pub(super) me: NodeId,
    /// The number of the program's threads on this node, and of processors.
    pub(super) threads: u32,
    pub(super) processors: u32,
    pub(super) waits: Waits,
    /// At the origin, with `--place auto`: the state of packing.
    pub(super) packing: Option<Packer>,
    pub(super) callers: Callers,
    /// At the origin: the memory shall become local again.
    pub(super) returning: Option<Return>,
    /// The origin wants reports of long waits.
    pub(super) reports_waits: bool,
    /// At the origin: a shadow has got a call in this turn.
    pub(super) has_posted: bool,
    pub(super) texts: Texts,
    /// Pages of shared mappings, which the origin's kernel holds.
    pub(super) shared: Ranges,
    /// Pages of private file mappings beyond the end of their file.
    pub(super) beyond: Ranges,
    /// Pages of private file mappings that the program cannot write.
    pub(super) files: Ranges,
    /// Counts for the report, if one is wanted.
    pub(super) seen: Option<Box<Seen>>,
    /// Files that are mapped shared and read-only: the origin's leases, other nodes' copies.
    pub(super) leases: Leases,
    pub(super) copies: Copies,
    pub(super) wanted: Option<ReportFile>,
    /// Threads of this node that drive the engine.
    pub(super) driving: Driving,
}

impl Agent {
    /// Makes the agent of this process.
    pub fn new(parts: Parts) -> Self {
        let Parts { region, options, mesh, table, doorbell, origin, orders, names, wanted } = parts;
        let mut node = Node::new(options);
        let first = Event::Allocate { pages: region.pages(), owner: 0, everywhere: false };
        let loaded = region.known().map(Event::Loaded);
        for event in iter::once(first).chain(loaded) {
            node.step(event, 0, &mut Vec::new()).expect("only messages are refused");
        }
        Self {
            engine: Engine::new(region, mesh),
            pages: Sequential::new(node),
            table,
            doorbell,
            origin,
            orders,
            counts: Counts::default(),
            names,
            me: options.me,
            threads: u32::from(options.me == 0),
            processors: rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()),
            waits: Waits::new(),
            packing: None,
            returning: None,
            callers: Callers::default(),
            reports_waits: false,
            has_posted: false,
            texts: Texts::default(),
            shared: Ranges::default(),
            beyond: Ranges::default(),
            files: Ranges::default(),
            seen: None,
            leases: Leases::default(),
            copies: Copies::default(),
            wanted,
            driving: Driving::default(),
        }
    }
}
