//! Migratory pages: nodes read and then write them in turn, such as data that a lock protects. A
//! read request for such a page gets ownership, so that the following write needs no request
//! (Stenström, Brorsson, Sandberg, *An adaptive cache coherence protocol optimized for migratory
//! sharing*, 1993).
//!
//! A page is detected as migratory if the node with the only copy writes it next. A node that got
//! ownership does not report whether it wrote the page. So a copy is sent now and then as a test,
//! and less often while the page turns out to be migratory.

/// The owner's knowledge of a page's migratory behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Migratory {
    /// Number of read requests that still get ownership before the next test.
    left: u8,
    /// Number of read requests that get ownership between two tests.
    run: u8,
}

impl Migratory {
    /// Records that the node with the only copy writes the page. `most` limits the number of read
    /// requests until the next test.
    pub fn copy_is_written(&mut self, most: u8) {
        self.run = self.run.saturating_mul(2).clamp(most.min(1), most);
        self.left = self.run;
    }

    /// Records that the page is written here while other nodes have copies.
    pub fn copies_are_in_the_way(&mut self) {
        *self = Self::default();
    }

    /// Handles a read request. Returns true if ownership moves.
    pub fn goes(&mut self) -> bool {
        let goes = self.left > 0;
        self.left -= u8::from(goes);
        goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes_so_often(page: &mut Migratory) -> usize {
        (0..100).take_while(|_| page.goes()).count()
    }

    #[test]
    fn copies_are_given_more_and_more_seldom_until_one_is_not_written() {
        let mut page = Migratory::default();
        assert_eq!(goes_so_often(&mut page), 0);
        for expected in [1, 2, 4, 5, 5] {
            page.copy_is_written(5);
            assert_eq!(goes_so_often(&mut page), expected);
        }
        page.copy_is_written(5);
        page.copies_are_in_the_way();
        assert_eq!(goes_so_often(&mut page), 0);
        page.copy_is_written(0);
        assert_eq!(goes_so_often(&mut page), 0);
    }
}
