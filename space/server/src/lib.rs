//! The node server: the one Nagaya process that a job has on a node.
//!
//! It owns the space and is the parent of the tasks. Programs come to it through *stubs*:
//! the processes that a foreign launcher started with `nagaya exec`. A stub sends all
//! that a process inherits ([`inherit`]), and then stands for the task towards its
//! launcher ([`stub`]): signals go down, stops and the end come up.
//!
//! - [`identity`]: rights and namespaces, which decide whether a program may be a task of a server;
//! - [`mounts`]: tasks in mount namespaces of their own;
//! - [`job`]: which processes belong together, and where their socket is;
//! - [`reach`]: connecting to it, and starting it;
//! - [`protocol`]: what stub and server say;
//! - [`server`]: the server itself, also inside `nagaya run`;
//! - [`settings`]: what MPI libraries must be told;
//! - [`query`]: what `nagaya ps` and `nagaya maps` ask.

mod block;
pub mod identity;
pub mod inherit;
pub mod job;
pub mod maps;
pub mod mounts;
pub mod protocol;
pub mod query;
pub mod reach;
pub mod serve;
pub mod server;
pub mod settings;
pub mod stub;

/// A failure with one line to show, and the exit status that goes with it.
#[derive(Debug)]
pub struct Failure {
    /// What, where, what to do.
    pub message: String,
    /// 125: we failed; 126: the program cannot be run; 127: it was not found.
    pub status: i32,
}

impl Failure {
    /// Nagaya itself failed.
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

/// Whether the program is linked to fixed addresses; what is wrong with it is seen later.
pub fn is_fixed(path: &std::path::Path) -> bool {
    pvas::is_fixed(path).unwrap_or(false)
}

/// Release of the running kernel, major and minor.
pub fn kernel_version() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
