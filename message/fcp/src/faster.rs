//! Chooses the faster of two routes for long messages, and learns while they are used.

use std::time::Duration;

/// A route for long messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// An offer: the receiver copies out of the sender's memory.
    Offer = 0,
    /// Parts: sender and receiver copy at the same time.
    Parts = 1,
}

/// The slower route is tried again after this number of messages.
const AGAIN: u32 = 64;

/// The cost of each route.
#[derive(Debug, Default)]
pub(crate) struct Faster {
    /// Nanoseconds for each KiB: about the recent minimum, because a receiver may be late.
    costs: [Option<f64>; 2],
    count: u32,
}

impl Faster {
    /// Returns the route of the next message.
    pub fn next(&mut self) -> Route {
        self.count += 1;
        let (faster, slower) = match self.costs {
            [None, _] => return Route::Offer,
            [_, None] => return Route::Parts,
            [Some(offer), Some(parts)] if offer <= parts => (Route::Offer, Route::Parts),
            _ => (Route::Parts, Route::Offer),
        };
        if self.count.is_multiple_of(AGAIN) { slower } else { faster }
    }

    /// Learns that a message of `bytes` bytes took `time`.
    pub fn learn(&mut self, route: Route, time: Duration, bytes: usize) {
        let cost = time.as_nanos() as f64 / (bytes as f64 / 1024.0);
        let known = &mut self.costs[route as usize];
        *known = Some(known.map_or(cost, |known| cost.min(known * 1.05)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_route_is_used_and_the_other_tried_again() {
        let mut faster = Faster::default();
        let mut run = |offer: u64, parts: u64, count: u32| {
            let took = (0..count).map(|_| {
                let route = faster.next();
                let time = if route == Route::Offer { offer } else { parts };
                faster.learn(route, Duration::from_micros(time), 1 << 20);
                route
            });
            took.filter(|route| *route == Route::Parts).count()
        };
        assert!(run(100, 40, 640) > 620);
        // One late receiver changes nothing.
        assert!(run(100, 4000, 1) <= 1);
        assert!(run(100, 40, 640) > 620);
        run(30, 40, 640);
        assert!(run(30, 40, 640) < 20);
    }
}
