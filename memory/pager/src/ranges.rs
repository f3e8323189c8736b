//! A set of addresses: ranges that neither meet nor touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// The set.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// From, to.
    all: BTreeMap<u64, u64>,
}

impl Ranges {
    /// These are in it from now on.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.remove(range.clone());
        let (mut from, mut to) = (range.start, range.end);
        if let Some((&before, &end)) = self.all.range(..=from).next_back()
            && end == from
        {
            from = before;
        }
        if let Some(end) = self.all.remove(&to) {
            to = end;
        }
        self.all.insert(from, to);
    }

    /// These are not in it any more.
    pub fn remove(&mut self, range: Range<u64>) {
        let met: Vec<Range<u64>> = self.met(&range).collect();
        for Range { start: from, end: to } in met {
            self.all.remove(&from);
            if from < range.start {
                self.all.insert(from, range.start);
            }
            if to > range.end {
                self.all.insert(range.end, to);
            }
        }
    }

    /// All of these are in it.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        let before = self.all.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, &to)| to >= range.end)
    }

    /// Those that have something of these, whole; the last first.
    pub fn met(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let start = range.start;
        let end = if range.is_empty() { 0 } else { range.end };
        let below = self.all.range(..end).rev();
        below.map(|(&from, &to)| from..to).take_while(move |it| it.end > start)
    }

    /// Returns the parts of the ranges that lie in a range.
    pub fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = *range;
        self.met(range).map(move |it| it.start.max(start)..it.end.min(end))
    }

    /// The first that is so long.
    pub fn first_of(&self, length: u64) -> Option<Range<u64>> {
        self.iter().find(|range| range.end - range.start >= length)
    }

    /// Returns the number of ranges.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.all.iter().map(|(&from, &to)| from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_holds_what_was_put_in(steps in proptest::collection::vec((any::<bool>(), 0..60u64, 0..9u64), 0..80)) {
            let (mut ranges, mut wanted) = (Ranges::default(), [false; 70]);
            for (inserts, from, length) in steps {
                let range = from..from + length;
                wanted[from as usize..(from + length) as usize].fill(inserts);
                let is = |at: u64| wanted[at as usize];
                if inserts { ranges.insert(range.clone()) } else { ranges.remove(range.clone()) }
                prop_assert_eq!(ranges.covers(&range), range.clone().all(is));
                prop_assert_eq!(ranges.met(&range).count() > 0, range.clone().any(is));
                let all: Vec<Range<u64>> = ranges.iter().collect();
                prop_assert!(all.windows(2).all(|two| two[0].end < two[1].start), "{:?}", all);
                let held: Vec<u64> = all.into_iter().flatten().collect();
                prop_assert_eq!(held, (0..70).filter(|&at| is(at)).collect::<Vec<_>>());
            }
        }
    }
}
