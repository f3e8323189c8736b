//! The steps of shared memory that are measured.

use crate::steps::{FaultKind, Reply, Step};

/// The step that more than two nodes take.
pub const BARRIER: &str = "barrier";

/// All steps, as `programs/dsm_latency.c` names them.
pub const STEPS: [Step; 7] = [
    Step {
        name: "read-miss",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        asked: Some(1.5),
    },
    Step {
        name: "write-miss",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        asked: None,
    },
    Step { name: "upgrade", round_trip: None, fault: Some(FaultKind::Write), asked: None },
    Step { name: "lock", round_trip: Some(Reply::Short), fault: None, asked: Some(1.3) },
    Step { name: "lock-again", round_trip: Some(Reply::Short), fault: None, asked: None },
    Step { name: "hand-over", round_trip: Some(Reply::Short), fault: None, asked: None },
    Step { name: BARRIER, round_trip: Some(Reply::Short), fault: None, asked: Some(1.5) },
];
