//! Programs: what their tasks touch, compute and wait for. One file a program.
//!
//! They are the programs of `examples/dsm/`, with the same parameters: the first lines of each
//! file there say how memory is laid out and who touches what when, and it is the same here.
//! Large ones have no contents: only what is touched is simulated. Those whose messages depend
//! on values compute them as the real ones do.

mod ep;
mod is;
pub mod kernels;
mod lu;
mod mm;
mod random;
mod sor;
mod tsp;
mod water;

use coherence::message::NodeId;
use coherence::scope::Event;
use coherence::scope::homes::Homes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cluster::Cluster;
use crate::machine::Setup;
use crate::task::{Life, Me};

/// A program with its parameters.
pub trait Program {
    /// Its shared memory, in the order of its allocations, for so many tasks and such pages.
    fn allocations(&self, tasks: u64, page_bytes: u64) -> Vec<Allocation>;

    /// What a task does, if the allocations begin at `bases`.
    fn task(&self, me: Me, bases: &[u64]) -> Life;

    /// Memory has contents.
    fn has_contents(&self) -> bool {
        false
    }
}

/// A piece of shared memory, as JIAJIA's calls allocate it: it begins at a page's border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// How many bytes.
    pub bytes: u64,
    /// Whose they are.
    pub home: Home,
}

/// The tasks on whose nodes an allocation lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// One task's (`jia_alloc2p`).
    Task(u64),
    /// Blocks of so many bytes, whole pages of them, task by task in turns (`jia_alloc2`).
    Blocks(u64),
}

impl Allocation {
    /// An array of rows in bands, one a task (`jia_alloc2`).
    pub fn bands(rows: u64, row_bytes: u64, tasks: u64) -> Self {
        Self { bytes: rows * row_bytes, home: Home::Blocks(rows.div_ceil(tasks) * row_bytes) }
    }

    /// All on a task's node.
    pub fn on(task: u64, bytes: u64) -> Self {
        Self { bytes, home: Home::Task(task) }
    }
}

/// What nodes are told of allocations, and where each begins.
pub(crate) fn layout(allocations: &[Allocation], setup: &Setup) -> (Vec<Event>, Vec<u64>) {
    let Setup { nodes, tasks, page_bytes, .. } = *setup;
    let size = page_bytes as u64;
    let (mut events, mut bases, mut end) = (Vec::new(), Vec::new(), 0);
    let node = |task: u64| (task / u64::from(tasks) % u64::from(nodes)) as NodeId;
    for allocation in allocations {
        bases.push(end * size);
        let pages = allocation.bytes.div_ceil(size);
        end += pages;
        let homes = match allocation.home {
            Home::Task(task) => Homes::At(node(task)),
            // The blocks of a node's tasks are neighbours.
            Home::Blocks(bytes) => {
                let pages = bytes.div_ceil(size).max(1) * u64::from(tasks);
                Homes::Blocks { pages, first: 0 }
            }
        };
        match events.last_mut() {
            // One piece after the other at one node is one.
            Some(Event::Allocate { pages: before, homes: last })
                if *last == homes && matches!(homes, Homes::At(_)) =>
            {
                *before += pages;
            }
            _ => events.push(Event::Allocate { pages, homes }),
        }
    }
    (events, bases)
}

/// Words (4 bytes) or doubles (8) of `values`, as they stand in memory.
pub(crate) fn doubles(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let (doubles, _) = bytes.as_chunks();
    doubles.iter().map(|bytes| f64::from_le_bytes(*bytes))
}

/// A task's part of a range: all have equal shares, in their order; the last ones can be smaller
/// or empty.
pub(crate) fn part(count: u64, task: u64, tasks: u64) -> std::ops::Range<u64> {
    let share = count.div_ceil(tasks);
    (share * task).min(count)..(share * (task + 1)).min(count)
}

/// A program that can be asked for by name.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    make: fn(&toml::Table, &Cluster) -> Made,
    defaults: fn() -> toml::Table,
}

impl Known {
    /// The program with these parameters; all others are as in the paper.
    ///
    /// # Errors
    /// A line that says which parameter is wrong.
    pub fn make(
        &self,
        parameters: &toml::Table,
        cluster: &Cluster,
    ) -> Result<Box<dyn Program>, String> {
        (self.make)(parameters, cluster)
    }

    /// Its parameters as they are if nothing is said.
    pub fn defaults(&self) -> toml::Table {
        (self.defaults)()
    }
}

/// A program, or what is wrong with its parameters.
type Made = Result<Box<dyn Program>, String>;

/// What a program's file gives.
trait Make: Program + Default + Serialize + DeserializeOwned + 'static {
    /// The same on another cluster.
    fn on(self, cluster: &Cluster) -> Self;

    /// Nothing, or what is wrong with the parameters.
    fn check(&self) -> Result<(), String>;
}

fn make<P: Make>(parameters: &toml::Table, cluster: &Cluster) -> Result<Box<dyn Program>, String> {
    let program: P = toml::Value::Table(parameters.clone())
        .try_into()
        .map_err(|error: toml::de::Error| error.message().to_string())?;
    program.check()?;
    Ok(Box::new(program.on(cluster)))
}

fn defaults<P: Make>() -> toml::Table {
    toml::Table::try_from(P::default()).expect("numbers")
}

/// All of them.
pub static ALL: [Known; 7] = [
    Known { name: "mm", about: mm::ABOUT, make: make::<mm::Mm>, defaults: defaults::<mm::Mm> },
    Known {
        name: "sor",
        about: sor::ABOUT,
        make: make::<sor::Sor>,
        defaults: defaults::<sor::Sor>,
    },
    Known { name: "lu", about: lu::ABOUT, make: make::<lu::Lu>, defaults: defaults::<lu::Lu> },
    Known { name: "is", about: is::ABOUT, make: make::<is::Is>, defaults: defaults::<is::Is> },
    Known { name: "ep", about: ep::ABOUT, make: make::<ep::Ep>, defaults: defaults::<ep::Ep> },
    Known {
        name: "tsp",
        about: tsp::ABOUT,
        make: make::<tsp::Tsp>,
        defaults: defaults::<tsp::Tsp>,
    },
    Known {
        name: "water",
        about: water::ABOUT,
        make: make::<water::Water>,
        defaults: defaults::<water::Water>,
    },
];
