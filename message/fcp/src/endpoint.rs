//! The operations that a port needs of a protocol.
//!
//! FCP II implements it in this crate (`fcp2`), FCP and FCP plus in the crate `fcp-classic`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use crate::arrived::Arrived;
use crate::bell::Bell;
use crate::error::{Broken, Refused};
use crate::member::Membership;
use crate::protocol::Protocol;
use sync::ring::Kind;

/// One member's end of a protocol. [`Port`](crate::port::Port) documents the calls.
pub trait Endpoint: fmt::Debug + Send + Sync {
    /// Returns the protocol.
    fn protocol(&self) -> Protocol;

    /// Returns the member that sends and receives.
    fn membership(&self) -> &Arc<Membership>;

    /// Returns the bytes of a receive buffer.
    fn capacity(&self) -> usize;

    /// Returns the bell that ends a wait in [`Endpoint::receive`] from another thread.
    fn bell(&self) -> Bell;

    /// Sends the concatenation of `parts` to the member in entry `to`, whose card has `id` if that
    /// is given. Fails with [`Refused::Full`] if there is no room.
    fn try_send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
    ) -> Result<(), Refused>;

    /// Sends, and waits for room until `until`. Gives the messages that arrive during the wait to
    /// `meanwhile`, in order.
    fn send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        meanwhile: &mut dyn FnMut(Arrived<'_>),
    ) -> Result<(), Refused>;

    /// Returns the next message, if there is one.
    fn try_receive(&mut self) -> Result<Option<Arrived<'_>>, Broken>;

    /// Returns the next message. Waits until `until`, until the bell rings, or until a word no
    /// longer has the given value.
    fn receive(
        &mut self,
        word: Option<(&AtomicU32, u32)>,
        until: Option<Instant>,
    ) -> Result<Option<Arrived<'_>>, Broken>;
}
