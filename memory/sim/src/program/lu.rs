//! LU: factors of a dense matrix of doubles, by blocks, without pivoting (`examples/dsm/lu.c`).

use serde::{Deserialize, Serialize};

use super::parameters::Make;
use super::{Allocation, Program};
use crate::cluster::Cluster;
use crate::task::{Task, TaskFuture};

pub(super) const ABOUT: &str = "factors of a matrix, by blocks, without pivoting";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Lu {
    /// Number of rows and of columns.
    size: u64,
    /// Number of rows and of columns of a block.
    block: u64,
    /// Bytes from one of a task's blocks to its next; 0 for the size of a block. In the `lu.c` of
    /// JIAJIA 2.1 this is 1,024 for blocks of 32, an eighth of a block. That program adds the count
    /// of numbers in a block to an address, so blocks overlap.
    apart: u64,
    #[serde(skip)]
    element_ns: f64,
}

impl Default for Lu {
    fn default() -> Self {
        Self { size: 1024, block: 32, apart: 0, element_ns: 0.0 }
    }
}

impl Make for Lu {
    fn on(self, cluster: &Cluster) -> Self {
        Self { element_ns: cluster.compute.lu_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match (self.size, self.block) {
            (1..=65536, 1..=4096) => Ok(()),
            (size, block) => Err(format!(
                "size is {size} and block {block}, but must be 1 to 65536 and 1 to 4096"
            )),
        }
    }
}

/// The distribution of blocks over tasks.
#[derive(Clone, Copy, Debug)]
struct Grid {
    blocks: u64,
    down: u64,
    across: u64,
}

impl Grid {
    fn new(blocks: u64, tasks: u64) -> Self {
        let down = (1..=tasks.isqrt())
            .rev()
            .find(|down| tasks.is_multiple_of(*down))
            .expect("one divides");
        Self { blocks, down, across: tasks / down }
    }

    fn owner(&self, i: u64, j: u64) -> u64 {
        i % self.down * self.across + j % self.across
    }

    /// Returns the number of columns of blocks of a task that has this column.
    fn columns(&self, j: u64) -> u64 {
        (self.blocks - j % self.across).div_ceil(self.across)
    }

    /// Returns the number of blocks of a task.
    fn count(&self, task: u64) -> u64 {
        let (i, j) = (task / self.across, task % self.across);
        match i < self.blocks && j < self.blocks {
            true => (self.blocks - i).div_ceil(self.down) * self.columns(j),
            false => 0,
        }
    }

    /// Returns the index of a block among those of its owner.
    fn place(&self, i: u64, j: u64) -> u64 {
        i / self.down * self.columns(j) + j / self.across
    }
}

impl Program for Lu {
    fn allocations(&self, tasks: u64, _: u64) -> Vec<Allocation> {
        let grid = Grid::new(self.size.div_ceil(self.block), tasks);
        let bytes = self.block * self.block * 8;
        (0..tasks).map(|task| Allocation::on(task, grid.count(task) * bytes)).collect()
    }

    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture {
        let Self { size, block, apart, element_ns } = *self;
        let apart = if apart == 0 { block * block * 8 } else { apart };
        let bases = bases.to_vec();
        let grid = Grid::new(size.div_ceil(block), me.tasks);
        let cube = block.pow(3);
        Box::pin(async move {
            let bytes = |i: u64, j: u64| {
                let base = bases[grid.owner(i, j) as usize];
                let at = base + grid.place(i, j) * apart;
                at..at + block * block * 8
            };
            let mine = |i: u64, j: u64| grid.owner(i, j) == me.task;
            let (first, next) = (me.task / grid.across, me.task % grid.across);
            for i in (first..grid.blocks).step_by(grid.down as usize) {
                for j in (next..grid.blocks).step_by(grid.across as usize) {
                    me.write(bytes(i, j)).await;
                }
            }
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            for k in 0..grid.blocks {
                if mine(k, k) {
                    me.read_and_write(bytes(k, k)).await;
                    me.compute(cube / 3, element_ns).await;
                }
                me.barrier().await;
                let below = (k + 1..grid.blocks).map(|i| (i, k));
                let beside = (k + 1..grid.blocks).map(|j| (k, j));
                for (i, j) in below.chain(beside).filter(|&(i, j)| mine(i, j)) {
                    me.read(bytes(k, k)).await;
                    me.read_and_write(bytes(i, j)).await;
                    me.compute(cube / 2, element_ns).await;
                }
                me.barrier().await;
                // The task's first row below k, and its first column right of k.
                let from = |ours: u64, step: u64| k + 1 + (ours + step - (k + 1) % step) % step;
                for i in (from(first, grid.down)..grid.blocks).step_by(grid.down as usize) {
                    for j in (from(next, grid.across)..grid.blocks).step_by(grid.across as usize) {
                        me.read(bytes(i, k)).await;
                        me.read(bytes(k, j)).await;
                        me.read_and_write(bytes(i, j)).await;
                        me.compute(cube, element_ns).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_a_place_of_its_own() {
        for (blocks, tasks) in [(32, 1), (32, 6), (8, 12), (5, 7), (2, 16)] {
            let grid = Grid::new(blocks, tasks);
            let mut places = std::collections::BTreeSet::new();
            for (i, j) in (0..blocks).flat_map(|i| (0..blocks).map(move |j| (i, j))) {
                assert!(grid.place(i, j) < grid.count(grid.owner(i, j)));
                assert!(places.insert((grid.owner(i, j), grid.place(i, j))), "{i} {j}");
            }
            assert_eq!((0..tasks).map(|task| grid.count(task)).sum::<u64>(), blocks * blocks);
        }
    }
}
