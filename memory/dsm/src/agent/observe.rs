//! Observations for `nagaya dsm report`, in runs that enable it: the code that is stopped at each
//! page, pages that several nodes write at the same time, and fetches that larger pages would save.
//!
//! **Code.** The kernel reports the thread that faulted. While that thread waits for its page,
//! /proc/THREAD/syscall has its address: one short read for each fault. It is stored as a place in
//! a file, since addresses mean nothing after the task has ended.
//!
//! **False sharing.** Two nodes have written different bytes of a page between the same two
//! barriers. The page's home sees that in their diffs. Of its own writes it sees only that there
//! were any. Unless a lock orders them, a program without data races has then written other bytes
//! than those in the diffs.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::Range;

use coherence::diff;
use coherence::message::{NodeId, Page};
use proc::maps::{self, Mapping};
use serde::Serialize;

use super::accesses::{Accesses, InOrder};

/// Maximum number of places in code for each page.
const CODE_MAX: usize = 16;
/// Sizes of larger pages, as multiples of the page size.
const LARGER: [u64; 2] = [2, 4];
/// The smallest page size in bytes.
const SMALLEST: usize = 4096;

/// The observations of a node.
#[derive(Debug, Default)]
pub(super) struct Observer {
    mappings: Vec<Mapping>,
    places: Vec<Place>,
    code: BTreeMap<Page, Vec<Stops>>,
    /// The page and the place of the last fault.
    last: Option<(Page, usize)>,
    written: HashMap<Page, Written>,
    shared: BTreeMap<Page, Shared>,
    /// Number of times that the node has learned of others' writes.
    interval: u64,
    /// For each size of larger pages: the interval of the last fetch from a node, by larger page,
    /// and the number of fetches that they would save.
    fetched: [HashMap<(Page, NodeId), u64>; LARGER.len()],
    saved: [u64; LARGER.len()],
    accesses: Accesses,
}

/// The place of an instruction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Place {
    file: String,
    /// The offset in the file.
    offset: u64,
}

/// The faults of a place in code at a page.
#[derive(Debug, Clone, Copy, Serialize)]
struct Stops {
    /// The number of the place.
    place: usize,
    /// Number of faults.
    stopped: u64,
    /// Of these, faults after which the page was fetched.
    fetched: u64,
}

/// The writers of a page of this home since the last barrier.
#[derive(Debug, Default)]
struct Written {
    epoch: u64,
    by: Vec<(NodeId, Vec<Range<usize>>)>,
    by_home: bool,
    counted: bool,
}

/// Number of intervals between two barriers in which several nodes wrote a page.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Shared {
    /// All such intervals.
    times: u64,
    /// Of these, intervals in which nodes other than the home wrote different bytes.
    bytes_differ: u64,
    /// Of these, intervals in which pages of 4 KB would be shared falsely as well.
    small_pages_differ: u64,
}

/// The observations as they are written.
#[derive(Debug, Serialize)]
pub(crate) struct Observed {
    places: Vec<Place>,
    code: Vec<(Page, Vec<Stops>)>,
    shared: Vec<(Page, Shared)>,
    /// Bytes of larger pages, and the number of fetches that they would save.
    larger: Vec<(usize, u64)>,
    in_order: InOrder,
}

impl Observer {
    /// Records a fault at a byte of a page.
    pub fn stopped(&mut self, page: Page, at: usize, thread: u32) {
        self.accesses.stopped(page, at);
        let place = program_counter(thread).and_then(|at| self.place(at));
        self.last = place.map(|place| (page, place));
        let Some(place) = place else { return };
        let code = self.code.entry(page).or_default();
        match code.iter().position(|of| of.place == place) {
            Some(at) => code[at].stopped += 1,
            None if code.len() < CODE_MAX => code.push(Stops { place, stopped: 1, fetched: 0 }),
            None => {}
        }
    }

    /// Returns the number of the place at an address.
    pub fn place(&mut self, at: u64) -> Option<usize> {
        let of = |mappings: &[Mapping]| {
            let mapping = mappings.iter().find(|mapping| mapping.addresses.contains(&at))?;
            let offset = at - mapping.addresses.start + mapping.offset;
            Some(Place { file: mapping.path.clone(), offset })
        };
        let place = of(&self.mappings).or_else(|| {
            let is_code = |it: &Mapping| it.executes && it.path.starts_with('/');
            self.mappings = maps::own().unwrap_or_default().into_iter().filter(is_code).collect();
            of(&self.mappings)
        })?;
        let known = self.places.iter().position(|known| *known == place);
        Some(known.unwrap_or_else(|| {
            self.places.push(place);
            self.places.len() - 1
        }))
    }

    /// Records that a page of this home is written here.
    pub fn wrote(&mut self, page: Page, me: NodeId, epoch: u64) {
        self.accesses.wrote(page, me);
        let written = Self::since(&mut self.written, page, epoch);
        written.by_home = true;
        if !written.by.is_empty() {
            Self::count(&mut self.shared, page, written, None);
        }
    }

    /// Records the diffs of a node for pages of this home. The body has been checked.
    pub fn changed(&mut self, from: NodeId, epoch: u64, body: &[u8], page_bytes: usize) {
        for (page, runs) in diff::pages(body, page_bytes).unwrap_or_default() {
            let mut ranges = Vec::new();
            diff::each(runs, |at, bytes| ranges.push(at..at + bytes.len()));
            self.accesses.changed(page, from, &ranges);
            let written = Self::since(&mut self.written, page, epoch);
            let others = written.by.iter().filter(|(node, _)| *node != from);
            let apart = |unit| others.clone().any(|(_, theirs)| are_apart(theirs, &ranges, unit));
            let differ = [1, SMALLEST].map(apart);
            if written.by_home || differ[0] {
                Self::count(&mut self.shared, page, written, Some(differ));
            }
            match written.by.iter_mut().find(|(node, _)| *node == from) {
                Some((_, before)) => before.extend(ranges),
                None => written.by.push((from, ranges)),
            }
        }
    }

