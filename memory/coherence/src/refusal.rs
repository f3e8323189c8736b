//! Refusals: messages that violate a protocol. Both protocols check every message before they
//! change their state, because messages are not trusted.

use std::fmt;

use crate::message::NodeId;

/// A refused message. The node's state does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The sender.
    pub from: NodeId,
    /// The name of the operation.
    pub op: &'static str,
    /// The violation, as a predicate of the sender: "requests a page twice".
    pub why: &'static str,
    /// The refused values and the limits that they exceed, with their names.
    pub values: [Option<(&'static str, u64)>; 2],
}

impl Refused {
    /// Refuses a message of this node.
    pub fn new(from: NodeId, op: &'static str, why: &'static str) -> Self {
        Self { from, op, why, values: [None; 2] }
    }

    /// Adds a value to the description of the violation.
    ///
    /// # Panics
    /// The refusal has two values already.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<u64>) -> Self {
        let free = self.values.iter_mut().find(|it| it.is_none()).expect("at most two values");
        *free = Some((name, value.into()));
        self
    }

    /// Returns the violation with its values.
    pub fn reason(&self) -> String {
        let values: Vec<_> =
            self.values.iter().flatten().map(|(name, value)| format!("{name} {value}")).collect();
        match values.is_empty() {
            true => self.why.to_owned(),
            false => format!("{} ({})", self.why, values.join(", ")),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of node {} {}", self.op, self.from, self.reason())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_message_violation_and_values() {
        let refused = Refused::new(3, "OP_GETP", "requests too many pages");
        assert_eq!(refused.to_string(), "OP_GETP of node 3 requests too many pages");
        let refused = refused.with("page", 17u64).with("limit", 9u32);
        let text = "OP_GETP of node 3 requests too many pages (page 17, limit 9)";
        assert_eq!(refused.to_string(), text);
    }
}
