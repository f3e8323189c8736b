//! The face: libfabric's objects and calls.
//!
//! `provider` has the library's one symbol, and `info` answers fi_getinfo(3), as far as the `hints`
//! allow. `fabric`, `domain`, `endpoint`, `av`, `cq`, `counter`, `eq` and `mr` are libfabric's
//! objects; `domain_object` and `endpoint_object` are those that others use. `message` has the
//! calls for messages, with `send` and `receive` below it. `rma` and `atomic` access remote memory,
//! with the types of numbers in `number` and `wide`. Programs wait by `poll`, `wait`, `members` and
//! `descriptor`. `peer` works with another provider that owns our receives. `args` reads arguments,
//! and `cq_entry` is the format of a completion.
//!
//! Each call is an `unsafe extern "C" fn`. Its contract is the manual page of libfabric's function
//! that calls it, which its SAFETY line names.

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
mod hints;
mod info;
mod members;
mod message;
mod mr;
mod number;
mod peer;
mod poll;
mod provider;
mod receive;
mod rma;
mod send;
mod wait;
mod wide;
