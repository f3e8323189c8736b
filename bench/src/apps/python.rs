//! mpi4py's own benchmark. Debian's `python3` is not position-independent, so a small main function
//! with Debian's libpython runs it on both sides.

use super::application::{Application, Figure, Outcome, number_behind};
use crate::programs::compile_python;

/// `python -m mpi4py.bench ringtest`.
pub fn all() -> Vec<Application> {
    vec![Application {
        name: "mpi4py ringtest",
        package: "python3-mpi4py",
        program: compile_python,
        arguments: "-m mpi4py.bench ringtest -n 1000000 -l 2000"
            .split(' ')
            .map(str::to_string)
            .collect(),
        prepare: |_, _| Ok(()),
        read: |_, printed| {
            let seconds = number_behind(printed, "loops =", 0)?;
            Some(Outcome {
                results: vec![printed.split('=').next()?.to_string()],
                figures: vec![Figure {
                    name: "2000 × 1 MB, ms",
                    value: 1e3 * seconds,
                    is_rate: false,
                }],
                in_messages: None,
            })
        },
    }]
}
