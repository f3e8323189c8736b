//! Collective operations of teams and of active sets.
//!
//! Within a node, PEs read each other's symmetric objects in place. Small data is published with
//! the arrival, in the cache line of the number that the others poll (crate `outbox`). The operands
//! of a reduction are combined in the order of PEs, so all get the same result.
//!
//! Between nodes, the operations use put, get and a barrier of the nodes' leaders.
//!
//! | module | topic |
//! |---|---|
//! | `area` | the symmetric memory of these operations |
//! | `waiter` | waiting for a PE of this node |
//! | `channel` | a team's means of communication; barrier |
//! | `split`, `sets` | creation of teams; active sets |
//! | `spread`, `gather`, `exchange` | broadcast; collect; all-to-all |
//! | `reduce`, `scan` | reductions; prefix sums |

pub mod area;
pub mod channel;
pub mod exchange;
pub mod gather;
pub mod reduce;
pub mod scan;
pub mod sets;
pub mod split;
pub mod spread;
mod waiter;
