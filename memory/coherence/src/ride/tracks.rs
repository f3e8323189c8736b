//! Tracks: what a node's own page faults tell about the pages that it needs next. With the `auto`
//! policy a node requests these pages together, since only the node itself sees all its faults.
//!
//! A *group* is the pages of one home that the node needs in one phase, between two barriers. Many
//! programs step through an array: the groups of a phase are those of an earlier phase, shifted. A
//! *track* follows such groups from phase to phase. At the first fault of a phase it predicts the
//! rest of the group, and the groups of the other tracks. In LU's update of the trailing matrix,
//! for instance, one track is the pivot column's blocks in the node's rows, and another the pivot
//! row's blocks in its columns.
//!
//! - The shift of a track depends on the home of its last group. So it is also known where an array
//!   continues at the first home of a row of homes.
//! - A page of the group that the node has needed before is not predicted: the
//!   [history](super::history) at its home predicts such pages. So a group may shrink.
//! - A track continues at this node without faults while the predicted group's home is this node.
//! - Phases of different kinds alternate. So a phase is compared with the last one of its kind, one
//!   to four phases before (`Tracks::period`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::MOST;
use crate::message::{NodeId, Page};

/// Longest period of phases, in phases.
const PERIOD_MAX: usize = 4;
/// Number of phases that determine the period.
const COMPARED: usize = 16;
/// Phases of one kind have numbers of pages that differ at most by this percentage, on average.
const UNLIKE_MAX: usize = 75;
/// Maximum number of new pages in a phase that is followed.
const PAGES_MAX: usize = 128;
/// Minimum number of pages of a group that is expected to be repeated after its first time.
const LONG: usize = 3;
/// Maximum number of tracks of a kind of phase.
const TRACKS_MAX: usize = 8;
/// Maximum number of needed pages that are remembered. A full memory is cleared.
const SEEN_MAX: usize = 1 << 16;
/// Number of phases without predictions after the first useless one.
const PAUSE_MIN: u32 = 8;
/// Upper limit of the number of phases without predictions after a useless one.
const PAUSE_MAX: u32 = 256;

/// The pages of one home that this node needed in a phase, in the order of their first use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    home: NodeId,
    pages: Vec<Page>,
}

/// A sequence of groups, at most one in each phase of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Track {
    /// The last group.
    last: Group,
    /// Number of phases since the last group.
    idle: i64,
    /// The last two groups have the same shape, which a single page does not show.
    is_steady: bool,
    /// The last shift per phase.
    shift: Option<i64>,
    /// The last shift from each home to the next group, and the number of phases that it took.
    shifts: BTreeMap<NodeId, (i64, i64)>,
}

/// The pages that a request asks for in addition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Further pages of the requested page's home.
    pub along: Vec<Page>,
    /// Groups of other homes, each in the order of need.
    pub apart: Vec<Vec<Page>>,
}

/// The facts about pages on which predictions are based.
pub trait Pages {
    /// Returns the home of a page, or `None` if the page does not exist.
    fn home(&self, page: Page) -> Option<NodeId>;
    /// Returns true if the page's home is elsewhere and no copy is here or requested.
    fn is_absent(&self, page: Page) -> bool;
}

/// The tracks of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tracks {
    me: NodeId,
    /// Maximum number of pages in a message.
    most: usize,
    /// The current phase, and its groups of new pages.
    phase: u64,
    groups: Vec<Group>,
    /// Number of new pages of the phase, also of those that are not followed.
    count: usize,
    /// Pages that were needed.
    seen: BTreeSet<Page>,
    /// Numbers of new pages of the last phases, the latest first.
    counts: VecDeque<usize>,
    /// The tracks for each period and remainder.
    kinds: BTreeMap<(usize, u64), Vec<Track>>,
    /// The predicted groups of this phase, by track.
    expected: BTreeMap<usize, Vec<Page>>,
    /// A fault of this phase has confirmed a prediction, or none can.
    is_confirmed: bool,
    /// The pages requested in addition in this phase and not needed yet, and the number of those
    /// that were needed.
    asked: BTreeSet<Page>,
    right: usize,
    /// Number of phases without predictions, and the number after the next useless prediction.
    pause: (u32, u32),
}

fn shifted(pages: &[Page], by: i64) -> Vec<Page> {
    pages.iter().filter_map(|page| page.checked_add_signed(by)).collect()
}

fn difference(to: Page, from: Page) -> i64 {
    to.wrapping_sub(from) as i64
}

