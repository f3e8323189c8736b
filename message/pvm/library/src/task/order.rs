//! Order of the messages between two tasks, across routes. The sender numbers them from 1, and the
//! receiver holds a message that has overtaken another.

use std::collections::{BTreeMap, HashMap};

use pvm::tid::{MEMBERS, Tid};

/// Sequence numbers for each other task. For tasks of this host the member index is the key.
#[derive(Debug)]
pub struct Numbers {
    host: u16,
    near: Vec<(Tid, u32)>,
    far: HashMap<Tid, u32>,
}

impl Numbers {
    /// Returns numbers that all start at 1. `host` is this task's host.
    pub fn new(host: u16) -> Numbers {
        Numbers { host, near: vec![(Tid(0), 1); usize::from(MEMBERS)], far: HashMap::new() }
    }

    /// Returns the next number for `tid`. For a new task with a reused member index, numbers start
    /// at 1 again.
    #[inline]
    pub fn of(&mut self, tid: Tid) -> &mut u32 {
        if tid.host() != self.host {
            return self.far.entry(tid).or_insert(1);
        }
        let (whose, number) = &mut self.near[usize::from(tid.place())];
        if *whose != tid {
            (*whose, *number) = (tid, 1);
        }
        number
    }

    /// Forgets a task that has ended.
    pub fn forget(&mut self, tid: Tid) {
        self.far.remove(&tid);
    }

    /// Forgets the tasks of a lost host.
    pub fn forget_host(&mut self, host: u16) {
        self.far.retain(|tid, _| tid.host() != host);
    }
}

/// The state of the receiver. `T` is a message.
#[derive(Debug)]
pub struct Order<T> {
    next: Numbers,
    held: BTreeMap<(Tid, u32), T>,
}

impl<T> Order<T> {
    /// Returns the state before the first message.
    pub fn new(host: u16) -> Order<T> {
        Order { next: Numbers::new(host), held: BTreeMap::new() }
    }

    /// Processes an arrived message. Returns it if it is next in order; then [`Order::next`] may
    /// have more. Messages with number 0, and late ones, are returned at once.
    #[inline]
    pub fn accept(&mut self, source: Tid, number: u32, message: T) -> Option<T> {
        if number == 0 {
            return Some(message);
        }
        let next = self.next.of(source);
        if number == *next {
            *next = next.wrapping_add(1);
            return Some(message);
        }
        if number.wrapping_sub(*next) as i32 > 0 {
            self.held.insert((source, number), message);
            return None;
        }
        Some(message)
    }

    /// Returns the next held message of `source`, if it is next in order.
    #[inline]
    pub fn next(&mut self, source: Tid) -> Option<T> {
        if self.held.is_empty() {
            return None;
        }
        let next = self.next.of(source);
        let message = self.held.remove(&(source, *next))?;
        *next = next.wrapping_add(1);
        Some(message)
    }

    /// Returns the held messages of tasks that have ended, even if earlier ones are missing.
    pub fn flush(&mut self, fits: impl Fn(Tid) -> bool) -> Vec<T> {
        let (out, held) =
            std::mem::take(&mut self.held).into_iter().partition(|((tid, _), _)| fits(*tid));
        self.held = held;
        self.next.far.retain(|tid, _| !fits(*tid));
        let out: BTreeMap<_, _> = out;
        out.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Tid = Tid::task(1, 7);

    fn all(order: &mut Order<u32>, number: u32) -> Vec<u32> {
        let first = order.accept(SOURCE, number, number);
        let rest = first.is_some().then(|| std::iter::from_fn(|| order.next(SOURCE)));
        first.into_iter().chain(rest.into_iter().flatten()).collect()
    }

    #[test]
    fn a_frame_that_overtakes_waits() {
        for source_host in [1, 2] {
            let mut order = Order::new(source_host);
            assert_eq!(all(&mut order, 2), []);
            assert_eq!(all(&mut order, 4), []);
            assert_eq!(all(&mut order, 1), [1, 2]);
            assert_eq!(all(&mut order, 3), [3, 4]);
            assert_eq!(all(&mut order, 0), [0]);
            assert_eq!(all(&mut order, 5), [5]);
        }
    }

    #[test]
    fn messages_of_a_dead_task_arrive_even_if_one_is_missing() {
        let mut order = Order::new(1);
        assert_eq!(all(&mut order, 3), []);
        assert_eq!(all(&mut order, 2), []);
        assert_eq!(order.flush(|tid| tid == SOURCE), [2, 3]);
        assert_eq!(order.flush(|tid| tid == SOURCE), []);
    }

    #[test]
    fn another_task_in_the_same_place_begins_anew() {
        let mut order = Order::new(1);
        assert_eq!(all(&mut order, 1), [1]);
        let later = Tid::task(1, 7 + u32::from(MEMBERS));
        assert_eq!(order.accept(later, 1, 9), Some(9));
        assert_eq!(order.accept(later, 2, 9), Some(9));
    }
}
