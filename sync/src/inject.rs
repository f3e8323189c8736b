//! Errors of system calls that tests inject.
//!
//! Code that must bear an error of a system call asks [`error`] before the call, and [`length`] for
//! the bytes that the call may take. In a build with the feature `simulation`, which only tests
//! enable, a test can set the errors of its thread (`set`). In all other builds nothing is
//! injected.

use rustix::io::Errno;

/// A kind of system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Call {
    /// Takes a connection from a listening socket.
    Accept,
    /// Reads from a socket.
    Read,
    /// Writes to a socket.
    Write,
    /// Adds a descriptor to an epoll instance.
    Watch,
}

/// Returns the error with which a call fails instead of being made.
#[inline]
pub fn error(call: Call) -> Option<Errno> {
    #[cfg(feature = "simulation")]
    return INJECTED.with_borrow_mut(|injected| injected.as_mut()?.error(call));
    #[cfg(not(feature = "simulation"))]
    {
        let _ = call;
        None
    }
}

/// Returns the number of bytes, of `bytes`, that a call reads or writes at most.
#[inline]
pub fn length(call: Call, bytes: usize) -> usize {
    #[cfg(feature = "simulation")]
    return INJECTED.with_borrow_mut(|injected| match injected {
        Some(injected) => injected.length(call, bytes),
        None => bytes,
    });
    #[cfg(not(feature = "simulation"))]
    {
        let _ = call;
        bytes
    }
}

#[cfg(feature = "simulation")]
thread_local! {
    static INJECTED: std::cell::RefCell<Option<Injected>> =
        const { std::cell::RefCell::new(None) };
}

/// The errors that each kind of call may have.
#[cfg(feature = "simulation")]
const ERRORS: [&[Errno]; 4] = [
    &[
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::NOBUFS,
        Errno::AGAIN,
        Errno::INTR,
        Errno::CONNABORTED,
    ],
    &[Errno::AGAIN, Errno::INTR],
    &[Errno::AGAIN, Errno::INTR],
    &[Errno::NOMEM, Errno::NOSPC],
];

/// Errors that a seed selects.
#[cfg(feature = "simulation")]
#[derive(Clone, Debug)]
pub struct Injected {
    random: u64,
    /// A call fails with probability 1/n, and takes fewer bytes with the same probability.
    one_in: u64,
    /// Number of errors, by call and error, and of shortened calls.
    counts: [[u64; 8]; 4],
}

#[cfg(feature = "simulation")]
impl Injected {
    /// Creates errors with a probability of 1/n.
    pub fn new(seed: u64, one_in: u64) -> Self {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { random, one_in, counts: Default::default() }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % end
    }

    fn error(&mut self, call: Call) -> Option<Errno> {
        if self.below(self.one_in) > 0 {
            return None;
        }
        let errors = ERRORS[call as usize];
        let at = self.below(errors.len() as u64) as usize;
        self.counts[call as usize][at] += 1;
        Some(errors[at])
    }

    fn length(&mut self, call: Call, bytes: usize) -> usize {
        if bytes < 2 || self.below(self.one_in) > 0 {
            return bytes;
        }
        self.counts[call as usize][7] += 1;
        1 + self.below(bytes as u64 - 1) as usize
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        let others = other.counts.iter().flatten();
        self.counts.iter_mut().flatten().zip(others).for_each(|(all, one)| *all += one);
    }

    /// Returns the number of each error, and of shortened calls (`None`).
    pub fn counts(&self) -> Vec<(Call, Option<Errno>, u64)> {
        let mut all = Vec::new();
        for call in [Call::Accept, Call::Read, Call::Write, Call::Watch] {
            let counts = &self.counts[call as usize];
            let errors = ERRORS[call as usize].iter().zip(counts);
            all.extend(errors.map(|(&errno, &count)| (call, Some(errno), count)));
            if matches!(call, Call::Read | Call::Write) {
                all.push((call, None, counts[7]));
            }
        }
        all
    }
}

/// Sets the errors of this thread, or none. Returns those that were set before.
#[cfg(feature = "simulation")]
pub fn set(injected: Option<Injected>) -> Option<Injected> {
    INJECTED.replace(injected)
}