impl Track {
    fn new(group: Group) -> Self {
        Self { last: group, idle: 0, is_steady: false, shift: None, shifts: BTreeMap::new() }
    }

    /// Returns the expected shift from the last group to one in the current phase.
    fn next_shift(&self) -> Option<i64> {
        match self.shifts.get(&self.last.home) {
            Some(&(shift, phases)) => (phases == self.idle + 1).then_some(shift),
            None => self.shift?.checked_mul(self.idle + 1),
        }
    }

    /// Predicts the group in the current phase.
    fn next(&self) -> Option<Vec<Page>> {
        Some(shifted(&self.last.pages, self.next_shift()?))
    }

    /// Returns true if the track is expected to have no group with faults in the current phase: it
    /// rests, or its pages are at this node.
    fn is_away(&self, me: NodeId, pages: &impl Pages) -> bool {
        match self.next() {
            Some(next) => next.last().and_then(|&page| pages.home(page)) == Some(me),
            None => self.shifts.get(&self.last.home).is_some_and(|next| next.1 > self.idle + 1),
        }
    }

    /// Returns true if a group of this track had this home.
    fn has_visited(&self, home: NodeId) -> bool {
        self.last.home == home || self.shifts.contains_key(&home)
    }

    /// Returns true if the pages can be a group of this track: they are a part of the last group,
    /// shifted, or the last group is a part of them.
    fn has_shape_of(&self, new: &[Page]) -> bool {
        let old = &self.last.pages;
        let is_part = |part: &[Page], of: &[Page], by: i64| {
            part.iter().all(|page| of.contains(&page.wrapping_sub(by as u64)))
        };
        let ends = [(old[0], new[0]), (old[old.len() - 1], new[new.len() - 1])];
        ends.iter().any(|&(old_end, new_end)| {
            let by = difference(new_end, old_end);
            is_part(new, old, by) || is_part(old, new, -by)
        })
    }

    /// Learns the group of the current phase.
    fn learn(&mut self, group: Group) {
        let (old, new) = (&self.last.pages, &group.pages);
        let ([first, .., last] | [first @ last]) = &old[..] else { unreachable!("no empty group") };
        let is_part =
            |by: &i64| new.iter().all(|page| old.contains(&page.wrapping_sub(*by as u64)));
        // A group often shrinks at its front, like the rest of a matrix.
        let shift = self.next_shift().filter(is_part);
        let shift = shift.unwrap_or(match new.len() <= old.len() {
            true => difference(new[new.len() - 1], *last),
            false => difference(new[0], *first),
        });
        let phases = self.idle + 1;
        self.shifts.insert(self.last.home, (shift, phases));
        if shift % phases == 0 {
            self.shift = Some(shift / phases);
        }
        self.is_steady = new.len().min(old.len()) > 1;
        self.last = group;
        self.idle = 0;
    }
}

/// Returns the track that a group with this home and page continues, and how well it fits. `used`
/// are the tracks that continue elsewhere.
fn find(
    tracks: &[Track],
    (home, page): (NodeId, Page),
    me: NodeId,
    pages: &impl Pages,
    used: impl Fn(usize) -> bool,
) -> Option<(usize, Fit)> {
    let free = || (0..tracks.len()).filter(|&at| !used(at));
    let exact = |&at: &usize| tracks[at].next().is_some_and(|next| next.contains(&page));
    let visited = |&at: &usize| tracks[at].has_visited(home);
    let exact = free().find(exact).map(|at| (at, Fit::Exact));
    let visited = || free().find(visited).map(|at| (at, Fit::Home));
    let mut here = free().filter(|&at| !tracks[at].is_away(me, pages));
    // A track without a prediction has not failed to predict the page.
    let open = here.clone().find(|&at| tracks[at].next().is_none());
    let order = || open.or_else(|| here.next()).map(|at| (at, Fit::Order));
    exact.or_else(visited).or_else(order)
}

/// How a group fits a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// The page was predicted.
    Exact,
    /// The track had groups of this home.
    Home,
    /// The track is the next one in the order of first use.
    Order,
}

impl Tracks {
    /// Creates the state of a node without experience. A message has at most `most` pages.
    pub fn new(me: NodeId, most: usize) -> Self {
        Self { me, most: most.min(MOST / 2), pause: (0, PAUSE_MIN), ..Self::default() }
    }

