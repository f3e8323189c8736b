//! MM: the product of two square matrices of doubles (`examples/dsm/mm.c`).

use serde::{Deserialize, Serialize};

use super::parameters::Make;
use super::{Allocation, Program, part};
use crate::cluster::Cluster;
use crate::task::{Task, TaskFuture};

pub(super) const ABOUT: &str = "product of two matrices, the second transposed";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Mm {
    /// Number of rows and of columns.
    size: u64,
    #[serde(skip)]
    element_ns: f64,
}

impl Default for Mm {
    fn default() -> Self {
        Self { size: 2048, element_ns: 0.0 }
    }
}

impl Make for Mm {
    fn on(self, cluster: &Cluster) -> Self {
        Self { element_ns: cluster.compute.mm_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match self.size {
            1..=65536 => Ok(()),
            size => Err(format!("size is {size}, but must be 1 to 65536")),
        }
    }
}

impl Program for Mm {
    fn allocations(&self, tasks: u64, _: u64) -> Vec<Allocation> {
        vec![Allocation::bands(self.size, self.size * 8, tasks); 3]
    }

    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture {
        let (size, element_ns) = (self.size, self.element_ns);
        let [a, b, c] = [bases[0], bases[1], bases[2]];
        Box::pin(async move {
            let row_bytes = size * 8;
            let rows = part(size, me.task, me.tasks);
            let band = |base: u64| base + rows.start * row_bytes..base + rows.end * row_bytes;
            for row in rows.clone() {
                for base in [a, b] {
                    me.write(base + row * row_bytes..base + (row + 1) * row_bytes).await;
                }
            }
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            for column in (0..size).filter(|_| !rows.is_empty()) {
                if column == 0 {
                    me.read(band(a)).await;
                }
                me.read(b + column * row_bytes..b + (column + 1) * row_bytes).await;
                for row in rows.clone() {
                    let at = c + row * row_bytes + column * 8;
                    // Pages that were accessed stay, since no node waits for them.
                    if column == 0 || at % me.page_bytes < 8 {
                        me.write(at..at + 8).await;
                    }
                }
                me.compute((rows.end - rows.start) * size, element_ns).await;
            }
            me.write(band(c)).await;
            me.barrier().await;
            if me.task == 0 {
                me.stop().await;
            }
        })
    }
}
