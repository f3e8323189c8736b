//! The owner of an endpoint's receives and completions, if that is another provider (fi_peer(3)).
//! The engine knows only these traits; the face makes the calls.

use std::fmt::Debug;

use crate::engine::completion::Completion;
use crate::engine::transfer::Body;
use crate::protocol::matching::{Head, Match};
use crate::protocol::wire::Kind;

/// The owner of a completion queue.
pub trait CompletionOwner: Debug + Send {
    /// Reports a completion.
    fn report(&self, completion: &Completion);
}

/// The answer of an owner to a request for the receive of a message.
pub enum Got {
    /// The receive.
    Receive(Match),
    /// An entry in which the owner keeps the message until there is a receive.
    Entry(Box<dyn Entry>),
    /// Nothing for now. The engine asks again later.
    Nothing,
    /// The owner takes no messages of this kind.
    Refusal,
}

/// The owner of an endpoint's receives.
pub trait ReceiveOwner: Debug + Send {
    /// Requests the receive of a message. `sender` is the sender's address in the endpoint's
    /// vector. `wants` returns true if a receive with these flags reports its completion.
    fn get(&self, kind: Kind, head: &Head, sender: Option<u64>, wants: &dyn Fn(u64) -> bool)
    -> Got;

    /// The endpoint is closed.
    fn close(&self);
}

/// An owner's entry for an unexpected message.
pub trait Entry {
    /// Returns the entry to the owner.
    fn free(self: Box<Self>);

    /// Gives the message to the owner. Returns false if the owner does not take it.
    fn keep(self: Box<Self>, head: Head, body: Body) -> bool;
}
