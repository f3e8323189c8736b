//! The transports of messages within a node.

/// A way of messages between the ranks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Nagaya chooses.
    Auto,
    /// The MPI's shared memory, whose single copies are made in user space.
    Copy,
    /// Nagaya's libfabric provider.
    Provider,
}

impl Transport {
    const ALL: [Self; 3] = [Transport::Auto, Transport::Copy, Transport::Provider];

    /// Returns the name in options and files.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Copy => "copy",
            Transport::Provider => "provider",
        }
    }

    /// Returns the transport of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == text)
    }
}