    fn since(written: &mut HashMap<Page, Written>, page: Page, epoch: u64) -> &mut Written {
        let written = written.entry(page).or_default();
        if written.epoch != epoch {
            *written = Written { epoch, ..Written::default() };
        }
        written
    }

    /// Evaluates a page once between two barriers.
    fn count(
        shared: &mut BTreeMap<Page, Shared>,
        page: Page,
        written: &mut Written,
        differ: Option<[bool; 2]>,
    ) {
        if std::mem::replace(&mut written.counted, true) {
            return;
        }
        let [bytes, small_pages] = differ.unwrap_or_default();
        let shared = shared.entry(page).or_default();
        shared.times += 1;
        shared.bytes_differ += u64::from(bytes);
        shared.small_pages_differ += u64::from(small_pages);
    }

    /// Records that the node has learned of others' writes.
    pub fn learned(&mut self) {
        self.interval += 1;
    }

    /// Records that a page of this home is sent to a node that requested it.
    pub fn sends(&mut self, page: Page, to: NodeId) {
        self.accesses.sends(page, to);
    }

    /// Records that a page is fetched from its home.
    pub fn fetches(&mut self, page: Page, home: NodeId) {
        self.accesses.fetches(page);
        if let Some((_, place)) = self.last.filter(|last| last.0 == page) {
            let code = self.code.get_mut(&page).into_iter().flatten();
            code.filter(|of| of.place == place).for_each(|of| of.fetched += 1);
        }
        for ((times, fetched), saved) in
            LARGER.into_iter().zip(&mut self.fetched).zip(&mut self.saved)
        {
            let before = fetched.insert((page / times, home), self.interval);
            *saved += u64::from(before == Some(self.interval));
        }
    }

    /// Returns all observations.
    pub fn observed(&self, page_bytes: usize) -> Observed {
        let larger = LARGER.into_iter().zip(self.saved);
        Observed {
            places: self.places.clone(),
            code: self.code.clone().into_iter().collect(),
            shared: self.shared.clone().into_iter().collect(),
            larger: larger.map(|(times, saved)| (page_bytes * times as usize, saved)).collect(),
            in_order: self.accesses.in_order(),
        }
    }
}

/// Returns true if no unit of this many bytes has some of both.
fn are_apart(one: &[Range<usize>], other: &[Range<usize>], unit: usize) -> bool {
    let units = |range: &Range<usize>| range.start / unit..range.end.div_ceil(unit);
    let meet = |a: Range<usize>, b: Range<usize>| a.start < b.end && b.start < a.end;
    !one.iter().any(|a| other.iter().any(|b| meet(units(a), units(b))))
}

/// Returns the address of a waiting thread, which is the last word of the kernel's text. `None` if
/// the kernel hides it, as for threads of other processes.
fn program_counter(thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
    u64::from_str_radix(text.split_whitespace().next_back()?.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns diffs of some bytes of page 7, as a message carries them.
    fn body(range: Range<usize>) -> Vec<u8> {
        let (twin, mut now) = (vec![0; 8192], vec![0; 8192]);
        now[range].fill(1);
        let mut body = Vec::new();
        diff::append(&mut body, 7, &twin, &now);
        body
    }

    fn shared(observer: &Observer) -> [u64; 3] {
        let of = observer.shared.get(&7).copied().unwrap_or_default();
        [of.times, of.bytes_differ, of.small_pages_differ]
    }

    #[test]
    fn writes_to_other_bytes_between_the_same_barriers_are_false_sharing() {
        let mut seen = Observer::default();
        seen.changed(1, 0, &body(0..8), 8192);
        seen.changed(2, 1, &body(8..16), 8192);
        assert_eq!(shared(&seen), [0, 0, 0], "a barrier lies between");
        seen.changed(1, 1, &body(12..20), 8192);
        assert_eq!(shared(&seen), [0, 0, 0], "the same bytes");
        seen.changed(3, 1, &body(4096..5000), 8192);
        assert_eq!(shared(&seen), [1, 1, 1]);
        seen.changed(4, 1, &body(6000..6001), 8192);
        assert_eq!(shared(&seen), [1, 1, 1], "once between two barriers");
        seen.changed(1, 2, &body(0..8), 8192);
        seen.changed(2, 2, &body(8..16), 8192);
        assert_eq!(shared(&seen), [2, 2, 1], "in one small page");
        seen.wrote(7, 0, 3);
        assert_eq!(shared(&seen), [2, 2, 1]);
        seen.changed(1, 3, &body(0..8), 8192);
        assert_eq!(shared(&seen), [3, 2, 1], "with its home");
    }

    #[test]
    fn larger_pages_save_fetches_of_one_interval() {
        let mut seen = Observer::default();
        (0..4).for_each(|page| seen.fetches(page, 0));
        seen.learned();
        (1..3).for_each(|page| seen.fetches(page, 0));
        assert_eq!(seen.saved, [2, 3 + 1]);
        seen.fetches(3, 1);
        assert_eq!(seen.saved, [2, 3 + 1], "another home's page");
    }

    #[test]
    fn a_place_in_code_is_found() {
        let here = a_place_in_code_is_found as fn() as usize as u64;
        let mut seen = Observer::default();
        let number = seen.place(here).expect("it is mapped");
        assert!(seen.places[number].file.contains("dsm"), "{:?}", seen.places);
        assert_eq!(seen.place(here), Some(number));
        assert_eq!(seen.place(16), None);
    }
}
