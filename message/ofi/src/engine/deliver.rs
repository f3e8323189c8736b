//! Unexpected messages: given to a receive that is posted later, or dropped.

use sync::ring;

use crate::engine::completion::completion;
use crate::engine::copy;
use crate::engine::space::Here;
use crate::engine::state::{Endpoint, Queue};
use crate::engine::transfer::{Body, Transfer};
use crate::protocol::matching::{Head, Match};
use crate::protocol::slab::Slab;
use crate::protocol::wire::{Kind, RTS_BYTES};

/// Drops a message.
pub fn drop_body(here: &Here, endpoint: &mut Endpoint, body: Body) {
    match body {
        Body::Bytes(bytes) => endpoint.unexpected_bytes -= bytes.len() + ring::HEADER_SIZE,
        Body::Remote(source) => {
            endpoint.unexpected_bytes -= RTS_BYTES + ring::HEADER_SIZE;
            source.refuse(here);
        }
    }
}

/// Gives a message to a receive.
pub fn deliver(
    here: &Here,
    endpoint: &mut Endpoint,
    queues: &mut Slab<Queue>,
    kind: Kind,
    taken: &Match,
    head: &Head,
    body: Body,
) {
    let completion = completion(kind, head, taken, endpoint.vector);
    match body {
        Body::Bytes(bytes) => {
            endpoint.unexpected_bytes -= bytes.len() + ring::HEADER_SIZE;
            copy::scatter(&taken.buffer, completion.length as usize, |at, to| {
                to.copy_from_slice(&bytes[at..at + to.len()]);
            });
            endpoint.receive.complete(queues, completion, taken.completes);
        }
        Body::Remote(source) => {
            endpoint.unexpected_bytes -= RTS_BYTES + ring::HEADER_SIZE;
            let (to, wanted) = (taken.buffer, taken.completes);
            let transfer = Transfer { source, to, completion, wanted, claimed: None };
            endpoint.transfer(here, queues, transfer, taken.multiple);
        }
    }
}
