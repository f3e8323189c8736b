//! `nagaya run`: tasks of a program without a launcher. `tasks` runs the tasks of this process,
//! `nodes` several nodes on this machine, and `cluster` several machines. The latter two start a
//! `nagaya run` for each part.

mod cluster;
mod environment;
mod meeting;
mod nodes;
mod options;
mod pool;
mod socket;
mod streams;
mod tasks;
mod wait;

use launch::control::Control;
use launch::placement::Domains;
use nagaya_server::Failure;

use crate::program::{self, unstarted};

pub use options::Options;

/// Runs the tasks; returns the first failing status, or 0.
pub fn run(mut options: Options) -> Result<i32, Failure> {
    options.protect = program::wanted_protection(options.protect)?;
    if let Some(descriptor) = options.control {
        return cluster::machine(cluster::control(descriptor));
    }
    if options.join {
        // SAFETY: this process uses descriptors 0 and 1 for nothing else.
        return cluster::machine(Ok(unsafe { Control::standard() }));
    }
    program::check_protection(options.protect, options.delegatee.is_some())?;
    if options.protect.is_some() && options.nodes > 1 {
        return Err(Failure::ours(
            "--protect does not work with --nodes: tasks of a node share pages",
        ));
    }
    if options.nodes > 1 {
        return nodes::run(&options);
    }
    let others = options.domains.as_ref().map(Domains::machines).transpose();
    match others.map_err(unstarted)?.flatten() {
        Some(_) if options.protect.is_some() => Err(Failure::ours(
            "--protect does not work with domains of other machines, whose pages all tasks share",
        )),
        Some(_) if options.delegatee.is_some() => Err(Failure::ours(
            "--delegatee does not work with domains of other machines; make a task there the delegatee",
        )),
        Some(others) => cluster::run(&options, &others),
        None if options.pool.is_some() => Err(Failure::ours(
            "--pool: only with domains of other machines (--domains ...,@HOST:4)",
        )),
        None => tasks::run(options, tasks::Given::now(), None),
    }
}
