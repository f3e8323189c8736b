//! The node server: the one Nagaya process of a job on a node.
//!
//! The server owns the job's space and is the parent of its tasks. Programs reach it through
//! *stubs*, the processes that a foreign launcher started with `nagaya exec`. A stub sends all
//! state that a process inherits ([`inherit`]). Then it represents the task to its launcher
//! ([`stub`]): it forwards signals to the task, and reports the task's stops and its end.
//!
//! - [`identity`]: rights and namespaces, which decide if a program may be a task of a server;
//! - [`mounts`]: tasks in other mount namespaces;
//! - [`job`]: the processes that form a job, and the path of its socket;
//! - [`reach`]: connects to a job's server, and starts it;
//! - [`protocol`]: the messages between stubs and server;
//! - [`server`]: the server itself, also inside `nagaya run`;
//! - [`sweep`]: the sockets that killed servers have left;
//! - [`apart`]: messages about ranks that are in several spaces;
//! - [`query`]: the requests of `nagaya ps` and `nagaya maps`.

pub mod apart;
mod block;
#[doc(hidden)]
pub mod fuzz;
pub mod identity;
pub mod inherit;
mod interrupt;
pub mod job;
pub mod maps;
pub mod mounts;
mod processes;
pub mod protocol;
pub mod query;
pub mod reach;
mod represent;
mod reserve;
pub mod serve;
pub mod server;
pub mod stub;
pub mod sweep;

/// A failure: one line to print, and the exit status.
#[derive(Debug)]
pub struct Failure {
    /// One line: the failure, its object, and a remedy.
    pub message: String,
    /// 125: Nagaya failed; 126: the program cannot be run; 127: it was not found.
    pub status: i32,
}

impl Failure {
    /// Returns a failure of Nagaya itself, with status 125.
    pub fn ours(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 125 }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<&pvas::Error> for Failure {
    fn from(error: &pvas::Error) -> Self {
        let status = match error {
            pvas::Error::Load(load) if load.errno() == rustix::io::Errno::NOENT => 127,
            pvas::Error::Load(_) => 126,
            _ => 125,
        };
        Self { message: error.to_string(), status }
    }
}

/// Returns true if the program is linked to fixed addresses. An invalid program gives false; the
/// server reports its error later.
pub fn is_fixed(path: &std::path::Path) -> bool {
    pvas::is_fixed(path).unwrap_or(false)
}

/// Returns the release of the running kernel, major and minor.
pub fn kernel_version() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
