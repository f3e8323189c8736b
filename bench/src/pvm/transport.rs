//! The transports that the PVM benchmark compares.

use super::machine::System;
use crate::mpi::Mpi;

/// A transport of messages: a system and a route.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Transport {
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
pub const TRANSPORTS: [Transport; 9] = [
    Transport::StockDaemon,
    Transport::StockDirect,
    Transport::Nagaya,
    Transport::NagayaDaemon,
    Transport::Space,
    Transport::Fcp,
    Transport::FcpPlus,
    Transport::OpenMpi,
    Transport::Mpich,
];

impl Transport {
    /// The transports of MPIs.
    pub const MPI: [(Transport, Mpi); 2] =
        [(Transport::OpenMpi, Mpi::Ompi4), (Transport::Mpich, Mpi::Mpich4)];

    /// Returns the virtual machine and the value of pvm_setopt(PvmRoute). The default route of
    /// stock PVM is through the daemon; Nagaya's is direct.
    pub fn under(self) -> Option<(System, &'static str)> {
        match self {
            Transport::StockDaemon => Some((System::Stock, "default")),
            Transport::StockDirect => Some((System::Stock, "direct")),
            Transport::Nagaya => Some((System::Nagaya, "default")),
            Transport::NagayaDaemon => Some((System::Nagaya, "daemon")),
            Transport::Space => Some((System::Space, "default")),
            Transport::Fcp => Some((System::Fcp, "default")),
            Transport::FcpPlus => Some((System::FcpPlus, "default")),
            Transport::OpenMpi | Transport::Mpich => None,
        }
    }

    /// Returns its name in tables and figures.
    pub fn name(self) -> &'static str {
        match self {
            Transport::StockDaemon => "stock, daemon",
            Transport::StockDirect => "stock, direct",
            Transport::Nagaya => "nagaya",
            Transport::NagayaDaemon => "nagaya, daemon",
            Transport::Space => "space",
            Transport::Fcp => "over FCP",
            Transport::FcpPlus => "over FCP plus",
            Transport::OpenMpi => "Open MPI",
            Transport::Mpich => "MPICH",
        }
    }

    /// Returns its name in files.
    pub fn key(self) -> &'static str {
        match self {
            Transport::StockDaemon => "stock-daemon",
            Transport::StockDirect => "stock-direct",
            Transport::Nagaya => "nagaya",
            Transport::NagayaDaemon => "nagaya-daemon",
            Transport::Space => "space",
            Transport::Fcp => "fcp",
            Transport::FcpPlus => "fcp-plus",
            Transport::OpenMpi => "openmpi",
            Transport::Mpich => "mpich",
        }
    }
}
