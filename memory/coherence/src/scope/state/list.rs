//! The state of a list of runs that is too long for one message.

use crate::message::{Lock, Op};
use crate::run::Run;

/// The first parts of an incomplete list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partial {
    pub op: Op,
    pub lock: Lock,
    pub runs: Vec<Run>,
}
