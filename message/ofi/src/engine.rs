//! The engine: what happens between endpoints, below libfabric's objects.
//!
//! A domain with its endpoints is one `state` behind one lock (`guarded`). `arrival` takes messages
//! out of an endpoint's ring and matches them, `sends` completes messages that it has sent, and
//! `progress` drives both. `deliver` gives an unexpected message to its receive. `transfer` copies
//! large messages.
//!
//! A `port` is the part of an endpoint that other tasks use. `regions` is the memory that they may
//! access, and `counts` are their counters. An `address` locates an endpoint, `name` and `resolve`
//! name it, `registry` finds it by name, and a `vector` keeps peers by number. `space` is the
//! calling task, and `remote` is the memory of other tasks. `completion` describes completions. An
//! `owner` is another provider that owns receives and queues. `library` and `log` call the
//! libfabric that has loaded this library.
//!
//! `unsafe` is in the files that touch memory or call C: `copy`, `guarded`, `library`, `port`,
//! `regions`, `remote`, `space` and `transfer`.

pub mod address;
pub mod arrival;
pub mod completion;
pub mod copy;
pub mod counts;
pub mod deliver;
pub mod guarded;
pub mod library;
pub mod log;
pub mod name;
pub mod owner;
pub mod port;
pub mod progress;
pub mod regions;
pub mod registry;
pub mod remote;
pub mod resolve;
pub mod sends;
pub mod space;
pub mod state;
pub mod transfer;
pub mod vector;
