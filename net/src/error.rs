//! Errors of this crate: one line with the failure, its place, and the remedy.

use std::fmt;

use rustix::io::Errno;

use crate::wire::USER_HEADER_BYTES_MAX;

/// Why a call fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FabricError {
    /// No UCX here, or too old a one.
    Missing(&'static str),
    /// UCX refuses.
    Ucx {
        /// The attempted operation.
        doing: &'static str,
        /// UCX's word for why.
        why: &'static str,
    },
    /// A system call of a carrier failed.
    System {
        /// The attempted operation.
        doing: &'static str,
        /// The system's reason.
        errno: Errno,
    },
    /// The user's directory for sockets cannot be used: why.
    Directory(String),
    /// This host has no interface to listen on.
    NoInterface,
    /// `NAGAYA_NET` names an unknown carrier.
    Carrier(String),
    /// An address that is malformed.
    Address,
    /// An address of a fabric with another secret.
    Secret,
    /// One's own address.
    Oneself,
    /// A header above [`USER_HEADER_BYTES_MAX`].
    Header {
        /// Its length.
        bytes: usize,
    },
    /// A read or write beyond the memory that the peer has registered.
    Range,
    /// The peer is gone, or was closed.
    Gone,
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(why) => f.write_str(why),
            Self::Ucx { doing, why } => write!(
                f,
                "UCX cannot {doing}: {why}; see which devices `ucx_info -d` lists, and whether \
                 NAGAYA_NET, UCX_TLS or UCX_NET_DEVICES forbid them (NAGAYA_NET=tcp needs no UCX)"
            ),
            Self::System { doing, errno } => write!(f, "cannot {doing}: {errno}"),
            Self::Directory(line) => f.write_str(line),
            Self::NoInterface => f.write_str(
                "no network interface is up; see `ip address`, and whether NAGAYA_NET_DEVICES or \
                 UCX_NET_DEVICES name another",
            ),
            Self::Carrier(name) => write!(
                f,
                "NAGAYA_NET names {name:?}, which is no carrier; give local, tcp, ucx or ucx-tcp, with \
                 commas between several"
            ),
            Self::Address => f.write_str("this is no address of a fabric; copy all of it"),
            Self::Secret => f.write_str(
                "the address was made with another secret; give all hosts of one machine the same",
            ),
            Self::Oneself => f.write_str("the address is one's own; messages go to others"),
            Self::Header { bytes } => write!(
                f,
                "a header of {bytes} bytes is above the limit of {USER_HEADER_BYTES_MAX}; send \
                 more in the payload"
            ),
            Self::Range => f.write_str("the peer has registered no memory there"),
            Self::Gone => f.write_str("the peer is gone; connect to it again"),
        }
    }
}

impl std::error::Error for FabricError {}
