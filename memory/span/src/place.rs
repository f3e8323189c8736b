//! The node of a new thread.

use std::cmp::Reverse;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::balance::THREAD;

/// The placement policy of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// All on the first node at first. If they wait for processors, as [`Spread`](Self::Spread);
    /// threads that get in each other's way there return.
    Auto,
    /// On as few nodes as have processors for them.
    Pack,
    /// Each on the node that has the fewest threads for its processors.
    Spread,
    /// Each on the node where the fewest can run for its processors; and running threads go where
    /// there is less to do.
    Load,
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Policy::Auto),
            "pack" => Ok(Policy::Pack),
            "spread" => Ok(Policy::Spread),
            "load" => Ok(Policy::Load),
            _ => Err("must be auto, spread, pack or load".to_owned()),
        }
    }
}

/// A node, as far as placing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Processors that the program may use there.
    pub processors: u32,
    /// Its threads there.
    pub threads: u32,
    /// Those that could run of late, in 256ths; only with [`Policy::Load`].
    pub busy: u32,
}

/// The node for a new thread: one of them.
///
/// # Panics
/// There are none.
pub fn place(policy: Policy, rooms: &[Room]) -> usize {
    if policy == Policy::Pack
        && let Some(first) = rooms.iter().position(|room| room.threads < room.processors)
    {
        return first;
    }
    let there = |room: &Room| match policy {
        Policy::Load => u64::from(room.busy),
        _ => u64::from(room.threads * THREAD),
    };
    let load = |room: &Room| (there(room) << 24) / u64::from(room.processors.max(1));
    let nodes = rooms.iter().enumerate();
    let busy = |(_, room): &(usize, &Room)| (load(room), Reverse(room.processors));
    nodes.min_by_key(busy).expect("there is a node").0
}

/// A thread that is somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The chosen node; it may not be one of the requested nodes.
    pub node: usize,
    /// It waits for nothing.
    pub is_runnable: bool,
}

/// Spreads all threads over the nodes: first those that can run, so that these do not meet on one
/// node, and then the others. A thread stays if it can.
///
/// # Panics
/// If there are no nodes.
pub fn arrange(rooms: &[Room], threads: &[Thread]) -> Vec<usize> {
    let mut rooms: Vec<Room> = rooms.iter().map(|room| Room { threads: 0, ..*room }).collect();
    let processors: u32 = rooms.iter().map(|room| room.processors.max(1)).sum();
    let mut places = vec![usize::MAX; threads.len()];
    let mut placed = 0;
    for is_runnable in [true, false] {
        let these = || {
            let all = threads.iter().enumerate();
            all.filter(move |(_, thread)| thread.is_runnable == is_runnable)
        };
        placed += these().count() as u32;
        let share = |room: &Room| (placed * room.processors.max(1)).div_ceil(processors);
        for (at, thread) in these() {
            if let Some(room) = rooms.get_mut(thread.node)
                && room.threads < share(room)
            {
                room.threads += 1;
                places[at] = thread.node;
            }
        }
        for (at, _) in these() {
            if places[at] == usize::MAX {
                places[at] = place(Policy::Spread, &rooms);
                rooms[places[at]].threads += 1;
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(policy: Policy, processors: &[u32], count: u32) -> Vec<u32> {
        let room = |&processors| Room { processors, threads: 0, busy: 0 };
        let mut rooms: Vec<_> = processors.iter().map(room).collect();
        for _ in 0..count {
            let node = place(policy, &rooms);
            rooms[node].threads += 1;
        }
        rooms.iter().map(|room| room.threads).collect()
    }

    #[test]
    fn threads_are_spread_by_processors() {
        assert_eq!(threads(Policy::Spread, &[1, 1], 4), [2, 2]);
        assert_eq!(threads(Policy::Spread, &[4, 2, 2], 8), [4, 2, 2]);
        assert_eq!(threads(Policy::Spread, &[2, 1], 2), [1, 1]);
    }

    #[test]
    fn by_load_idle_threads_do_not_count() {
        let busy = |threads, busy| Room { processors: 2, threads, busy };
        let rooms = [busy(1, 2 * THREAD), busy(9, THREAD), busy(1, THREAD + 1)];
        assert_eq!(place(Policy::Load, &rooms), 1);
        assert_eq!(place(Policy::Spread, &rooms), 0);
    }

    #[test]
    fn running_threads_are_placed_apart() {
        let room = |processors| Room { processors, threads: 9, busy: 0 };
        let thread = |node, is_runnable| Thread { node, is_runnable };
        // The last waits for the others.
        let threads = [thread(0, true), thread(0, true), thread(0, false)];
        assert_eq!(arrange(&[room(1), room(1)], &threads), [0, 1, 0]);
        assert_eq!(arrange(&[room(1)], &[thread(1, true), thread(0, false)]), [0, 0]);
        // A thread stays if it can.
        let threads = [thread(1, true), thread(0, true), thread(2, true), thread(1, false)];
        assert_eq!(arrange(&[room(1), room(1), room(1)], &threads)[..3], [1, 0, 2]);
        assert_eq!(arrange(&[room(2), room(2)], &threads), [1, 0, 0, 1]);
        // By processors.
        let all = arrange(&[room(1), room(3)], &[thread(0, true); 8]);
        assert_eq!(all.iter().filter(|&&node| node == 0).count(), 2);
    }

    #[test]
    fn packed_threads_fill_a_node_before_the_next() {
        assert_eq!(threads(Policy::Pack, &[4, 4], 3), [3, 0]);
        assert_eq!(threads(Policy::Pack, &[4, 4], 6), [4, 2]);
        assert_eq!(threads(Policy::Pack, &[2, 2], 6), [3, 3]);
    }
}
