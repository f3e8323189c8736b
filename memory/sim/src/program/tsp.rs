//! TSP: the travelling salesman, by branch and bound (`examples/dsm/tsp.c`). The amount of search
//! depends on the times at which tasks find tours.

use serde::{Deserialize, Serialize};

use super::parameters::Make;
use super::random::chance;
use super::{Allocation, Program};
use crate::cluster::Cluster;
use crate::task::{Task, TaskFuture};

pub(super) const ABOUT: &str =
    "travelling salesman, by branch and bound; a lock protects the queue of work";

/// The program.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Tsp {
    cities: usize,
    /// Number of cities of a prefix after the first one.
    depth: usize,
    seed: u64,
    #[serde(skip)]
    city_ns: f64,
}

const CITIES: usize = 64;
const DEPTH: usize = CITIES / 8 - 1;

impl Default for Tsp {
    fn default() -> Self {
        Self { cities: 18, depth: 3, seed: 1, city_ns: 0.0 }
    }
}

impl Make for Tsp {
    fn on(self, cluster: &Cluster) -> Self {
        let depth = self.depth.min(self.cities - 1);
        Self { city_ns: cluster.compute.tsp_ns, depth, ..self }
    }

    fn check(&self) -> Result<(), String> {
        match (self.cities, self.depth) {
            (2..=CITIES, 1..=DEPTH) => Ok(()),
            (cities, depth) => Err(format!(
                "cities are {cities} and depth is {depth}, but must be 2 to {CITIES} and 1 to \
                 {DEPTH}"
            )),
        }
    }
}

/// The layout of the shared state: the number of the next prefix, the best length, and its tour.
const NEXT: std::ops::Range<u64> = 0..8;
const BEST: std::ops::Range<u64> = 8..12;
const TOUR: u64 = 12;
const JOB: u64 = 272;
/// Size of a prefix in the queue: a lower bound of its tours' lengths, and eight cities.
const PREFIX: u64 = 12;

/// The distances between cities.
struct Cities {
    distance: Vec<Vec<i32>>,
    /// The distance from each city to the nearest other city.
    nearest: Vec<i32>,
}

impl Cities {
    fn new(cities: usize, seed: u64) -> Self {
        let number = |city, axis| chance((seed * CITIES as u64 + city) * 2 + axis) % 10_000;
        let place = |city: usize| [0, 1].map(|axis| number(city as u64, axis) as f64);
        let distance = |a, b| {
            let (a, b): ([f64; 2], [f64; 2]) = (place(a), place(b));
            (a[0] - b[0]).hypot(a[1] - b[1]) as i32
        };
        let distance: Vec<Vec<i32>> =
            (0..cities).map(|a| (0..cities).map(|b| distance(a, b)).collect()).collect();
        let others = |a: usize| (0..cities).filter(move |b| *b != a);
        let nearest = (0..cities)
            .map(|a| others(a).map(|b| distance[a][b]).min().expect("two cities or more"))
            .collect();
        Self { distance, nearest }
    }

    fn count(&self) -> usize {
        self.nearest.len()
    }

    /// Returns the tour that always continues to the nearest unvisited city.
    fn first_tour(&self) -> Vec<usize> {
        let mut tour = vec![0];
        while tour.len() < self.count() {
            let last = tour[tour.len() - 1];
            let left = (1..self.count()).filter(|city| !tour.contains(city));
            tour.push(
                left.min_by_key(|city| self.distance[last][*city]).expect("an unvisited city"),
            );
        }
        tour
    }

    fn length(&self, tour: &[usize]) -> i32 {
        let after = tour.iter().cycle().skip(1);
        tour.iter().zip(after).map(|(a, b)| self.distance[*a][*b]).sum()
    }

    /// Returns a lower bound of the rest of a tour with this prefix: the sum of the nearest
    /// distances of all cities that the tour must still leave.
    fn rest(&self, tour: &[usize]) -> i32 {
        let last = tour[tour.len() - 1];
        let left = (0..self.count()).filter(|city| *city == last || !tour.contains(city));
        left.map(|city| self.nearest[city]).sum()
    }

