//! The steps of a process over two nodes that are measured.

use crate::steps::{FaultKind, Reply, Step};

pub const FETCH: &str = "page-fetch";
pub const RUN: &str = "run-of-16";
/// A run costs at most so many single pages.
pub const RUN_MOST: f64 = 2.5;
pub const MOVE: &str = "move";
/// A thread is elsewhere and back in at most so many µs.
pub const MOVE_MOST_US: f64 = 300.0;

pub const STEPS: [Step; 11] = [
    Step {
        name: FETCH,
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        asked: Some(1.3),
    },
    Step {
        name: "fetch-busy",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        asked: None,
    },
    Step {
        name: "page-take",
        round_trip: Some(Reply::Page),
        fault: Some(FaultKind::Read),
        asked: None,
    },
    Step {
        name: "upgrade",
        round_trip: Some(Reply::Short),
        fault: Some(FaultKind::Write),
        asked: None,
    },
    Step { name: RUN, round_trip: Some(Reply::Page), fault: Some(FaultKind::Read), asked: None },
    Step { name: "call", round_trip: Some(Reply::Short), fault: None, asked: Some(1.3) },
    Step { name: "call-here", round_trip: None, fault: None, asked: None },
    Step { name: "clock", round_trip: None, fault: None, asked: None },
    Step { name: "wake", round_trip: Some(Reply::Short), fault: None, asked: None },
    // With its registers, which need less room than a page.
    Step { name: MOVE, round_trip: Some(Reply::Page), fault: None, asked: None },
    Step { name: "thread", round_trip: Some(Reply::Short), fault: None, asked: None },
];
