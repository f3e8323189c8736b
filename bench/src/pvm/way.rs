//! The transports that the PVM benchmark compares.

use super::machine::System;
use crate::mpi::Mpi;

/// A transport of messages: a system and a route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    StockDaemon,
    StockDirect,
    Nagaya,
    NagayaDaemon,
    Space,
    /// Nagaya's, over the paper's older protocols.
    Fcp,
    FcpPlus,
    OpenMpi,
    Mpich,
}

/// All transports, in the order of columns.
pub const WAYS: [Way; 9] = [
    Way::StockDaemon,
    Way::StockDirect,
    Way::Nagaya,
    Way::NagayaDaemon,
    Way::Space,
    Way::Fcp,
    Way::FcpPlus,
    Way::OpenMpi,
    Way::Mpich,
];

impl Way {
    /// The transports of MPIs.
    pub const MPI: [(Way, Mpi); 2] = [(Way::OpenMpi, Mpi::Ompi4), (Way::Mpich, Mpi::Mpich4)];

    /// Returns the virtual machine and the value of pvm_setopt(PvmRoute). The default route of
    /// stock PVM is through the daemon; Nagaya's is direct.
    pub fn under(self) -> Option<(System, &'static str)> {
        match self {
            Way::StockDaemon => Some((System::Stock, "default")),
            Way::StockDirect => Some((System::Stock, "direct")),
            Way::Nagaya => Some((System::Nagaya, "default")),
            Way::NagayaDaemon => Some((System::Nagaya, "daemon")),
            Way::Space => Some((System::Space, "default")),
            Way::Fcp => Some((System::Fcp, "default")),
            Way::FcpPlus => Some((System::FcpPlus, "default")),
            Way::OpenMpi | Way::Mpich => None,
        }
    }

    /// Returns its name in tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Way::StockDaemon => "stock, daemon",
            Way::StockDirect => "stock, direct",
            Way::Nagaya => "nagaya",
            Way::NagayaDaemon => "nagaya, daemon",
            Way::Space => "space",
            Way::Fcp => "over FCP",
            Way::FcpPlus => "over FCP plus",
            Way::OpenMpi => "Open MPI",
            Way::Mpich => "MPICH",
        }
    }

    /// Returns its name in files.
    pub fn key(self) -> &'static str {
        match self {
            Way::StockDaemon => "stock-daemon",
            Way::StockDirect => "stock-direct",
            Way::Nagaya => "nagaya",
            Way::NagayaDaemon => "nagaya-daemon",
            Way::Space => "space",
            Way::Fcp => "fcp",
            Way::FcpPlus => "fcp-plus",
            Way::OpenMpi => "openmpi",
            Way::Mpich => "mpich",
        }
    }
}
