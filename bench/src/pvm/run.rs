//! The state of a run, and the reaction to failures.

use std::collections::BTreeMap;
use std::path::Path;

use super::options::Options;
use super::programs::Programs;
use super::transport::Transport;
use crate::failure::Failure;
use crate::launch::Nagaya;
use crate::progress::progress;
use crate::results::Results;

/// The state of all rounds.
pub struct Run<'a> {
    pub options: &'a Options,
    pub nagaya: &'a Nagaya,
    pub out: &'a Path,
    pub programs: Programs,
    pub results: Results<Transport>,
    pub failures: Vec<Failure>,
    /// Number of failures, by name.
    pub failed: BTreeMap<String, u32>,
}

impl Run<'_> {
    /// Returns true if something has failed repeatedly. One failure may be an accident.
    pub fn is_given_up(&self, name: &str) -> bool {
        self.failed.get(name).is_some_and(|&often| often > 1)
    }

    /// Runs `work` under a name, unless it is given up.
    pub fn attempt<T>(
        &mut self,
        name: &str,
        round: u32,
        work: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Option<T> {
        if self.is_given_up(name) {
            return None;
        }
        progress(&format!("pvm, round {round} of {}: {name}", self.options.rounds));
        match work(self) {
            Ok(done) => Some(done),
            Err(failure) => {
                eprintln!("nagaya-bench: pvm: {name}: {failure}");
                self.failures.push(Failure::new(format!("{name}: {failure}")));
                *self.failed.entry(name.to_string()).or_default() += 1;
                None
            }
        }
    }
}
