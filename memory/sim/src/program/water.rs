//! Water: molecules of three atoms, all of which attract and repel each other, in steps of time.
//!
//! A molecule has nine doubles: three for each atom. Tasks have bands of molecules, as of rows
//! in MM; for places, then for forces, each task has one `jia_alloc2p` for its band; the energy,
//! a double, is one at task 0. In each step a task moves its molecules by their forces and
//! clears these; barrier; for each of its molecules and the half of all that follow it, round
//! the end, it computes what they do to each other, into private memory; then, for each task p
//! from itself on, it adds under lock p what it has for p's molecules; and under lock `tasks`
//! the energy; barrier. The order of these sums is not always the same, nor are their last bits.

use serde::{Deserialize, Serialize};

use super::{Allocation, Make, Program, doubles, share};
use crate::cluster::Cluster;
use crate::task::{Life, Me};

pub(super) const ABOUT: &str = "forces between molecules, added under a lock for each task";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Water {
    molecules: u64,
    steps: u32,
    #[serde(skip)]
    pair_ns: f64,
}

impl Default for Water {
    fn default() -> Self {
        Self { molecules: 1728, steps: 5, pair_ns: 0.0 }
    }
}

impl Make for Water {
    fn on(self, cluster: &Cluster) -> Self {
        Self { pair_ns: cluster.compute.water_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match self.molecules {
            2..=1_000_000 => Ok(()),
            molecules => Err(format!("molecules are {molecules}, and must be 2 to 1000000")),
        }
    }
}

/// Bytes of a molecule.
const MOLECULE: u64 = 9 * 8;

type Atoms = [f64; 9];

/// Where a molecule is at first: on a lattice, turned by its number.
fn place(molecule: u64, molecules: u64) -> Atoms {
    let side = (1..).find(|side: &u64| side.pow(3) >= molecules).expect("one is enough");
    let at = [molecule % side, molecule / side % side, molecule / side / side];
    let angle = molecule as f64;
    let mut atoms = [0.0; 9];
    for (axis, at) in at.into_iter().enumerate() {
        let centre = at as f64 * 3.1;
        atoms[axis] = centre;
        atoms[3 + axis] = centre + 0.55 * (angle + axis as f64).sin();
        atoms[6 + axis] = centre + 0.55 * (angle + axis as f64).cos();
    }
    atoms
}

/// What two molecules do to each other: the force on the first, and the energy.
fn pair(a: &Atoms, b: &Atoms) -> (Atoms, Atoms, f64) {
    const CHARGES: [f64; 3] = [-0.82, 0.41, 0.41];
    let (mut on_a, mut on_b, mut energy) = ([0.0; 9], [0.0; 9], 0.0);
    for i in 0..3 {
        for j in 0..3 {
            let way = [0, 1, 2].map(|axis| a[3 * i + axis] - b[3 * j + axis]);
            let square: f64 = way.iter().map(|way| way * way).sum();
            let inverse = 1.0 / square.max(0.5);
            let attraction = CHARGES[i] * CHARGES[j] * inverse.sqrt();
            // Oxygens keep each other away.
            let sixth = if i + j == 0 { (9.6 * inverse).powi(3) } else { 0.0 };
            let repulsion = 0.01 * (sixth * sixth - sixth);
            energy += attraction + repulsion;
            let force = inverse * (attraction + 0.06 * (2.0 * sixth * sixth - sixth));
            for axis in 0..3 {
                on_a[3 * i + axis] += force * way[axis];
                on_b[3 * j + axis] -= force * way[axis];
            }
        }
    }
    (on_a, on_b, energy)
}

/// How many molecules after a molecule it looks at: together, all pairs once.
fn following(molecule: u64, molecules: u64) -> u64 {
    match molecules.is_multiple_of(2) && molecule >= molecules / 2 {
        true => molecules / 2 - 1,
        false => molecules / 2,
    }
}

fn molecules_of(bytes: &[u8]) -> Vec<Atoms> {
    let numbers: Vec<f64> = doubles(bytes).collect();
    numbers.as_chunks().0.to_vec()
}

fn bytes_of<'a>(molecules: impl IntoIterator<Item = &'a Atoms>) -> Vec<u8> {
    molecules.into_iter().flatten().flat_map(|number| number.to_le_bytes()).collect()
}

