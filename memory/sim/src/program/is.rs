//! IS: ranks of integers, by counting (`examples/dsm/is.c`).

use serde::{Deserialize, Serialize};

use super::parameters::Make;
use super::random::chance;
use super::{Allocation, Program, part};
use crate::cluster::Cluster;
use crate::task::{Task, TaskFuture};

pub(super) const ABOUT: &str = "ranks of keys, counted in one histogram under a lock";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Is {
    integers: u64,
    range: u64,
    iterations: u64,
    #[serde(skip)]
    integer_ns: f64,
}

impl Default for Is {
    fn default() -> Self {
        Self { integers: 1 << 22, range: 32768, iterations: 10, integer_ns: 0.0 }
    }
}

impl Make for Is {
    fn on(self, cluster: &Cluster) -> Self {
        Self { integer_ns: cluster.compute.is_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match (self.integers, self.range) {
            (1..=1_073_741_824, 1..=16_777_216) => Ok(()),
            (integers, range) => Err(format!(
                "integers are {integers} and range is {range}, but must be 1 to 1073741824 and \
                 1 to 16777216"
            )),
        }
    }
}

impl Is {
    /// Returns the initial value of an integer.
    fn value(&self, at: u64) -> u64 {
        let sum: u64 = (0..4).map(|part| chance(4 * at + part) >> 33).sum();
        (sum as f64 / (1u64 << 33) as f64 * self.range as f64) as u64
    }
}

impl Program for Is {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, _: u64, _: u64) -> Vec<Allocation> {
        vec![Allocation::on(0, 4 * self.range)]
    }

    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture {
        let counters = bases[0]..bases[0] + 4 * self.range;
        let is = self.clone();
        Box::pin(async move {
            let mine = part(is.integers, me.task, me.tasks);
            let count = mine.end - mine.start;
            let mut own = vec![0u32; is.range as usize];
            mine.clone().for_each(|at| own[is.value(at) as usize] += 1);
            // The changed integers, and their new values.
            let mut changed = std::collections::BTreeMap::new();
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            for iteration in 0..is.iterations {
                let at = iteration % is.integers;
                if mine.contains(&at) {
                    let to = iteration % is.range;
                    let before = changed.insert(at, to).unwrap_or_else(|| is.value(at));
                    own[before as usize] -= 1;
                    own[to as usize] += 1;
                }
                me.compute(count, is.integer_ns / 2.0).await;
                if me.task == 0 {
                    for page in me.pages(counters.clone()) {
                        me.store(page.start, &vec![0; (page.end - page.start) as usize]).await;
                    }
                }
                me.barrier().await;
                me.lock(0).await;
                me.update(counters.clone(), |at, bytes| {
                    let first = ((at - counters.start) / 4) as usize;
                    let (words, _) = bytes.as_chunks_mut();
                    for (word, count) in words.iter_mut().zip(&own[first..]) {
                        *word = (u32::from_le_bytes(*word) + count).to_le_bytes();
                    }
                })
                .await;
                me.compute(is.range, 1.0).await;
                me.unlock(0).await;
                me.barrier().await;
                let sums = me.load(counters.clone()).await;
                let (words, _) = sums.as_chunks();
                let all: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
                if all != is.integers {
                    me.fail(format!("{all} integers are counted, expected {}", is.integers));
                }
                me.compute(count, is.integer_ns / 2.0).await;
                me.barrier().await;
            }
            if me.task == 0 {
                me.stop().await;
            }
        })
    }
}
