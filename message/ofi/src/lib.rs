//! libnagaya-fi.so: a provider for libfabric (FI_PROVIDER_PATH) that moves messages between the
//! tasks of one space, and lets them reach each other's memory.
//!
//! An endpoint is a `port`: a ring of FCP's that any number of senders write into. Small
//! messages travel in it, most of them in one cache line; of large ones it carries word, and
//! the receiver copies straight from the sender's buffer into its own (`transfer`), then hands
//! the sender's `record` back. Receives and messages meet in `matching`, which is pure. Remote
//! memory operations and atomics (`rma`, `atomic`) are done by who asks for them, at once.
//!
//! `abi` is libfabric's binary interface; `provider` and `info` are how libfabric finds us and
//! what we say of ourselves; `fabric`, `domain`, `av`, `cq`, `counter`, `eq`, `mr` and
//! `endpoint` are its objects, `message` its calls for messages. All that changes in a domain
//! and its objects is one `state` behind one `lock`. `space` says who we are, `address` where
//! an endpoint is, `copy` reaches others' memory, `bell` wakes who sleeps, `log` says why not.

pub mod abi;
mod address;
mod atomic;
mod av;
pub mod bell;
mod copy;
mod counter;
mod cq;
mod domain;
mod endpoint;
mod eq;
mod fabric;
mod info;
mod lock;
mod log;
pub mod matching;
mod message;
mod mr;
mod port;
mod progress;
mod provider;
pub mod record;
mod rma;
mod slab;
mod space;
mod state;
mod transfer;
mod wire;
