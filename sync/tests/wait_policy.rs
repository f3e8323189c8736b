//! The wait policy in simulated time: it costs at most twice as much as the better of always
//! spinning and always sleeping, besides a bounded cost of learning, over the whole range of
//! processors, wake-ups and loads.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sync::wait::policy::{Mode, Policy, Step};

/// Polls between two steps.
const POLLS: u64 = 16;
/// Times of these polls, in ns: `pause` takes 5, 40 or 200 cycles of 3 GHz.
const LOOKS: [u64; 3] = [POLLS * 5 / 3, POLLS * 40 / 3, POLLS * 200 / 3];
/// Times of a wake-up, in ns.
const WAKES: [u64; 5] = [2_000, 10_000, 50_000, 75_000, 200_000];
/// Time of a yield if nobody else wants the processor, in ns.
const IDLE_YIELD: u64 = 300;

fn after(base: Instant, time: u64) -> Instant {
    base + Duration::from_nanos(time)
}

/// One waiter on a processor of its own, whose events do not depend on it.
struct Waiter {
    policy: Policy,
    base: Instant,
    now: u64,
    wake: u64,
    look: u64,
}

impl Waiter {
    fn new(mode: Mode, wake: u64, look: u64) -> Self {
        let policy = Policy::new(mode, Duration::from_nanos(wake));
        Self { policy, base: Instant::now(), now: 0, wake, look }
    }

    /// Waits for an event that comes after a time. Returns the cost: time of the processor, and of
    /// a wake-up.
    fn wait(&mut self, event: u64) -> u64 {
        let begin = self.now;
        if event <= self.look {
            self.now += event;
            self.policy.found_at_once();
            return event;
        }
        self.now += self.look;
        loop {
            match self.policy.step(after(self.base, self.now)) {
                Step::Spin => self.now += self.look,
                Step::Yield => {
                    self.policy.yielded(Duration::from_nanos(IDLE_YIELD));
                    self.now += IDLE_YIELD + self.look;
                }
                Step::Sleep => {
                    let spun = self.now - begin;
                    self.now = self.now.max(begin + event) + self.wake;
                    self.policy.found(after(self.base, self.now));
                    return spun + self.wake;
                }
            }
            if self.now >= begin + event {
                self.policy.found(after(self.base, self.now));
                return self.now - begin;
            }
        }
    }
}

/// Sums over a run of waits.
#[derive(Debug, Default)]
struct Sums {
    ours: u64,
    spins: u64,
    sleeps: u64,
    waits: u64,
}

impl Sums {
    fn add(&mut self, waiter: &mut Waiter, event: u64) {
        self.ours += waiter.wait(event);
        self.spins += event;
        self.sleeps += waiter.wake;
        self.waits += 1;
    }

    /// The cost is bounded. Two looks and a yield are the precision of each wait.
    fn check(&self, waiter: &Waiter, what: &dyn std::fmt::Debug) {
        let precision = self.waits * (2 * waiter.look + IDLE_YIELD);
        let bound = 2 * self.spins.min(self.sleeps) + precision + 8 * waiter.wake;
        assert!(self.ours <= bound, "{what:?}: {self:?}, wake-up {}", waiter.wake);
    }
}

/// Runs a test for all processors and wake-ups.
fn everywhere(mut test: impl FnMut(u64, u64)) {
    for wake in WAKES {
        LOOKS.iter().for_each(|&look| test(wake, look));
    }
}

