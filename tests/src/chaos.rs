//! Chaos tests: signals to processes at random instants.

use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;

use crate::kill;

/// Time for which a process is stopped.
const STOPPED: Duration = Duration::from_millis(200);

/// Returns the number of rounds of a chaos test: the value of `NAGAYA_CHAOS_ROUNDS`, or `usual`.
pub fn chaos_rounds(usual: usize) -> usize {
    let rounds = std::env::var("NAGAYA_CHAOS_ROUNDS");
    rounds.map_or(usual, |text| text.parse().expect("NAGAYA_CHAOS_ROUNDS is a number"))
}

/// Returns SIGSTOP in a third of the calls, and SIGKILL otherwise.
pub fn random_signal(random: &mut Rng) -> Signal {
    if random.u8(..3) == 0 { Signal::STOP } else { Signal::KILL }
}

/// Sends the signal. A stopped process is continued after 0.2 s.
pub fn strike(pid: i32, signal: Signal) {
    kill(pid, signal);
    if signal == Signal::STOP {
        std::thread::sleep(STOPPED);
        kill(pid, Signal::CONT);
    }
}
