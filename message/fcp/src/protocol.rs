//! The three protocols of Kikuchi et al. (Design and evaluation of PVM on the parallel computer
//! system FOLON). A port sends and receives by one of them.

/// A protocol. Its number is that of `enum FCP_protocol` in `fcp.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// The sender looks the receiver up in a table for each message, and changes its buffer under a
    /// lock.
    Fcp = 1,
    /// The same, but the sender caches what it found.
    FcpPlus = 2,
    /// The sender computes the location of the buffer, which has no lock.
    #[default]
    Fcp2 = 3,
}

impl Protocol {
    /// All protocols, the oldest first.
    pub const ALL: [Self; 3] = [Self::Fcp, Self::FcpPlus, Self::Fcp2];

    /// Returns the protocol with this number.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| *protocol as u8 == number)
    }

    /// Returns the protocol with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// Returns the name that users know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fcp => "fcp",
            Self::FcpPlus => "fcp-plus",
            Self::Fcp2 => "fcp2",
        }
    }

    /// Returns true if a window for this protocol lists its buffers in a table.
    pub fn is_listed(self) -> bool {
        self != Self::Fcp2
    }
}
