//! The measured operations of a process over two nodes.

use crate::steps::{FaultKind, Reply, Step};

pub const FETCH: &str = "page-fetch";
pub const RUN: &str = "run-of-16";
/// Maximum cost of a run of 16 pages, in single pages.
pub const RUN_PAGES_MAX: f64 = 2.5;
pub const MOVE: &str = "move";
/// Maximum time for a thread to move to the other node and back, in µs.
pub const MOVE_US_MAX: f64 = 300.0;

pub const STEPS: [Step; 11] = [
    Step {
        name: FETCH,
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        bound: Some(1.3),
    },
    Step {
        name: "fetch-busy",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        bound: None,
    },
    Step {
        name: "page-take",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        bound: None,
    },
    Step {
        name: "upgrade",
        round_trip: Some(Reply::Short),
        fault: Some(FaultKind::Write),
        bound: None,
    },
    Step { name: RUN, round_trip: Some(Reply::Page), fault: Some(FaultKind::Read), bound: None },
    Step { name: "call", round_trip: Some(Reply::Short), fault: None, bound: Some(1.3) },
    Step { name: "call-here", round_trip: None, fault: None, bound: None },
    Step { name: "clock", round_trip: None, fault: None, bound: None },
    Step { name: "wake", round_trip: Some(Reply::Short), fault: None, bound: None },
    // The message has the registers, which are smaller than a page.
    Step { name: MOVE, round_trip: Some(Reply::Page), fault: None, bound: None },
    Step { name: "thread", round_trip: Some(Reply::Short), fault: None, bound: None },
];
