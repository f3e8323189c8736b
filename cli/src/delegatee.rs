//! `nagaya delegatee`: the node server's delegatee. It is a task of Nagaya that does I/O on the
//! memory of other tasks, with descriptors that they pass (pvas_delegate.h). The node server
//! starts it.

use std::str::FromStr;

use launch::placement::{Domain, Domains};
use nagaya_server::Failure;
use pvas_delegate::delegatee::{self, Delegatee};
use pvas_delegate::error::Error;
use pvas_delegate::io::{self, Whose};
use pvas_delegate::passed;

use crate::limits::raise_open_files;
use crate::program::unstarted;

/// Do I/O for a job's tasks (started by the node server)
#[derive(Debug, clap::Args)]
pub struct Options {
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
}

/// Small requests that find room in the queue.
const REQUESTS: u32 = 1024;

/// The placement and the number of threads of the node server's delegatee, as in `--delegatee`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(Domains, String);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let domains = Domains::of(text, "threads")?;
        if domains.count() != 1 || !matches!(domains.machines(), Ok(None)) {
            return Err("write one PLACE:THREADS of this machine, such as 3:1".into());
        }
        let most = control::hold::WORK.len() as u32;
        if domains.tasks() > most {
            return Err(format!("at most {most} threads"));
        }
        Ok(Self(domains, text.to_owned()))
    }
}

impl Place {
    /// Returns the option's text.
    pub fn text(&self) -> &str {
        &self.1
    }

    /// The processors, and the number of threads.
    pub fn found(&self) -> Result<Domain, Failure> {
        let found = self.0.found("--delegatee").map_err(unstarted)?;
        found.into_iter().next().ok_or_else(|| Failure::ours("--delegatee: no place"))
    }
}

/// Serves until the node server ends.
pub fn delegatee(options: &Options) -> Result<i32, Failure> {
    let failed = |error: Error| Failure::ours(format!("the node server's delegatee: {error}"));
    raise_open_files();
    // A file that grows beyond a limit is its owner's affair.
    // SAFETY: changes what a signal does to this process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let ready = |delegatee: &Delegatee| {
        passed::accept(delegatee)?;
        io::serve_files(delegatee, Whose::Passed)?;
        io::serve_sockets(delegatee, Whose::Passed)
    };
    let delegatee = delegatee::open(REQUESTS, ready).map_err(failed)?;
    let serve = || loop {
        if let Err(error) = delegatee.serve(None) {
            return error;
        }
    };
    for _ in 1..options.threads {
        std::thread::Builder::new().spawn(serve).map_err(|why| {
            Failure::ours(format!("the node server's delegatee: a thread: {why}"))
        })?;
    }
    Err(failed(serve()))
}
