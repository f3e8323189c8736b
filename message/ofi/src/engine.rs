//! The engine: what happens between endpoints, below libfabric's objects.
//!
//! All that changes in a domain and its endpoints is one `state` behind one lock. `progress` takes
//! in what has arrived and reports what is done; `deliver` gives a kept message to its receive, and
//! `transfer` copies large messages. A `port` is what other tasks see of an endpoint, `regions` the
//! memory that they may reach, `counts` the numbers in which they count. `vector` has the peers of an
//! address vector; an `address` says where an endpoint is, `name` and `resolve` what it is called,
//! and `registry` finds it. `space` is the calling task, `copy` reaches the memory of others. An
//! `owner` is another provider that has our receives. `library` and `log` call the libfabric that
//! has loaded us.

pub mod address;
pub mod completion;
pub mod copy;
pub mod counts;
pub mod deliver;
pub mod library;
pub mod log;
pub mod name;
pub mod owner;
pub mod port;
pub mod progress;
pub mod regions;
pub mod registry;
pub mod resolve;
pub mod scatter;
pub mod space;
pub mod state;
pub mod transfer;
pub mod vector;
