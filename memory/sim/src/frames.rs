//! The memory of a node: its tasks' access to each page, and the contents of pages.
//!
//! Some programs have contents: a diff has the bytes that changed. For large programs only the
//! extents of writes are recorded: a diff has the size of these extents.

use std::collections::HashMap;
use std::ops::Range;

use coherence::diff;
use coherence::message::Page;
use coherence::sparse::Sparse;

/// The access of a node's tasks to a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// No access.
    #[default]
    None,
    /// Tasks may read.
    Read,
    /// Tasks may read and write.
    Write,
}

/// The memory of a node.
#[derive(Clone, Debug)]
pub struct Frames {
    page_bytes: usize,
    access: Sparse<Access>,
    /// The contents, if the program has any. Absent pages hold zeros.
    contents: Option<HashMap<Page, Box<[u8]>>>,
    twins: HashMap<Page, Twin>,
}

/// The copy of a page before it is written.
#[derive(Clone, Debug)]
enum Twin {
    /// The contents.
    Bytes(Box<[u8]>),
    /// Without contents: the bytes that were written since. The ranges ascend and do not touch.
    Extents(Vec<Range<usize>>),
}

/// The contents of a dropped page: a value that no program writes.
const DROPPED: u8 = 0xee;

impl Frames {
    /// Creates a memory without pages.
    pub fn new(page_bytes: usize, contents: bool) -> Self {
        let contents = contents.then(HashMap::new);
        Self { page_bytes, access: Sparse::default(), contents, twins: HashMap::new() }
    }

    /// Returns true if the program has contents.
    pub fn has_contents(&self) -> bool {
        self.contents.is_some()
    }

    /// Adds pages without access.
    pub fn grow(&mut self, pages: u64) {
        self.access.grow(pages);
    }

    /// Returns the first page of these bytes to which tasks lack this access.
    pub fn missing(&self, bytes: &Range<u64>, wanted: Access) -> Option<Page> {
        let mut pages = self.pieces(bytes).map(|(page, _)| page);
        pages.find(|&page| self.access.get(page).is_none_or(|access| *access < wanted))
    }

    /// Changes the access of tasks to a page.
    pub fn change_access(&mut self, page: Page, change: impl FnOnce(Access) -> Access) {
        let access = self.access.use_with(page, |_| Access::None);
        *access = change(*access);
    }

    /// Records that a task has written these bytes.
    pub fn record_write(&mut self, bytes: &Range<u64>) {
        if self.contents.is_some() {
            return;
        }
        for (page, at) in self.pieces(bytes) {
            if let Some(Twin::Extents(extents)) = self.twins.get_mut(&page) {
                insert(extents, at);
            }
        }
    }

    /// Returns the pages of these bytes, and the part of each page.
    fn pieces(&self, bytes: &Range<u64>) -> impl Iterator<Item = (Page, Range<usize>)> + use<> {
        let size = self.page_bytes as u64;
        let bytes = bytes.clone();
        (bytes.start / size..bytes.end.div_ceil(size)).map(move |page| {
            let at = |place: u64| place.clamp(page * size, (page + 1) * size) - page * size;
            (page, at(bytes.start) as usize..at(bytes.end) as usize)
        })
    }

    /// Returns the contents of a page.
    fn page(&mut self, page: Page) -> &mut [u8] {
        let contents = self.contents.as_mut().expect("the program has contents");
        contents.entry(page).or_insert_with(|| vec![0; self.page_bytes].into())
    }

    /// Returns these bytes.
    ///
    /// # Panics
    /// Tasks may not read them.
    pub fn load(&mut self, bytes: Range<u64>) -> Vec<u8> {
        assert_eq!(self.missing(&bytes, Access::Read), None, "tasks may read {bytes:?}");
        let mut all = Vec::with_capacity((bytes.end - bytes.start) as usize);
        for (page, at) in self.pieces(&bytes) {
            all.extend_from_slice(&self.page(page)[at]);
        }
        all
    }

