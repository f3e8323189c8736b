//! SOR: red-black successive over-relaxation of a grid of floats.
//!
//! The grid has `rows + 2` rows of `columns` points, and the outermost rows do not change. Red
//! and black points are two matrices of `columns / 2` floats a row. Rows are in bands, `(rows +
//! 2) * task / tasks` up to those of the next task; for red, then for black, each task has one
//! `jia_alloc2p` for its band, whose rows follow each other without a gap. Each task fills its
//! bands; barrier; then in each iteration it computes its black points from red ones; barrier;
//! red from black; barrier.

use serde::{Deserialize, Serialize};

use super::{Allocation, Make, Program, share};
use crate::cluster::Cluster;
use crate::task::{Life, Me};

pub(super) const ABOUT: &str = "red-black successive over-relaxation";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Sor {
    rows: u64,
    columns: u64,
    iterations: u64,
    #[serde(skip)]
    point_ns: f64,
}

impl Default for Sor {
    fn default() -> Self {
        Self { rows: 5120, columns: 5120, iterations: 100, point_ns: 0.0 }
    }
}

impl Make for Sor {
    fn on(self, cluster: &Cluster) -> Self {
        Self { point_ns: cluster.compute.sor_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        let Self { rows, columns, .. } = self;
        match (rows, columns) {
            (1..=1_000_000, 2..=1_000_000) if columns % 2 == 0 => Ok(()),
            _ => Err(format!(
                "rows are {rows} and columns {columns}; rows must be 1 to 1000000, columns 2 to \
                 1000000 and even"
            )),
        }
    }
}

impl Program for Sor {
    fn allocations(&self, tasks: u64, _: u64) -> Vec<Allocation> {
        let bands = (0..2 * tasks).map(|band| {
            let rows = share(self.rows + 2, band % tasks, tasks);
            Allocation::on(band % tasks, (rows.end - rows.start) * self.columns / 2 * 4)
        });
        bands.collect()
    }

    fn task(&self, me: Me, bases: &[u64]) -> Life {
        let Self { rows, columns, iterations, point_ns } = *self;
        let row_bytes = columns / 2 * 4;
        let bases = bases.to_vec();
        Box::pin(async move {
            // Where a row of a colour stands.
            let place = |colour: u64, row: u64| {
                // The band that has it: the last that begins at or before it.
                let task = ((row + 1) * me.tasks - 1) / (rows + 2);
                let first = share(rows + 2, task, me.tasks).start;
                let base = bases[(colour * me.tasks + task) as usize];
                base + (row - first) * row_bytes
            };
            let mine = share(rows + 2, me.task, me.tasks);
            for colour in [0, 1] {
                for row in mine.clone() {
                    let at = place(colour, row);
                    me.write(at..at + row_bytes).await;
                }
            }
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            for _ in 0..iterations {
                for (from, to) in [(0, 1), (1, 0)] {
                    for row in mine.start.max(1)..mine.end.min(rows + 1) {
                        for near in [row - 1, row, row + 1] {
                            let at = place(from, near);
                            me.read(at..at + row_bytes).await;
                        }
                        let at = place(to, row);
                        me.write(at..at + row_bytes).await;
                        me.compute(columns / 2, point_ns).await;
                    }
                    me.barrier().await;
                }
            }
            if me.task == 0 {
                me.stop().await;
            }
        })
    }
}
