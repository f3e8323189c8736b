//! Migratory pages: nodes read and then write them one after the other, as what a lock protects.
//! Who asks for a copy of such a page gets the page, and does not have to ask again to write it
//! (Stenström, Brorsson, Sandberg, *An adaptive cache coherence protocol optimized for migratory
//! sharing*, 1993).
//!
//! A page is known by what becomes of copies: who has the only one writes it next. Whoever got
//! the page itself tells nobody whether it was written; so a copy is given now and then, more and
//! more seldom while that turns out to be of no use.

/// What a node knows of a page that it gives away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Migratory {
    /// So often the page itself goes to who asks for a copy, until one is given again.
    left: u8,
    /// So often since it was given last.
    run: u8,
}

impl Migratory {
    /// Who has the only copy writes it: the page goes so often at most without such a look.
    pub fn copy_is_written(&mut self, most: u8) {
        self.run = self.run.saturating_mul(2).clamp(most.min(1), most);
        self.left = self.run;
    }

    /// The page is written here while others have copies.
    pub fn copies_are_in_the_way(&mut self) {
        *self = Self::default();
    }

    /// Somebody asks for a copy: whether the page itself goes.
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
