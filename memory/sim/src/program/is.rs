//! IS: keys are ranked by counting them, as in the NAS benchmarks.
//!
//! Each task has `2^keys_bits / tasks` keys of its own, below `2^range_bits`: sums of four
//! random numbers, in NAS's sequence. The shared histogram, a word (4 bytes) for each value, is one
//! `jia_alloc2p` at task 0. In each of the repetitions a task counts its keys; task 0 clears
//! the shared histogram; barrier; under lock 0 each adds its counts, word by word; barrier; each
//! reads the sums and ranks its keys; barrier.

use serde::{Deserialize, Serialize};

use super::random::Random;
use super::{Allocation, Make, Program, share};
use crate::cluster::Cluster;
use crate::task::{Life, Me};

pub(super) const ABOUT: &str = "ranks of keys, counted in one histogram under a lock";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Is {
    keys_bits: u32,
    range_bits: u32,
    repetitions: u32,
    #[serde(skip)]
    key_ns: f64,
}

impl Default for Is {
    fn default() -> Self {
        Self { keys_bits: 22, range_bits: 15, repetitions: 10, key_ns: 0.0 }
    }
}

impl Make for Is {
    fn on(self, cluster: &Cluster) -> Self {
        Self { key_ns: cluster.compute.is_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match (self.keys_bits, self.range_bits) {
            (1..=32, 2..=24) => Ok(()),
            (keys, range) => Err(format!(
                "keys_bits is {keys} and range_bits {range}; they must be 1 to 32 and 2 to 24"
            )),
        }
    }
}

impl Is {
    /// How often each value is among a task's keys.
    fn counts(&self, task: u64, tasks: u64) -> Vec<u32> {
        let keys = share(1 << self.keys_bits, task, tasks);
        let mut random = Random::new(314_159_265, keys.start * 4);
        let quarter = f64::from(1u32 << self.range_bits) / 4.0;
        let mut counts = vec![0; 1 << self.range_bits];
        for _ in keys {
            let sum: f64 = (0..4).map(|_| random.next()).sum();
            counts[(quarter * sum) as usize] += 1;
        }
        counts
    }
}

impl Program for Is {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, _: u64, _: u64) -> Vec<Allocation> {
        vec![Allocation::on(0, 4 << self.range_bits)]
    }

    fn task(&self, me: Me, bases: &[u64]) -> Life {
        let histogram = bases[0]..bases[0] + (4 << self.range_bits);
        let is = self.clone();
        Box::pin(async move {
            let counts = is.counts(me.task, me.tasks);
            let keys = share(1 << is.keys_bits, me.task, me.tasks);
            let keys = keys.end - keys.start;
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            for _ in 0..is.repetitions {
                me.compute(keys, is.key_ns / 2.0).await;
                if me.task == 0 {
                    for page in me.pages(histogram.clone()) {
                        me.store(page.start, &vec![0; (page.end - page.start) as usize]).await;
                    }
                }
                me.barrier().await;
                me.lock(0).await;
                me.update(histogram.clone(), |at, bytes| {
                    let first = ((at - histogram.start) / 4) as usize;
                    let (words, _) = bytes.as_chunks_mut();
                    for (word, count) in words.iter_mut().zip(&counts[first..]) {
                        *word = (u32::from_le_bytes(*word) + count).to_le_bytes();
                    }
                })
                .await;
                me.compute(counts.len() as u64, 1.0).await;
                me.unlock(0).await;
                me.barrier().await;
                let sums = me.load(histogram.clone()).await;
                let (words, _) = sums.as_chunks();
                let all: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
                assert_eq!(all, 1 << is.keys_bits, "every key is counted once");
                me.compute(keys, is.key_ns / 2.0).await;
                me.barrier().await;
            }
            if me.task == 0 {
                me.stop().await;
            }
        })
    }
}
