//! Measures the programs' inner loops on this machine, for a cluster file.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::random::chance;
use super::{ep, tsp, water};
use crate::cluster::Compute;

/// Measures all inner loops on one processor. This takes about a second.
pub fn measure() -> Compute {
    let number = |at: u64| (chance(at) % 1000) as f64 / 1000.0;
    Compute {
        mm_ns: {
            const SIZE: usize = 2048;
            let row: Vec<f64> = (0..SIZE as u64).map(number).collect();
            let rows: Vec<f64> = (0..256 * SIZE as u64).map(number).collect();
            each(|| {
                for other in rows.chunks(SIZE) {
                    black_box(dot(&row, other));
                }
                rows.len() as u64
            })
        },
        sor_ns: {
            const COLUMNS: usize = 5120;
            let rows: Vec<f32> = (0..66 * COLUMNS as u64).map(|at| number(at) as f32).collect();
            let mut to = rows.clone();
            each(|| {
                for row in 1..65 {
                    let row_of = |row: usize| &rows[row * COLUMNS..(row + 1) * COLUMNS];
                    let own = &mut to[row * COLUMNS..(row + 1) * COLUMNS];
                    relax(own, row_of(row - 1), row_of(row), row_of(row + 1));
                }
                64 * COLUMNS as u64
            })
        },
        lu_ns: {
            const BLOCK: usize = 32;
            let block: Vec<f64> = (0..(BLOCK * BLOCK) as u64).map(number).collect();
            let mut to = block.clone();
            each(|| {
                for (row, line) in to.chunks_mut(BLOCK).enumerate() {
                    for k in 0..BLOCK {
                        let factor = block[row * BLOCK + k];
                        let other = &block[k * BLOCK..(k + 1) * BLOCK];
                        line.iter_mut().zip(other).for_each(|(to, other)| *to -= factor * other);
                    }
                }
                black_box(&mut to);
                (BLOCK * BLOCK * BLOCK) as u64
            })
        },
        is_ns: {
            let values: Vec<u16> = (0..1 << 20).map(|at| (chance(at) >> 49) as u16).collect();
            let mut ranks = vec![0u32; values.len()];
            each(|| {
                let mut counts = vec![0u32; 1 << 15];
                values.iter().for_each(|value| counts[usize::from(*value)] += 1);
                for (rank, value) in ranks.iter_mut().zip(&values) {
                    counts[usize::from(*value)] -= 1;
                    *rank = counts[usize::from(*value)];
                }
                black_box(&mut ranks);
                values.len() as u64
            })
        },
        ep_ns: each(|| {
            black_box(ep::count(0..1 << 16));
            1 << 16
        }),
        tsp_ns: each(tsp::search_some),
        water_ns: each(water::compute_some),
    }
}

/// Returns the time of an iteration in nanoseconds: the minimum of several rounds, since other work
/// of the machine only adds. `work` returns its number of iterations.
fn each(mut work: impl FnMut() -> u64) -> f64 {
    const ROUND: Duration = Duration::from_millis(30);
    let mut least = f64::INFINITY;
    for _ in 0..4 {
        let (begin, mut done) = (Instant::now(), 0);
        while done == 0 || begin.elapsed() < ROUND {
            done += work();
        }
        least = least.min(begin.elapsed().as_nanos() as f64 / done as f64);
    }
    least
}

/// Returns the scalar product. The compiler can keep the eight sums in vector registers.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    for (x, y) in x.chunks_exact(8).zip(y.chunks_exact(8)) {
        for of in 0..8 {
            sums[of] += x[of] * y[of];
        }
    }
    sums.iter().sum()
}

/// Updates a row of points.
fn relax(to: &mut [f32], above: &[f32], beside: &[f32], below: &[f32]) {
    for k in 1..to.len() {
        let mean = (above[k] + below[k] + beside[k - 1] + beside[k]) / 4.0;
        to[k] += 1.5 * (mean - to[k]);
    }
}
