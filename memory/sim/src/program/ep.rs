//! EP: random Gaussian deviates, counted by size (`examples/dsm/ep.c`).

use serde::{Deserialize, Serialize};

use super::parameters::Make;
use super::random::Nas;
use super::{Allocation, Program, doubles, part};
use crate::cluster::Cluster;
use crate::task::{Task, TaskFuture};

pub(super) const ABOUT: &str = "random Gaussian deviates, counted and added up";

/// Shared memory holds two sums, then ten counts.
const SUMS: usize = 2;
const SIZES: usize = 10;
const TALLY: u64 = 8 * (SUMS + SIZES) as u64;

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Ep {
    /// The binary logarithm of the number of pairs.
    exponent: u32,
    #[serde(skip)]
    pair_ns: f64,
}

impl Default for Ep {
    fn default() -> Self {
        Self { exponent: 24, pair_ns: 0.0 }
    }
}

impl Make for Ep {
    fn on(self, cluster: &Cluster) -> Self {
        Self { pair_ns: cluster.compute.ep_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match self.exponent {
            0..=40 => Ok(()),
            exponent => Err(format!("exponent is {exponent}, but must be 0 to 40")),
        }
    }
}

/// Returns the sums and counts of a part of the pairs.
pub(super) fn count(pairs: std::ops::Range<u64>) -> ([f64; SUMS], [u64; SIZES]) {
    let (mut sums, mut counts) = ([0.0; SUMS], [0; SIZES]);
    let mut random = Nas::new(271_828_183, 2 * pairs.start);
    for _ in pairs {
        let (x, y) = (random.next(), random.next());
        let square = x * x + y * y;
        if square <= 1.0 {
            let factor = (-2.0 * square.ln() / square).sqrt();
            let (x, y) = (x * factor, y * factor);
            sums[0] += x;
            sums[1] += y;
            counts[x.abs().max(y.abs()) as usize] += 1;
        }
    }
    (sums, counts)
}

impl Program for Ep {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, _: u64, _: u64) -> Vec<Allocation> {
        vec![Allocation::on(0, TALLY)]
    }

    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture {
        let tally = bases[0]..bases[0] + TALLY;
        let (pairs, pair_ns) = (1 << self.exponent, self.pair_ns);
        Box::pin(async move {
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            let mine = part(pairs, me.task, me.tasks);
            me.compute(mine.end - mine.start, pair_ns).await;
            let (sums, counts) = count(mine);
            me.lock(0).await;
            me.update(tally.clone(), |_, bytes| {
                let (words, _) = bytes.as_chunks_mut();
                let (first, last) = words.split_at_mut(SUMS);
                for (word, add) in first.iter_mut().zip(sums) {
                    *word = (f64::from_le_bytes(*word) + add).to_le_bytes();
                }
                for (word, add) in last.iter_mut().zip(counts) {
                    *word = (u64::from_le_bytes(*word) + add).to_le_bytes();
                }
            })
            .await;
            me.unlock(0).await;
            me.barrier().await;
            if me.task == 0 {
                me.stop().await;
                let sums = me.load(tally).await;
                // The published values of NAS, for class S.
                if pairs == 1 << 24 {
                    let published = [-3.247_834_652_034_74e3, -6.958_407_078_382_297e3];
                    for (sum, published) in doubles(&sums).zip(published) {
                        if (sum - published).abs() > 1e-8 * published.abs() {
                            me.fail(format!("a sum is {sum}, but NAS publishes {published}"));
                        }
                    }
                }
            }
        })
    }
}
