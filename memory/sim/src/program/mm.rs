//! MM: the product of two square matrices of doubles.
//!
//! Three matrices in bands of rows: for each of A, B and C, in this order, each task has one
//! `jia_alloc2p` for its rows, `n * task / tasks` up to those of the next. B is stored
//! transposed, so that a row of it is a column. Each task fills its bands of A and B; barrier;
//! then for each row of A, for each row of B, it computes an element of its band of C. A
//! barrier ends it.

use serde::{Deserialize, Serialize};

use super::{Allocation, Make, Program, share};
use crate::cluster::Cluster;
use crate::task::{Life, Me};

pub(super) const ABOUT: &str = "product of two matrices, the second transposed";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Mm {
    /// Rows and columns.
    n: u64,
    #[serde(skip)]
    element_ns: f64,
}

impl Default for Mm {
    fn default() -> Self {
        Self { n: 2048, element_ns: 0.0 }
    }
}

impl Make for Mm {
    fn on(self, cluster: &Cluster) -> Self {
        Self { element_ns: cluster.compute.mm_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match self.n {
            1..=65536 => Ok(()),
            n => Err(format!("n is {n}, and must be 1 to 65536")),
        }
    }
}

impl Program for Mm {
    fn allocations(&self, tasks: u64, _: u64) -> Vec<Allocation> {
        let bands = (0..3 * tasks).map(|band| {
            let rows = share(self.n, band % tasks, tasks);
            Allocation::on(band % tasks, (rows.end - rows.start) * self.n * 8)
        });
        bands.collect()
    }

    fn task(&self, me: Me, bases: &[u64]) -> Life {
        let (n, element_ns) = (self.n, self.element_ns);
        let row_bytes = n * 8;
        let bases = bases.to_vec();
        Box::pin(async move {
            let band = |matrix: u64, task: u64| {
                let rows = share(n, task, me.tasks);
                let base = bases[(matrix * me.tasks + task) as usize];
                base..base + (rows.end - rows.start) * row_bytes
            };
            let rows = share(n, me.task, me.tasks);
            me.write(band(0, me.task)).await;
            me.write(band(1, me.task)).await;
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            for row in 0..rows.end - rows.start {
                let a = band(0, me.task).start + row * row_bytes;
                let c = band(2, me.task).start + row * row_bytes;
                me.read(a..a + row_bytes).await;
                if row > 0 {
                    // Nobody writes B any more: what was touched stays.
                    me.write(c..c + row_bytes).await;
                    me.compute(n * n, element_ns).await;
                    continue;
                }
                let mut column = 0;
                for task in 0..me.tasks {
                    let b = band(1, task);
                    for at in (b.start..b.end).step_by(row_bytes as usize) {
                        me.read(at..at + row_bytes).await;
                        me.compute(n, element_ns).await;
                        me.write(c + column * 8..c + (column + 1) * 8).await;
                        column += 1;
                    }
                }
            }
            me.barrier().await;
            if me.task == 0 {
                me.stop().await;
            }
        })
    }
}
