//! The memory of a node: what its tasks may do with each page, and what stands there.
//!
//! Of large programs only the extents that are written are known, and a diff has their sizes;
//! of programs with contents it has the bytes that really changed.

use std::collections::HashMap;
use std::ops::Range;

use coherence::diff;
use coherence::message::Page;
use coherence::sparse::Sparse;

/// What tasks may do with a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    #[default]
    None,
    /// Read it.
    Read,
    /// Read and write it.
    Write,
}

/// The memory of a node.
#[derive(Clone, Debug)]
pub struct Frames {
    page_bytes: usize,
    access: Sparse<Access>,
    /// If there are contents: pages that are not here hold zeros.
    contents: Option<HashMap<Page, Box<[u8]>>>,
    twins: HashMap<Page, Twin>,
}

#[derive(Clone, Debug)]
enum Twin {
    Bytes(Box<[u8]>),
    /// What was written since it was made: apart from each other, ascending.
    Extents(Vec<Range<usize>>),
}

/// What a page that was dropped holds: no program's value.
const NOTHING: u8 = 0xee;

impl Frames {
    /// No pages yet.
    pub fn new(page_bytes: usize, contents: bool) -> Self {
        let contents = contents.then(HashMap::new);
        Self { page_bytes, access: Sparse::default(), contents, twins: HashMap::new() }
    }

    /// It has contents.
    pub fn has_contents(&self) -> bool {
        self.contents.is_some()
    }

    /// More pages, which nobody may touch.
    pub fn grow(&mut self, pages: u64) {
        self.access.grow(pages);
    }

    /// The first page of the bytes that a task may not do that with.
    pub fn missing(&self, bytes: &Range<u64>, wants: Access) -> Option<Page> {
        let mut pages = self.pieces(bytes).map(|(page, _)| page);
        pages.find(|&page| self.access.get(page).is_none_or(|access| *access < wants))
    }

    /// Changes what tasks may do with a page.
    pub fn allow(&mut self, page: Page, change: impl FnOnce(Access) -> Access) {
        let access = self.access.use_with(page, |_| Access::None);
        *access = change(*access);
    }

    /// A task has written the bytes.
    pub fn written(&mut self, bytes: &Range<u64>) {
        if self.contents.is_some() {
            return;
        }
        for (page, at) in self.pieces(bytes) {
            if let Some(Twin::Extents(extents)) = self.twins.get_mut(&page) {
                insert(extents, at);
            }
        }
    }

    /// The pages of the bytes, and which part of each.
    fn pieces(&self, bytes: &Range<u64>) -> impl Iterator<Item = (Page, Range<usize>)> + use<> {
        let size = self.page_bytes as u64;
        let bytes = bytes.clone();
        (bytes.start / size..bytes.end.div_ceil(size)).map(move |page| {
            let at = |place: u64| place.clamp(page * size, (page + 1) * size) - page * size;
            (page, at(bytes.start) as usize..at(bytes.end) as usize)
        })
    }

    fn page(&mut self, page: Page) -> &mut [u8] {
        let contents = self.contents.as_mut().expect("a program without contents has none");
        contents.entry(page).or_insert_with(|| vec![0; self.page_bytes].into())
    }

    /// What stands there. A task may read it.
    pub fn load(&mut self, bytes: Range<u64>) -> Vec<u8> {
        assert_eq!(self.missing(&bytes, Access::Read), None, "a task reads what it may read");
        let mut all = Vec::with_capacity((bytes.end - bytes.start) as usize);
        for (page, at) in self.pieces(&bytes) {
            all.extend_from_slice(&self.page(page)[at]);
        }
        all
    }

    /// Puts bytes there. A task may write it.
    pub fn store(&mut self, start: u64, mut bytes: &[u8]) {
        let range = start..start + bytes.len() as u64;
        assert_eq!(self.missing(&range, Access::Write), None, "a task writes what it may write");
        for (page, at) in self.pieces(&range) {
            let (here, rest) = bytes.split_at(at.len());
            self.page(page)[at].copy_from_slice(here);
            bytes = rest;
        }
    }

    /// Makes a page's twin.
    pub fn twin(&mut self, page: Page) {
        let twin = match self.contents {
            Some(_) => Twin::Bytes(self.page(page).into()),
            None => Twin::Extents(Vec::new()),
        };
        self.twins.insert(page, twin);
    }

    /// Appends what differs from the twin, which goes, to `body`; of a page without contents
    /// only its size. Answers that size.
    pub fn diff(&mut self, page: Page, body: &mut Vec<u8>) -> usize {
        match self.twins.remove(&page).expect("it has a twin") {
            Twin::Bytes(twin) => {
                let before = body.len();
                diff::append(body, page, &twin, self.page(page));
                body.len() - before
            }
            Twin::Extents(extents) => diff::size(extents.iter().map(Range::len)),
        }
    }

    /// The page's bytes, to send them; nothing, if it has no contents.
    pub fn bytes(&mut self, page: Page) -> Vec<u8> {
        match self.contents {
            Some(_) => self.page(page).to_vec(),
            None => Vec::new(),
        }
    }

    /// Fills a page with what came.
    pub fn fill(&mut self, page: Page, body: &[u8]) {
        if self.contents.is_some() {
            self.page(page).copy_from_slice(body);
        }
    }

    /// Changes pages as others say.
    pub fn change(&mut self, body: &[u8]) {
        if self.contents.is_some() {
            for (page, runs) in diff::pages(body, self.page_bytes).expect("it was parsed") {
                diff::apply(runs, self.page(page));
            }
        }
    }

    /// Drops a page.
    pub fn drop(&mut self, page: Page) {
        self.allow(page, |_| Access::None);
        self.twins.remove(&page);
        if self.contents.is_some() {
            self.page(page).fill(NOTHING);
        }
    }
}

/// Puts an extent to others that are apart from each other and ascend.
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

    /// With contents or without, the same writes make diffs of the same size.
    #[test]
    fn a_diff_s_size_is_that_of_its_extents() {
        let sizes = [true, false].map(|contents| {
            let mut frames = Frames::new(64, contents);
            frames.grow(2);
            frames.allow(0, |_| Access::Write);
            frames.allow(1, |_| Access::Write);
            frames.twin(0);
            frames.twin(1);
            for (at, length) in [(3u64, 4u64), (60, 10), (20, 1), (7, 2)] {
                let bytes = at..at + length;
                frames.written(&bytes);
                if contents {
                    frames.store(at, &vec![1; length as usize]);
                }
            }
            [0, 1].map(|page| frames.diff(page, &mut Vec::new()))
        });
        assert_eq!(sizes[0], sizes[1]);
    }
}