    /// Writes these bytes at the address `start`.
    ///
    /// # Panics
    /// Tasks may not write there.
    pub fn store(&mut self, start: u64, mut bytes: &[u8]) {
        let range = start..start + bytes.len() as u64;
        assert_eq!(self.missing(&range, Access::Write), None, "tasks may write {range:?}");
        for (page, at) in self.pieces(&range) {
            let (here, rest) = bytes.split_at(at.len());
            self.page(page)[at].copy_from_slice(here);
            bytes = rest;
        }
    }

    /// Makes a twin of a page.
    pub fn twin(&mut self, page: Page) {
        let twin = match self.contents {
            Some(_) => Twin::Bytes(self.page(page).into()),
            None => Twin::Extents(Vec::new()),
        };
        self.twins.insert(page, twin);
    }

    /// Appends the diff between a page and its twin to `body`, and drops the twin. Returns the size
    /// of the diff. Without contents nothing is appended.
    pub fn diff(&mut self, page: Page, body: &mut Vec<u8>) -> usize {
        match self.twins.remove(&page).expect("the page has a twin") {
            Twin::Bytes(twin) => {
                let before = body.len();
                diff::append(body, page, &twin, self.page(page));
                body.len() - before
            }
            Twin::Extents(extents) => diff::size(extents.iter().map(Range::len)),
        }
    }

    /// Returns the bytes of a page, to send them. The vector is empty without contents.
    pub fn bytes(&mut self, page: Page) -> Vec<u8> {
        match self.contents {
            Some(_) => self.page(page).to_vec(),
            None => Vec::new(),
        }
    }

    /// Fills a page with these bytes.
    pub fn fill(&mut self, page: Page, body: &[u8]) {
        if self.contents.is_some() {
            self.page(page).copy_from_slice(body);
        }
    }

    /// Applies the diffs of other nodes.
    pub fn apply_diffs(&mut self, body: &[u8]) {
        if self.contents.is_some() {
            for (page, runs) in diff::pages(body, self.page_bytes).expect("parsed when it was sent")
            {
                diff::apply(runs, self.page(page));
            }
        }
    }

    /// Revokes all access to a page and drops its contents.
    pub fn drop(&mut self, page: Page) {
        self.change_access(page, |_| Access::None);
        self.twins.remove(&page);
        if self.contents.is_some() {
            self.page(page).fill(DROPPED);
        }
    }
}

/// Adds a range to ranges that ascend and do not touch.
fn insert(extents: &mut Vec<Range<usize>>, mut new: Range<usize>) {
    let first = extents.partition_point(|extent| extent.end < new.start);
    let last = extents.partition_point(|extent| extent.start <= new.end);
    if first < last {
        new = new.start.min(extents[first].start)..new.end.max(extents[last - 1].end);
    }
    extents.splice(first..last, [new]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extents_are_what_was_written(written in proptest::collection::vec((0..60usize, 1..20usize), 0..20)) {
            let mut extents = Vec::new();
            let mut bytes = [false; 80];
            for (at, length) in written {
                insert(&mut extents, at..at + length);
                bytes[at..at + length].fill(true);
            }
            let mut unrolled = [false; 80];
            extents.iter().for_each(|extent| unrolled[extent.clone()].fill(true));
            prop_assert_eq!(unrolled, bytes);
            prop_assert!(extents.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }

    /// The same writes make diffs of the same size, with and without contents.
    #[test]
    fn a_diff_s_size_is_that_of_its_extents() {
        let sizes = [true, false].map(|contents| {
            let mut frames = Frames::new(64, contents);
            frames.grow(2);
            frames.change_access(0, |_| Access::Write);
            frames.change_access(1, |_| Access::Write);
            frames.twin(0);
            frames.twin(1);
            for (at, length) in [(3u64, 4u64), (60, 10), (20, 1), (7, 2)] {
                let bytes = at..at + length;
                frames.record_write(&bytes);
                if contents {
                    frames.store(at, &vec![1; length as usize]);
                }
            }
            [0, 1].map(|page| frames.diff(page, &mut Vec::new()))
        });
        assert_eq!(sizes[0], sizes[1]);
    }
}
