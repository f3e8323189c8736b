//! PEs on other nodes. A node is a space.
//!
//! Each node has an *agent*, a thread of its first PE. It serves the requests of PEs of other nodes
//! directly on the memory of its node's PEs, since all of them share an address space. So an
//! operation makes progress without any call of its target. A PE sends its requests over its own
//! connection to the agent of the target's node; it needs no thread for that. Where the network has
//! RDMA, large puts and all gets need neither the agent nor a processor of its node. The crate
//! `shmem_wire` has the messages, and the order and completion of operations.
//!
//! | module | topic |
//! |---|---|
//! | `join` | the nodes of the job, by the launcher's exchange |
//! | `far` | the other nodes, as this PE reaches them |
//! | `link` | this PE's connections to agents |
//! | `one_sided` | puts and gets without the agent, by RDMA |
//! | `operation` | put, get and atomic operations on PEs of other nodes |
//! | `driver` | waiting threads that do the agent's work |
//! | `agent` | serves this node's memory, and watches its PEs and the other nodes |
//! | `leave` | the end of a job over several nodes, in order or not |

pub mod agent;
pub mod driver;
pub mod far;
pub mod join;
pub mod leave;
mod link;
mod one_sided;
pub mod operation;