    /// Returns all prefixes of tours, those with the lowest bounds first.
    fn queue(&self, depth: usize) -> Vec<(i32, Vec<u8>)> {
        let mut tours = vec![vec![0]];
        for _ in 0..depth {
            let longer = |tour: Vec<usize>| {
                let others = (1..self.count()).filter(|city| !tour.contains(city));
                others.map(|city| [&tour[..], &[city]].concat()).collect::<Vec<_>>()
            };
            tours = tours.into_iter().flat_map(longer).collect();
        }
        let prefix = |tour: Vec<usize>| {
            let so_far: i32 = tour.windows(2).map(|pair| self.distance[pair[0]][pair[1]]).sum();
            (so_far + self.rest(&tour), tour.into_iter().map(|city| city as u8).collect())
        };
        let mut queue: Vec<(i32, Vec<u8>)> = tours.into_iter().map(prefix).collect();
        queue.sort_unstable();
        queue
    }
}

/// A search through all tours with one prefix.
struct Search<'a> {
    cities: &'a Cities,
    prefix: usize,
    tour: Vec<usize>,
    visited: u64,
    /// For each city after the prefix: the length so far, the bound of the rest, and the next city.
    at: Vec<(i32, i32, usize)>,
    best: i32,
    visits: u64,
}

impl<'a> Search<'a> {
    fn new(cities: &'a Cities, tour: Vec<usize>, best: i32) -> Self {
        let so_far = tour.windows(2).map(|pair| cities.distance[pair[0]][pair[1]]).sum();
        let at = vec![(so_far, cities.rest(&tour), 1)];
        let visited = tour.iter().fold(0, |visited, city| visited | 1 << city);
        Self { cities, prefix: tour.len(), tour, visited, at, best, visits: 0 }
    }

