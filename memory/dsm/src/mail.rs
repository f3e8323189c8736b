//! Letters between tasks: those that have come and wait for their receiver, and the tasks that
//! wait for one. Between two tasks they stay in order.

use std::collections::VecDeque;

use crate::frame::Address;

/// What a task wants to receive; `None` where it does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// From this task.
    pub from: Option<u32>,
    /// About this.
    pub tag: Option<i32>,
}

/// A letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// From whom, and about what.
    pub address: Address,
    /// What it says.
    pub text: Vec<u8>,
}

/// A task's letter box.
#[derive(Debug, Default)]
pub struct Box {
    letters: VecDeque<Letter>,
    waits: Option<Wanted>,
}

impl Wanted {
    fn fits(self, address: &Address) -> bool {
        self.from.is_none_or(|from| from == address.from)
            // Who takes any tag does not take those of broadcasts and reductions.
            && self.tag.map_or(address.tag >= 0, |tag| tag == address.tag)
    }
}

impl Box {
    /// One has come: given back if the task waits for it.
    pub fn put(&mut self, letter: Letter) -> Option<Letter> {
        if self.waits.is_some_and(|wanted| wanted.fits(&letter.address)) {
            self.waits = None;
            return Some(letter);
        }
        self.letters.push_back(letter);
        None
    }

    /// The task wants one: the oldest that fits, or it waits.
    pub fn take(&mut self, wanted: Wanted) -> Option<Letter> {
        let at = self.letters.iter().position(|letter| wanted.fits(&letter.address));
        if at.is_none() {
            self.waits = Some(wanted);
        }
        self.letters.remove(at?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(from: u32, tag: i32, text: u8) -> Letter {
        Letter { address: Address { from, to: 0, tag }, text: vec![text] }
    }

    #[test]
    fn letters_are_taken_in_order_by_sender_and_tag() {
        let mut letters = Box::default();
        for (from, tag, text) in [(1, 5, 0), (2, 5, 1), (1, 6, 2), (1, 5, 3), (3, -2, 4)] {
            assert_eq!(letters.put(letter(from, tag, text)), None);
        }
        let mut take = |from, tag| letters.take(Wanted { from, tag }).map(|it| it.text[0]);
        assert_eq!(take(Some(1), Some(6)), Some(2));
        assert_eq!(take(None, None), Some(0));
        assert_eq!(take(Some(1), None), Some(3));
        assert_eq!(take(None, Some(5)), Some(1));
        assert_eq!(take(None, None), None, "what is left is a broadcast");
        assert!(letters.put(letter(9, -3, 5)).is_none());
        assert_eq!(letters.put(letter(9, 0, 6)).expect("it waits").text, [6]);
        assert_eq!(
            letters.take(Wanted { from: Some(3), tag: Some(-2) }).expect("it is there").text,
            [4]
        );
    }
}
