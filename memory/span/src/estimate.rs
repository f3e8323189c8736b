//! Estimates the time on other numbers of nodes for a program that was measured on some nodes.
//!
//! The model: the processors share the computation of threads, but no thread is faster than alone.
//! The waits of a thread (for a page from another node, for a call at the origin) are added, and
//! threads wait concurrently. With more nodes a thread's data are less often on its own node: with
//! K nodes they are elsewhere in (K - 1) / K of the cases. Waits for other threads (locks,
//! barriers, input) are not included, nor that a program may start more threads on more
//! processors. So the estimate shows the obstacles rather than the future time.

use serde::Serialize;

use crate::report::Report;

/// The input of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Nodes of the run.
    pub nodes: u32,
    /// Processors of a node.
    pub processors: f64,
    /// The computing time of each thread, in s.
    pub running: Vec<f64>,
    /// Waits for pages in all, in s.
    pub pages: f64,
    /// Waits for calls at the origin, in s.
    pub calls: f64,
}

/// The part that takes longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Bound {
    /// Computing: it scales.
    Computing,
    /// There are not more threads than that.
    Threads,
    /// One thread computes longer than all others.
    OneThread,
    /// Pages that go from node to node.
    Pages,
    /// System calls, which the origin makes.
    Calls,
}

/// The estimate for a number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The number of nodes.
    pub nodes: u32,
    /// The time in s.
    pub seconds: f64,
    /// The speed-up against one node.
    pub speedup: f64,
    /// Why not faster.
    pub bound: Bound,
}

impl Measured {
    /// Of a run. A call at the origin is taken to cost what a page does: a round trip.
    pub fn of(report: &Report) -> Self {
        let sum = |of: fn(&crate::report::Counts) -> u64| report.nodes.iter().map(of).sum::<u64>();
        let fetch_ns = sum(|node| node.fetch_ns) as f64 / sum(|node| node.fetches).max(1) as f64;
        let running = report.threads().map(|thread| thread.running_ns as f64 / 1e9);
        let calls: u64 = report.threads().map(|thread| thread.calls() + thread.futex_waits).sum();
        let stopped: u64 = report.threads().map(|thread| thread.stopped_ns).sum();
        let processors = sum(|node| node.processors.into()) as f64;
        Self {
            nodes: report.nodes.len() as u32,
            processors: (processors / report.nodes.len().max(1) as f64).max(1.0),
            running: running.collect(),
            pages: stopped as f64 / 1e9,
            calls: calls as f64 * fetch_ns / 1e9,
        }
    }

    /// Returns the estimate for this many nodes of the same kind.
    pub fn on(&self, nodes: u32) -> Estimate {
        let (seconds, bound) = self.time(nodes);
        let (alone, _) = self.time(1);
        let speedup = if seconds > 0.0 { alone / seconds } else { 1.0 };
        Estimate { nodes, seconds, speedup, bound }
    }

    fn time(&self, nodes: u32) -> (f64, Bound) {
        let work: f64 = self.running.iter().sum();
        let longest = self.running.iter().copied().fold(0.0, f64::max);
        let threads = self.running.iter().filter(|it| **it > work / 1000.0).count().max(1) as f64;
        let processors = f64::from(nodes) * self.processors;
        let shared = work / processors.min(threads);
        let computing = shared.max(longest);
        let elsewhere = |nodes: u32| f64::from(nodes - 1) / f64::from(nodes);
        let more = match self.nodes {
            1 => 0.0,
            before => elsewhere(nodes) / elsewhere(before),
        };
        let beside = threads.min(processors);
        let (pages, calls) = (self.pages * more / beside, self.calls * more / beside);
        let bound = if pages.max(calls) > computing / 4.0 {
            if pages > calls { Bound::Pages } else { Bound::Calls }
        } else if longest > 1.2 * shared {
            Bound::OneThread
        } else if processors > threads {
            Bound::Threads
        } else {
            Bound::Computing
        };
        (computing + pages + calls, bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(threads: usize, pages: f64) -> Measured {
        let running = vec![1.0; threads];
        Measured { nodes: 2, processors: 1.0, running, pages, calls: 0.0 }
    }

    #[test]
    fn computation_without_sharing_scales_to_the_number_of_threads() {
        let it = measured(8, 0.0);
        assert_eq!([1, 2, 4, 8, 16].map(|nodes| it.on(nodes).speedup), [1.0, 2.0, 4.0, 8.0, 8.0]);
        assert_eq!(it.on(4).bound, Bound::Computing);
        assert_eq!(it.on(16).bound, Bound::Threads);
    }

    #[test]
    fn pages_that_go_back_and_forth_make_it_slower() {
        let it = measured(2, 20.0);
        let two = it.on(2);
        assert!(two.speedup < 0.2 && two.bound == Bound::Pages, "{two:?}");
        assert_eq!(two.seconds, 1.0 + 10.0);
        assert!(it.on(4).seconds > two.seconds);
    }

    #[test]
    fn a_thread_is_never_faster_than_alone() {
        let running = vec![10.0, 1.0, 1.0];
        let it = Measured { nodes: 2, processors: 1.0, running, pages: 0.0, calls: 0.0 };
        assert_eq!(it.on(8).seconds, 10.0);
        assert_eq!(it.on(8).bound, Bound::OneThread);
        assert_eq!(it.on(1).seconds, 12.0);
    }

    #[test]
    fn calls_at_the_origin_count_as_round_trips() {
        let it = Measured { calls: 3.0, ..measured(4, 0.0) };
        assert_eq!((it.on(2).bound, it.on(2).seconds), (Bound::Calls, 2.0 + 1.5));
    }

    #[test]
    fn a_run_of_nothing_has_an_estimate() {
        let report = Report { nodes: vec![Default::default()], ..Report::default() };
        assert_eq!(Measured::of(&report).on(4).speedup, 1.0);
    }
}