/// Returns a generator with the seed in `NAGAYA_SEED`, or with a new one. Prints the seed.
fn seeded() -> fastrand::Rng {
    let seed = std::env::var("NAGAYA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("NAGAYA_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

#[test]
fn steady_waits_cost_at_most_twice_the_better() {
    everywhere(|wake, look| {
        for percent in [1, 10, 30, 60, 90, 110, 150, 190, 250, 290, 310, 500, 2000] {
            let mut waiter = Waiter::new(Mode::Auto, wake, look);
            let mut sums = Sums::default();
            (0..2000).for_each(|_| sums.add(&mut waiter, wake * percent / 100));
            sums.check(&waiter, &percent);
        }
    });
}

#[test]
fn bursts_and_phases_cost_at_most_twice_the_better() {
    everywhere(|wake, look| {
        for length in [1, 2, 3, 7, 16, 17, 40, 300] {
            for (one, other) in [(1, 400), (1, 150), (50, 310), (90, 1000), (250, 400)] {
                for rest in [1, length] {
                    let mut waiter = Waiter::new(Mode::Auto, wake, look);
                    let mut sums = Sums::default();
                    for _ in 0..800 / (length + rest) {
                        (0..length).for_each(|_| sums.add(&mut waiter, wake * one / 100));
                        (0..rest).for_each(|_| sums.add(&mut waiter, wake * other / 100));
                    }
                    sums.check(&waiter, &(length, rest, one, other));
                }
            }
        }
    });
}

#[test]
fn random_waits_cost_at_most_twice_the_better() {
    let mut random = seeded();
    everywhere(|wake, look| {
        for _ in 0..20 {
            let (mut waiter, mut sums) = (Waiter::new(Mode::Auto, wake, look), Sums::default());
            let widest = 1 + random.u64(..6 * wake);
            for _ in 0..1000 {
                sums.add(&mut waiter, random.u64(..widest));
                sums.check(&waiter, &widest);
            }
        }
    });
}

/// An adversary knows the policy, and lets each event come when it hurts: at once if the waiter
/// sleeps, or just after it has gone to sleep.
#[test]
fn an_adversary_gains_no_more() {
    let mut random = seeded();
    everywhere(|wake, look| {
        for caution in [0, 10, 50, 90] {
            let (mut waiter, mut sums) = (Waiter::new(Mode::Auto, wake, look), Sums::default());
            for _ in 0..2000 {
                let policy = waiter.policy.clone();
                let now = waiter.now;
                let spun = waiter.wait(u64::MAX / 4) - wake;
                (waiter.policy, waiter.now) = (policy, now);
                let hurts = if spun > 2 * look { spun + 1 } else { look + 1 };
                let is_kind = random.u64(..100) < caution;
                sums.add(&mut waiter, if is_kind { random.u64(..5 * wake) } else { hurts });
                sums.check(&waiter, &caution);
            }
        }
    });
}

/// A process of the closed model: it receives a token, works, and passes it on.
struct Process {
    policy: Policy,
    processor: usize,
    state: State,
    /// When the token came.
    token: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Looks,
    Works(u64),
    Yields(u64),
    Sleeps,
    /// Computes for ever, and waits for nobody.
    Computes,
}

/// Time of a switch between processes, of a call that wakes one, and of a turn.
const SWITCH: u64 = 1_500;
const WAKE_CALL: u64 = 1_000;
const TURN: u64 = 3_000_000;
/// Time after which a process that computes can be interrupted.
const COMPUTES: u64 = 500;

/// Processes that pass one token around, with processors that take turns.
struct Ring {
    base: Instant,
    processes: Vec<Process>,
    /// Of each processor: its time, its processes that can run, and the end of the turn.
    processors: Vec<(u64, VecDeque<usize>, u64)>,
    wake: u64,
    look: u64,
    work: u64,
    hops: u64,
    members: usize,
}

impl Ring {
    fn new(mode: Mode, shape: (usize, usize), times: (u64, u64, u64), estimate: u64) -> Self {
        let ((processors, members), (wake, look, work)) = (shape, times);
        let process = |number: usize| Process {
            policy: Policy::new(mode, Duration::from_nanos(estimate)),
            processor: number % processors,
            state: State::Looks,
            token: (number == 0).then_some(0),
        };
        let queue = |processor| (0..members).filter(|it| it % processors == processor).collect();
        Self {
            base: Instant::now(),
            processes: (0..members).map(process).collect(),
            processors: (0..processors).map(|it| (0, queue(it), TURN)).collect(),
            wake,
            look,
            work,
            hops: 0,
            members,
        }
    }

    /// Adds a process that computes, on the first processor.
    fn with_computation(mut self) -> Self {
        let policy = Policy::new(Mode::Sleep, Duration::from_nanos(self.wake));
        let state = State::Computes;
        self.processes.push(Process { policy, processor: 0, state, token: None });
        self.processors[0].1.push_back(self.members);
        self
    }

    /// Lets the token make this many hops. Returns the time of one, in ns.
    fn hop(&mut self, hops: u64) -> u64 {
        let now = |ring: &Self| ring.processors.iter().map(|it| it.0).max().unwrap_or(0);
        let (begin, end) = (now(self), self.hops + hops);
        let mut steps = 0;
        while self.hops < end {
            self.act();
            steps += 1;
            assert!(steps < 400_000_000, "the token is lost");
        }
        (now(self) - begin) / hops
    }

    /// Lets the processor whose time is the earliest run its process for a moment.
    fn act(&mut self) {
        let busy = (0..self.processors.len()).filter(|it| !self.processors[*it].1.is_empty());
        let at = busy.min_by_key(|it| self.processors[*it].0).expect("the token is somewhere");
        let number = self.processors[at].1[0];
        let now = self.processors[at].0;
        match self.processes[number].state {
            State::Yields(since) => {
                self.processes[number].policy.yielded(Duration::from_nanos(now - since));
                self.processes[number].state = State::Looks;
            }
            State::Looks => self.look(number, at),
            State::Works(left) => {
                let turn = self.processors[at].2.saturating_sub(now).max(1);
                let done = left.min(turn);
                self.processors[at].0 += done;
                self.processes[number].state = State::Works(left - done);
                if left == done {
                    self.pass_on(number, at);
                }
            }
            State::Computes => self.processors[at].0 += COMPUTES,
            State::Sleeps => unreachable!("it is not in the queue"),
        }
        if self.processors[at].0 >= self.processors[at].2 {
            self.switch(at, true);
        }
    }

    fn look(&mut self, number: usize, at: usize) {
        let process = &mut self.processes[number];
        // `WaitPolicy::poll` polls once while others want the processor.
        self.processors[at].0 += self.look / if process.policy.is_crowded() { POLLS } else { 1 };
        let now = self.processors[at].0;
        if process.token.is_some_and(|came| came <= now) {
            process.policy.found(after(self.base, now));
            (process.token, process.state) = (None, State::Works(self.work));
            return;
        }
        match process.policy.step(after(self.base, now)) {
            Step::Spin => {}
            Step::Yield if self.processors[at].1.len() == 1 => {
                process.policy.yielded(Duration::from_nanos(IDLE_YIELD));
                self.processors[at].0 += IDLE_YIELD;
            }
            Step::Yield => {
                process.state = State::Yields(now);
                self.switch(at, true);
            }
            Step::Sleep => {
                process.state = State::Sleeps;
                self.switch(at, false);
                // The token may be on its way, from a processor that is ahead of this one.
                if let Some(came) = self.processes[number].token {
                    self.rouse(number, came.max(now));
                }
            }
        }
    }

    fn pass_on(&mut self, number: usize, at: usize) {
        self.hops += 1;
        self.processes[number].state = State::Looks;
        let next = (number + 1) % self.members;
        let now = self.processors[at].0;
        self.processes[next].token = Some(now);
        if self.processes[next].state == State::Sleeps {
            self.processors[at].0 += WAKE_CALL;
            self.rouse(next, now);
        }
    }

    /// A sleeper can run: at once behind others, or after a wake-up of an idle processor.
    fn rouse(&mut self, number: usize, when: u64) {
        self.processes[number].state = State::Looks;
        let (time, queue, turn) = &mut self.processors[self.processes[number].processor];
        if queue.is_empty() {
            *time = (*time).max(when + self.wake);
            *turn = *time + TURN;
            queue.push_back(number);
        } else {
            // It runs before those that compute.
            let computes = queue.iter().skip(1).position(|it| *it >= self.members);
            queue.insert(computes.map_or(queue.len(), |it| it + 1), number);
            if queue[0] >= self.members {
                *turn = (*time).max(when);
            }
        }
    }

    fn switch(&mut self, at: usize, stays: bool) {
        let (time, queue, turn) = &mut self.processors[at];
        let first = queue.pop_front().expect("it ran");
        if stays {
            queue.push_back(first);
        }
        if queue.front().is_some_and(|next| *next != first) {
            *time += SWITCH;
        }
        *turn = *time + TURN;
    }
}

/// Compares a hop with that of pure spinners and pure sleepers. With shared processors the fastest
/// looks take too long to simulate.
fn compare(shape: (usize, usize), estimated: impl Fn(u64) -> u64, computes: bool) {
    everywhere(|wake, look| {
        if shape.0 < shape.1 && look == LOOKS[0] {
            return;
        }
        for work in [300, 2_000, 20_000, 200_000] {
            let hop = |mode| {
                let ring = Ring::new(mode, shape, (wake, look, work), estimated(wake));
                let mut ring = if computes { ring.with_computation() } else { ring };
                // Pure spinners on one processor pass it on by turns. Beside a computation they
                // lose the processor at the end of theirs.
                let hops = match (mode, computes) {
                    (_, true) => 8 * TURN / work,
                    (Mode::Spin, false) => 40,
                    _ => 300,
                };
                ring.hop(hops);
                ring.hop(hops)
            };
            let [ours, spins, sleeps] = [Mode::Auto, Mode::Spin, Mode::Sleep].map(hop);
            let bound = 2 * spins.min(sleeps) + 2 * look + IDLE_YIELD;
            assert!(
                ours <= bound,
                "{shape:?}, wake-up {wake}, look {look}, work {work}: {ours}, spins {spins}, \
                 sleeps {sleeps}"
            );
        }
    });
}

#[test]
fn a_token_is_passed_between_processes_with_a_processor_each() {
    compare((2, 2), |wake| wake, false);
    compare((4, 4), |wake| wake, false);
    // The measured wake-up may be wrong.
    compare((2, 2), |wake| wake / 2, false);
    compare((2, 2), |wake| wake * 2, false);
}

#[test]
fn a_token_is_passed_between_more_processes_than_processors() {
    for shape in [(1, 2), (1, 4), (2, 4), (2, 8)] {
        compare(shape, |wake| wake, false);
    }
}

#[test]
fn a_token_is_passed_beside_a_computation() {
    compare((2, 2), |wake| wake, true);
}

/// With 32 µs a message between two processes that could do it in 0.5 µs, for ever: that is the
/// trap of a spin that is shorter than the peer's wake-up.
#[test]
fn two_waiters_that_have_both_slept_recover() {
    everywhere(|wake, look| {
        let mut ring = Ring::new(Mode::Auto, (2, 2), (wake, look, 10 * wake), wake);
        ring.hop(100);
        ring.work = 200;
        ring.hop(60);
        let hop = ring.hop(100);
        assert!(hop <= 2 * (200 + look) + IDLE_YIELD, "wake-up {wake}, look {look}: {hop}");
    });
}

/// Such a waiter spins for its least time although all events come late, and yields the processor
/// to others that want it.
#[test]
fn a_least_spin_holds_unless_others_want_the_processor() {
    let (wake, event) = (10_000, 120_000);
    let sleeps = |least: u64, yield_ns: u64| {
        let mut policy = Policy::new(Mode::Auto, Duration::from_nanos(wake))
            .spin_at_least(Duration::from_nanos(least));
        let (base, mut now, mut sleeps) = (Instant::now(), 0, 0);
        for _ in 0..1000 {
            let end = now + event;
            while now < end {
                match policy.step(after(base, now)) {
                    Step::Spin => now += 300,
                    Step::Yield => {
                        policy.yielded(Duration::from_nanos(yield_ns));
                        now += yield_ns;
                    }
                    Step::Sleep => {
                        sleeps += 1;
                        now = end + wake;
                    }
                }
            }
            policy.found(after(base, now));
        }
        sleeps
    };
    assert!(sleeps(0, IDLE_YIELD) > 900, "usually late events let a waiter sleep");
    assert_eq!(sleeps(150_000, IDLE_YIELD), 0);
    assert!(sleeps(150_000, 20_000) > 900, "others run in each yield");
}
