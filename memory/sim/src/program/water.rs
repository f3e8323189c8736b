//! Water: molecular dynamics of flexible water, all pairs. `examples/dsm/water.c` explains units
//! and constants. The order of the tasks' additions varies, so the last bits differ.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::parameters::Make;
use super::random::chance;
use super::{Allocation, Program, doubles, part};
use crate::cluster::Cluster;
use crate::task::{Task, TaskFuture};

pub(super) const ABOUT: &str = "molecular dynamics; one lock per task protects its forces";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Water {
    molecules: u64,
    steps: u64,
    #[serde(skip)]
    pair_ns: f64,
}

impl Default for Water {
    fn default() -> Self {
        Self { molecules: 512, steps: 10, pair_ns: 0.0 }
    }
}

impl Make for Water {
    fn on(self, cluster: &Cluster) -> Self {
        Self { pair_ns: cluster.compute.water_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match self.molecules {
            2..=1_048_576 => Ok(()),
            molecules => Err(format!("molecules are {molecules}, but must be 2 to 1048576")),
        }
    }
}

const STEP: f64 = 0.0005;
const SPACING: f64 = 0.3107;
const SIGMA: f64 = 0.3165492;
const EPSILON: f64 = 0.650299;
const COULOMB: f64 = 138.935458;
const BOND: f64 = 443153.4;
const BOND_LENGTH: f64 = 0.1012;
const ANGLE: f64 = 317.5656;
const ANGLE_REST: f64 = 113.24 * PI / 180.0;
const CHARGE: [f64; 3] = [-0.82, 0.41, 0.41];
const MASS: [f64; 3] = [15.9994, 1.008, 1.008];

type Vector = [f64; 3];
/// Oxygen, hydrogen, hydrogen.
type Molecule = [Vector; 3];
const MOLECULE: u64 = size_of::<Molecule>() as u64;

fn dot(a: &Vector, b: &Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn add(to: &mut Vector, factor: f64, what: &Vector) {
    to.iter_mut().zip(what).for_each(|(to, what)| *to += factor * what);
}

fn side(molecules: u64) -> u64 {
    ((molecules as f64).cbrt() - 1e-9).ceil() as u64
}

/// Returns the initial place of a molecule: on a lattice, with a random rotation.
fn place(number: u64, molecules: u64) -> Molecule {
    let side = side(molecules);
    let turn = (chance(number) % 628) as f64 / 100.0;
    let half = ANGLE_REST / 2.0;
    let centre = [number % side, number / side % side, number / side / side];
    let mut at = [centre.map(|at| at as f64 * SPACING); 3];
    for (site, sign) in [(1, 1.0), (2, -1.0)] {
        let across = sign * BOND_LENGTH * half.sin();
        at[site][0] += across * turn.cos();
        at[site][1] += across * turn.sin();
        at[site][2] += BOND_LENGTH * half.cos();
    }
    at
}

/// Adds the forces of the bonds and the angle within a molecule.
fn within(at: &Molecule, force: &mut Molecule) {
    let arm = [1, 2].map(|h| [0, 1, 2].map(|axis| at[h][axis] - at[0][axis]));
    let length = arm.map(|arm| dot(&arm, &arm).sqrt());
    for h in 0..2 {
        let longer = length[h] - BOND_LENGTH;
        add(&mut force[h + 1], -BOND * longer / length[h], &arm[h]);
        add(&mut force[0], BOND * longer / length[h], &arm[h]);
    }
    let cosine = dot(&arm[0], &arm[1]) / (length[0] * length[1]);
    let wider = cosine.acos() - ANGLE_REST;
    let torque = ANGLE * wider / (1.0 - cosine * cosine).sqrt();
    for h in 0..2 {
        let mut push = [0.0; 3];
        add(&mut push, torque / (length[0] * length[1]), &arm[1 - h]);
        add(&mut push, -torque * cosine / (length[h] * length[h]), &arm[h]);
        add(&mut force[h + 1], 1.0, &push);
        add(&mut force[0], -1.0, &push);
    }
}

/// Returns the force between two sites, divided by their distance `r`.
fn between_sites(a: usize, b: usize, r: f64) -> f64 {
    let energy = COULOMB * CHARGE[a] * CHARGE[b] / r;
    let mut force = energy / (r * r);
    if a == 0 && b == 0 {
        let s6 = (SIGMA / r).powf(6.0);
        force += 24.0 * EPSILON * (2.0 * s6 * s6 - s6) / (r * r);
    }
    force
}

/// Adds the forces between two molecules, in a box of this size.
fn between(
    one: &Molecule,
    two: &Molecule,
    on_one: &mut Molecule,
    on_two: &mut Molecule,
    size: f64,
) {
    let range = size / 2.0;
    for a in 0..3 {
        for b in 0..3 {
            let apart = [0, 1, 2].map(|axis| {
                let apart = one[a][axis] - two[b][axis];
                apart - size * (apart / size).round()
            });
            let r = dot(&apart, &apart).sqrt();
            if r >= range {
                continue;
            }
            let end = between_sites(a, b, range);
            let force = between_sites(a, b, r) - end * range / r;
            add(&mut on_one[a], force, &apart);
            add(&mut on_two[b], -force, &apart);
        }
    }
}

/// Returns the number of following molecules with which a molecule forms pairs. If the number of
/// molecules is even, only the lower half forms pairs with the opposite molecule.
fn following(molecule: u64, molecules: u64) -> u64 {
    match molecules.is_multiple_of(2) && molecule >= molecules / 2 {
        true => molecules / 2 - 1,
        false => molecules / 2,
    }
}

fn molecules_of(bytes: &[u8]) -> impl Iterator<Item = Molecule> {
    let (molecules, _) = bytes.as_chunks::<{ MOLECULE as usize }>();
    molecules.iter().map(|bytes| {
        let mut numbers = doubles(bytes);
        [0; 3].map(|_| [0; 3].map(|_| numbers.next().expect("nine numbers")))
    })
}

fn bytes_of(molecules: &[Molecule]) -> Vec<u8> {
    molecules.iter().flatten().flatten().flat_map(|number| number.to_le_bytes()).collect()
}

/// Accelerates all molecules for half a step.
fn kick(speeds: &mut [Molecule], forces: impl Iterator<Item = Molecule>) {
    for (speed, force) in speeds.iter_mut().zip(forces) {
        for site in 0..3 {
            add(&mut speed[site], STEP / 2.0 / MASS[site], &force[site]);
        }
    }
}

/// The addresses of the arrays.
#[derive(Clone, Copy)]
struct Arrays {
    molecules: u64,
    at: u64,
    force: u64,
}

impl Arrays {
    fn bytes(&self, base: u64, molecules: std::ops::Range<u64>) -> std::ops::Range<u64> {
        base + molecules.start * MOLECULE..base + molecules.end * MOLECULE
    }

    /// Adds the forces of this task's pairs to those of all molecules.
    async fn forces_together(&self, me: &Task, pair_ns: f64) {
        let molecules = self.molecules;
        let size = side(molecules) as f64 * SPACING;
        let mine = part(molecules, me.task, me.tasks);
        let mut own = vec![[[0.0; 3]; 3]; molecules as usize];
        let mut at = vec![None; molecules as usize];
        let mut pairs = 0;
        for i in mine.clone() {
            // Reads the molecule and the following ones, unless they were read before.
            let count = following(i, molecules);
            for j in (0..=count).map(|next| ((i + next) % molecules) as usize) {
                if at[j].is_none() {
                    let bytes = self.bytes(self.at, j as u64..j as u64 + 1);
                    at[j] = molecules_of(&me.load(bytes).await).next();
                }
                let (i, (Some(one), Some(two))) = (i as usize, (&at[i as usize], &at[j])) else {
                    unreachable!("both molecules were read")
                };
                if i == j {
                    within(one, &mut own[i]);
                    continue;
                }
                let mut on_two = own[j];
                between(one, two, &mut own[i], &mut on_two, size);
                own[j] = on_two;
            }
            pairs += count;
        }
        me.compute(pairs, pair_ns).await;
        for task in (0..me.tasks).map(|next| (me.task + next) % me.tasks) {
            let theirs = part(molecules, task, me.tasks);
            if theirs.is_empty() || mine.is_empty() {
                continue;
            }
            let adds = bytes_of(&own[theirs.start as usize..theirs.end as usize]);
            let bytes = self.bytes(self.force, theirs);
            me.lock(task as u32).await;
            me.update(bytes.clone(), |at, sums| {
                let (sums, _) = sums.as_chunks_mut();
                for (sum, add) in sums.iter_mut().zip(doubles(&adds[(at - bytes.start) as usize..]))
                {
                    *sum = (f64::from_le_bytes(*sum) + add).to_le_bytes();
                }
            })
            .await;
            me.unlock(task as u32).await;
        }
        me.barrier().await;
    }
}

impl Program for Water {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, tasks: u64, _: u64) -> Vec<Allocation> {
        let array = Allocation::bands(self.molecules, MOLECULE, tasks);
        vec![array, array, Allocation::on(0, 16)]
    }

    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture {
        let Self { molecules, steps, pair_ns } = *self;
        let arrays = Arrays { molecules, at: bases[0], force: bases[1] };
        let energies = bases[2]..bases[2] + 16;
        Box::pin(async move {
            let mine = part(molecules, me.task, me.tasks);
            let forces = arrays.bytes(arrays.force, mine.clone());
            let places = arrays.bytes(arrays.at, mine.clone());
            let mut at: Vec<Molecule> = mine.map(|number| place(number, molecules)).collect();
            let mut speeds = vec![[[0.0; 3]; 3]; at.len()];
            me.store(places.start, &bytes_of(&at)).await;
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            arrays.forces_together(&me, pair_ns).await;
            for _ in 0..steps {
                kick(&mut speeds, molecules_of(&me.load(forces.clone()).await));
                for (at, speed) in at.iter_mut().flatten().zip(speeds.iter().flatten()) {
                    add(at, STEP, speed);
                }
                me.read(places.clone()).await;
                me.store(places.start, &bytes_of(&at)).await;
                me.store(forces.start, &vec![0; (forces.end - forces.start) as usize]).await;
                me.barrier().await;
                arrays.forces_together(&me, pair_ns).await;
                kick(&mut speeds, molecules_of(&me.load(forces.clone()).await));
            }
            me.lock(me.tasks as u32).await;
            // Only the fact that the values change matters.
            let kinetic: f64 = speeds.iter().flatten().map(|speed| dot(speed, speed)).sum();
            me.update(energies, |_, bytes| {
                let (sums, _) = bytes.as_chunks_mut();
                for sum in sums {
                    *sum = (f64::from_le_bytes(*sum) + kinetic).to_le_bytes();
                }
            })
            .await;
            me.unlock(me.tasks as u32).await;
            me.barrier().await;
            if me.task == 0 {
                me.stop().await;
            }
        })
    }
}

/// Computes all pairs of some molecules. Returns the number of pairs.
pub(super) fn compute_some() -> u64 {
    const SOME: u64 = 64;
    let size = side(SOME) as f64 * SPACING;
    let at: Vec<Molecule> = (0..SOME).map(|number| place(number, SOME)).collect();
    let mut pairs = 0;
    for (number, one) in at.iter().enumerate() {
        for two in &at[number + 1..] {
            let (mut on_one, mut on_two) = ([[0.0; 3]; 3], [[0.0; 3]; 3]);
            between(one, two, &mut on_one, &mut on_two, size);
            std::hint::black_box((on_one, on_two));
            pairs += 1;
        }
    }
    pairs
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

    /// The forces between two molecules are opposite.
    #[test]
    fn forces_between_molecules_are_equal_and_opposite() {
        let (one, two) = (place(0, 27), place(1, 27));
        let (mut on_one, mut on_two) = ([[0.0; 3]; 3], [[0.0; 3]; 3]);
        between(&one, &two, &mut on_one, &mut on_two, 3.0 * SPACING);
        within(&one, &mut on_one);
        for axis in 0..3 {
            let sum: f64 = on_one.iter().chain(&on_two).map(|force| force[axis]).sum();
            assert!(sum.abs() < 1e-9, "{sum}");
        }
    }
}
