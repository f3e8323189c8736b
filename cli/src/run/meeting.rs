//! The place where the tasks of one machine meet that share memory by libjia.

use nagaya_server::Failure;
use net::rendezvous::Host;

/// Opens the address at which `tasks` tasks meet.
pub fn meeting(tasks: u32) -> Result<Host, Failure> {
    // Ends the tasks as Ctrl-C does. A task that ignores the signal is killed after a while.
    let ends = || {
        // SAFETY: kill touches no memory; the signal is for this process, whose loop takes it.
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    };
    Host::new(tasks, ends).map_err(|error| {
        Failure::ours(match error.raw_os_error() {
            Some(libc::EAGAIN) => {
                "thread: too many, or no memory for it (raise ulimit -u or -v)".into()
            }
            _ => format!("a socket for the job: {error}"),
        })
    })
}
