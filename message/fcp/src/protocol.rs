//! The three protocols of Kikuchi et al. (Design and evaluation of PVM on the parallel
//! computer system FOLON), by any of which a port sends and receives.

/// A protocol. Its number is that of `enum FCP_protocol` in `fcp.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// The receiver is looked up in a table for every message, and its buffer changed under
    /// a lock.
    Fcp = 1,
    /// The same, and what was found is remembered.
    FcpPlus = 2,
    /// Places are computed, and buffers have no lock.
    #[default]
    Fcp2 = 3,
}

impl Protocol {
    /// All, the paper's oldest first.
    pub const ALL: [Self; 3] = [Self::Fcp, Self::FcpPlus, Self::Fcp2];

    /// The protocol with this number.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| *protocol as u8 == number)
    }

    /// The protocol with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fcp => "fcp",
            Self::FcpPlus => "fcp-plus",
            Self::Fcp2 => "fcp2",
        }
    }

    /// Whether a window for it lists its buffers in a table.
    pub fn is_listed(self) -> bool {
        self != Self::Fcp2
    }
}
