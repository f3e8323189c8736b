//! What the program's threads have to know of their node, without a thread area to find it by.

use std::ops::Range;
use std::sync::OnceLock;

use crate::addresses::END;
use crate::desk::{Desk, Seat};
use crate::exe::Exe;
use crate::processors;

static HERE: OnceLock<Here> = OnceLock::new();

/// This node.
pub struct Here {
    /// Where threads ask.
    pub desk: &'static Desk,
    /// Its number; the origin's is 0.
    pub node: u32,
    /// How many there are.
    pub nodes: u32,
    /// Processors of all of them.
    pub processors: u32,
    /// Each node's, by their names.
    pub processors_of: Vec<Range<u32>>,
    /// Addresses that are not the program's: code there is ours.
    pub ours: Vec<Range<u64>>,
    /// What is mapped is to be named, for a report.
    pub names: bool,
    /// The program's file.
    pub exe: Exe,
}

impl Here {
    /// Whether this is an instruction of the program's.
    pub fn is_program(&self, address: u64) -> bool {
        address < END && !self.ours.iter().any(|ours| ours.contains(&address))
    }

    /// Whether the program lets this thread run on that node's processors.
    pub fn lets_on(&self, seat: &Seat, node: usize) -> bool {
        processors::has_any(&seat.processors, &self.processors_of[node])
    }

    /// Makes it known, once.
    ///
    /// # Panics
    /// It was known.
    pub fn set(self) -> &'static Self {
        assert!(HERE.set(self).is_ok(), "a process is one node");
        Self::get()
    }

    /// What was made known.
    ///
    /// # Panics
    /// Before that.
    pub fn get() -> &'static Self {
        HERE.get().expect("the node begins before its threads")
    }
}
