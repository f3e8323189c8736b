//! libnagaya-fi.so: a provider for libfabric (FI_PROVIDER_PATH) that moves messages between the
//! tasks of one space, and lets them reach each other's memory.
//!
//! An endpoint is a `port`: a ring of FCP's that any number of senders write into. Small
//! messages travel in it, most of them in one cache line; of large ones it carries word, and
//! the receiver copies straight from the sender's buffer into its own (`transfer`), then hands
//! the sender's `record` back. Receives and messages meet in `matching`, which is pure. Remote
//! memory operations and atomics (`rma`, `atomic`, `wide`) are done by who asks for them, at once.
//!
//! `abi` is libfabric's binary interface; `provider` and `info` are how libfabric finds us and
//! what we say of ourselves; `fabric`, `domain`, `av`, `cq`, `counter`, `eq`, `mr` and
//! `endpoint` are its objects, `message` its calls for messages, `peer` what another provider
//! owns in our place; `poll`, `wait` and `descriptor` are how programs wait. All that changes in
//! a domain and its objects is one `state` behind one lock, the peers of an address vector in
//! `vector`.
//! `space` says who we are, `address` where
//! an endpoint is, `name` what it may be called, `registry` who is called so, `copy` reaches
//! others' memory, `cache` has lines of it come early, `library` is who has loaded us, `log` says
//! why not. (FCP's doorbell wakes who sleeps.)

pub mod abi;
mod address;
mod atomic;
mod av;
mod cache;
mod copy;
mod counter;
mod cq;
mod descriptor;
mod domain;
mod endpoint;
mod eq;
mod fabric;
mod info;
mod library;
mod log;
pub mod matching;
mod message;
mod mr;
mod name;
mod peer;
mod poll;
mod port;
pub mod posted;
mod progress;
mod provider;
pub mod record;
mod registry;
mod rma;
mod slab;
mod space;
mod state;
mod transfer;
mod vector;
mod wait;
mod wide;
pub mod wire;
