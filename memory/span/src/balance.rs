//! Decides when a running thread should move to another node (`--place load`), and which one from
//! where to where. This module is pure, so that it can be tested. The agent measures, and moves
//! threads.
//!
//! A move is worthwhile when a thread waits for a processor on one node, and another node would
//! serve it sooner by [`MARGIN`], even with one thread more. This must hold for [`UNEVEN_SAMPLES`]
//! samples. After a move [`REST`] samples pass before the next, until the averages reflect the
//! move. So a thread does not oscillate between two nodes.

/// A whole runnable thread, in which load is counted.
pub const THREAD: u32 = 256;
/// By how much shorter, in threads for each processor, the line must be elsewhere.
pub const MARGIN: u32 = THREAD / 4;
/// For how many looks.
pub const UNEVEN_SAMPLES: u32 = 3;
/// Looks after a move.
pub const REST: u32 = 5;

/// A node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Processors that the program may use there.
    pub processors: u32,
    /// Threads that could run there, of late, in parts of [`THREAD`].
    pub busy: u32,
}

impl Load {
    /// Returns the threads for each processor with this many more.
    fn line(&self, more: u32) -> u32 {
        (self.busy + more * THREAD) / self.processors.max(1)
    }
}

/// The state between samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Balance {
    uneven: u32,
    rest: u32,
}

impl Balance {
    /// Looks at all nodes: from which a thread should go, and to which.
    pub fn look(&mut self, loads: &[Load]) -> Option<(usize, usize)> {
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let nodes = || loads.iter().enumerate();
        let (from, longest) = nodes().max_by_key(|(_, load)| load.line(0))?;
        let (to, shortest) = nodes().min_by_key(|(_, load)| load.line(1))?;
        let is_worth_it = longest.line(0) > THREAD && shortest.line(1) + MARGIN <= longest.line(0);
        self.uneven = if is_worth_it { self.uneven + 1 } else { 0 };
        if self.uneven < UNEVEN_SAMPLES {
            return None;
        }
        *self = Self { uneven: 0, rest: REST };
        Some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(nodes: &[(u32, u32)]) -> Vec<Load> {
        let load = |&(processors, busy)| Load { processors, busy };
        nodes.iter().map(load).collect()
    }

    /// Returns the moves after this many samples of the same loads.
    fn looks(count: u32, nodes: &[(u32, u32)]) -> Vec<(usize, usize)> {
        let mut balance = Balance::default();
        (0..count).filter_map(|_| balance.look(&loads(nodes))).collect()
    }

    #[test]
    fn a_thread_goes_to_an_idle_node_when_that_has_been_idle_for_a_while() {
        assert_eq!(looks(UNEVEN_SAMPLES - 1, &[(1, 2 * THREAD), (1, 0)]), []);
        assert_eq!(looks(UNEVEN_SAMPLES, &[(1, 2 * THREAD), (1, 0)]), [(0, 1)]);
        assert_eq!(looks(UNEVEN_SAMPLES, &[(1, 0), (2, 0), (2, 5 * THREAD)]), [(2, 1)]);
    }

    #[test]
    fn one_move_is_seen_before_the_next() {
        let nodes = [(1, 4 * THREAD), (1, 0)];
        assert_eq!(looks(UNEVEN_SAMPLES + REST + UNEVEN_SAMPLES - 1, &nodes).len(), 1);
        assert_eq!(looks(UNEVEN_SAMPLES + REST + UNEVEN_SAMPLES, &nodes).len(), 2);
    }

    #[test]
    fn a_thread_that_would_wait_elsewhere_stays() {
        // Three threads on two processors: one waits, wherever it is.
        assert_eq!(looks(100, &[(1, 2 * THREAD), (1, THREAD)]), []);
        // Nobody waits.
        assert_eq!(looks(100, &[(4, 4 * THREAD), (4, 0)]), []);
        assert_eq!(looks(100, &[(2, THREAD), (1, 0)]), []);
        assert_eq!(looks(100, &[]), []);
    }

    #[test]
    fn a_short_unevenness_moves_nobody() {
        let mut balance = Balance::default();
        for _ in 0..100 {
            for _ in 0..UNEVEN_SAMPLES - 1 {
                assert_eq!(balance.look(&loads(&[(1, 3 * THREAD), (1, 0)])), None);
            }
            assert_eq!(balance.look(&loads(&[(1, THREAD), (1, THREAD)])), None);
        }
    }

    #[test]
    fn moves_end_in_an_equilibrium_for_any_load() {
        for (first, second, processors) in [(9, 0, [1, 1]), (0, 12, [2, 1]), (7, 7, [4, 1])] {
            let mut threads = [first, second];
            let mut balance = Balance::default();
            let mut moves = 0;
            for _ in 0..1000 {
                let nodes = [0, 1].map(|node| (processors[node], threads[node] * THREAD));
                if let Some((from, to)) = balance.look(&loads(&nodes)) {
                    threads[from] -= 1;
                    threads[to] += 1;
                    moves += 1;
                }
            }
            assert!(moves <= 12, "{moves} moves: {threads:?}");
            let lines = [0, 1].map(|node| threads[node] * 4 / processors[node]);
            assert!(lines[0].abs_diff(lines[1]) <= 5, "{threads:?}");
        }
    }
}
