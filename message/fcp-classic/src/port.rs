//! Ports of all three protocols.

use std::sync::Arc;

use fcp::error::WindowError;
use fcp::member::{Card, Members};
use fcp::port::Port;
use fcp::protocol::Protocol;

use crate::classic::Classic;

/// Joins the window as a member that speaks `protocol`, in entry `index` or in any. The window must
/// have been made for that protocol.
pub fn join(
    protocol: Protocol,
    members: &Arc<Members>,
    card: Card,
    index: Option<u16>,
) -> Result<Port, WindowError> {
    match protocol {
        Protocol::Fcp2 => Port::join(members, card, index),
        Protocol::Fcp | Protocol::FcpPlus => {
            Ok(Port::new(Box::new(Classic::join(protocol, members, card, index)?)))
        }
    }
}