impl Program for Water {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, tasks: u64, _: u64) -> Vec<Allocation> {
        let bands = (0..2 * tasks).map(|band| {
            let molecules = share(self.molecules, band % tasks, tasks);
            Allocation::on(band % tasks, (molecules.end - molecules.start) * MOLECULE)
        });
        bands.chain([Allocation::on(0, 8)]).collect()
    }

    fn task(&self, me: Me, bases: &[u64]) -> Life {
        let Self { molecules, steps, pair_ns } = *self;
        let bases = bases.to_vec();
        Box::pin(async move {
            let band = |array: u64, task: u64| {
                let share = share(molecules, task, me.tasks);
                let base = bases[(array * me.tasks + task) as usize];
                base..base + (share.end - share.start) * MOLECULE
            };
            let energy_at = bases[2 * me.tasks as usize];
            let mine = share(molecules, me.task, me.tasks);
            let mut places: Vec<Atoms> =
                mine.clone().map(|molecule| place(molecule, molecules)).collect();
            let mut speeds = vec![[0.0; 9]; places.len()];
            me.store(band(0, me.task).start, &bytes_of(&places)).await;
            me.store(band(1, me.task).start, &bytes_of(&speeds)).await;
            if me.task == 0 {
                me.store(energy_at, &0f64.to_le_bytes()).await;
            }
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            for _ in 0..steps {
                // Nobody else touches these before the barrier.
                let forces = molecules_of(&me.load(band(1, me.task)).await);
                for ((place, speed), force) in places.iter_mut().zip(&mut speeds).zip(&forces) {
                    for axis in 0..9 {
                        speed[axis] += 1e-3 * force[axis];
                        place[axis] += 1e-2 * speed[axis];
                    }
                }
                me.compute(places.len() as u64, pair_ns / 4.0).await;
                me.store(band(0, me.task).start, &bytes_of(&places)).await;
                let none = vec![0; forces.len() * MOLECULE as usize];
                me.store(band(1, me.task).start, &none).await;
                me.barrier().await;

                // All molecules that ours look at follow the first of ours.
                let reach = match mine.clone().last() {
                    Some(last) => (last - mine.start + following(last, molecules) + 1)
                        .max(following(mine.start, molecules) + 1)
                        .min(molecules),
                    None => 0,
                };
                // What of a task's band is among them: at most two pieces.
                let pieces = |task: u64| {
                    let share = share(molecules, task, me.tasks);
                    let (start, end) = (mine.start, mine.start + reach);
                    [0, molecules].into_iter().filter_map(move |round| {
                        let from = (share.start + round).max(start);
                        let to = (share.end + round).min(end);
                        (from < to).then(|| (from - start, from - round - share.start, to - from))
                    })
                };
                let mut seen = vec![[0.0; 9]; reach as usize];
                for task in 0..me.tasks {
                    for (at, first, count) in pieces(task) {
                        let from = band(0, task).start + first * MOLECULE;
                        let came = molecules_of(&me.load(from..from + count * MOLECULE).await);
                        seen[at as usize..][..came.len()].copy_from_slice(&came);
                    }
                }
                let mut forces = vec![[0.0; 9]; seen.len()];
                let (mut energy, mut pairs) = (0.0, 0);
                for molecule in mine.clone() {
                    let a = (molecule - mine.start) as usize;
                    for next in 1..=following(molecule, molecules) as usize {
                        let b = (a + next) % molecules as usize;
                        let (on_a, on_b, both) = pair(&seen[a], &seen[b]);
                        for axis in 0..9 {
                            forces[a][axis] += on_a[axis];
                            forces[b][axis] += on_b[axis];
                        }
                        energy += both;
                        pairs += 1;
                    }
                }
                me.compute(pairs, pair_ns).await;
                for task in (0..me.tasks).map(|next| (me.task + next) % me.tasks) {
                    let pieces: Vec<_> = pieces(task).collect();
                    if pieces.is_empty() {
                        continue;
                    }
                    me.lock(task as u32).await;
                    for (at, first, count) in pieces {
                        let adds = bytes_of(&forces[at as usize..][..count as usize]);
                        let from = band(1, task).start + first * MOLECULE;
                        me.update(from..from + count * MOLECULE, |at, bytes| {
                            add(bytes, &adds[(at - from) as usize..]);
                        })
                        .await;
                    }
                    me.unlock(task as u32).await;
                }
                me.lock(me.tasks as u32).await;
                me.update(energy_at..energy_at + 8, |_, bytes| add(bytes, &energy.to_le_bytes()))
                    .await;
                me.unlock(me.tasks as u32).await;
                me.barrier().await;
            }
            if me.task == 0 {
                me.stop().await;
            }
        })
    }
}

/// Adds doubles to doubles. (Pages' borders are between doubles.)
fn add(sums: &mut [u8], adds: &[u8]) {
    let (sums, _) = sums.as_chunks_mut();
    for (sum, add) in sums.iter_mut().zip(doubles(adds)) {
        *sum = (f64::from_le_bytes(*sum) + add).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_are_looked_at_once() {
        for molecules in 2..12u64 {
            let mut pairs = std::collections::BTreeSet::new();
            for a in 0..molecules {
                for next in 1..=following(a, molecules) {
                    let b = (a + next) % molecules;
                    assert!(pairs.insert((a.min(b), a.max(b))), "{a} {b} of {molecules}");
                }
            }
            assert_eq!(pairs.len() as u64, molecules * (molecules - 1) / 2);
        }
    }
}
