//! The messages of one direction in the order in which they were sent.
//!
//! UCX promises no order between messages that take different ways: a large one is only
//! announced, and its data come later; other transports than TCP may send over several
//! rails. So every message has its number, and waits here until all before it are whole.

use std::collections::VecDeque;

/// Maximum number of messages that may arrive ahead of a missing one.
pub const AHEAD_MAX: u64 = 1 << 16;

/// Messages that wait for those before them.
#[derive(Debug)]
pub struct InOrder<T> {
    /// Number of the first that is not delivered: the place `waiting[0]`.
    next: u64,
    waiting: VecDeque<Option<T>>,
}

/// A number that has come already, or is too far ahead.
#[derive(Debug, PartialEq, Eq)]
pub struct Misplaced;

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { next: 0, waiting: VecDeque::new() }
    }
}

impl<T> InOrder<T> {
    /// Returns the number that has this lower half, if it can come now.
    pub fn number_of(&self, lower: u32) -> Option<u64> {
        let ahead = u64::from(lower.wrapping_sub(self.next as u32));
        (ahead < AHEAD_MAX).then(|| self.next + ahead)
    }

    /// One has come.
    pub fn insert(&mut self, number: u64, message: T) -> Result<(), Misplaced> {
        let ahead = number.checked_sub(self.next).ok_or(Misplaced)?;
        if ahead >= AHEAD_MAX {
            return Err(Misplaced);
        }
        let ahead = ahead as usize;
        while self.waiting.len() <= ahead {
            self.waiting.push_back(None);
        }
        if self.waiting[ahead].is_some() {
            return Err(Misplaced);
        }
        self.waiting[ahead] = Some(message);
        Ok(())
    }

    /// One that has come and is not delivered.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let ahead = usize::try_from(number.checked_sub(self.next)?).ok()?;
        self.waiting.get_mut(ahead)?.as_mut()
    }

    /// The next, if it has come and `is_whole`.
    pub fn next_if(&mut self, is_whole: impl FnOnce(&T) -> bool) -> Option<T> {
        if !is_whole(self.waiting.front()?.as_ref()?) {
            return None;
        }
        self.next += 1;
        self.waiting.pop_front()?
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn duplicate_and_far_ahead_frames_are_misplaced() {
        let mut order = InOrder::default();
        assert_eq!(order.insert(0, ()), Ok(()));
        assert_eq!(order.insert(0, ()), Err(Misplaced));
        assert_eq!(order.next_if(|()| true), Some(()));
        assert_eq!(order.insert(0, ()), Err(Misplaced));
        assert_eq!(order.insert(AHEAD_MAX, ()), Ok(()));
        assert_eq!(order.insert(AHEAD_MAX + 1, ()), Err(Misplaced));
        assert_eq!(order.insert(u64::MAX, ()), Err(Misplaced));
    }

    #[test]
    fn numbers_are_found_by_their_lower_half() {
        for next in [0, 7, (1 << 32) - 1, 1 << 32, (1 << 40) - 3] {
            let order = InOrder::<()> { next, waiting: VecDeque::new() };
            for number in [next, next + 1, next + 9, next + AHEAD_MAX - 1] {
                assert_eq!(order.number_of(number as u32), Some(number));
            }
            assert_eq!(order.number_of((next + AHEAD_MAX) as u32), None);
            assert_eq!(order.number_of((next as u32).wrapping_sub(1)), None, "it has come");
        }
    }

    proptest! {
        /// Whatever the order of arrival, and whichever are whole only later.
        #[test]
        fn all_leave_in_order(
            arrivals in Just((0..40u64).collect::<Vec<_>>()).prop_shuffle(),
            completed in Just((0..40u64).collect::<Vec<_>>()).prop_shuffle(),
            late: [bool; 40],
        ) {
            let mut order = InOrder::default();
            let mut left = Vec::new();
            for number in arrivals {
                order.insert(number, (number, !late[number as usize])).unwrap();
                while let Some((number, _)) = order.next_if(|m| m.1) {
                    left.push(number);
                }
            }
            for number in completed.into_iter().filter(|&n| late[n as usize]) {
                order.get_mut(number).unwrap().1 = true;
                while let Some((number, _)) = order.next_if(|m| m.1) {
                    left.push(number);
                }
            }
            prop_assert_eq!(left, (0..40).collect::<Vec<_>>());
        }
    }
}
