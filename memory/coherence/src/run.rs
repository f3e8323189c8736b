//! The encoding of page lists in messages: ascending runs of consecutive pages.

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::message::{NodeId, Page};

/// Used instead of a writer if several nodes wrote the pages, or if no node holds a complete copy.
pub const NOBODY: NodeId = u32::MAX;

/// Consecutive pages with the same writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    /// The first page.
    pub first: Page,
    /// Number of pages; at least one.
    pub pages: u64,
    /// The only node that wrote the pages and holds a complete copy, or [`NOBODY`].
    pub writer: NodeId,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    first: U64,
    pages: U64,
    writer: U32,
}

impl Run {
    /// Size of an encoded run in bytes.
    pub const BYTES: usize = size_of::<Raw>();

    /// Returns the range of its pages.
    pub fn range(&self) -> std::ops::Range<Page> {
        self.first..self.first + self.pages
    }
}

/// Combines ascending pages and their writers into runs.
pub fn of(pages: impl IntoIterator<Item = (Page, NodeId)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (page, writer) in pages {
        match runs.last_mut() {
            Some(run) if run.writer == writer && run.first + run.pages == page => run.pages += 1,
            _ => runs.push(Run { first: page, pages: 1, writer }),
        }
    }
    runs
}

/// Combines pages in any order into ascending runs without writers.
pub fn from_pages(pages: impl Iterator<Item = Page>) -> Vec<Run> {
    let mut pages: Vec<Page> = pages.collect();
    pages.sort_unstable();
    of(pages.into_iter().map(|page| (page, NOBODY)))
}

/// Encodes runs as the body of a message.
pub fn encode(runs: &[Run]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(runs.len() * Run::BYTES);
    for run in runs {
        let raw =
            Raw { first: run.first.into(), pages: run.pages.into(), writer: run.writer.into() };
        bytes.extend_from_slice(raw.as_bytes());
    }
    bytes
}

/// Decodes runs. Returns `None` if they overlap, do not ascend, are empty, or exceed `pages`.
pub fn decode(bytes: &[u8], pages: u64) -> Option<Vec<Run>> {
    let raws = <[Raw]>::ref_from_bytes(bytes).ok()?;
    let mut end = 0;
    let mut runs = Vec::with_capacity(raws.len());
    for raw in raws {
        let run = Run { first: raw.first.get(), pages: raw.pages.get(), writer: raw.writer.get() };
        if run.first < end || run.pages == 0 {
            return None;
        }
        end = run.first.checked_add(run.pages).filter(|&end| end <= pages)?;
        runs.push(run);
    }
    Some(runs)
}

/// Merges the runs that several nodes wrote into one list. A page keeps its writer if only one node
/// wrote it; otherwise its writer is [`NOBODY`].
pub fn merge(written: &[(NodeId, Run)]) -> Vec<Run> {
    // Sweeps over the borders of all runs and counts the open ones. While one is open, `sum` is its
    // writer.
    let mut borders: Vec<(Page, bool, NodeId)> = Vec::with_capacity(written.len() * 2);
    for &(_, run) in written {
        borders.push((run.range().start, true, run.writer));
        borders.push((run.range().end, false, run.writer));
    }
    borders.sort_unstable();
    let (mut inside, mut sum, mut begin) = (0u32, 0u64, 0);
    let mut runs: Vec<Run> = Vec::new();
    for (page, opens, writer) in borders {
        if inside > 0 && page > begin {
            let writer = if inside == 1 { sum as NodeId } else { NOBODY };
            match runs.last_mut() {
                Some(run) if run.writer == writer && run.range().end == begin => {
                    run.pages += page - begin;
                }
                _ => runs.push(Run { first: begin, pages: page - begin, writer }),
            }
        }
        begin = page;
        match opens {
            true => (inside, sum) = (inside + 1, sum + u64::from(writer)),
            false => (inside, sum) = (inside - 1, sum - u64::from(writer)),
        }
    }
    runs
}

/// Returns the union of several lists, without writers.
pub fn union<'a>(lists: impl Iterator<Item = &'a Vec<Run>>) -> Vec<Run> {
    let all: Vec<_> = lists.flatten().map(|run| (0, Run { writer: NOBODY, ..*run })).collect();
    merge(&all).into_iter().map(|run| Run { writer: NOBODY, ..run }).collect()
}

/// Returns true if, according to a barrier's list, no node except `writer` wrote the page.
pub fn has_no_other_writer(runs: &[Run], page: Page, writer: NodeId) -> bool {
    let behind = runs.partition_point(|run| run.first <= page);
    let run = runs[..behind].last().filter(|run| run.range().contains(&page));
    run.is_none_or(|run| run.writer == writer)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_come_as_they_were_sent(pages in proptest::collection::btree_map(0..200u64, 0..3u32, 0..80)) {
            let runs = of(pages.clone());
            let came = decode(&encode(&runs), 200).expect("it is one");
            prop_assert_eq!(&came, &runs);
            let unrolled: BTreeMap<_, _> =
                came.iter().flat_map(|run| run.range().map(|page| (page, run.writer))).collect();
            prop_assert_eq!(unrolled, pages);
            prop_assert!(decode(&encode(&runs), runs.last().map_or(0, |run| run.range().end - 1)).is_none() || runs.is_empty());
        }

        #[test]
        fn merged_lists_say_who_wrote_alone(written in proptest::collection::vec(proptest::collection::btree_map(0..30u64, any::<bool>(), 0..20), 1..5)) {
            let mut all = Vec::new();
            let mut expected: BTreeMap<Page, Vec<NodeId>> = BTreeMap::new();
            for (node, pages) in written.iter().enumerate() {
                let whole = pages.iter().map(|(&page, &whole)| (page, if whole { node as NodeId } else { NOBODY }));
                for (page, writer) in whole.clone() {
                    expected.entry(page).or_default().push(writer);
                }
                all.extend(of(whole).into_iter().map(|run| (node as NodeId, run)));
            }
            let merged = merge(&all);
            let unrolled: Vec<_> = merged.iter().flat_map(|run| run.range().map(|page| (page, run.writer))).collect();
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(page, writers)| (page, if let [one] = writers[..] { one } else { NOBODY }))
                .collect();
            prop_assert_eq!(unrolled, expected);
            prop_assert!(decode(&encode(&merged), 30).is_some());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes, 100);
        }
    }
}