    /// Returns the next tour that is shorter than the best, and its length. The next call continues
    /// after it.
    fn next(&mut self) -> Option<(i32, Vec<usize>)> {
        let Cities { distance, nearest } = self.cities;
        while let Some((so_far, rest, city)) = self.at.last_mut() {
            let last = self.tour[self.tour.len() - 1];
            let mut found = None;
            if self.tour.len() == nearest.len() {
                let length = *so_far + distance[last][self.tour[0]];
                found = (length < self.best).then(|| (length, self.tour.clone()));
            } else {
                // Cities of the tour count as visits too, as in the real program.
                let after = u64::MAX.checked_shl(*city as u32).unwrap_or(0);
                let left = !self.visited & after & u64::MAX >> (CITIES - nearest.len());
                let next = (left.trailing_zeros() as usize).min(nearest.len() - 1);
                self.visits += (next + 1).saturating_sub(*city) as u64;
                *city = next + 1;
                if left != 0 {
                    let longer = *so_far + distance[last][next];
                    let rest = *rest - nearest[last];
                    if longer + rest < self.best {
                        self.tour.push(next);
                        self.visited |= 1 << next;
                        self.at.push((longer, rest, 1));
                    }
                    continue;
                }
            }
            self.at.pop();
            if self.tour.len() > self.prefix {
                self.visited &= !(1 << last);
                self.tour.pop();
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

impl Program for Tsp {
    fn has_contents(&self) -> bool {
        true
    }

    fn allocations(&self, _: u64, _: u64) -> Vec<Allocation> {
        let room: usize = (0..self.depth).map(|at| self.cities - 1 - at).product();
        vec![Allocation::on(0, JOB), Allocation::on(0, room as u64 * PREFIX)]
    }

    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture {
        let Self { cities, depth, seed, city_ns } = *self;
        let (job, queue) = (bases[0], bases[1]);
        let field = move |field: std::ops::Range<u64>| job + field.start..job + field.end;
        let word = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().expect("a word"));
        let words = |tour: &[usize]| {
            let mut all = [0; CITIES];
            all.iter_mut().zip(tour).for_each(|(word, city)| *word = *city as i32);
            all.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>()
        };
        Box::pin(async move {
            let cities = Cities::new(cities, seed);
            let all = cities.queue(depth);
            let queued = all.len() as u64;
            if me.task == 0 {
                let mut bytes = Vec::new();
                for (least, tour) in &all {
                    bytes.extend(least.to_le_bytes());
                    bytes.extend(tour.iter().chain([0; 8].iter()).take(8));
                }
                me.store(queue, &bytes).await;
                let tour = cities.first_tour();
                me.store(job + TOUR, &words(&tour)).await;
                me.store(job + BEST.start, &cities.length(&tour).to_le_bytes()).await;
            }
            drop(all);
            me.barrier().await;
            if me.task == 0 {
                me.start().await;
            }
            loop {
                me.lock(0).await;
                let next = me.load(field(NEXT)).await;
                let next = u64::from_le_bytes(next.try_into().expect("a long"));
                if next < queued {
                    me.store(job, &(next + 1).to_le_bytes()).await;
                }
                let best = word(&me.load(field(BEST)).await);
                me.unlock(0).await;
                if next >= queued {
                    break;
                }
                let at = queue + next * PREFIX;
                let prefix = me.load(at..at + PREFIX).await;
                if word(&prefix[..4]) >= best {
                    continue;
                }
                let tour = prefix[4..].iter().take(depth + 1).map(|city| usize::from(*city));
                let mut search = Search::new(&cities, tour.collect(), best);
                loop {
                    let found = search.next();
                    me.compute(std::mem::take(&mut search.visits), city_ns).await;
                    let Some((length, tour)) = found else { break };
                    me.lock(0).await;
                    if length < word(&me.load(field(BEST)).await) {
                        me.store(job + BEST.start, &length.to_le_bytes()).await;
                        me.store(job + TOUR, &words(&tour)).await;
                    }
                    search.best = word(&me.load(field(BEST)).await);
                    me.unlock(0).await;
                }
            }
            me.barrier().await;
            if me.task == 0 {
                me.stop().await;
            }
        })
    }
}

/// The search of the real program, city by city: to measure its time, and to check [`Search`].
struct Plain<'a> {
    cities: &'a Cities,
    tour: Vec<usize>,
    visited: Vec<bool>,
    best: i32,
    visits: u64,
}

impl Plain<'_> {
    fn search(&mut self, count: usize, so_far: i32, rest: i32) {
        let Cities { distance, nearest } = self.cities;
        let last = self.tour[count - 1];
        if count == nearest.len() {
            self.best = self.best.min(so_far + distance[last][self.tour[0]]);
            return;
        }
        for (city, to) in distance[last].iter().enumerate().skip(1) {
            self.visits += 1;
            let longer = so_far + to;
            if self.visited[city] || longer + rest - nearest[last] >= self.best {
                continue;
            }
            self.tour[count] = city;
            self.visited[city] = true;
            self.search(count + 1, longer, rest - nearest[last]);
            self.visited[city] = false;
        }
    }
}

/// Searches a small problem. Returns the number of visited cities.
pub(super) fn search_some() -> u64 {
    search_all(&Cities::new(12, 1)).visits
}

fn search_all(cities: &Cities) -> Plain<'_> {
    let best = cities.length(&cities.first_tour());
    let (tour, visited) = (vec![0; cities.count()], vec![false; cities.count()]);
    let mut plain = Plain { cities, tour, visited, best, visits: 0 };
    plain.visited[0] = true;
    plain.search(1, 0, cities.rest(&[0]));
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_looks_at_as_many_cities_as_the_real_one() {
        for (cities, seed) in [(2, 1), (7, 2), (9, 3), (10, 4)] {
            let cities = Cities::new(cities, seed);
            let plain = search_all(&cities);
            let mut search = Search::new(&cities, vec![0], cities.length(&cities.first_tour()));
            while let Some((length, _)) = search.next() {
                search.best = length;
            }
            assert_eq!((search.best, search.visits), (plain.best, plain.visits));
        }
    }

    #[test]
    fn the_search_finds_the_shortest() {
        let cities = Cities::new(8, 3);
        let mut best = cities.length(&cities.first_tour());
        for (_, tour) in cities.queue(3) {
            let tour = tour.into_iter().map(usize::from).collect();
            let mut search = Search::new(&cities, tour, best);
            while let Some((length, tour)) = search.next() {
                assert_eq!(cities.length(&tour), length);
                search.best = length;
            }
            best = search.best;
        }
        let all = Search::new(&cities, vec![0], i32::MAX);
        let shortest = std::iter::successors(Some((all, i32::MAX)), |_| None);
        let mut least = i32::MAX;
        for (mut search, _) in shortest {
            while let Some((length, _)) = search.next() {
                least = least.min(length);
            }
        }
        assert_eq!(best, least, "bounds cut nothing that is shorter");
    }
}
