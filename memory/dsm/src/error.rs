//! Errors of a task's calls: one line that gives the cause, the place and the remedy.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use net::wireup::Late;
use pager::PagerError;

/// The error of a call, which has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DsmError {
    /// An invalid argument, or misuse of a lock.
    Argument(String),
    /// A call at the wrong time: before the task has joined, after it has left, or twice.
    State(&'static str),
    /// A failure of the system: userfaultfd, memory, network, launcher.
    System(String),
}

impl fmt::Display for DsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(why) | Self::System(why) => f.write_str(why),
            Self::State(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for DsmError {}

impl From<PagerError> for DsmError {
    fn from(error: PagerError) -> Self {
        let otherwise = match error {
            PagerError::Forbidden => {
                "; or set NAGAYA_DSM_CALLS=0, if no system call reads or writes shared memory \
                 (see jia(7))"
            }
            _ => "",
        };
        Self::System(format!("{error}{otherwise}"))
    }
}

impl From<net::error::FabricError> for DsmError {
    fn from(error: net::error::FabricError) -> Self {
        Self::System(error.to_string())
    }
}

impl From<net::wireup::WireupError> for DsmError {
    fn from(error: net::wireup::WireupError) -> Self {
        Self::System(error.to_string())
    }
}

/// Time that the reader of a pipe has to take the last line.
const READ_MAX: Duration = Duration::from_millis(500);

/// Tells the user the reason why the job ends. When a task aborts, MPICH's launcher drops the
/// output that it has not read, so this waits until it has.
pub fn say_last(line: &str) {
    proc::error_line!("nagaya: {line}");
    wait_until_read(std::io::stderr().as_fd(), READ_MAX);
}

/// Waits until a pipe is empty. Does not wait for anything else.
fn wait_until_read(pipe: BorrowedFd<'_>, limit: Duration) {
    let is_pipe = |stat: rustix::fs::Stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo
    };
    if !rustix::fs::fstat(pipe).is_ok_and(is_pipe) {
        return;
    }
    let until = Instant::now() + limit;
    while rustix::io::ioctl_fionread(pipe).is_ok_and(|bytes| bytes > 0) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl DsmError {
    /// Returns the error for tasks that have not joined within the limit.
    pub(crate) fn missing(late: &Late, limit: Duration) -> Self {
        /// Maximum number of ranks in the line.
        const RANKS_MAX: usize = 8;
        let tasks = match late {
            Late::Unknown => "some tasks have".into(),
            Late::Ranks(tasks) if tasks.is_empty() => "tasks on other hosts have".into(),
            Late::Ranks(tasks) if tasks.len() == 1 => format!("task {} has", tasks[0]),
            Late::Ranks(all) => {
                let named: Vec<_> = all.iter().take(RANKS_MAX).map(u32::to_string).collect();
                let more = if all.len() > RANKS_MAX { ", ..." } else { "" };
                format!("tasks {}{more} have", named.join(", "))
            }
        };
        Self::System(format!(
            "{tasks} not called jia_init within {:.0} s; let all tasks call it, or set \
             NAGAYA_DSM_JOIN to more seconds",
            limit.as_secs_f64()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_read_before_the_end() {
        use std::io::{Read as _, Write as _};
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(b"line").expect("written");
        wait_until_read(writer.as_fd(), Duration::from_millis(1)); // nobody reads
        let waiter = std::thread::spawn(move || {
            wait_until_read(writer.as_fd(), Duration::from_secs(60));
            rustix::io::ioctl_fionread(&writer)
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        reader.read_exact(&mut [0; 4]).expect("four bytes");
        assert_eq!(waiter.join().expect("no panic"), Ok(0));
    }

    #[test]
    fn missing_tasks_are_named() {
        let of = |late| DsmError::missing(&late, Duration::from_secs(3)).to_string();
        let line = |tasks: &[u32]| of(Late::Ranks(tasks.to_vec()));
        assert!(line(&[7]).starts_with("task 7 has not called jia_init within 3 s; "));
        assert!(line(&[1, 2]).starts_with("tasks 1, 2 have not"));
        assert!(line(&Vec::from_iter(0..9)).starts_with("tasks 0, 1, 2, 3, 4, 5, 6, 7, ... have"));
        assert!(line(&[]).starts_with("tasks on other hosts have not"));
        assert!(of(Late::Unknown).starts_with("some tasks have not"));
    }
}
