//! FCP and FCP plus, the first two of the three message-passing protocols of Kikuchi et al.
//! (*Design and evaluation of PVM on the parallel computer system FOLON*).
//!
//! Both are an endpoint of a window of the crate `fcp`. A `table` in the window lists the receive
//! buffers by ID, and senders and receivers change a `queue` under a lock. FCP looks the receiver
//! up for each message; FCP plus caches what it found (`directory`).
//!
//! `port` joins a window by any of the three protocols; `classic` is the endpoint; `counts` counts
//! what a message costs by each protocol.

mod buffer;
mod classic;
pub mod counts;
mod directory;
pub mod port;
pub mod queue;
pub mod table;
