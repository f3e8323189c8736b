//! Figures 5 to 12 of Sakaguchi et al., *Ainori communication*: speed-ups and page messages of MM,
//! SOR, LU and IS on 1 to 32 processes, without rides and with each policy of rides, by `nagaya
//! sim` on the paper's cluster. It also compares page messages of real and simulated runs.
//! With `--fit` it searches for the choices, among those that the paper leaves open, that fit its
//! numbers best.

mod figures;
mod fit;
mod options;
mod paper;
mod real;
mod report;
mod simulated;

use std::path::Path;

use crate::failure::Failure;
use crate::launch::Nagaya;

pub use options::Options;
use options::{NORMAL, Part};

/// Runs, prints tables, writes CSV files and a figure.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    if !options.rides.iter().any(|policy| policy == NORMAL) {
        return Err(Failure::new("--rides: the others are compared with normal; include it"));
    }
    if options.fit {
        return fit::run(options, out);
    }
    let mut failures = Vec::new();
    if options.only.contains(&Part::Simulated) {
        let simulated = simulated::run(options, nagaya, out)
            .and_then(|runs| report::write(&runs, options, out));
        failures.extend(simulated.err());
    }
    if options.only.contains(&Part::Real) {
        failures.extend(real::run(options, nagaya, out).err());
    }
    Failure::of_all(failures)
}
