//! Which of two ways is faster, learned while they are used.

use std::time::Duration;

/// A way for long messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The receiver copies out of the sender's memory.
    Offer = 0,
    /// Both copy, in parts, at once.
    Parts = 1,
}

/// How often the slower way is tried again.
const AGAIN: u32 = 64;

/// What each way has cost.
#[derive(Debug, Default)]
pub(crate) struct Faster {
    /// Nanoseconds a KiB, about the least of late: a receiver may come late.
    costs: [Option<f64>; 2],
    count: u32,
}

impl Faster {
    /// The way to take next.
    pub fn next(&mut self) -> Way {
        self.count += 1;
        let (faster, slower) = match self.costs {
            [None, _] => return Way::Offer,
            [_, None] => return Way::Parts,
            [Some(offer), Some(parts)] if offer <= parts => (Way::Offer, Way::Parts),
            _ => (Way::Parts, Way::Offer),
        };
        if self.count.is_multiple_of(AGAIN) { slower } else { faster }
    }

    /// A message of so many bytes took so long.
    pub fn learn(&mut self, way: Way, time: Duration, bytes: usize) {
        let cost = time.as_nanos() as f64 / (bytes as f64 / 1024.0);
        let known = &mut self.costs[way as usize];
        *known = Some(known.map_or(cost, |known| cost.min(known * 1.05)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_taken_and_the_other_tried_again() {
        let mut faster = Faster::default();
        let mut run = |offer: u64, parts: u64, count: u32| {
            let took = (0..count).map(|_| {
                let way = faster.next();
                let time = if way == Way::Offer { offer } else { parts };
                faster.learn(way, Duration::from_micros(time), 1 << 20);
                way
            });
            took.filter(|way| *way == Way::Parts).count()
        };
        assert!(run(100, 40, 640) > 620);
        // One late receiver changes nothing.
        assert!(run(100, 4000, 1) <= 1);
        assert!(run(100, 40, 640) > 620);
        run(30, 40, 640);
        assert!(run(30, 40, 640) < 20);
    }
}
