//! TSP: the shortest tour through random cities, by branch and bound.
//!
//! All tours that begin with the same four cities are one piece of work; pieces are numbered in
//! order. The next piece's number, a word, is one `jia_alloc2p` at task 0; the shortest length,
//! a word, and its tour, a byte for each city, are another. Task 0 writes both; barrier; then
//! each task takes a piece under lock 0, reads the shortest length under lock 1, searches, and
//! if it found a shorter tour writes it under lock 1, until no piece is left. A barrier ends
//! it. How much is searched depends on who finds what when.

use serde::{Deserialize, Serialize};

use super::random::Random;
use super::{Allocation, Make, Program};
use crate::cluster::Cluster;
use crate::task::{Life, Me};

pub(super) const ABOUT: &str = "shortest tour, by branch and bound; work is shared under locks";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Tsp {
    cities: usize,
    seed: u64,
    #[serde(skip)]
    visit_ns: f64,
}

impl Default for Tsp {
    fn default() -> Self {
        Self { cities: 15, seed: 19, visit_ns: 0.0 }
    }
}

impl Make for Tsp {
    fn on(self, cluster: &Cluster) -> Self {
        Self { visit_ns: cluster.compute.tsp_ns, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match self.cities {
            5..=20 => Ok(()),
            cities => Err(format!("cities are {cities}, and must be 5 to 20")),
        }
    }
}

/// Cities that a piece of work begins with.
const PREFIX: usize = 4;

/// A search for a tour that is shorter than all known.
struct Search<'a> {
    distances: &'a [Vec<u32>],
    /// The shortest way on from each city.
    least: &'a [u32],
    tour: Vec<u8>,
    shortest: u32,
    found: Option<Vec<u8>>,
    visits: u64,
}

impl Search<'_> {
    /// Goes on from the last city of the tour; `left` are the others, `rest` at least what they
    /// add.
    fn go_on(&mut self, length: u32, left: u32, rest: u32) {
        self.visits += 1;
        let last = usize::from(*self.tour.last().expect("a tour has a city"));
        if left == 0 {
            let length = length + self.distances[last][0];
            if length < self.shortest {
                self.shortest = length;
                self.found = Some(self.tour.clone());
            }
            return;
        }
        for city in (0..self.distances.len()).filter(|city| left >> city & 1 == 1) {
            let length = length + self.distances[last][city];
            if length + rest < self.shortest {
                self.tour.push(city as u8);
                self.go_on(length, left & !(1 << city), rest - self.least[city]);
                self.tour.pop();
            }
        }
    }
}

/// Distances between random cities.
fn distances(cities: usize, seed: u64) -> Vec<Vec<u32>> {
    let mut random = Random::new(seed, 10);
    let places: Vec<_> = (0..cities).map(|_| (random.next(), random.next())).collect();
    let distance =
        |a: &(f64, f64), b: &(f64, f64)| ((a.0 - b.0).hypot(a.1 - b.1) * 10_000.0) as u32;
    places.iter().map(|a| places.iter().map(|b| distance(a, b)).collect()).collect()
}

/// The first cities of a piece of work; nothing, if it is not there.
fn prefix(piece: u32, cities: usize) -> Option<Vec<u8>> {
    let mut left: Vec<u8> = (1..cities as u8).collect();
    let mut tour = vec![0];
    let mut piece = piece as usize;
    for _ in 1..PREFIX {
        tour.push(left.remove(piece % left.len()));
        piece /= left.len() + 1;
    }
    (piece == 0).then_some(tour)
}

impl Program for Tsp {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, _: u64, _: u64) -> Vec<Allocation> {
        vec![Allocation::on(0, 4), Allocation::on(0, 4 + self.cities as u64)]
    }

    fn task(&self, me: Me, bases: &[u64]) -> Life {
        let Self { cities, seed, visit_ns } = *self;
        let (next, shortest) = (bases[0], bases[1]);
        Box::pin(async move {
            let distances = distances(cities, seed);
            let nearest = |city: usize| {
                let others = distances[city].iter().enumerate().filter(|(other, _)| *other != city);
                others.map(|(_, distance)| *distance).min().expect("there are others")
            };
            let least: Vec<u32> = (0..cities).map(nearest).collect();
            let word = |bytes: Vec<u8>| u32::from_le_bytes(bytes.try_into().expect("a word"));
            if me.task == 0 {
                me.store(next, &0u32.to_le_bytes()).await;
                me.store(shortest, &u32::MAX.to_le_bytes()).await;
            }
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            loop {
                me.lock(0).await;
                let piece = word(me.load(next..next + 4).await);
                me.store(next, &(piece + 1).to_le_bytes()).await;
                me.unlock(0).await;
                let Some(tour) = prefix(piece, cities) else { break };
                me.lock(1).await;
                let known = word(me.load(shortest..shortest + 4).await);
                me.unlock(1).await;
                let length = tour
                    .windows(2)
                    .map(|pair| distances[usize::from(pair[0])][usize::from(pair[1])])
                    .sum();
                let left = (0..cities as u8).filter(|city| !tour.contains(city));
                let left = left.fold(0, |left, city| left | 1 << city);
                let rest = (0..cities).filter(|city| left >> city & 1 == 1).map(|city| least[city]);
                let rest = rest.sum();
                let (found, visits) = {
                    let mut search = Search {
                        distances: &distances,
                        least: &least,
                        tour,
                        shortest: known,
                        found: None,
                        visits: 0,
                    };
                    search.go_on(length, left, rest);
                    (search.found.map(|tour| (search.shortest, tour)), search.visits)
                };
                me.compute(visits, visit_ns).await;
                if let Some((length, tour)) = found {
                    me.lock(1).await;
                    if length < word(me.load(shortest..shortest + 4).await) {
                        me.store(shortest, &length.to_le_bytes()).await;
                        me.store(shortest + 4, &tour).await;
                    }
                    me.unlock(1).await;
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
    fn pieces_are_all_tours_beginnings() {
        let all: std::collections::BTreeSet<_> =
            (0..).map_while(|piece| prefix(piece, 7)).collect();
        assert_eq!(all.len(), 6 * 5 * 4);
        assert!(all.iter().all(|tour| tour.len() == PREFIX && tour[0] == 0));
    }

    #[test]
    fn the_search_finds_the_shortest() {
        let distances = distances(7, 3);
        let search = |least: &[u32]| {
            let mut search = Search {
                distances: &distances,
                least,
                tour: vec![0],
                shortest: u32::MAX,
                found: None,
                visits: 0,
            };
            search.go_on(0, 0b111_1110, least[1..].iter().sum());
            search.shortest
        };
        let least: Vec<u32> = (0..7)
            .map(|city| {
                (0..7).filter(|other| *other != city).map(|other| distances[city][other]).min()
            })
            .collect::<Option<_>>()
            .expect("there are others");
        assert_eq!(search(&least), search(&[0; 7]), "bounds cut nothing that is shorter");
    }
}
