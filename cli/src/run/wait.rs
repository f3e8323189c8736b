//! Waiting for the tasks: signals are passed on to them, and the first failure is the status.

use std::time::{Duration, Instant};

use ::cluster::{Cluster, Outcome};
use launch::status::shell_status;
use nagaya_server::server::Server;
use net::rendezvous::Host;

use super::options::{Options, Part};

/// Time from the first Ctrl-C until SIGTERM.
const TERM_AFTER: Duration = Duration::from_secs(5);
/// Time from the first Ctrl-C until SIGKILL.
pub const KILL_AFTER: Duration = Duration::from_secs(10);

/// Serves until all tasks have ended.
pub fn wait(server: &mut Server, options: &Options, part: &Part, over: Option<&Cluster>) -> i32 {
    let first = part.first;
    let mut first_failure = 0;
    let mut interrupted: Option<Instant> = None;
    let mut termed = false;
    let mut killed = false;
    let is_far = over.is_some_and(|over| over.me() > 0);
    let all = |server: &Server, signal| {
        for pid in server.pids() {
            server.signal(pid, signal, None);
        }
    };
    while !server.pids().is_empty() {
        let turn = server.turn(interrupted.map(|_| Duration::from_millis(100)));
        for ended in turn.ended {
            let status = shell_status(ended.status);
            if over.is_none() {
                let rank = first + ended.id;
                Host::tell_ended(&part.socket, rank..rank + 1);
            }
            if status == 0 {
                continue;
            }
            let is_news = interrupted.is_none() && first_failure == 0 && !killed;
            if libc::WIFSIGNALED(ended.status) && is_news {
                proc::error_line!(
                    "nagaya: task {} (PID {}) was killed by signal {}",
                    first + ended.id,
                    ended.pid,
                    libc::WTERMSIG(ended.status)
                );
            }
            if first_failure == 0 {
                first_failure = status;
                if options.kill_on_bad_exit {
                    all(server, libc::SIGKILL);
                    over.inspect(|over| over.fail(status));
                }
            }
        }
        if over.is_some_and(|over| over.outcome().kill) {
            killed = true;
            all(server, libc::SIGKILL);
        }
        for (signal, from_terminal) in turn.signals {
            over.filter(|_| !is_far).inspect(|over| over.signal(signal));
            if signal == libc::SIGINT {
                if interrupted.is_some() {
                    all(server, libc::SIGKILL);
                    continue;
                }
                interrupted = Some(Instant::now());
            }
            // The terminal has sent the signal to the tasks, which are in this process group.
            if !from_terminal {
                all(server, signal);
            }
        }
        if let Some(since) = interrupted {
            if since.elapsed() > KILL_AFTER {
                all(server, libc::SIGKILL);
            } else if since.elapsed() > TERM_AFTER && !termed {
                termed = true;
                all(server, libc::SIGTERM);
            }
        }
    }
    match interrupted {
        Some(_) if first_failure == 0 => 128 + libc::SIGINT,
        _ => first_failure,
    }
}

/// Waits until the tasks of all machines have ended, this one's with `status`. Returns the first
/// failing status, or 0.
pub fn wait_for_others(server: &mut Server, over: &Cluster, status: i32, is_far: bool) -> i32 {
    const LOOK: Duration = Duration::from_millis(500);
    over.finish(status);
    loop {
        let Outcome { statuses, over: is_over, lost, failure, .. } = over.outcome();
        if lost {
            return 1;
        }
        if is_over {
            return status;
        }
        if !is_far && !statuses.is_empty() && statuses.iter().all(Option::is_some) {
            over.end();
            let all = failure.into_iter().chain([status]).chain(statuses.into_iter().flatten());
            return all.into_iter().find(|&status| status != 0).unwrap_or(0);
        }
        for (signal, _) in server.turn(Some(LOOK)).signals {
            over.signal(signal);
        }
    }
}
