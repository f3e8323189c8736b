//! EP: pairs of Gaussian deviates, counted by size, as in the NAS benchmarks.
//!
//! `2^pairs_bits` pairs in batches of 1,024; a task has its share of the batches. Eleven words
//! (4 bytes), those of the ten sizes and their sum, are one `jia_alloc2p` at task 0, which
//! clears them; barrier; each task counts its pairs, and adds its counts under lock 0; barrier;
//! task 0 reads them.

use serde::{Deserialize, Serialize};

use super::random::Random;
use super::{Allocation, Make, Program, share};
use crate::cluster::Cluster;
use crate::task::{Life, Me};

pub(super) const ABOUT: &str = "Gaussian deviates, counted by size";

const BATCH: u64 = 1024;
const SIZES: usize = 10;

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Ep {
    pairs_bits: u32,
    #[serde(skip)]
    pair_ns: f64,
}

impl Default for Ep {
    fn default() -> Self {
        Self { pairs_bits: 24, pair_ns: 0.0 }
    }
}

impl Make for Ep {
    fn on(self, cluster: &Cluster) -> Self {
        Self { pair_ns: cluster.compute.ep_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match self.pairs_bits {
            10..=36 => Ok(()),
            bits => Err(format!("pairs_bits is {bits}, and must be 10 to 36")),
        }
    }
}

/// What the pairs of a share of the batches are.
fn counts(batches: std::ops::Range<u64>) -> [u32; SIZES + 1] {
    let mut counts = [0; SIZES + 1];
    let mut random = Random::new(271_828_183, batches.start * BATCH * 2);
    for _ in 0..(batches.end - batches.start) * BATCH {
        let (x, y) = (2.0 * random.next() - 1.0, 2.0 * random.next() - 1.0);
        let square = x * x + y * y;
        if square <= 1.0 {
            let factor = (-2.0 * square.ln() / square).sqrt();
            let size = (x * factor).abs().max((y * factor).abs()) as usize;
            counts[size.min(SIZES - 1)] += 1;
            counts[SIZES] += 1;
        }
    }
    counts
}

impl Program for Ep {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, _: u64, _: u64) -> Vec<Allocation> {
        vec![Allocation::on(0, 4 * (SIZES as u64 + 1))]
    }

    fn task(&self, me: Me, bases: &[u64]) -> Life {
        let shared = bases[0]..bases[0] + 4 * (SIZES as u64 + 1);
        let (batches, pair_ns) = ((1 << self.pairs_bits) / BATCH, self.pair_ns);
        Box::pin(async move {
            if me.task == 0 {
                me.store(shared.start, &[0; 4 * (SIZES + 1)]).await;
            }
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            let mine = share(batches, me.task, me.tasks);
            me.compute((mine.end - mine.start) * BATCH, pair_ns).await;
            let counts = counts(mine);
            me.lock(0).await;
            me.update(shared.clone(), |_, bytes| {
                let (words, _) = bytes.as_chunks_mut();
                for (word, count) in words.iter_mut().zip(counts) {
                    *word = (u32::from_le_bytes(*word) + count).to_le_bytes();
                }
            })
            .await;
            me.unlock(0).await;
            me.barrier().await;
            if me.task == 0 {
                me.stop().await;
                let sums = me.load(shared).await;
                let (words, _) = sums.as_chunks();
                let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
                let all: u32 = words[..SIZES].iter().sum();
                assert_eq!(all, words[SIZES], "every pair is counted once");
            }
        })
    }
}
