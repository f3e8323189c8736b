//! The owner of an endpoint's receives and completions, where that is another provider
//! (fi_peer(3)). The face has the calls; progress knows only these traits.

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

/// Answer of an owner that was asked for the receive of a message.
pub enum Got {
    /// A receive.
    Receive(Match),
    /// An entry in which the owner keeps the message until there is a receive.
    Entry(Box<dyn Entry>),
    /// Neither for now: ask again later.
    Nothing,
    /// The owner takes no messages of this kind.
    Refusal,
}

/// The owner of an endpoint's receives.
pub trait ReceiveOwner: Debug + Send {
    /// Asks for the receive of a message. `sender` is the sender's name in the endpoint's address
    /// vector. `wants` tells if a receive with these flags completes.
    fn get(&self, kind: Kind, head: &Head, sender: Option<u64>, wants: &dyn Fn(u64) -> bool)
    -> Got;

    /// Ends the relation: the endpoint is closed.
    fn close(&self);
}

/// An entry of the owner's for a message that has no receive yet.
pub trait Entry {
    /// Gives the entry back.
    fn free(self: Box<Self>);

    /// Leaves the message with the owner. Returns false if the owner does not take it.
    fn keep(self: Box<Self>, head: Head, body: Body) -> bool;
}
