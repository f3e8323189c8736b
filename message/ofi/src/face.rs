//! The face: libfabric's objects and calls.
//!
//! `provider` and `info` are how libfabric finds us and what we offer. `fabric`, `domain`,
//! `endpoint`, `av`, `cq`, `counter`, `eq` and `mr` are its objects; `domain_object` and
//! `endpoint_object` are those that others use. `message` has the calls for messages, with `send`
//! and `receive` below it; `rma`, `atomic` and `wide` are remote memory. `poll`, `wait`, `members`
//! and `descriptor` are how programs wait. `peer` is for another provider that owns our receives.
//! `args` reads arguments, and `cq_entry` is the format of a completion.

mod args;
mod atomic;
mod av;
mod counter;
mod cq;
mod cq_entry;
mod descriptor;
mod domain;
mod domain_object;
mod endpoint;
mod endpoint_object;
mod eq;
mod fabric;
mod info;
mod members;
mod message;
mod mr;
mod peer;
mod poll;
mod provider;
mod receive;
mod rma;
mod send;
mod wait;
mod wide;
