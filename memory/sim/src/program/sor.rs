//! SOR: red-black successive over-relaxation of a grid of floats (`examples/dsm/sor.c`).

use serde::{Deserialize, Serialize};

use super::parameters::Make;
use super::{Allocation, Program, part};
use crate::cluster::Cluster;
use crate::task::{Task, TaskFuture};

pub(super) const ABOUT: &str = "red-black successive over-relaxation";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Sor {
    rows: u64,
    /// Number of columns of each colour.
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
        match (self.rows, self.columns) {
            (1..=16_777_216, 1..=16_777_216) => Ok(()),
            (rows, columns) => Err(format!(
                "rows are {rows} and columns {columns}, but must be 1 to 16777216 each"
            )),
        }
    }
}

impl Program for Sor {
    fn allocations(&self, tasks: u64, _: u64) -> Vec<Allocation> {
        let row = |row: u64| {
            let inner = row.clamp(1, self.rows) - 1;
            Allocation::on(inner / self.rows.div_ceil(tasks), (self.columns + 1) * 4)
        };
        (0..self.rows + 2).flat_map(|at| [row(at); 2]).collect()
    }

    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture {
        let Self { rows, columns, iterations, point_ns } = *self;
        let mine = part(rows, me.task, me.tasks);
        let mine = 1 + mine.start..1 + mine.end;
        // The rows that this task accesses.
        let first = 2 * (mine.start as usize - 1);
        let bases =
            bases[first.min(bases.len())..(2 * mine.end as usize + 2).min(bases.len())].to_vec();
        Box::pin(async move {
            let points = |colour: u64, row: u64, points: std::ops::Range<u64>| {
                let base = bases[(2 * row + colour) as usize - first];
                base + points.start * 4..base + points.end * 4
            };
            let mut filled: Vec<u64> = mine.clone().collect();
            if mine.start == 1 && !mine.is_empty() {
                filled.push(0);
            }
            if mine.end == rows + 1 && !mine.is_empty() {
                filled.push(rows + 1);
            }
            for row in filled {
                me.write(points(0, row, 0..columns + 1)).await;
                me.write(points(1, row, 0..columns + 1)).await;
            }
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            for _ in 0..iterations {
                for (to, from) in [(0, 1), (1, 0)] {
                    for row in mine.clone() {
                        let shift = (row + to) % 2;
                        let inner = 1 - shift..columns + 1 - shift;
                        me.read(points(from, row - 1, inner.clone())).await;
                        me.read(points(from, row + 1, inner.clone())).await;
                        me.read(points(from, row, 0..columns + 1)).await;
                        me.read_and_write(points(to, row, inner)).await;
                        me.compute(columns, point_ns).await;
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
