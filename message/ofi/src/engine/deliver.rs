//! Messages that were kept since no receive was posted: given to a receive, or dropped.

use sync::ring;

use crate::engine::completion::completion;
use crate::engine::scatter::scatter;
use crate::engine::space::Here;
use crate::engine::state::{Endpoint, Queue};
use crate::engine::transfer::{Body, Transfer};
use crate::protocol::matching::{Head, Match};
use crate::protocol::slab::Slab;
use crate::protocol::wire::{Kind, OFFER};

/// Nobody wants a message any more.
pub fn drop_body(here: &Here, endpoint: &mut Endpoint, body: Body) {
    match body {
        Body::Bytes(bytes) => endpoint.kept -= bytes.len() + ring::HEADER_SIZE,
        Body::Offer(source) => {
            endpoint.kept -= OFFER + ring::HEADER_SIZE;
            source.refuse(here);
        }
    }
}

/// A message that was kept has found its receive.
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
            endpoint.kept -= bytes.len() + ring::HEADER_SIZE;
            scatter(&taken.buffer, completion.length as usize, |at, to| {
                to.copy_from_slice(&bytes[at..at + to.len()]);
            });
            endpoint.receive.complete(queues, completion, taken.completes);
        }
        Body::Offer(source) => {
            endpoint.kept -= OFFER + ring::HEADER_SIZE;
            let (to, wanted) = (taken.buffer, taken.completes);
            let transfer = Transfer { source, to, completion, wanted, placed: None };
            endpoint.transfer(here, queues, transfer, taken.multiple);
        }
    }
}
