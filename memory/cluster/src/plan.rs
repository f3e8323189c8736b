//! The machines of a space: their names and the IDs of their tasks.

use std::ops::Range;

use coherence::message::NodeId;

/// The machines of a space, and the index of this one.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The index of this machine.
    pub me: NodeId,
    /// The names of all machines, for error messages.
    pub names: Vec<String>,
    /// The IDs of each machine's tasks, without gaps from 0 on.
    pub ids: Vec<Range<u32>>,
}

impl Plan {
    /// Returns the machine whose task has this ID.
    pub fn machine_of(&self, id: u32) -> Option<NodeId> {
        self.ids.iter().position(|ids| ids.contains(&id)).map(|machine| machine as NodeId)
    }

    /// Returns the IDs of this machine's tasks.
    pub fn own_ids(&self) -> Range<u32> {
        self.ids[self.me as usize].clone()
    }

    /// Returns all other machines.
    pub fn others(&self) -> impl Iterator<Item = NodeId> + use<> {
        let me = self.me;
        (0..self.names.len() as NodeId).filter(move |&machine| machine != me)
    }
}
