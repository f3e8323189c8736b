//! The numbers of nodes and PEs of a run.

/// The PEs of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layout {
    pub nodes: u32,
    pub pes: u32,
}

impl Layout {
    /// Returns its text in tables.
    pub fn name(self) -> String {
        match self.nodes {
            1 => format!("{} PEs", self.pes),
            nodes => format!("{} PEs on {nodes} nodes", self.pes),
        }
    }
}
