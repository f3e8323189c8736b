//! The measured operations of shared memory.

use crate::steps::{FaultKind, Reply, Step};

/// The operation that is also measured on more than two nodes.
pub const BARRIER: &str = "barrier";

/// All operations, with the names of `programs/dsm_latency.c`.
pub const STEPS: [Step; 7] = [
    Step {
        name: "read-miss",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        bound: Some(1.5),
    },
    Step {
        name: "write-miss",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        bound: None,
    },
    Step { name: "upgrade", round_trip: None, fault: Some(FaultKind::Write), bound: None },
    Step { name: "lock", round_trip: Some(Reply::Short), fault: None, bound: Some(1.3) },
    Step { name: "lock-again", round_trip: Some(Reply::Short), fault: None, bound: None },
    Step { name: "hand-over", round_trip: Some(Reply::Short), fault: None, bound: None },
    Step { name: BARRIER, round_trip: Some(Reply::Short), fault: None, bound: Some(1.5) },
];