    /// Learns that a task needs a page of another node in a phase. Returns true if it is for the
    /// first time.
    pub fn needs(&mut self, phase: u64, page: Page, pages: &impl Pages) -> bool {
        self.begin(phase, pages);
        self.right += usize::from(self.asked.remove(&page));
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
        }
        let Some(home) = pages.home(page).filter(|_| self.seen.insert(page)) else { return false };
        self.count += 1;
        if self.count > PAGES_MAX {
            return true;
        }
        match self.groups.iter_mut().find(|group| group.home == home) {
            Some(group) => group.pages.push(page),
            None => self.groups.push(Group { home, pages: vec![page] }),
        }
        true
    }

    /// Returns the pages to request now that a task needs `page`. The page is requested, too, if
    /// `is_absent`.
    pub fn wants(&mut self, page: Page, is_absent: bool, pages: &impl Pages) -> Wants {
        let mut wants = Wants::default();
        let period = self.period();
        let key = (period, self.phase % period as u64);
        let Some(tracks) = self.kinds.get(&key).filter(|_| self.pause.0 == 0) else { return wants };
        let Some(home) = pages.home(page) else { return wants };
        // True if the page confirms a prediction: others of the same phase are likely right.
        let mut is_confirmed = true;
        if let Some(list) = self.expected.values().find(|list| list.contains(&page)) {
            wants.along = list.clone();
        } else if is_absent {
            // A predicted group of which no page was needed was wrong: its track is elsewhere.
            let is_seen = |page: &Page| self.seen.contains(page);
            let used = |at: usize| self.expected.get(&at).is_some_and(|it| it.iter().any(is_seen));
            let Some((at, fit)) = find(tracks, (home, page), self.me, pages, used) else {
                return wants;
            };
            let is_long = tracks[at].last.pages.len() >= LONG;
            if !(tracks[at].is_steady || is_long && fit != Fit::Exact) {
                return wants;
            }
            let shift = match fit {
                Fit::Exact => tracks[at].next_shift(),
                _ => Some(difference(page, tracks[at].last.pages[0])),
            };
            wants.along = shifted(&tracks[at].last.pages, shift.unwrap_or_default());
            is_confirmed = fit != Fit::Order;
            self.expected.insert(at, wants.along.clone());
            // A group whose first page was not predicted comes in two messages: it may be wrong.
            if fit != Fit::Exact {
                wants.along.truncate(1 + wants.along.len() / 3);
            }
        }
        if !std::mem::replace(&mut self.is_confirmed, true) && is_confirmed {
            wants.apart = self.others(&key, pages, |track| track.is_steady);
        }
        let at = wants.along.iter().position(|&of| of == page).map_or(0, |at| at + 1);
        wants.along.drain(..at);
        wants.along.retain(|page| self.is_new(*page, pages) && pages.home(*page) == Some(home));
        wants.along.truncate(if is_absent { self.part(1 + wants.along.len()) - 1 } else { 0 });
        self.asked.extend(wants.along.iter().chain(wants.apart.iter().flatten()));
        wants
    }

    /// Returns the number of pages of a group that one message brings. Messages of one group have
    /// equal sizes.
    fn part(&self, pages: usize) -> usize {
        pages.div_ceil(pages.div_ceil(self.most).max(1))
    }

    /// Returns true if the page was never needed, and is neither here nor requested.
    fn is_new(&self, page: Page, pages: &impl Pages) -> bool {
        !self.seen.contains(&page) && !self.asked.contains(&page) && pages.is_absent(page)
    }

    /// Predicts the groups of a phase that begins.
    pub fn begins(&mut self, phase: u64, pages: &impl Pages) -> Vec<Vec<Page>> {
        self.begin(phase, pages);
        let period = self.period();
        let key = (period, self.phase % period as u64);
        if self.pause.0 > 0 || !self.kinds.contains_key(&key) {
            return Vec::new();
        }
        // Without a fault, only a shift that was seen before is reliable. A single page may be the
        // first of any group.
        let groups = self.others(&key, pages, |Track { last, shifts, is_steady, .. }| {
            *is_steady && shifts.contains_key(&last.home)
        });
        self.asked.extend(groups.iter().flatten());
        groups
    }

    /// Predicts the groups of the tracks without a fault in this phase.
    fn others(
        &mut self,
        key: &(usize, u64),
        pages: &impl Pages,
        is_usable: impl Fn(&Track) -> bool,
    ) -> Vec<Vec<Page>> {
        let mut groups = Vec::new();
        for (at, track) in self.kinds[key].iter().enumerate().filter(|(_, it)| is_usable(it)) {
            let Some(mut list) = track.next().filter(|_| !self.expected.contains_key(&at)) else {
                continue;
            };
            let home = list.last().and_then(|&page| pages.home(page));
            list.retain(|page| pages.home(*page) == home && self.is_new(*page, pages));
            let whole = list.clone();
            list.truncate(self.part(list.len()));
            if !list.is_empty() {
                self.expected.insert(at, whole);
                groups.push(list);
            }
        }
        groups
    }

    /// Begins a phase, if it is new.
    fn begin(&mut self, phase: u64, pages: &impl Pages) {
        if phase == self.phase {
            return;
        }
        let new = std::mem::take(&mut self.count);
        let groups = std::mem::take(&mut self.groups);
        self.judge();
        for passed in self.phase..phase.min(self.phase + COMPARED as u64) {
            let groups = if passed == self.phase { &groups[..] } else { &[] };
            let count = if passed == self.phase { new } else { 0 };
            if count > 0 || !self.counts.is_empty() {
                self.counts.push_front(count);
            }
            for period in (1..=PERIOD_MAX).filter(|_| count <= PAGES_MAX) {
                let tracks = self.kinds.entry((period, passed % period as u64)).or_default();
                learn(tracks, groups, self.me, pages);
            }
        }
        self.counts.truncate(COMPARED + PERIOD_MAX);
        self.expected.clear();
        self.is_confirmed = false;
        self.phase = phase;
    }

    /// Judges the predictions of the phase that ends. After useless ones, predictions pause.
    fn judge(&mut self) {
        let wrong = std::mem::take(&mut self.asked).len();
        let right = std::mem::take(&mut self.right);
        let (pause, next) = &mut self.pause;
        *pause = pause.saturating_sub(1);
        if wrong > right {
            *pause = *next;
            *next = (4 * *next).min(PAUSE_MAX);
        } else if right > 0 {
            *next = (*next / 2).max(PAUSE_MIN);
        }
    }

    /// Returns the number of phases after which phases are most alike, by their numbers of pages.
    /// Without experience it is two, as in programs that read and write in turns.
    fn period(&self) -> usize {
        let counts = &self.counts;
        // Mean difference between the numbers of pages, relative to their mean.
        let unlike = |period: &usize| -> usize {
            let pairs = counts.iter().zip(counts.iter().skip(*period)).take(COMPARED);
            let add = |(apart, sum): (usize, usize), (one, other): (&usize, &usize)| {
                (apart + one.abs_diff(*other), sum + one + other)
            };
            let (apart, sum) = pairs.fold((0, 0), add);
            200 * apart / sum.max(1)
        };
        let known = || [2, 1, 3, 4].into_iter().filter(|it| counts.len() >= 2 * it.max(&2));
        let good = known().find(|period| unlike(period) <= UNLIKE_MAX);
        good.or_else(|| known().min_by_key(unlike)).unwrap_or(2)
    }
}

/// Learns the groups of a phase.
fn learn(tracks: &mut Vec<Track>, groups: &[Group], me: NodeId, pages: &impl Pages) {
    let mut used = BTreeSet::new();
    let begun = tracks.len();
    for group in groups {
        let known = &tracks[..begun];
        let first = (group.home, group.pages[0]);
        let other = |at: usize| used.contains(&at) || !known[at].has_shape_of(&group.pages);
        match find(known, first, me, pages, other) {
            Some((at, _)) => {
                tracks[at].learn(group.clone());
                used.insert(at);
            }
            None if tracks.len() < TRACKS_MAX => tracks.push(Track::new(group.clone())),
            None => {}
        }
    }
    for at in (0..begun).filter(|at| !used.contains(at)) {
        tracks[at].idle += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages per home.
    const EACH: u64 = 100;
    const ME: NodeId = 9;

    /// Ten homes. Each has the pages of its number.
    struct Homes;

    impl Pages for Homes {
        fn home(&self, page: Page) -> Option<NodeId> {
            (page < 10 * EACH).then_some((page / EACH) as NodeId)
        }

        fn is_absent(&self, page: Page) -> bool {
            self.home(page).is_some_and(|home| home != ME)
        }
    }

    /// Uses these pages in a phase. Returns the number of requests, and the pages that were
    /// requested and not used.
    fn run(tracks: &mut Tracks, phase: u64, pages: &[Page]) -> (usize, Vec<Page>) {
        let mut here = BTreeSet::new();
        let mut requests = 0;
        for group in tracks.begins(phase, &Homes) {
            requests += 1;
            here.extend(group);
        }
        for &page in pages {
            let is_absent = here.insert(page);
            requests += usize::from(is_absent);
            if tracks.needs(phase, page, &Homes) {
                let Wants { along, apart } = tracks.wants(page, is_absent, &Homes);
                requests += apart.len();
                here.extend(along.into_iter().chain(apart.into_iter().flatten()));
            }
        }
        (requests, here.into_iter().filter(|page| !pages.contains(page)).collect())
    }

    /// A column of homes 1, 2, 3 and a row of homes 4, 5, 6, as in LU: both shift by one home, and
    /// after the last home to the next page of the first.
    fn step(step: u64, rows: u64) -> Vec<Page> {
        let first = |homes: u64| (homes + step % 3) * EACH + step / 3;
        let column = (0..rows).map(|row| first(1) + 10 * row);
        column.chain((0..4).map(|at| first(4) + 20 * at)).collect()
    }

    #[test]
    fn shifted_groups_are_requested_at_once() {
        let mut tracks = Tracks::new(ME, 8);
        let requests: Vec<usize> = (0..9)
            .map(|at| {
                let (requests, vain) = run(&mut tracks, 2 * at, &step(at, 5));
                // The row is first expected to continue at home 7, before it returns to home 4.
                assert_eq!(vain.len(), if at == 3 { 4 } else { 0 }, "step {at}: {vain:?}");
                requests
            })
            .collect();
        // A group whose first page was not predicted takes two requests.
        assert_eq!(requests, [9, 4, 2, 5, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn known_shifts_need_no_fault() {
        let mut tracks = Tracks::new(ME, 8);
        for at in 0..4 {
            assert!(tracks.begins(2 * at, &Homes).is_empty(), "no shift from home {at} is known");
            run(&mut tracks, 2 * at, &step(at, 5));
        }
        let groups = tracks.begins(8, &Homes);
        assert_eq!(groups.concat(), step(4, 5));
    }

    #[test]
    fn a_group_that_shrinks_brings_no_page_twice() {
        let mut tracks = Tracks::new(ME, 8);
        run(&mut tracks, 0, &[100, 110, 120, 130]);
        run(&mut tracks, 2, &[200, 210, 220, 230]);
        // The page 310 is the first that is still needed.
        let (requests, vain) = run(&mut tracks, 4, &[310, 320, 330]);
        assert_eq!((requests, vain), (1, vec![]));
    }

    #[test]
    fn pages_that_were_needed_before_are_left_to_their_homes() {
        let mut tracks = Tracks::new(ME, 8);
        for phase in 0..20 {
            let pages = [[100, 101, 102, 103], [104, 105, 106, 107]][phase as usize % 2];
            let (requests, vain) = run(&mut tracks, phase, &pages);
            assert!(vain.is_empty() && (phase < 2 || requests == 4), "phase {phase}: {vain:?}");
        }
    }

    #[test]
    fn a_track_passes_through_its_own_node() {
        let mut tracks = Tracks::new(ME, 8);
        let group = |home: u64| [0, 3, 6, 9].map(|at| home * EACH + at);
        run(&mut tracks, 0, &group(7));
        run(&mut tracks, 2, &group(8));
        run(&mut tracks, 4, &[]); // the pages of this node
        let (_, vain) = run(&mut tracks, 6, &[1, 4, 7, 10]);
        assert_eq!(vain, []);
        // The second round is known: from 8 it takes two steps.
        run(&mut tracks, 8, &[701, 704, 707, 710]);
        run(&mut tracks, 10, &[801, 804, 807, 810]);
        assert!(tracks.begins(12, &Homes).is_empty(), "it rests");
        assert_eq!(tracks.begins(14, &Homes), [[2, 5, 8, 11]]);
    }

    #[test]
    fn useless_predictions_pause() {
        let mut tracks = Tracks::new(ME, 8);
        let mut vain = 0;
        for phase in 0..100 {
            // The first page steps through the homes, the others have no pattern.
            let at = phase * phase * 7 % 61;
            let first = phase % 8 * EACH + at;
            let pages = [first, first + 1 + phase % 5, first + 7 + phase * 3 % 11];
            vain += run(&mut tracks, phase, &pages).1.len();
        }
        assert!(vain < 60, "{vain} of 300");
    }

    #[test]
    fn a_long_group_takes_equal_messages() {
        let mut tracks = Tracks::new(ME, 5);
        let group = |home: u64| (0..8).map(|at| home * EACH + at).collect::<Vec<_>>();
        assert_eq!(run(&mut tracks, 0, &group(1)).0, 8);
        run(&mut tracks, 2, &group(2));
        tracks.needs(4, 300, &Homes);
        assert_eq!(tracks.wants(300, true, &Homes).along, [301, 302, 303]);
    }
}
